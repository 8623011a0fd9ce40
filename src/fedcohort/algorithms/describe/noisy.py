"""Published numbers of a noisy Table 1: arithmetic on the release of `private`, at no further cost.

Each variable's cells add up to n, so n is the mean of these sums, weighted by their inverse
variance. Each variable's cells are then replaced by the nearest counts that are not negative and
add up to n, rounded by the largest remainder. Mean and standard deviation follow from the moments.
Quartiles are interpolated linearly in the noisy histogram, so they are no finer than its cells: no
order statistic of records is used.

Standard errors by noise, with σ that of a cell, n known values of a variance v = q − u² in half
widths, j of B cells below a quartile at which the share is F, and s the standard deviation of n:

    SE(u) = √(2σ² + u²s²)/n,  SE(q) = √(2σ² + q²s²)/n,  SE(√v) = √(SE(q)² + 4u²SE(u)²)/(2√v)   (1)
    SE(F) = σ √(j(1 − F)² + (B − j)F²)/n                                                       (2)

and for a quartile half of the distance between the points where F − SE(F) and F + SE(F) are
reached. A number is rounded to a step that is at least its standard error. It is hidden if that is
above `LOUD` of the standard deviation, as it would tell nothing about the patients, or if it has
too few known values compared with the noise (`CLEAR`). The rules of the exact table hide the rest:
counts of 1 to `min_cell` − 1 with those that would tell them, moments of fewer than 2 `min_cell`
known values, quartiles of fewer than 4 `min_cell`. Noise alone would suffice for privacy; the rule
stays because readers take a count of 3 for a fact.

Revealed: nothing more than `private.NoisyTable`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.describe import Reading
from fedcohort.data.describe.bins import CELLS, Bars, safe_bins
from fedcohort.data.describe.summary import Summary
from fedcohort.data.variable import Variable
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.privacy.disclosure.rounding import round_number, rounded, step
from fedcohort.protocol import DataError

#: Fewest known values of a published number, in standard deviations of a count's noise.
CLEAR = 8.0
#: Largest published noise, relative to the number's standard deviation.
LOUD = 0.5
QUARTERS = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Layout:
    """Positions of the parts of a `private.NoisyTable`.

    Attributes
    ----------
    reading : of the variables.
    low, high, bins : (c,), see `private.describe_privately`.
    """

    reading: Reading
    low: Array
    high: Array
    bins: Array

    @classmethod
    def of(cls, reading: Reading) -> Layout:
        """Return the layout from the dictionary.

        An integer with at most `CELLS` possible values has a cell for each.

        Raises
        ------
        DataError : numbers without limits; the error names all.
        """
        numbers = [_source(reading, v.name) for v in reading.view.numeric]
        ends = [v.range if v.usual == (None, None) else v.usual for v in numbers]
        open_ended = [v.name for v, e in zip(numbers, ends, strict=True) if None in e]
        if open_ended:
            many = len(open_ended) > 1
            raise DataError(
                f"column{'s' * many} {', '.join(map(repr, open_ended[:12]))} "
                f"ha{'ve' if many else 's'} no range in the dictionary, but a private description "
                f"needs one. Give 'usual: [low, high]', the range of most patients, or "
                f"'feature: false'."
            )
        limits = np.array(ends, float).reshape(-1, 2)
        span = limits[:, 1] - limits[:, 0] + 1
        integer = np.array([v.type == "integer" for v in numbers], bool) & (span <= CELLS)
        half = np.where(integer, 0.5, 0.0)
        return cls(
            reading,
            limits[:, 0] - half,
            limits[:, 1] + half,
            np.where(integer, span, CELLS).astype(np.int64),
        )

    @property
    def parts(self) -> int:
        """Number of parts, K of `private`."""
        return 2 * len(self.bins) + len(self.reading.n_levels)


def _source(reading: Reading, name: str) -> Variable:
    return next(v for v in reading.variables if v.name == name)


@dataclass(frozen=True)
class Shown:
    """Published numbers of a noisy table.

    Attributes
    ----------
    summaries : of each variable, in order.
    bars : histograms.
    drowned : names of numbers with too few known values for the noise.
    loud : (number, quantity) pairs that are hidden because their noise is above `LOUD`.
    noise : largest standard deviation of a count's noise.
    """

    summaries: list[Summary]
    bars: list[Bars]
    drowned: list[str]
    noise: float
    loud: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def read(layout: Layout, cells: Array, noise: float, *, min_cell: int, bars: bool) -> Shown:
    """Return the published numbers of noisy cells (d,); see the header."""
    sizes: list[int] = []
    for n in layout.bins.tolist():
        sizes += [n + 1, 2]
    sizes += [n + 1 for n in layout.reading.n_levels.tolist()]
    parts = np.split(cells, np.cumsum(sizes)[:-1])
    c = len(layout.bins)
    raw = [*parts[: 2 * c : 2], *parts[2 * c :]]
    precision = np.array([1.0 / len(part) for part in raw])
    rows = max(round(float(precision @ [part.sum() for part in raw] / precision.sum())), 0)
    counts = [whole(part, rows) for part in raw]
    out = Shown([], [], [], noise)
    for v in layout.reading.variables:
        j = layout.reading.place[v.name]
        one = _counted(v, layout.reading.levels[v.name], counts[j], min_cell)
        if not one.levels:
            known = rows - int(counts[j][0])
            if known < CLEAR * noise:
                out.drowned.append(v.name)
            else:
                deviation = noise * math.sqrt(1.0 + 1.0 / float(precision.sum()))
                number = _Noisy(counts[j], parts[2 * j + 1], noise, deviation)
                one, loud = _measured(layout, j, one, number, min_cell)
                out.loud.extend((v.name, what) for what in loud)
                safe = safe_bins(counts[j][1:], rows, min_cell)
                if bars and safe.any():
                    out.bars.append(_bars(layout, j, v, safe))
        out.summaries.append(one)
    return out


def whole(noisy: Array, total: int) -> Array:
    """Return the nearest integer counts (k,) that are not negative and add up to `total`."""
    ordered = np.sort(noisy)[::-1]
    over = (np.cumsum(ordered) - total) / np.arange(1, len(ordered) + 1)
    positive = np.flatnonzero(ordered > over)
    near = np.maximum(noisy - (over[positive[-1]] if len(positive) else over[0]), 0.0)
    floor = np.floor(near + 1e-9)
    left = round(total - float(floor.sum()))
    most = np.argsort(floor - near, kind="stable")[: max(left, 0)]
    floor[most] += 1
    return floor.astype(np.int64)


def _counted(v: Variable, levels: tuple[str, ...], cells: Array, m: int) -> Summary:
    """Return a variable's counts, small ones hidden; cells are missing values, then levels."""
    n = int(cells.sum())
    both = cells if levels else np.array([cells[0], n - cells[0]])
    gone = hidden(both, m)
    shown = [None if g else int(x) for g, x in zip(gone, both, strict=True)]
    return Summary(
        v,
        levels,
        None,
        None if 0 < n < m else n,
        shown[0],
        counts=tuple(shown[1:] if levels else ()),
    )


@dataclass(frozen=True)
class _Noisy:
    """One number: integer cells, the first for missing values, and noisy moments.

    Attributes
    ----------
    noise : σ. deviation : s, of the number of known values.
    """

    cells: Array
    sums: Array
    noise: float
    deviation: float


def _measured(
    layout: Layout, j: int, one: Summary, number: _Noisy, m: int
) -> tuple[Summary, list[str]]:
    """Return a number's summary with published mean, sd and quartiles; and the too noisy ones."""
    cells = number.cells
    known = int(cells[1:].sum())
    low, high = float(layout.low[j]), float(layout.high[j])
    middle, half = (low + high) / 2, (high - low) / 2
    u, square = np.clip(number.sums * math.sqrt(2.0) / known, [-1.0, 0.0], 1.0).tolist()
    spread = math.sqrt(max(square - u * u, 0.0) * known / max(known - 1, 1))
    sd = half * spread
    by, loud = step(sd, known, 0.0), list[str]()
    if known >= 2 * m:
        errors = [half * e for e in errors_of(u, square, spread, known, number)]
        if max(errors) > LOUD * sd:
            loud.append("mean and sd")
        else:
            steps = [max(by, round_number(e)) for e in errors]
            mean = rounded(middle + half * u, steps[0])
            one = replace(one, mean=mean, sd=rounded(sd, steps[1]))
    if known >= 4 * m:
        edges = np.linspace(low, high, len(cells))
        reached = np.r_[0.0, np.cumsum(cells[1:])] / known
        found = [_quartile(reached, edges, share, number.noise / known) for share in QUARTERS]
        worst = max(e for _, e in found)
        if worst > LOUD * sd:
            loud.append("quartiles")
        else:
            q1, q2, q3 = (rounded(q, max(by, round_number(worst))) for q, _ in found)
            one = replace(one, quartiles=(q1, q2, q3))
    return one, loud


def errors_of(
    u: float, square: float, spread: float, n: int, number: _Noisy
) -> tuple[float, float]:
    """Return the standard errors by noise of mean and sd, in half widths, eq. (1)."""
    own, of_n = 2.0 * number.noise**2, number.deviation**2
    mean = math.sqrt(own + u * u * of_n) / n
    squares = math.sqrt(own + square * square * of_n) / n
    if spread <= 0:
        return mean, math.inf
    return mean, math.hypot(squares, 2.0 * u * mean) / (2.0 * spread)


def _quartile(reached: Array, edges: Array, share: float, noise: float) -> tuple[float, float]:
    """Return a quartile and its standard error by noise; `noise` is σ/n, eq. (2)."""
    cells = len(edges) - 1
    below = int(np.searchsorted(reached, share, side="left"))
    error = noise * math.sqrt(below * (1.0 - share) ** 2 + (cells - below) * share**2)
    ends = [_at(reached, edges, min(max(share + e, 0.0), 1.0)) for e in (-error, error)]
    return _at(reached, edges, share), (ends[1] - ends[0]) / 2.0


def _at(reached: Array, edges: Array, share: float) -> float:
    """Return the point where a distribution that is linear between edges reaches a share."""
    if share <= 0.0:
        return float(edges[0])
    i = int(np.searchsorted(reached, share, side="left"))
    i = min(max(i, 1), len(edges) - 1)
    inside = (share - reached[i - 1]) / (reached[i] - reached[i - 1])
    return float(edges[i - 1] + inside * (edges[i] - edges[i - 1]))


def _bars(layout: Layout, j: int, v: Variable, counts: Array) -> Bars:
    edges = np.linspace(layout.low[j], layout.high[j], len(counts) + 1)[1:-1]
    return Bars(v.name, v.unit, tuple(np.round(edges, 12).tolist()), tuple(counts.tolist()))

"""Search for a column in two units: two clusters on the log scale, a known factor apart.

Let A, B and C be windows of equal width ⅓ log f on the log scale, at the middle of a column's
values, ½ log f and log f from there. If the density of log x is log-concave, so is the
probability of a window of given width as a function of its position (Prékopa), hence

    P(A) P(C) ≤ P(B)²                                                                   (1)

The logarithms of normal, uniform, exponential, gamma, Weibull, Pareto and lognormal values have
such densities. With counts a, b, c of the three windows, taken as Poisson with means α, β and at
most β²/α, the probability of b or fewer in B and c or more in C is at most

    sup over β of  F(b; β) · [1 − F(c − 1; β²/a)]                                       (2)

Rows are suspected if (2) is below `CHANCE`, shared among all factors and both directions, and
C holds clearly more than B. So at most a share `CHANCE` of such columns is suspected wrongly.
`between` finds whole sites in another unit.

Many columns have two clusters by nature, so (1) does not hold. So only factors are
tried that units of the quantity can have (`conversions`). If more than half of three or more sites
are suspected, the clusters belong to the column, and nothing is reported. Times of follow-up are
judged separately for rows with the event and without, because early deaths and late ends of
follow-up make two clusters: both must be suspected, by the same factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import special

from fedcohort.arrays import Array
from fedcohort.data.describe.shown_number import QUARTILES

#: Factor between two units of one quantity → an example; see `conversions`.
Factors: TypeAlias = Mapping[float, str]

#: Largest share of columns with log-concave logs that are suspected, whatever their size.
CHANCE = 1e-4
#: B may hold at most this share of C: there is a gap between two units.
GAP = 0.6
#: Fewest values for a decision.
FEWEST = 20
#: Fewest distinct values in the middle of a column; else it is a code or a small count.
DISTINCT = 5
#: Quantiles near which the middle of the first cluster is searched.
STARTS = (0.5, 0.25, 0.75)

#: Bits of a float that are dropped; the others give cells of 1/256 of an octave.
_DROPPED = 44
#: Cells of the histogram for each unit of log x.
_CELLS = 256 / np.log(2.0)


@dataclass(frozen=True)
class Suspicion:
    """Values of a column that may be in another unit.

    Attributes
    ----------
    factor : between the two units.
    example : of such units.
    centre : of the first cluster, as a logarithm.
    larger : whether the suspected values are the larger ones.
    """

    factor: float
    example: str
    centre: float
    larger: bool

    @property
    def text(self) -> str:
        """The factor in words."""
        return f"a factor near {self.factor:,.4g} (such as {self.example})"

    def rows(self, x: Array) -> Array:
        """Return which values (n,) are nearer to the second cluster than to the first."""
        sign = 1.0 if self.larger else -1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            away = (np.log(x) - self.centre) * sign / np.log(self.factor)
        return (away > 0.5) & (away < 1.5)


def suspect_rows(counts: Counts, factors: Factors) -> Suspicion | None:
    """Return the factor that fits suspected rows best; None if no row is suspected."""
    logs = np.log(list(factors))
    step = np.repeat(np.concatenate([logs, -logs]), len(STARTS))
    centre = counts.middle_near(np.tile(counts.quantile(STARTS), 2 * len(logs)), np.abs(step))
    likely = [i for i, p in _chances(counts, centre, step) if p < CHANCE / len(step)]
    if not likely:
        return None
    second = counts.middle_near(centre + step, np.abs(step))
    best = min(likely, key=lambda i: abs(second[i] - centre[i] - step[i]))
    factor = list(factors)[best // len(STARTS) % len(logs)]
    return Suspicion(factor, factors[factor], float(centre[best]), bool(step[best] > 0))


@dataclass(frozen=True)
class Counts:
    """A histogram on the log scale: `at` (k,) ascending, cumulative counts `upto` (k + 1,)."""

    at: Array
    upto: Array

    @property
    def total(self) -> float:
        """Number of values."""
        return float(self.upto[-1])

    def quantile(self, p: Array | Sequence[float]) -> Array:
        """Return quantiles (q,) of log x."""
        return self._at(np.asarray(p) * self.total)

    def middle_near(self, place: Array, reach: Array) -> Array:
        """Return the median of the values within ½ `reach` (q,) of each place (q,)."""
        first, last = self._cells(place, reach)
        return self._at((self.upto[first] + self.upto[last]) / 2)

    def window(self, centre: Array, width: Array) -> tuple[Array, Array]:
        """Return the counts in windows (q,), and the number of histogram cells in each."""
        first, last = self._cells(centre, width)
        return (self.upto[last] - self.upto[first]).astype(float), last - first

    def _at(self, count: Array) -> Array:
        place = np.searchsorted(self.upto[1:], count)
        return self.at[np.minimum(place, len(self.at) - 1)]

    def _cells(self, centre: Array, width: Array) -> tuple[Array, Array]:
        first = np.searchsorted(self.at, centre - width / 2)
        return first, np.searchsorted(self.at, centre + width / 2)


def histogram(x: Array) -> Counts | None:
    """Count the values (n,) above 0 in cells of their leading bits, which ascend with x.

    None if they are fewer than `FEWEST`, or fewer than half of the values.
    """
    positive = x[(x > 0) & (x < np.inf)]
    if len(positive) < FEWEST or 2 * len(positive) < np.count_nonzero(~np.isnan(x)):
        return None
    cells = np.ascontiguousarray(positive, np.float64).view(np.int64) >> _DROPPED
    first = int(cells.min())
    counts = np.bincount(cells - first)
    filled = np.flatnonzero(counts)
    middle = ((filled + first) << _DROPPED) + (1 << (_DROPPED - 1))
    return Counts(np.log(middle.view(np.float64)), np.concatenate([[0], np.cumsum(counts[filled])]))


def quartiles(x: Array) -> tuple[float, float, float] | None:
    """Return the quartiles of x (n,), with 0 for a quartile of 0 and -1 for a negative one.

    None if too few values are above 0 (`histogram`).
    """
    counts = histogram(x)
    if counts is None:
        return None
    known = int(np.count_nonzero(~np.isnan(x)))
    negative = int(np.count_nonzero(x < 0))
    rank = np.multiply(QUARTILES, known) - (known - counts.total)
    values = np.exp(counts.quantile(np.maximum(rank, 0.0) / counts.total))
    below = np.where(np.multiply(QUARTILES, known) <= negative, -1.0, 0.0)
    low, mid, high = np.where(rank > 0, values, below).tolist()
    return low, mid, high


def _chances(counts: Counts, centre: Array, step: Array) -> Iterator[tuple[int, float]]:
    """Yield the bound (2) for the positions (q,) where the windows are fine enough."""
    width = np.abs(step) / 3
    a, distinct = counts.window(centre, width)
    b, _ = counts.window(centre + step / 2, width)
    c, other = counts.window(centre + step, width)
    # Whole numbers also leave gaps: are the values fine enough to fill B?
    cells = width * _CELLS
    fine = distinct >= cells * -np.expm1(-a / cells) / 2
    fine |= distinct * np.exp(np.minimum(step, 0.0) / 2) >= DISTINCT
    tell = fine & (distinct >= DISTINCT) & (other >= 2) & (b <= GAP * c) & (b * b < a * c)
    for i in np.flatnonzero(tell):
        means = np.geomspace(0.05, np.sqrt(a[i] * (2 * c[i] + 20)) + b[i] + 20, 400)
        chance = special.pdtr(b[i], means) * special.pdtrc(c[i] - 1, means**2 / a[i])
        yield int(i), float(np.max(chance))

"""Design of columns of numbers: limits, fills and scales, from sums over sites.

Values are cut to their limits first, then filled, then scaled. Median and mode are those of the
uncut values: the median is the same after the cut, and the mode would be a limit. Binary columns
are neither cut nor scaled.

A design is published. The exact mean of whole numbers is a fraction, whose denominator reveals the
number of missing values. So every published mean and standard deviation is rounded (`rounded`
below), and `min_cell` rows or more lie beyond each limit (`sketch`). A column with fewer values
than `min_cell` is left out, and so is a binary one whose rarer value has fewer rows.

A rank among the pooled rows is a piecewise linear function of the value. A histogram of the pooled
column is refined until no cell holds more than a share of 1 / `PARTS` of the rows or cannot be
split; a few of its edges become knots. At a knot the share of rows below is exact. Between two
it is linear, with an error of at most the share of the rows between them. Between neighbouring
knots there are no rows, or at least `min_cell`.

Knots of whole numbers lie half way between them, so that a value has the share
of the rows below it plus half of those equal to it, as in scikit-learn's QuantileTransformer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Variable
from fedcohort.data.prepare.columns import NumberColumn
from fedcohort.data.prepare.levels import CONSTANT, NO_VALUES, Dropped
from fedcohort.data.prepare.options import TAIL
from fedcohort.data.prepare.sketch import Histogram, Moments, drawn, modes
from fedcohort.data.prepare.steps import column_cells, column_cut
from fedcohort.privacy.disclosure.rounding import rounded, step
from fedcohort.protocol.federation import Federation

#: A cell with more than 1 / `PARTS` of the rows is split.
PARTS = 200


def crowded(h: Histogram) -> Array:
    """Return the cells (k,) that hold more than a share of 1 / `PARTS` of the rows."""
    return np.flatnonzero(h.counts > h.counts.sum() / PARTS)


def knots(h: Histogram, tail: float, min_cell: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the values and shares of a column's knots, from the share `tail` to 1 − `tail`.

    Parameters
    ----------
    h : the pooled column.
    tail : share of the rows at each end whose values get the same rank.
    min_cell : fewest rows between neighbouring knots.
    """
    below = np.r_[0, np.cumsum(h.counts)]
    kept = _chosen(below, max(min_cell, below[-1] / PARTS), min_cell)
    x = h.edges[kept] + (0.5 if h.whole else 0.0)
    share = below[kept] / below[-1]
    inside = (share > tail) & (share < 1 - tail)
    ends = np.interp([tail, 1 - tail], share, x)
    values = np.r_[ends[0], x[inside], ends[1]]
    shares = np.r_[tail, share[inside], 1 - tail]
    return tuple(values.tolist()), tuple(shares.tolist())


def _chosen(below: Array, enough: float, min_cell: int) -> list[int]:
    """Return the edges that become knots, where `below` (m + 1,) rows lie below each edge."""
    kept = [0]
    last = len(below) - 1
    ahead = np.diff(below, append=below[-1])
    for i in range(1, last + 1):
        since = below[i] - below[kept[-1]]
        if since >= enough or (ahead[i] >= enough and (since == 0 or since >= min_cell)):
            kept.append(i)
    if kept[-1] == last:
        return kept
    since = below[last] - below[kept[-1]]
    if 0 < since < min_cell and len(kept) > 1:
        kept.pop()
    return [*kept, last]


@dataclass(frozen=True)
class Seen:
    """Results of the first two calls, and access to further ones.

    Attributes
    ----------
    fed : the sites, seen through the encoding.
    rows : of all sites.
    moments : of the c columns of numbers.
    levels : (k, most levels) rows of each category's levels.
    min_cell : histogram cells with fewer than twice as many rows are not split.
    """

    fed: Federation
    rows: int
    moments: Moments
    levels: Array
    min_cell: int

    def ask(self, edges: Array) -> Array:
        """Return the pooled counts (c, m − 1) between edges (c, m)."""
        return self.fed.sum(column_cells, edges=edges).counts

    def published(self, m: Moments) -> Moments:
        """Return means and standard deviations rounded for publication.

        The step is a quarter of the mean's standard error or more, by eq. (1) of
        `disclosure.rounding`, with δ = `min_cell` for whole numbers. The standard deviation of
        whole numbers is at least that of a 0/1 column with `min_cell` ones, so that it reveals no
        rarer one.
        """
        k = max(self.min_cell, 1)
        mean, sd = m.mean.copy(), m.sd.copy()
        for j in np.flatnonzero(m.sd > 0).tolist():
            whole = bool(m.whole[j])
            known = max(min(float(m.n[j]), self.rows - (k - 1)), 1.0)
            s = step(float(m.sd[j]), int(known), float(k) if whole else 0.0)
            smallest = math.sqrt(k / known) if whole else 0.0
            mean[j] = rounded(float(m.mean[j]), s)
            sd[j] = max(rounded(max(float(m.sd[j]), smallest), s), s)
        return replace(m, mean=mean, sd=sd)


def number_columns(
    seen: Seen,
    variables: Sequence[Variable],
    *,
    scale: str,
    impute: str,
    winsorise: float,
    min_rows: int,
) -> tuple[list[NumberColumn | Dropped], Moments]:
    """Return the design of each column of numbers, and its moments after the cut.

    Parameters
    ----------
    variables : of the c columns, in order.
    scale, impute, winsorise : as for `fit_design`.
    min_rows : a 0/1 column is left out if its rarer value has fewer rows.
    """
    m, near = seen.moments, seen.published
    binary = np.array([v.type == "binary" for v in variables], bool)
    reasons = [_useless(seen, j, min_rows if b else 0) for j, b in enumerate(binary.tolist())]
    wanted = np.flatnonzero(~binary & np.array([not r for r in reasons], bool))
    out = _Found.of(near(m))
    out.fill[binary] = m.mean[binary] > 0.5
    tail = winsorise or TAIL
    medians = impute in ("median", "indicator")
    limits = winsorise > 0 or scale == "minmax"
    if medians or limits:
        _fill_from_cells(seen, wanted, out, medians, tail if limits else None)
    if impute == "most_frequent":
        out.fill[wanted], errors = modes(seen.ask, m, wanted, seen.min_cell)
        out.error[wanted] = np.maximum(out.error[wanted], errors)
    if winsorise > 0:
        m = _after_cut(seen, wanted, out.low, out.high)
        if impute in ("mean", "iterative", "none"):
            out.fill[wanted] = near(m).mean[wanted]
    if scale == "standard":
        out.shift[wanted], out.width[wanted] = near(m).mean[wanted], near(m).sd[wanted]
    elif scale == "minmax":
        out.shift[wanted] = out.low[wanted]
        out.width[wanted] = out.high[wanted] - out.low[wanted]
    columns: list[NumberColumn | Dropped] = [
        Dropped(v.name, reason)
        if reason
        else out.column(
            j, v, impute == "indicator" and bool(seen.rows - m.n[j] >= max(min_rows, 1))
        )
        for j, (v, reason) in enumerate(zip(variables, reasons, strict=True))
    ]
    if scale == "quantile":
        for j, pair in zip(wanted.tolist(), _ranks(seen, wanted, tail), strict=True):
            column = columns[j]
            if isinstance(column, NumberColumn):
                columns[j] = replace(column, knots=pair[0], shares=pair[1])
    return columns, m


def pixel_columns(
    seen: Seen, variables: Sequence[Variable], *, scale: str
) -> tuple[list[NumberColumn], Moments]:
    """Return the design of an image's pixels, all of them, and their moments.

    Constant pixels stay, so that the image keeps its shape. With scale "standard" all numbers have
    the same shift and scale, the mean and the standard deviation of all pixels of all rows, rounded
    as those of one column: so pixels keep their relations, and a pixel that is seldom above 0 gets
    no large values. A missing pixel is filled by that mean; binary pixels are as elsewhere.

    Parameters
    ----------
    variables : of the c columns, in order.
    scale : "standard" or "none".
    """
    m = seen.moments
    wanted = np.array([v.type != "binary" for v in variables], bool) & (m.n > 0)
    n = m.n * wanted
    total = max(float(n.sum()), 1.0)
    mean = float(n @ m.mean) / total
    sd = math.sqrt(max(float(n @ (m.sd**2 + (m.mean - mean) ** 2)) / total, 0.0))
    if sd > 0:
        s = step(sd, max(seen.rows - max(seen.min_cell, 1) + 1, 1), 0.0)
        mean, sd = rounded(mean, s), max(rounded(sd, s), s)
    shift, width = (mean, sd) if scale == "standard" and sd > 0 else (0.0, 1.0)
    columns: list[NumberColumn] = []
    for j, v in enumerate(variables):
        number = v.type != "binary"
        columns.append(
            NumberColumn(
                name=v.name,
                type=v.type,
                since=v.since,
                unit=v.unit if v.since else "",
                fill=mean if number else float(m.mean[j] > 0.5),
                shift=shift if number else 0.0,
                scale=width if number else 1.0,
                view=v.view,
            )
        )
    return columns, m


@dataclass(frozen=True)
class _Found:
    """Fields of all c columns, each (c,); later steps fill them in."""

    fill: Array
    shift: Array
    width: Array
    low: Array
    high: Array
    error: Array

    @classmethod
    def of(cls, m: Moments) -> _Found:
        """Return fills by the mean, with neither limits nor scales."""
        c = len(m.n)
        return cls(
            m.mean.copy(), np.zeros(c), np.ones(c), np.full(c, -np.inf), np.full(c, np.inf),
            np.zeros(c),
        )  # fmt: skip

    def column(self, j: int, v: Variable, indicator: bool) -> NumberColumn:
        """Return column j."""
        low, high = float(self.low[j]), float(self.high[j])
        return NumberColumn(
            name=v.name,
            type=v.type,
            since=v.since,
            unit=v.unit if v.since else "",
            fill=float(self.fill[j]),
            shift=float(self.shift[j]),
            scale=float(self.width[j]),
            low=low if np.isfinite(low) else None,
            high=high if np.isfinite(high) else None,
            indicator=indicator,
            error=float(self.error[j]),
            view=v.view,
        )


def _useless(seen: Seen, j: int, min_rows: int) -> str:
    """Return why column j gives no feature; "" if it gives one."""
    m = seen.moments
    n, few = float(m.n[j]), max(seen.min_cell, 1)
    if not n:
        return NO_VALUES
    if n < few:
        return f"fewer than {few} values"
    if m.constant[j]:
        return CONSTANT
    ones = float(m.mean[j]) * n
    if min_rows and round(min(ones, n - ones)) < min_rows:
        return f"fewer than {min_rows} rows beside one value"
    return ""


def _fill_from_cells(
    seen: Seen, columns: Array, out: _Found, medians: bool, tail: float | None
) -> None:
    """Set medians, and limits that cut a share `tail`, from histograms."""

    def wanted(h: Histogram) -> Array:
        ends = () if tail is None else h.tails(tail, seen.min_cell)
        return np.array([*ends, *([h.cell_of(0.5)] if medians else [])], int)

    tables = drawn(seen.ask, seen.moments, columns, wanted, seen.min_cell)
    near = seen.published(seen.moments)
    for j, h in zip(columns.tolist(), tables, strict=True):
        if medians:
            out.fill[j], out.error[j] = h.quantile(0.5, seen.min_cell)
        if tail is None:
            continue
        found = h.limits(tail, seen.min_cell)
        if found is None:
            out.low[j], out.high[j] = near.mean[j] - 2 * near.sd[j], near.mean[j] + 2 * near.sd[j]
        else:
            out.low[j], out.high[j], error = found
            out.error[j] = max(out.error[j], error)


def _after_cut(seen: Seen, columns: Array, low: Array, high: Array) -> Moments:
    """Return the moments of columns cut to their limits, from one call."""
    m = seen.moments
    centre = m.mean.copy()
    centre[columns] = (low[columns] + high[columns]) / 2
    sums = seen.fed.sum(column_cut, low=low, high=high, centre=centre)
    shift = np.divide(sums.total, m.n, out=np.zeros(len(m.n)), where=m.n > 0)
    square = np.divide(sums.squares, m.n, out=np.zeros(len(m.n)), where=m.n > 0)
    sd = np.sqrt(np.maximum(square - shift**2, 0.0))
    cut = np.isin(np.arange(len(m.n)), columns) & (sd > 0)
    return replace(m, mean=np.where(cut, centre + shift, m.mean), sd=np.where(cut, sd, m.sd))


def _ranks(
    seen: Seen, columns: Array, tail: float
) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    m = seen.moments
    tables = drawn(seen.ask, m, columns, crowded, seen.min_cell)
    return [knots(h, tail, seen.min_cell) for h in tables]

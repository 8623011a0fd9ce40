"""What becomes of columns of numbers: limits, fills and scales, from sums over sites.

Values are cut to their limits first, then filled, then scaled. Median and mode are of the values
as they came: the median is the same after the cut, and the mode would be a limit. Binary columns
are neither cut nor scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.columns import NumberColumn
from fedcohort.data.dictionary import Variable
from fedcohort.data.preprocess.levels import Dropped
from fedcohort.data.preprocess.options import TAIL
from fedcohort.data.preprocess.ranks import crowded, knots
from fedcohort.data.preprocess.steps import column_cells, column_cut
from fedcohort.data.sketch import Moments, histograms, modes, quantiles, refine
from fedcohort.protocol.federation import Federation


@dataclass(frozen=True)
class Seen:
    """What the first two calls found, and how to ask for more.

    Attributes
    ----------
    fed : the sites, each seen through the encoding.
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


def number_columns(
    seen: Seen, variables: Sequence[Variable], scale: str, impute: str, winsorise: float
) -> tuple[list[NumberColumn | Dropped], Moments]:
    """Return what becomes of each column of numbers, and its moments after the cut."""
    m = seen.moments
    binary = np.array([v.type == "binary" for v in variables], bool)
    useful = (m.n > 0) & ~m.constant
    wanted = np.flatnonzero(useful & ~binary)
    out = _Found.of(m)
    out.fill[binary] = m.mean[binary] > 0.5
    tail = winsorise or TAIL
    medians = impute in ("median", "indicator")
    limits = winsorise > 0 or scale == "minmax"
    probabilities = [*([0.5] if medians else []), *([tail, 1 - tail] if limits else [])]
    if probabilities:
        values, errors = quantiles(seen.ask, m, wanted, probabilities, seen.min_cell)
        out.error[wanted] = errors.max(axis=1)
        if medians:
            out.fill[wanted] = values[:, 0]
        if limits:
            out.low[wanted], out.high[wanted] = _range(m, wanted, values[:, -2:], errors[:, -2:])
    if impute == "most_frequent":
        out.fill[wanted], errors = modes(seen.ask, m, wanted, seen.min_cell)
        out.error[wanted] = np.maximum(out.error[wanted], errors)
    if winsorise > 0:
        m = _after_cut(seen, wanted, out.low, out.high)
        if impute in ("mean", "iterative"):
            out.fill[wanted] = m.mean[wanted]
    if scale == "standard":
        out.shift[wanted], out.width[wanted] = m.mean[wanted], m.sd[wanted]
    elif scale == "minmax":
        out.shift[wanted] = out.low[wanted]
        out.width[wanted] = out.high[wanted] - out.low[wanted]
    columns: list[NumberColumn | Dropped] = [
        out.column(j, v, impute == "indicator" and bool(m.n[j] < seen.rows))
        if useful[j]
        else Dropped(v.name, "constant" if m.n[j] else "no values")
        for j, v in enumerate(variables)
    ]
    if scale == "quantile":
        for j, pair in zip(wanted.tolist(), _ranks(seen, wanted, tail), strict=True):
            column = columns[j]
            if isinstance(column, NumberColumn):
                columns[j] = replace(column, knots=pair[0], shares=pair[1])
    return columns, m


@dataclass(frozen=True)
class _Found:
    """Fields of all c columns, each (c,), to be filled in."""

    fill: Array
    shift: Array
    width: Array
    low: Array
    high: Array
    error: Array

    @classmethod
    def of(cls, m: Moments) -> _Found:
        """Return fills by the mean, and neither limits nor scales."""
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
        )


def _range(m: Moments, columns: Array, ends: Array, errors: Array) -> tuple[Array, Array]:
    """Return the limits of columns; where the quantiles coincide, mean ± 2 sd."""
    low, high = ends.T
    tied = high - low <= errors.sum(axis=1)
    mean, sd = m.mean[columns], m.sd[columns]
    return np.where(tied, mean - 2 * sd, low), np.where(tied, mean + 2 * sd, high)


def _after_cut(seen: Seen, columns: Array, low: Array, high: Array) -> Moments:
    """Ask for the moments of columns cut to their limits."""
    m = seen.moments
    centre = m.mean.copy()
    centre[columns] = (low[columns] + high[columns]) / 2
    told = seen.fed.sum(column_cut, low=low, high=high, centre=centre)
    shift = np.divide(told.total, m.n, out=np.zeros(len(m.n)), where=m.n > 0)
    square = np.divide(told.squares, m.n, out=np.zeros(len(m.n)), where=m.n > 0)
    sd = np.sqrt(np.maximum(square - shift**2, 0.0))
    cut = np.isin(np.arange(len(m.n)), columns) & (sd > 0)
    return replace(m, mean=np.where(cut, centre + shift, m.mean), sd=np.where(cut, sd, m.sd))


def _ranks(
    seen: Seen, columns: Array, tail: float
) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return the knots of columns."""
    m = seen.moments
    tables = histograms(seen.ask, m, columns)
    tables = refine(seen.ask, tables, columns, len(m.n), crowded, 2 * seen.min_cell)
    return [knots(h, tail, seen.min_cell) for h in tables]

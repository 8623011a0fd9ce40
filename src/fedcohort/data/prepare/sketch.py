"""Quantiles of pooled columns from sums alone: histograms with finer cells around the quantiles.

The sites first sum n, Σx and Σ(x − mean)² of each column. By Samuelson's inequality

    |x_i − mean| ≤ sd √(n − 1)                                                          (1)

these bound every value, so no minimum or maximum has to leave a site. The first histogram has
cells (a, b] of equal width w on mean ± 4 sd, and cells of doubling width from there to the bounds
(1). Then only cells that hold a wanted quantile are split, and never one with fewer than
2 `min_cell` rows. All edges are multiples of a power of two: they are exact in floating
point, depend on the data through magnitudes alone, and agree however the rows are split.

A quantile is the middle of its last cell, together with neighbouring cells until they hold
`min_cell` rows, so that it is nobody's own value. Its error is the width of these cells, or 0 if
they hold a single whole number. A limit is published, so `min_rows` rows or more lie at or beyond
it: of n rows, with share p at each tail, it is the inner end of the cell that holds the row of
this rank from that end:

    max(⌈p n⌉, min_rows)                                                                (2)

Revealed: the counts above, only as sums over all sites. A cell's count may be small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort import mapped
from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.numbers import holding, tail_rank

#: Asks all sites for the rows between edges: (c, m) ascending, padded with inf → (c, m − 1).
Ask = Callable[[Array], Array]

#: The first cells reach this many standard deviations to each side of the mean.
REACH = 4.0
#: Cells of width sd/8 / FINEST are not split further.
FINEST = 4096.0
#: A cell is split into at most this many.
PARTS = 16
#: Most numbers of a table whose columns are counted at once.
SMALL = 2**15
#: A moment this close to a threshold counts as equal to it: its last bits depend on the split.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Moments:
    """First moments of c pooled columns.

    Attributes
    ----------
    n : (c,) values that are not missing.
    mean, sd : (c,), in the column's unit; sd with divisor n.
    whole : (c,) whether all values are whole numbers.
    """

    n: Array
    mean: Array
    sd: Array
    whole: Array

    @property
    def constant(self) -> Array:
        """Whether each column (c,) holds one value only, within rounding."""
        return self.sd <= 1e-12 * np.abs(self.mean)


@dataclass(frozen=True)
class Histogram:
    """Counts of one pooled column.

    Attributes
    ----------
    edges : (m + 1,) ascending.
    counts : (m,) rows in (edges[i], edges[i + 1]].
    finest : smallest width of a cell.
    whole : whether the column holds whole numbers only.
    """

    edges: Array
    counts: Array
    finest: float
    whole: bool

    @property
    def widths(self) -> Array:
        """Width of each cell (m,)."""
        return np.diff(self.edges)

    def splittable(self, at_least: float) -> Array:
        """Return which cells (m,) hold `at_least` rows and can be split by their width."""
        return (self.counts >= at_least) & (self.widths >= 2 * self.finest)

    def inner_edges(self, cells: Array) -> Array:
        """Return the bounds of `cells` (k,) and the edges inside them, ascending."""
        parts = [self.edges[:0]]
        for i in np.unique(cells):
            low, width = self.edges[i], self.edges[i + 1] - self.edges[i]
            n = int(min(PARTS, width / self.finest))
            parts.append(low + width / n * np.arange(n + 1))
        return np.unique(np.concatenate(parts))

    def refined(self, edges: Array, counts: Array) -> Histogram:
        """Return this histogram with new counts (k − 1,) between new `edges` (k,)."""
        if len(edges) < 2:
            return self
        every = np.union1d(self.edges, edges)
        low, high = every[:-1], every[1:]
        old = self.counts[np.searchsorted(self.edges, high) - 1]
        at = np.clip(np.searchsorted(edges, high), 1, len(edges) - 1)
        new = (edges[at] == high) & (edges[at - 1] == low)
        return Histogram(every, np.where(new, counts[at - 1], old), self.finest, self.whole)

    def cell_of(self, probability: float) -> int:
        """Return the cell that holds the order statistic of rank ⌈probability · n⌉."""
        return int(np.searchsorted(np.cumsum(self.counts), self._rank(probability)))

    def quantile(self, probability: float, min_rows: float) -> tuple[float, float]:
        """Return the middle of the cells that hold a quantile, and the bound of its error.

        These are the cell of the quantile and neighbours until they hold `min_rows` rows.
        """
        return self._middle(*holding(self.counts, self.widths, self.cell_of(probability), min_rows))

    def mode(self, min_rows: float) -> tuple[float, float]:
        """Return the middle of the fullest cell and its neighbours, as `quantile` does."""
        fullest = int(np.argmax(self.counts))
        return self._middle(*holding(self.counts, self.widths, fullest, min_rows))

    def tails(self, share: float, min_rows: int) -> tuple[int, ...]:
        """Return the cells of the two rows that eq. (2) ranks; none for under 4 `min_rows` rows."""
        rank = tail_rank(share, float(self.counts.sum()), min_rows)
        if rank is None:
            return ()
        low = int(np.searchsorted(np.cumsum(self.counts), rank))
        high = int(np.searchsorted(np.cumsum(self.counts[::-1]), rank))
        return low, len(self.counts) - 1 - high

    def limits(self, share: float, min_rows: int) -> tuple[float, float, float] | None:
        """Return the limits of eq. (2), low and high, and the bound of their error.

        None for under 4 `min_rows` rows, of which more than half would lie beyond, and if the
        limits would meet.
        """
        cells = self.tails(share, min_rows)
        if not cells:
            return None
        step = 1.0 if self.whole else 0.0
        low, high = float(self.edges[cells[0] + 1]), float(self.edges[cells[1]]) + step
        if high <= low:
            return None
        return low + 0.0, high + 0.0, float(self.widths[list(cells)].max()) - step

    def _middle(self, first: int, last: int) -> tuple[float, float]:
        low, high = float(self.edges[first]), float(self.edges[last + 1])
        if not self.whole:
            return (low + high) / 2, high - low
        return float(np.ceil((low + high) / 2)) + 0.0, high - low - 1.0

    def _rank(self, probability: float) -> float:
        n = float(self.counts.sum())
        return float(np.clip(np.ceil(probability * n - 1e-9), 1.0, n))


def count_between(values: Sequence[Array], edges: Array) -> Array:
    """Count each column's values between its edges: a site's half of the sketch.

    Parameters
    ----------
    values : (n,) of each column; NaN counts nowhere.
    edges : (c, m) ascending, padded with inf.

    Returns
    -------
    counts : (c, m − 1), rows in (edges[i], edges[i + 1]].
    """
    n_columns, m = edges.shape
    if (table := together(values)) is not None:
        return _count_together(np.sort(table, axis=1), edges)
    counts = np.zeros((n_columns, m - 1), np.int64)
    for j in np.flatnonzero(np.isfinite(edges[:, 0])).tolist():
        column, own = values[j], edges[j][np.isfinite(edges[j])]
        inside = np.sort(column[(column > own[0]) & (column <= own[-1])])
        counts[j, : len(own) - 1] = np.diff(np.searchsorted(inside, own, side="right"))
        mapped.release(column)
    return counts


def together(values: Sequence[Array]) -> Array | None:
    """Return a small table's columns as one array (c, n), in which operations are fewer."""
    if not len(values) or len(values) * len(values[0]) > SMALL:
        return None
    return np.array(values) if len({len(x) for x in values}) == 1 else None


def _count_together(columns: Array, edges: Array) -> Array:
    """Return `count_between` of columns (c, n) in ascending order, NaN last."""
    below = np.zeros(edges.shape, np.int64)
    for j in np.flatnonzero(edges[:, 0] < np.inf).tolist():
        below[j] = columns[j].searchsorted(edges[j], side="right")
    counts = below[:, 1:] - below[:, :-1]
    counts[edges[:, 1:] == np.inf] = 0
    return counts


def histograms(ask: Ask, moments: Moments, columns: Array) -> list[Histogram]:
    """Ask for the first histogram of each of `columns` (indices into the c of `moments`)."""
    drawn = [_first_edges(moments, j) for j in columns]
    counts = _ask_some(ask, [edges for edges, _ in drawn], columns, len(moments.n))
    return [
        Histogram(edges, row, finest, bool(moments.whole[j]))
        for (edges, finest), row, j in zip(drawn, counts, columns, strict=True)
    ]


def refine(
    ask: Ask,
    tables: list[Histogram],
    columns: Array,
    n_columns: int,
    wanted: Callable[[Histogram], Array],
    at_least: float,
) -> list[Histogram]:
    """Split the wanted cells, all columns at once, until none can be split further.

    Parameters
    ----------
    tables : one histogram for each of `columns`, out of `n_columns`.
    wanted : histogram → wanted cells (k,).
    at_least : a cell is split only if it holds this many rows.
    """
    while True:
        asked = [_splits(h, wanted(h), at_least) for h in tables]
        if not any(len(edges) for edges in asked):
            return tables
        counts = _ask_some(ask, asked, columns, n_columns)
        tables = [h.refined(e, c) for h, e, c in zip(tables, asked, counts, strict=True)]


def drawn(
    ask: Ask,
    moments: Moments,
    columns: Array,
    wanted: Callable[[Histogram], Array],
    min_cell: int,
) -> list[Histogram]:
    """Return a histogram of each of `columns` with its wanted cells refined; see `quantiles`."""
    tables = histograms(ask, moments, columns)
    return refine(ask, tables, columns, len(moments.n), wanted, 2 * min_cell)


def quantiles(
    ask: Ask, moments: Moments, columns: Array, probabilities: Sequence[float], min_cell: int
) -> tuple[Array, Array]:
    """Return quantiles of pooled columns and the bounds of their errors.

    Parameters
    ----------
    ask : asks the sites for counts between edges.
    moments : of all c columns.
    columns : (k,) indices of the wanted columns; each must hold a value.
    probabilities : (q,) between 0 and 1.
    min_cell : cells with fewer than twice as many rows are not split.

    Returns
    -------
    values, errors : (k, q); |value − order statistic of rank ⌈probability · n⌉| ≤ error.
    """

    def wanted(h: Histogram) -> Array:
        return np.array([h.cell_of(p) for p in probabilities])

    tables = drawn(ask, moments, columns, wanted, min_cell)
    found = np.array([[h.quantile(p, min_cell) for p in probabilities] for h in tables])
    found = found.reshape(len(columns), len(probabilities), 2)
    return found[..., 0], found[..., 1]


def modes(ask: Ask, moments: Moments, columns: Array, min_cell: int) -> tuple[Array, Array]:
    """Return the middle of each column's fullest cell (k,), and its error (k,).

    It is exact for whole numbers that span few standard deviations. Otherwise the fullest cell of
    the first histogram is split, and then the fullest of its parts, as in `quantiles`.
    """

    def wanted(h: Histogram) -> Array:
        return np.array([np.argmax(h.counts)])

    tables = drawn(ask, moments, columns, wanted, min_cell)
    found = np.array([h.mode(min_cell) for h in tables]).reshape(len(columns), 2)
    return found[:, 0], found[:, 1]


def _splits(h: Histogram, cells: Array, at_least: float) -> Array:
    return h.inner_edges(cells[h.splittable(at_least)[cells]])


def _power_of_two(x: float) -> float:
    """Return the largest power of two up to x, within `ROUNDING`."""
    return 2.0 ** np.floor(np.log2(x) + ROUNDING)


def _first_edges(moments: Moments, j: int) -> tuple[Array, float]:
    """Return the first edges of column j, and the smallest width of its cells."""
    mean, sd = float(moments.mean[j]), float(moments.sd[j])
    whole = bool(moments.whole[j])
    magnitude = max(abs(mean) + REACH * sd, 1e-300)
    exact = _power_of_two(magnitude) * 2.0**-40  # multiples of it are exact in float64
    width = max(_power_of_two(sd / 8) if sd > 0 else 0.0, exact)
    finest = max(width / FINEST, exact)
    if whole:
        width, finest = max(width, 1.0), max(finest, 1.0)
    bound = sd * np.sqrt(max(float(moments.n[j]) - 1.0, 1.0)) * (1 + 1e-9) + width
    reach = min(REACH * sd, bound)
    first = np.floor((mean - reach) / width + ROUNDING) - 1
    inner = np.arange(first, np.ceil((mean + reach) / width - ROUNDING) + 1)
    doubling = 2.0 ** np.arange(max(0.0, np.ceil(np.log2(bound / width)) + 1))
    steps = np.concatenate([inner[0] - doubling[::-1], inner, inner[-1] + doubling])
    return steps * width, finest


def _ask_some(ask: Ask, edges: list[Array], columns: Array, n_columns: int) -> list[Array]:
    """Ask for the counts of some columns, whose edges are padded to one array."""
    longest = max((len(e) for e in edges), default=0)
    if longest < 2:
        return [e[:0] for e in edges]
    padded = np.full((n_columns, longest), np.inf)
    for j, e in zip(columns, edges, strict=True):
        padded[j, : len(e)] = e
    counts = ask(padded)
    return [counts[j, : max(len(e) - 1, 0)] for j, e in zip(columns, edges, strict=True)]

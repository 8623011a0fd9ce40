"""A common grid of bins for the covariates of trees, from sums alone.

Each covariate's edges are quantiles of the values over all sites, by the histograms of
`data.prepare.sketch`: cells are split until none holds more than a bin's share of the rows, or they
are too narrow, or hold fewer than 2 `min_cell` rows. Then cells are joined from the lowest on until
a bin has its share, and at least `min_cell` rows; so no two edges single out fewer rows. A
covariate with at most as many values as bins, each in enough rows, has one bin for each value.

Values are rounded to float32, as trees compare them: x ≤ b exactly if x is below the next float32
after b. Between whole numbers the edge is half way.

Revealed: `Values`, and of each covariate `Spread` and `Cells`, only as sums over all sites. A cell
of `Cells` may hold few rows; it tells of one covariate.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.prepare import (
    Cells,
    Histogram,
    Moments,
    Spread,
    count_between,
    histograms,
    refine,
)
from fedcohort.data.tables import FeatureTable, LabelledTable, SurvivalTable
from fedcohort.privacy.disclosure.steps import interval_ends
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed

Table = LabelledTable | SurvivalTable | FeatureTable


@message
class Values:
    """Of each covariate (p,): rows with a value, Σ of the values, rows with one that is not whole.

    ``rows`` (), in all.
    """

    rows: Array
    present: Array
    total: Array
    fractional: Array


@summed(blocks="rows")
def count_values(site: Site[Table, None]) -> Values:
    """Count the rows, and each covariate's values; sum the values."""
    x = single(site.data.x).astype(float)
    known = np.isfinite(x)
    return Values(
        rows=np.array(len(x)),
        present=known.sum(axis=0),
        total=np.where(known, x, 0.0).sum(axis=0),
        fractional=(known & (x != np.floor(x))).sum(axis=0),
    )


@summed(blocks="rows")
def spread_values(site: Site[Table, None], *, centre: Array) -> Spread:
    """Sum the squared deviations of each covariate from its pooled mean."""
    apart = single(site.data.x).astype(float) - centre
    return Spread(np.square(np.where(np.isfinite(apart), apart, 0.0)).sum(axis=0))


@summed(blocks="rows")
def count_value_cells(site: Site[Table, None], *, edges: Array) -> Cells:
    """Count the rows of each covariate between edges (p, m), padded with inf."""
    return Cells(count_between(list(single(site.data.x).astype(float).T), edges))


STEPS = (count_values, spread_values, count_value_cells)


def single(x: Array) -> Array:
    """Return x as float32; values beyond its range become infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32)


def bin_edges(fed: Federation, first: Values, bins: int, min_cell: int) -> Array:
    """Return the edges of each covariate's bins, float32 (p, E), padded with inf; E ≤ bins − 1.

    Parameters
    ----------
    fed : the sites that answered with `first`.
    first : their counts.
    bins : largest number of bins.
    min_cell : smallest number of rows of a bin, of those that have a value.
    """
    present = np.asarray(first.present, float)
    mean = np.divide(first.total, present, out=np.zeros(len(present)), where=present > 0)
    squares = fed.sum(spread_values, centre=mean).squares
    sd = np.sqrt(np.divide(squares, present, out=np.zeros(len(present)), where=present > 0))
    moments = Moments(present, mean, sd, first.fractional == 0)
    columns = np.flatnonzero((present > 0) & ~moments.constant)
    if not len(columns):
        return np.full((len(present), 1), np.inf, np.float32)

    def ask(edges: Array) -> Array:
        return fed.sum(count_value_cells, edges=edges).counts

    def full(h: Histogram) -> Array:
        return np.flatnonzero(h.counts > h.counts.sum() / bins)

    tables = histograms(ask, moments, columns)
    tables = refine(ask, tables, columns, len(present), full, 2 * min_cell)
    found = [_edges(h, bins, min_cell) for h in tables]
    edges = np.full((len(present), max(1, *map(len, found))), np.inf, np.float32)
    for j, own in zip(columns, found, strict=True):
        edges[j, : len(own)] = own
    return edges


def thresholds(edges: Array) -> list[Array]:
    """Return the edges of each covariate without padding; none of one with a single bin."""
    return [row[np.isfinite(row)] for row in edges]


def _edges(h: Histogram, bins: int, min_cell: int) -> Array:
    """Return the edges of one covariate: where bins begin that hold their share of rows."""
    few = np.count_nonzero(h.counts) <= bins
    share = 0.0 if few else float(h.counts.sum()) / bins
    above = h.edges[interval_ends(h.counts, max(float(min_cell), 1.0), share)[:-1] + 1]
    if h.whole and np.abs(above).max(initial=0.0) < 2.0**23:
        return (above + 0.5).astype(np.float32)
    below = above.astype(np.float32)
    below = np.where(below > above, np.nextafter(below, np.float32(-np.inf)), below)
    return np.unique(np.nextafter(below, np.float32(np.inf)))

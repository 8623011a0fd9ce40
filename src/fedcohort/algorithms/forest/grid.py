"""Public thresholds of each covariate, from sums: ends of intervals with about equally many rows.

A histogram of each covariate is refined around its quantiles (`data.prepare`). Its cells are joined
until each holds 1/`bins` of the rows, and at least `min_cell`. The inner ends are the thresholds:
multiples of a power of two, so none is a patient's value.

Revealed, only as sums over all sites: `Columns` and `Spread` once, `Cells` a few times. A cell's
count may be small, as in preprocessing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.prepare import Histogram, Moments, count_between, histograms, refine
from fedcohort.privacy.disclosure.steps import interval_ends
from fedcohort.protocol import Federation, Site, message, summed


@message
class Columns:
    """Values of each covariate (p,): their number, their sum, and how many are not whole."""

    present: Array
    total: Array
    fractional: Array


@message
class Spread:
    """Σ (x − centre)² of each covariate (p,)."""

    squares: Array


@message
class Cells:
    """Counts of each covariate between its edges (p, m − 1)."""

    cells: Array


@summed
def sum_covariates(site: Site[Any, None]) -> Columns:
    """Count and sum the known values of each covariate."""
    x: Array = np.asarray(site.data.x, float)
    seen = ~np.isnan(x)
    whole = np.where(seen, x, 0.0)
    part = (whole != np.floor(whole)).sum(axis=0)
    return Columns(seen.sum(axis=0), whole.sum(axis=0), part)


@summed
def spread_covariates(site: Site[Any, None], *, centre: Array) -> Spread:
    """Sum the squared distances of the known values of each covariate from one point."""
    return Spread(np.nansum((np.asarray(site.data.x, float) - centre) ** 2, axis=0))


@summed
def count_cells(site: Site[Any, None], *, edges: Array) -> Cells:
    """Count the values of each covariate between edges."""
    x: Array = np.asarray(site.data.x, float)
    return Cells(count_between(list(x.T), np.asarray(edges)))


STEPS = (sum_covariates, spread_covariates, count_cells)


def thresholds(fed: Federation, bins: int, least: int, first: Columns | None = None) -> list[Array]:
    """Return the thresholds of each covariate, ascending float32; none for a constant one.

    Parameters
    ----------
    bins : largest number of intervals of a covariate.
    least : fewest rows of an interval.
    first : the sums of `sum_covariates` if they are known.
    """
    first = first or fed.sum(sum_covariates)
    n = np.asarray(first.present, float)
    mean = np.divide(first.total, n, out=np.zeros(len(n)), where=n > 0)
    squares = fed.sum(spread_covariates, centre=mean).squares
    sd = np.sqrt(np.divide(squares, n, out=np.zeros(len(n)), where=n > 0))
    moments = Moments(n, mean, sd, np.asarray(first.fractional) == 0)
    columns = np.flatnonzero((n >= 2 * max(least, 1)) & ~moments.constant)

    def ask(edges: Array) -> Array:
        return fed.sum(count_cells, edges=edges).cells

    def wanted(h: Histogram) -> Array:
        return np.array([h.cell_of(k / bins) for k in range(1, bins)])

    tables = histograms(ask, moments, columns)
    tables = refine(ask, tables, columns, len(n), wanted, max(2.0 * least, 2.0))
    found = [np.zeros(0, np.float32) for _ in n]
    for j, h in zip(columns.tolist(), tables, strict=True):
        found[j] = _cuts(h, bins, least)
    return found


def _cuts(h: Histogram, bins: int, least: int) -> Array:
    """Return the thresholds (k,) of one covariate."""
    ends = interval_ends(h.counts, max(float(least), 1.0), float(h.counts.sum()) / bins)[:-1]
    edges = h.edges[ends + 1]
    if h.whole:
        return np.unique((edges + 0.5).astype(np.float32))
    # a cell has its upper edge; left of a threshold t is x < t
    return np.unique(np.nextafter(edges.astype(np.float32), np.float32(np.inf)))

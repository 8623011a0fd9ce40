"""Steps of federated preprocessing at a site: counts and sums of columns.

Revealed: every message of this module, only as the sum over all sites.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.encode import Encoded
from fedcohort.data.prepare.sketch import count_between
from fedcohort.data.variable import LARGEST
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed


@message
class Tally:
    """First sums of c numbers and k categories.

    ``rows`` (); ``present``, ``total``, ``fractional`` (c,); ``levels`` (k, most levels).
    ``overflows`` (c,) is 1 if a site has values too large to be squared; it leaves them out of the
    sums.
    """

    rows: Array
    present: Array
    total: Array
    fractional: Array
    overflows: Array
    levels: Array


@message
class Spread:
    """Σ (x − mean)² of each number (c,), or of one number ()."""

    squares: Array


@message
class Cells:
    """Counts of each number between its edges (c, m − 1)."""

    counts: Array


@message
class Cut:
    """Σ (x − centre) and Σ (x − centre)² of each number cut to its limits, (c,) each."""

    total: Array
    squares: Array


@summed(blocks="rows")
def column_tally(site: Site[Encoded, None], *, most_levels: int) -> Tally:
    """Count rows, values and levels of each column, and sum the values."""
    numbers, codes = site.data
    large = [bool(np.nanmax(np.abs(x), initial=0.0) > LARGEST) for x in numbers]
    seen = [x[:0] if big else x[~np.isnan(x)] for x, big in zip(numbers, large, strict=True)]
    found = [_counted(x) for x in seen]
    levels = [np.bincount(c[c >= 0], minlength=most_levels) for c in codes]
    first = (*numbers, *codes)
    return Tally(
        rows=np.array(len(first[0])),
        present=np.array([n for n, _, _ in found], np.int64),
        total=np.array([total for _, total, _ in found], np.float64),
        fractional=np.array([part for _, _, part in found], np.int64),
        overflows=np.array(large, np.int64),
        levels=np.array(levels, np.int64).reshape(len(codes), most_levels),
    )


@summed(blocks="rows")
def column_spread(site: Site[Encoded, None], *, centre: Array) -> Spread:
    """Sum the squared deviations of each column from its pooled mean."""
    pairs = zip(site.data.numbers, centre, strict=True)
    return Spread(np.array([_deviations(x, c)[1] for x, c in pairs], np.float64))


@summed(blocks="rows")
def column_cells(site: Site[Encoded, None], *, edges: Array) -> Cells:
    """Count the values of each column between edges.

    edges : (c, m), padded with inf.
    """
    return Cells(count_between(site.data.numbers, edges))


@summed(blocks="rows")
def column_cut(site: Site[Encoded, None], *, low: Array, high: Array, centre: Array) -> Cut:
    """Cut each column to its limits; sum the deviations from one point, and their squares."""
    found = [
        _deviations(np.clip(x, a, b), c)
        for x, a, b, c in zip(site.data.numbers, low, high, centre, strict=True)
    ]
    total, squares = np.array(found, np.float64).reshape(len(found), 2).T
    return Cut(total, squares)


def _counted(seen: Array) -> tuple[int, float, int]:
    """Return the number of values, their sum, and how many are not whole."""
    return len(seen), float(seen.sum()), int(np.count_nonzero(seen != np.floor(seen)))


def _deviations(x: Array, centre: float) -> tuple[float, float]:
    """Return Σ (x − centre) and Σ (x − centre)² over the values that are not missing."""
    d = x - centre
    d[np.isnan(d)] = 0.0
    return float(d.sum()), float(np.square(d).sum())

"""Steps of federated preprocessing at a site: counts and sums of columns.

Revealed: every message of this module, only as the sum over all sites.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.arrays import Array
from fedcohort.data.encode import Encoded
from fedcohort.data.prepare.sketch import count_between, together
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
    large, present, total, fractional = _counted(numbers)
    levels = [np.bincount(c[c >= 0], minlength=most_levels) for c in codes]
    first = (*numbers, *codes)
    return Tally(
        rows=np.array(len(first[0])),
        present=np.array(present, np.int64),
        total=np.array(total, np.float64),
        fractional=np.array(fractional, np.int64),
        overflows=np.array(large, np.int64),
        levels=np.array(levels, np.int64).reshape(len(codes), most_levels),
    )


@summed(blocks="rows")
def column_spread(site: Site[Encoded, None], *, centre: Array) -> Spread:
    """Sum the squared deviations of each column from its pooled mean."""
    return Spread(_deviations(site.data.numbers, centre)[1])


@summed(blocks="rows")
def column_cells(site: Site[Encoded, None], *, edges: Array) -> Cells:
    """Count the values of each column between edges.

    edges : (c, m), padded with inf.
    """
    return Cells(count_between(site.data.numbers, edges))


@summed(blocks="rows")
def column_cut(site: Site[Encoded, None], *, low: Array, high: Array, centre: Array) -> Cut:
    """Cut each column to its limits; sum the deviations from one point, and their squares."""
    pairs = zip(site.data.numbers, low, high, strict=True)
    return Cut(*_deviations([np.clip(x, a, b) for x, a, b in pairs], centre))


def _counted(numbers: Sequence[Array]) -> tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]:
    """Return of each column whether it has too large values, the number of the others that are
    not missing, their sum, and how many of them are not whole.
    """
    if (table := together(numbers)) is not None and not np.isnan(table).any():
        large = np.abs(table).max(axis=1, initial=0.0) > LARGEST
        if not large.any():
            part = np.count_nonzero(table != np.floor(table), axis=1)
            return large, np.full(len(table), table.shape[1]), table.sum(axis=1), part
    big = [bool(np.nanmax(np.abs(x), initial=0.0) > LARGEST) for x in numbers]
    seen = [x[:0] if b else x[~np.isnan(x)] for x, b in zip(numbers, big, strict=True)]
    parts = [int(np.count_nonzero(x != np.floor(x))) for x in seen]
    return big, [len(x) for x in seen], [float(x.sum()) for x in seen], parts


def _deviations(numbers: Sequence[Array], centre: Array) -> tuple[Array, Array]:
    """Return Σ (x − centre) and Σ (x − centre)² (c,) over the values that are not missing."""
    if (table := together(numbers)) is not None:
        d = table - centre[:, None]
        d[np.isnan(d)] = 0.0
        return d.sum(axis=1), np.square(d).sum(axis=1)
    sums = np.zeros((2, len(numbers)))
    for j, (x, c) in enumerate(zip(numbers, centre, strict=True)):
        d = x - c
        d[np.isnan(d)] = 0.0
        sums[:, j] = d.sum(), np.square(d).sum()
    return sums[0], sums[1]

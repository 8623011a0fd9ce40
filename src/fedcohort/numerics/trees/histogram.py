"""Histograms of gradients by node, covariate and bin: exact sums, equal in any order.

A covariate's values are numbered by a grid of edges e_1 < … < e_E: 0 for a missing value, and
1 + #{e ≤ x} for a value, so x < e_c exactly if its number is at most c. A histogram adds, for each
node, covariate and bin, the rows' numbers. These are whole numbers: gradients and hessians are
rounded to multiples of 2^-b (`whole`), with b so large that all sums stay below 2^52. So sums are
exact, and do not depend on the order of rows, on how rows are divided among sites, nor on whether
they are made by NumPy or by numba. numba is used where it is installed and the work is worth its
start; it needs a quarter of the time.

Shi et al., "Quantized training of gradient boosting decision trees", NeurIPS 2022, round gradients
to a few bits to save work. Here b is about 35, and rounding is below that of XGBoost's float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec

import numpy as np

from fedcohort.arrays import Array

#: Sums stay below 2^`ROOM`, so float64 and int64 hold them exactly.
ROOM = 52
#: The most bits after the point.
FINEST = 40
#: Additions of a process after which numba is started, which takes about a second.
WORTH = 50_000_000


def bits_for(total: float) -> int:
    """Return b for numbers whose absolute values add to at most `total`, and twice that."""
    if not total > 0:
        return FINEST
    return int(min(FINEST, ROOM - 2 - math.ceil(math.log2(total) + 1e-6)))


def whole(values: Array, bits: int) -> Array:
    """Return values as multiples of 2^-bits, int64."""
    return np.rint(np.ldexp(np.asarray(values, float), bits)).astype(np.int64)


def numbered(x: Array, edges: Array) -> Array:
    """Return the bins of x (n, p): 0 for NaN, else 1 + the number of edges up to the value.

    Parameters
    ----------
    edges : (p, E) float32, ascending, padded with inf.
    """
    x = np.asarray(x, np.float32)
    kind = np.uint8 if edges.shape[1] < 255 else np.uint16
    found = np.zeros(x.shape, kind)
    for j, row in enumerate(edges):
        known = ~np.isnan(x[:, j])
        own = row[np.isfinite(row)]
        found[known, j] = 1 + np.searchsorted(own, x[known, j], side="right")
    return found


def numbers_of(ends: Array) -> tuple[Array, int]:
    """Return the group of each bin, int32 (A, p, size), and the number of groups.

    Parameters
    ----------
    ends : (A, p, size) bool, the last bin of each group; the last bin of a covariate is one.
    """
    closed = ends.ravel()
    before = np.cumsum(closed, dtype=np.int32) - closed
    return before.reshape(ends.shape), int(np.count_nonzero(closed))


def summed(
    bins: Array, rows: Array, node: Array, first: Array, second: Array, ends: Array
) -> Array:
    """Return two sums and the number of rows of each group of bins of each node, (G, 3).

    Parameters
    ----------
    bins : (n, p), each below `size`.
    rows : (m,) the rows to add.
    node : (m,) node of each, from 0 to A − 1.
    first, second : (n,) int64, whose sums are below 2^`ROOM`.
    ends : (A, p, size), as in `numbers_of`.
    """
    group, size = numbers_of(ends)
    out = np.zeros((size, 3), np.int64)
    if fast := compiled(3 * len(rows) * bins.shape[1]):
        fast[0](bins, rows, node, first, second, group, out)
        return out
    one, two = first[rows].astype(float), second[rows].astype(float)
    for at in _places(bins, rows, node, group):
        for k, values in enumerate((one, two, None)):
            out[:, k] += np.bincount(at, values, size).astype(np.int64)
    return out


def counted(bins: Array, rows: Array, node: Array, ends: Array) -> Array:
    """Return the number of rows of each group of bins of each node, (G,)."""
    group, size = numbers_of(ends)
    out = np.zeros(size, np.int64)
    if fast := compiled(len(rows) * bins.shape[1]):
        fast[1](bins, rows, node, group, out)
        return out
    for at in _places(bins, rows, node, group):
        out += np.bincount(at, minlength=size)
    return out


def _places(bins: Array, rows: Array, node: Array, group: Array) -> Iterator[Array]:
    """Yield the group of each row, covariate by covariate."""
    for j in range(bins.shape[1]):
        yield group[node, j, bins[rows, j]]


class _Work:
    """Additions of this process so far."""

    done = 0


def compiled(additions: int) -> tuple[Callable[..., None], ...] | None:
    """Return numba's kernels; None before they are worth their start, and without numba."""
    if _Work.done < WORTH:
        _Work.done += additions
        return None
    return _kernels()


@cache
def _kernels() -> tuple[Callable[..., None], ...] | None:
    if find_spec("numba") is None:
        return None
    from fedcohort.numerics.trees.compiled import (
        add_rows,
        close_groups,
        count_rows,
        pick_splits,
    )

    return add_rows, count_rows, close_groups, pick_splits

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
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import numpy as np

from fedcohort.arrays import Array

#: Sums stay below 2^`ROOM`, so float64 and int64 hold them exactly.
ROOM = 52
#: The most bits after the point.
FINEST = 40
#: Additions above which numba is started.
WORTH = 2_000_000


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


def summed(bins: Array, rows: Array, node: Array, values: Array, n_nodes: int, size: int) -> Array:
    """Return Σ of whole numbers by node, covariate and bin: int64 (n_nodes, p, size, v).

    Parameters
    ----------
    bins : (n, p), each below `size`.
    rows : (m,) the rows to add.
    node : (m,) node of each, from 0.
    values : (n, v) int64, whose sums are below 2^`ROOM`.
    """
    p, v = bins.shape[1], values.shape[1]
    if len(rows) * p >= WORTH and _compiled() is not None:
        out = np.zeros((n_nodes, p, size, v), np.int64)
        _compiled()(bins, rows, node, values, out)
        return out
    out = np.empty((n_nodes, p, size, v), np.int64)
    base, cells = np.asarray(node, np.int64) * size, n_nodes * size
    own = [values[rows, k].astype(float) for k in range(v)]
    for j in range(p):
        at = base + bins[rows, j]
        for k in range(v):
            found = np.bincount(at, own[k], cells)
            out[:, j, :, k] = found.reshape(n_nodes, size)
    return out


def counted(bins: Array, rows: Array, node: Array, n_nodes: int, size: int) -> Array:
    """Return the number of rows by node, covariate and bin, (n_nodes, p, size)."""
    p = bins.shape[1]
    if len(rows) * p >= WORTH and _compiled() is not None:
        ones = np.ones((len(bins), 1), np.int64)
        return summed(bins, rows, node, ones, n_nodes, size)[..., 0]
    base, cells = np.asarray(node, np.int64) * size, n_nodes * size
    found = [np.bincount(base + bins[rows, j], minlength=cells) for j in range(p)]
    return np.stack([f.reshape(n_nodes, size) for f in found], axis=1)


@cache
def _compiled() -> Callable[..., None] | None:
    """Return the kernel of numba; None without numba."""
    if find_spec("numba") is None:
        return None
    from fedcohort.numerics.trees.compiled import add_rows

    return add_rows

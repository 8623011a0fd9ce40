"""The histogram's loop over rows, compiled by numba; `histogram` has the same sums by NumPy."""

from __future__ import annotations

import numba

from fedcohort.arrays import Array


@numba.njit(cache=True, nogil=True)
def add_rows(bins: Array, rows: Array, node: Array, values: Array, out: Array) -> None:
    """Add values (n, v) of some rows to `out` (nodes, p, size, v), by node, covariate and bin."""
    p, v = bins.shape[1], values.shape[1]
    for i in range(len(rows)):
        row, at = rows[i], node[i]
        if v == 3:
            first, second, third = values[row, 0], values[row, 1], values[row, 2]
            for j in range(p):
                b = bins[row, j]
                out[at, j, b, 0] += first
                out[at, j, b, 1] += second
                out[at, j, b, 2] += third
        else:
            for j in range(p):
                for k in range(v):
                    out[at, j, bins[row, j], k] += values[row, k]

"""The loops of `histogram` over rows, compiled by numba; NumPy gives the same sums there."""

from __future__ import annotations

import numba

from fedcohort.arrays import Array


@numba.njit(cache=True, nogil=True)
def add_rows(
    bins: Array, rows: Array, node: Array, first: Array, second: Array, group: Array, out: Array
) -> None:
    """Add two numbers of some rows, and 1, to `out` (G, 3), by the group of their bins."""
    for i in range(len(rows)):
        row, at = rows[i], node[i]
        one, two = first[row], second[row]
        for j in range(bins.shape[1]):
            g = group[at, j, bins[row, j]]
            out[g, 0] += one
            out[g, 1] += two
            out[g, 2] += 1


@numba.njit(cache=True, nogil=True)
def count_rows(bins: Array, rows: Array, node: Array, group: Array, out: Array) -> None:
    """Add 1 for some rows to `out` (G,), by the group of their bins."""
    for i in range(len(rows)):
        row, at = rows[i], node[i]
        for j in range(bins.shape[1]):
            out[group[at, j, bins[row, j]]] += 1

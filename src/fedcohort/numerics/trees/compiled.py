"""The loops of `histogram` and `splits.joined`, compiled by numba; NumPy gives the same there."""

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


@numba.njit(cache=True, nogil=True)
def close_groups(child: Array, parent: Array, ends: Array, least: int, out: Array) -> None:
    """Write to `out` (A, p, size) the groups of `splits.joined`, of prefix sums of rows."""
    size = ends.shape[2]
    for a in range(ends.shape[0]):
        for j in range(ends.shape[1]):
            one, two = 0, 0
            for b in range(size):
                inner, other = child[a, j, b] - one, parent[a, j, b] - child[a, j, b] - two
                fine = (inner == 0 or inner >= least) and (other == 0 or other >= least)
                if ends[a, j, b] and fine and inner + other > 0:
                    out[a, j, b] = True
                    one, two = child[a, j, b], parent[a, j, b] - child[a, j, b]
            last, rest = child[a, j, size - 1], parent[a, j, size - 1] - child[a, j, size - 1]
            for b in range(size - 1, -1, -1):
                inner, other = last - one, rest - two
                if (inner == 0 or inner >= least) and (other == 0 or other >= least):
                    break
                if out[a, j, b]:
                    out[a, j, b] = False
                    one, two = 0, 0
                    for c in range(b - 1, -1, -1):
                        if out[a, j, c]:
                            one, two = child[a, j, c], parent[a, j, c] - child[a, j, c]
                            break
            out[a, j, size - 1] = True

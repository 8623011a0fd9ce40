"""The loops of `histogram` and of `splits`, compiled by numba; NumPy gives the same bits there."""

from __future__ import annotations

import numba
import numpy as np

from fedcohort.arrays import Array

#: Smallest gain of a split, as in XGBoost.
LEAST_GAIN = 1e-6


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
                if ends[a, j, b] and fine and (inner + other > 0 or b == 0):
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


@numba.njit(cache=True, nogil=True)
def pick_splits(
    rows: Array, sums: Array, ends: Array, allowed: Array, at_node: Array, unit: float, l2: float,
    l1: float, gamma: float, min_hessian: float, min_rows: int, gain: Array, place: Array,
) -> None:  # fmt: skip
    """Write the gain (A,) and the covariate, way and bin (A, 3) of the best split of each node.

    As `splits.best`, for a rule that cuts no weight. Way 1 has the missing values on the left.
    """
    last = ends.shape[2] - 1
    for a in range(ends.shape[0]):
        every, total_g, total_h = rows[a, 0, last], sums[a, 0, last, 0], sums[a, 0, last, 1]
        for j in range(ends.shape[1]):
            if not allowed[a, j]:
                continue
            gap = ends[a, j, 0] and rows[a, j, 0] > 0
            for way in range(2 if gap else 1):
                apart = gap and way == 0
                for step in range(last + 1):
                    b = last - step if way else step
                    if not ends[a, j, b] or (b == 0 and apart) or (b == last and not apart):
                        continue
                    n = rows[a, j, b] - (rows[a, j, 0] if apart else 0)
                    if n < min_rows or every - n < min_rows:
                        continue
                    g_int = sums[a, j, b, 0] - (sums[a, j, 0, 0] if apart else 0)
                    h_int = sums[a, j, b, 1] - (sums[a, j, 0, 1] if apart else 0)
                    g, h = g_int * unit, h_int * unit
                    g2, h2 = (total_g - g_int) * unit, (total_h - h_int) * unit
                    if h < min_hessian or h2 < min_hessian or h <= 0 or h2 <= 0:
                        continue
                    if l1 > 0:
                        g = np.sign(g) * max(abs(g) - l1, 0.0)
                        g2 = np.sign(g2) * max(abs(g2) - l1, 0.0)
                    found = g * g / (h + l2) + g2 * g2 / (h2 + l2) - at_node[a]
                    if found > LEAST_GAIN and found >= gamma and found > gain[a]:
                        gain[a] = found
                        place[a, 0], place[a, 1], place[a, 2] = j, way, b

"""The loops of `histogram` and of `splits`, compiled by numba; NumPy gives the same bits there."""

from __future__ import annotations

import numba
import numpy as np

from fedcohort.arrays import Array

#: Smallest gain of a split, as in XGBoost.
LEAST_GAIN = 1e-6


@numba.njit(cache=True, nogil=True)
def _by_node(at: Array, nodes: int) -> tuple[Array, Array]:
    """Return the rows in the order of their nodes, and where each node's begin (nodes + 1,)."""
    begin = np.zeros(nodes + 1, np.int64)
    for i in range(len(at)):
        if at[i] >= 0:
            begin[at[i] + 1] += 1
    for a in range(nodes):
        begin[a + 1] += begin[a]
    free, rows = begin.copy(), np.empty(begin[nodes], np.int64)
    for i in range(len(at)):
        if at[i] >= 0:
            rows[free[at[i]]] = i
            free[at[i]] += 1
    return rows, begin


@numba.njit(cache=True, nogil=True)
def _number(ends: Array, first: int, group: Array) -> int:
    """Write the group of each bin (p, size), from `first` on; return the next."""
    for j in range(ends.shape[0]):
        for b in range(ends.shape[1]):
            group[j, b] = first
            first += ends[j, b]
    return first


@numba.njit(cache=True, nogil=True)
def add_rows(bins: Array, at: Array, one: Array, two: Array, ends: Array, out: Array) -> None:
    """Add two numbers of some rows, and 1 if there is room, to `out` (G, 2 or 3), by group of bins.

    Node by node: a node's groups and sums stay near the processor.
    """
    rows, begin = _by_node(at, len(ends))
    group, first, counted = np.empty(ends.shape[1:], np.uint32), 0, out.shape[1] > 2
    for a in range(len(ends)):
        before = first
        first = _number(ends[a], first, group)
        each = first - before == ends[a].size
        for i in range(begin[a], begin[a + 1]):
            row = rows[i]
            g, h = one[row], two[row]
            if each:  # every bin is a group, which needs no look into `group`
                k, size = np.uint64(before), np.uint64(ends.shape[2])
                for j in range(bins.shape[1]):
                    m = k + np.uint64(bins[row, j])
                    out[m, 0] += g
                    out[m, 1] += h
                    if counted:
                        out[m, 2] += 1
                    k += size
            else:
                for j in range(bins.shape[1]):
                    m = np.uint64(group[j, bins[row, j]])
                    out[m, 0] += g
                    out[m, 1] += h
                    if counted:
                        out[m, 2] += 1


@numba.njit(cache=True, nogil=True)
def count_rows(bins: Array, at: Array, ends: Array, out: Array) -> None:
    """Add 1 for some rows to `out` (G,), by the group of their bins."""
    rows, begin = _by_node(at, len(ends))
    group, first = np.empty(ends.shape[1:], np.uint32), 0
    for a in range(len(ends)):
        first = _number(ends[a], first, group)
        for i in range(begin[a], begin[a + 1]):
            row = rows[i]
            for j in range(bins.shape[1]):
                out[np.uint64(group[j, bins[row, j]])] += 1


@numba.njit(cache=True, nogil=True)
def place_rows(node: Array, used: Array, asked: Array, out: Array) -> None:
    """Write where the nodes of rows stand in `asked`, or −1, to `out` (n,)."""
    most = asked.max()
    place = np.full(most + 1, -1)
    for a in range(len(asked)):
        place[asked[a]] = a
    for i in range(len(node)):
        out[i] = place[node[i]] if used[i] and node[i] <= most else -1


@numba.njit(cache=True, nogil=True)
def move_rows(bins: Array, moves: Array, split: Array, node: Array) -> None:
    """Move rows from their nodes (n,) to children, and on; `split` has the move of each node."""
    for i in range(len(node)):
        at = node[i]
        k = split[at]
        while k >= 0:
            code = bins[i, moves[k, 2]]
            left = moves[k, 4] > 0 if code == 0 else code <= moves[k, 3]
            at = moves[k, 5] + (0 if left else 1)
            k = split[at]
        node[i] = at


@numba.njit(cache=True, nogil=True)
def add_up(groups: Array, ends: Array, out: Array) -> None:
    """Write prefix sums over bins (A, p, size, v) of groups (G, v)."""
    at = 0
    for a in range(ends.shape[0]):
        for j in range(ends.shape[1]):
            for b in range(ends.shape[2]):
                for k in range(groups.shape[1]):
                    before = out[a, j, b - 1, k] if b else 0
                    out[a, j, b, k] = before + groups[at, k] if ends[a, j, b] else before
                at += ends[a, j, b]


@numba.njit(cache=True, nogil=True)
def share_out(
    groups: Array, ends: Array, side: Array, rows: Array, sums: Array, all_rows: Array,
    all_sums: Array,
) -> None:  # fmt: skip
    """Write prefix sums of two children of each node; see `splits.Cells.children`.

    Parameters
    ----------
    rows, sums : (A, p, size), (A, p, size, 2) of the nodes.
    all_rows, all_sums : (2A, p, size), (2A, p, size, 2) of the children.
    """
    at = 0
    for a in range(ends.shape[0]):
        own, other = 2 * a + side[a], 2 * a + 1 - side[a]
        for j in range(ends.shape[1]):
            g, h, n = 0, 0, 0
            for b in range(ends.shape[2]):
                if ends[a, j, b]:
                    g, h, n = g + groups[at, 0], h + groups[at, 1], n + groups[at, 2]
                    at += 1
                all_sums[own, j, b, 0], all_sums[own, j, b, 1], all_rows[own, j, b] = g, h, n
                all_sums[other, j, b, 0] = sums[a, j, b, 0] - g
                all_sums[other, j, b, 1] = sums[a, j, b, 1] - h
                all_rows[other, j, b] = rows[a, j, b] - n


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

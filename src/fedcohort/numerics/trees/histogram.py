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
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

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
    x = np.asarray(values, float)
    # the same numbers; ldexp takes ten times as long
    scaled = x * 2.0**bits if abs(bits) < 1000 else np.ldexp(x, bits)
    return np.rint(scaled, out=scaled).astype(np.int64)


def numbered(x: Array, edges: Array) -> Array:
    """Return the bins of x (n, p): 0 for NaN, else 1 + the number of edges up to the value.

    Parameters
    ----------
    edges : (p, E) float32, ascending, padded with inf.
    """
    columns = np.asarray(x, np.float32).T.copy()
    found = np.empty(columns.shape, np.uint8 if edges.shape[1] < 255 else np.uint16)
    for own, column, row in zip(found, columns, edges, strict=True):
        own[:] = 1 + np.searchsorted(row[np.isfinite(row)], column, side="right")
        own[np.isnan(column)] = 0
    return found.T.copy()


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
    bins: Array, at: Array, first: Array, second: Array, ends: Array, *, count: bool = True
) -> Array:
    """Return two sums of each group of bins of each node, and its number of rows, (G, 3).

    Parameters
    ----------
    bins : (n, p), each below `size`.
    at : (n,) the node of each row, from 0 to A − 1; −1 for a row that is not added.
    first, second : (n,) int64, whose sums are below 2^`ROOM`.
    ends : (A, p, size), as in `numbers_of`.
    count : whether rows are counted; (G, 2) without.
    """
    if fast := compiled(3 * bins.size):
        out = np.zeros((np.count_nonzero(ends), 2 + count), np.int64)
        fast.add_rows(bins, at, _still(first), _still(second), ends, out)
        return out
    group, size = numbers_of(ends)
    out, rows = np.zeros((size, 2 + count), np.int64), np.flatnonzero(at >= 0)
    one, two = first[rows].astype(float), second[rows].astype(float)
    for place in _places(bins, rows, at, group):
        for k, values in enumerate((one, two, None)[: 2 + count]):
            out[:, k] += np.bincount(place, values, size).astype(np.int64)
    return out


def counted(bins: Array, at: Array, ends: Array) -> Array:
    """Return the number of rows of each group of bins of each node, (G,)."""
    if fast := compiled(bins.size):
        out = np.zeros(np.count_nonzero(ends), np.int64)
        fast.count_rows(bins, at, ends, out)
        return out
    group, size = numbers_of(ends)
    out, rows = np.zeros(size, np.int64), np.flatnonzero(at >= 0)
    for place in _places(bins, rows, at, group):
        out += np.bincount(place, minlength=size)
    return out


def _places(bins: Array, rows: Array, at: Array, group: Array) -> Iterator[Array]:
    """Yield the group of each of some rows, covariate by covariate."""
    node = at[rows]
    for j in range(bins.shape[1]):
        yield group[node, j, bins[rows, j]]


def placed(node: Array, used: Array, asked: Array) -> Array:
    """Return where the nodes (n,) of a tree's rows stand in `asked` (A,); −1 if not, or unused."""
    if fast := compiled(len(node)):
        at = np.empty(len(node), np.int64)
        fast.place_rows(_still(np.ascontiguousarray(node)), _still(used), asked, at)
        return at
    place = np.full(int(max(node.max(initial=0), asked.max())) + 1, -1)
    place[asked] = np.arange(len(asked))
    return np.where(used, place[node], -1)


def settled(bins: Array, node: Array, moves: Array) -> Array:
    """Return the nodes (n,) of a tree's rows after they went to the children of theirs, and on.

    Parameters
    ----------
    bins : (n, p).
    node : (n,) before.
    moves : (m, 6), splits of the tree: its number, node, covariate, bin, whether missing values go
        left, and the left child, whose number is above the node's; the right one follows. Rows
        whose bin is at most `bin` go left.
    """
    split = np.full(int(max(node.max(initial=0), moves[:, 5].max() + 1)) + 1, -1)
    split[moves[:, 1]] = np.arange(len(moves))
    node = node.copy()
    if fast := compiled(len(node)):
        fast.move_rows(bins, moves, split, node)
        return node
    rows = np.flatnonzero(split[node] >= 0)
    move = split[node[rows]]
    while len(rows):
        node[rows] = moves[move, 5] + ~goes_left(bins, rows, moves, move)
        move = split[node[rows]]
        on = move >= 0
        rows, move = rows[on], move[on]
    return node


def goes_left(bins: Array, rows: Array, moves: Array, which: Array) -> Array:
    """Return whether each of the rows (r,) goes left by its move, one of (m, 6)."""
    code = bins[rows, moves[which, 2]]
    return np.where(code == 0, moves[which, 4] > 0, code <= moves[which, 3])


def _still(a: Array) -> Array:
    """Return an array as one that is only read: numba compiles a loop once for each kind."""
    a = a.view()
    a.flags.writeable = False
    return a


class _Work:
    """Additions of this process so far."""

    done = 0


def compiled(additions: int) -> Any:
    """Return numba's kernels; None before they are worth their start, and without numba."""
    if _Work.done < WORTH:
        _Work.done += additions
        return None
    return _kernels()


@cache
def _kernels() -> Any:
    if find_spec("numba") is None:
        return None
    return import_module("fedcohort.numerics.trees.compiled")

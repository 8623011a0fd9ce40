"""Which further cells of a table of sites by levels are hidden, so that no hidden count follows.

The table x (r, k) has the counts of k levels at r sites, with the sites' rows n (r,) and, as one
row more, the levels over all sites t (k,). Some cells are hidden, as sites hide them or as they are
small (`counts.hidden`). Whoever has all that is shown knows

    Σ_j x_ij = n_i,    Σ_i x_ij = t_j,    x ≥ 0                                               (1)

so that a hidden cell lies between the least and the largest value that these allow: two linear
programs (the attacker's audit of τ-Argus and sdcMicro). With m the `min_cell`, a count that is
hidden for being 1 … m − 1 has m − 1 possible values, and (1) must leave it as many:

    max x_ij − min x_ij ≥ m − 2                                                               (2)

Where (2) fails, the corners of the cheapest rectangle through the cell are hidden with it, as the
hypercube method does (Giessing & Repsilber, LNCS 2316, 2002): cells of sites before cells of the
row of all, which count `ALL` times as much, and larger counts before smaller ones, which leave
little room. Nothing of this depends on a hidden value, so which cells are hidden tells nothing new.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcohort.arrays import Array

#: A cell of all sites is worth so many cells of one.
ALL = 30
#: Directions in which the audit looks before it asks for each cell's own bounds.
_DIRECTIONS = 6


def protected(
    shown: Array, rows: Array, whole: Array, total: float, min_cell: int
) -> tuple[Array, Array]:
    """Return which cells of sites (r, k), and of all sites (k,), are hidden in the end: bool.

    Parameters
    ----------
    shown : (r, k) counts, NaN where they are hidden already.
    rows : (r,) Σ of each row, NaN where it is not known.
    whole : (k,) over all sites, NaN where they are hidden already; they add up to `total`.
    """
    table = np.vstack([shown, whole]).astype(float)
    hidden = np.isnan(table)
    if min_cell <= 1 or not hidden.any():
        return hidden[:-1], hidden[-1]
    sums = np.append(np.asarray(rows, float), total)
    tried: set[tuple[int, ...]] = set()
    while True:
        weak = unsafe(table, hidden, sums, min_cell)
        if not len(weak):
            return hidden[:-1], hidden[-1]
        corners = _cheapest(table, hidden, weak[0], min_cell, tried)
        if corners is None:  # no rectangle is left that was not tried
            hidden[-1] |= hidden[:-1].any(axis=0)
            hidden[weak[0, 0]] = True
            if not len(unsafe(table, hidden, sums, min_cell)):
                return hidden[:-1], hidden[-1]
            return hidden[:-1], np.ones(table.shape[1], bool)
        for i, j in corners:
            hidden[i, j] = True


def unsafe(table: Array, hidden: Array, sums: Array, min_cell: int) -> Array:
    """Return the hidden cells (u, 2) that eq. (1) leaves too few values, eq. (2)."""
    cells = np.argwhere(hidden)
    ends = bounds(table, hidden, sums, cells, min_cell - 2)
    return cells[ends[:, 1] - ends[:, 0] < min_cell - 2 - 1e-6]


def bounds(
    table: Array, hidden: Array, sums: Array, cells: Array, enough: float = math.inf
) -> Array:
    """Return the least and the largest value that eq. (1) allows each of some hidden cells (u, 2).

    Parameters
    ----------
    table : (r + 1, k), the row of all last; what is hidden there is not looked at.
    sums : (r + 1,) of rows, NaN where not known.
    cells : (u, 2) places of hidden cells.
    enough : where values this far apart are found, no further ones are looked for.
    """
    place = np.full(table.shape, -1)
    place[hidden] = np.arange(hidden.sum())
    known = np.where(hidden, 0.0, table)
    sign = np.ones(len(table))
    sign[-1] = -1.0
    lines: list[tuple[Array, Array, float]] = []
    for i in np.flatnonzero(hidden.any(axis=1) & ~np.isnan(sums)):
        at = place[i][hidden[i]]
        lines.append((at, np.ones(len(at)), sums[i] - known[i].sum()))
    for j in np.flatnonzero(hidden.any(axis=0)):
        who = np.flatnonzero(hidden[:, j])
        lines.append((place[who, j], sign[who], -float(sign @ known[:, j])))
    n = int(hidden.sum())
    row = np.repeat(np.arange(len(lines)), [len(at) for at, _, _ in lines])
    from scipy.optimize import linprog  # slow to load, as all of scipy.optimize
    from scipy.sparse import csr_matrix

    a: Any = csr_matrix(
        (np.concatenate([s for _, s, _ in lines]), (row, np.concatenate([p for p, _, _ in lines]))),
        shape=(len(lines), n),
    )
    b = np.array([value for _, _, value in lines])
    where = place[cells[:, 0], cells[:, 1]]
    low, high = np.full(n, np.inf), np.full(n, -np.inf)

    def solved(direction: Array) -> Any:
        return linprog(direction, A_eq=a, b_eq=b, method="highs")

    def see(direction: Array) -> None:
        found = solved(direction)
        if found.x is not None:  # an unbounded one is followed below
            np.minimum(low, found.x, out=low)
            np.maximum(high, found.x, out=high)

    rng = np.random.default_rng(0)
    for _ in range(_DIRECTIONS if math.isfinite(enough) else 0):
        if (high[where] - low[where] >= enough).all():
            break
        direction = rng.normal(size=n)
        see(direction)
        see(-direction)
    for at in where.tolist():
        for way in (1.0, -1.0):
            if not high[at] - low[at] >= enough:
                one = np.zeros(n)
                one[at] = way
                if solved(one).status == 3:
                    high[at] = np.inf
                else:
                    see(one)
    return np.stack([low[where], high[where]], axis=1)


def _cheapest(
    table: Array, hidden: Array, cell: Array, min_cell: int, tried: set[tuple[int, ...]]
) -> list[tuple[int, int]] | None:
    """Return the corners of the cheapest rectangle through a cell that was not tried."""
    i, j = (int(v) for v in cell)
    small = np.where(hidden, 0.0, 0.2 * (np.nan_to_num(table) < min_cell))
    price = np.where(hidden, 0.0, 1.0 + small + 1e-6 * np.nan_to_num(table))
    price[-1] *= ALL
    r, k = table.shape
    best: tuple[float, list[tuple[int, int]]] | None = None
    for a in range(r):
        for b in range(k):
            if a == i or b == j or (i, j, a, b) in tried:
                continue
            corners = [(i, b), (a, j), (a, b)]
            cost = float(sum(price[c] for c in corners))
            if cost > 0 and (best is None or cost < best[0]):
                best = cost, corners
    if best is not None:
        a, b = best[1][2]
        tried.add((i, j, a, b))
    return None if best is None else best[1]

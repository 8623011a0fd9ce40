"""Further hidden cells of a table of sites by levels, so that no hidden count follows.

The table x (r, k) has the counts of k levels at r sites, with the sites' rows n (r,) and the levels
over all sites t (k,). Sites hide some cells, and others are small (`counts.hidden`). All shown
values give

    Σ_j x_ij = n_i,    Σ_i x_ij = t_j,    x ≥ 0                                               (1)

so a hidden cell lies between the least and the largest value that these allow (the attacker's audit
of τ-Argus and sdcMicro). With m the `min_cell`, a count hidden for being 1 … m − 1 has m − 1
possible values, and (1) must leave it as many:

    max x_ij − min x_ij ≥ m − 2                                                               (2)

Each hidden cell stands in two equations of (1), so the fitting tables are the flows of a network:
rows and levels are its nodes, hidden cells its arcs. From any such flow a cell can rise by the
largest flow that leads back from its head to its tail, and fall by the largest one around it
(Ahuja, Magnanti & Orlin, Network flows, 1993, ch. 6), instead of two linear programs. A cell that
satisfies (2) still does when more cells are hidden.

If (2) fails, the corners of the cheapest rectangle through the cell are hidden with it, as in the
hypercube method (Giessing & Repsilber, LNCS 2316, 2002): cells of sites before cells over all sites
(which count `ALL` times as much), and larger counts before smaller ones, which leave little room.
No choice depends on a hidden value, so the choice of cells reveals nothing new.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array

#: Weight of a cell of all sites against a cell of one.
ALL = 30


def protected(
    shown: Array, rows: Array, whole: Array, total: float, min_cell: int, known: Array | None = None
) -> tuple[Array, Array]:
    """Return which cells of sites (r, k), and of all sites (k,), are finally hidden: bool.

    Parameters
    ----------
    shown : (r, k) counts, NaN if hidden already.
    rows : (r,) Σ of each row, NaN if unknown.
    whole : (k,) over all sites, NaN if hidden already; they add up to `total`.
    known : (r + 1, k) bool, cells that others know even if they are hidden; None: none.
    """
    table = np.vstack([shown, whole]).astype(float)
    hidden = np.isnan(table)
    if min_cell <= 1 or not hidden.any():
        return hidden[:-1], hidden[-1]
    audit = Audit(table, np.append(np.asarray(rows, float), total), min_cell - 2)
    tried: set[tuple[int, ...]] = set()
    while True:
        weak = audit.weak(hidden)
        if weak is None:
            return hidden[:-1], hidden[-1]
        corners = _cheapest(table, hidden, weak, min_cell, tried, known)
        if corners is None:  # all rectangles were tried
            hidden[-1] |= hidden[:-1].any(axis=0)
            hidden[weak[0]] = True
            if audit.weak(hidden) is None:
                return hidden[:-1], hidden[-1]
            return hidden[:-1], np.ones(table.shape[1], bool)
        for i, j in corners:
            hidden[i, j] = True


class Audit:
    """Hidden cells of a table with too few possible values, as more cells are hidden.

    Parameters
    ----------
    table : (r + 1, k) whole counts, the row of all last, NaN for initially hidden cells.
    sums : (r + 1,) of rows, NaN if unknown.
    enough : required distance of the least and the largest value.
    """

    def __init__(self, table: Array, sums: Array, enough: int) -> None:
        self.enough = enough
        r, k = table.shape
        row, level = np.indices((r, k))
        row[np.isnan(sums)] = r + k  # one node for all rows of unknown sums
        self.tail, self.head = row, r + level
        self.tail[-1], self.head[-1] = r + level[-1], row[-1].copy()
        self.fine = np.zeros((r, k), bool)
        self.fit = self._fitted(table, sums)

    def weak(self, hidden: Array) -> tuple[int, int] | None:
        """Return the first hidden cell with too few possible values, eq. (2), or None."""
        if self.enough <= 0:
            return None
        for i, j in np.argwhere(hidden & ~self.fine).tolist():
            if self.room(i, j, hidden) < self.enough:
                return i, j
            self.fine[i, j] = True
        return None

    def room(self, i: int, j: int, hidden: Array) -> int:
        """Return the distance between a hidden cell's bounds, or `enough` if that is less.

        It is 0 if no table fits the shown values.
        """
        if self.fit is None:
            return 0
        x = np.where(hidden, np.minimum(self.fit, self.enough), 0).astype(np.int32)
        if i < len(x) - 1:  # a rectangle is found fast, and usually suffices
            corner = (hidden & hidden[:, [j]] & hidden[i])[:-1]
            corner[i] = corner[:, j] = False
            up = np.minimum(x[:-1, [j]], x[i])[corner].max(initial=0)
            down = x[:-1][corner].max(initial=0)
            if up + min(down, x[i, j]) >= self.enough:
                return self.enough
        at = self.tail[hidden], self.head[hidden]
        free = np.zeros((sum(x.shape) + 1,) * 2, np.int32)
        np.add.at(free, at, self.enough)
        np.add.at(free, at[::-1], x[hidden])
        tail, head = self.tail[i, j], self.head[i, j]
        free[tail, head] -= self.enough
        free[head, tail] -= x[i, j]
        up = _flow(free, head, tail)[0]
        if up < self.enough:
            up += min(_flow(free, tail, head)[0], x[i, j])
        return min(int(up), self.enough)

    def _fitted(self, table: Array, sums: Array) -> Array | None:
        """Return one table that fits the shown values, or None."""
        hidden = np.isnan(table)
        r, k = table.shape
        known, last, source, sink = np.where(hidden, 0.0, table), r + k, r + k + 1, r + k + 2
        out = np.zeros(last + 1)  # outflow of each node less its inflow
        out[:r] = np.where(np.isnan(sums), 0.0, sums - known.sum(axis=1))
        out[r - 1] *= -1
        out[r:last] = known[:-1].sum(axis=0) - known[-1]
        used = np.zeros(last + 1, bool)
        used[self.tail[hidden]] = used[self.head[hidden]] = True
        out[~used] = 0.0
        out[last] = -out[:last].sum() if used[last] else 0.0
        most = np.abs(out).sum()
        if out.sum() != 0 or most >= np.iinfo(np.int32).max:
            return None
        arcs = np.zeros((sink + 1, sink + 1), np.int32)
        arcs[self.tail[hidden], self.head[hidden]] = most
        arcs[source, : last + 1] = np.maximum(out, 0)
        arcs[: last + 1, sink] = np.maximum(-out, 0)
        found, flow = _flow(arcs, source, sink)
        if found < most / 2:
            return None
        for i, j in np.argwhere(hidden).tolist():  # of arcs between two nodes the first has all
            arc = self.tail[i, j], self.head[i, j]
            known[i, j], flow[arc] = max(flow[arc], 0), 0
        return known


def _flow(capacity: Array, source: int, sink: int) -> tuple[int, Array]:
    """Return the largest flow between two nodes, and the flow along each arc."""
    from scipy.sparse import csr_array  # slow to load
    from scipy.sparse.csgraph import maximum_flow

    found = maximum_flow(csr_array(capacity), int(source), int(sink))
    return int(found.flow_value), found.flow.toarray()


def _cheapest(
    table: Array, hidden: Array, cell: tuple[int, int], min_cell: int, tried: set[tuple[int, ...]],
    known: Array | None = None,
) -> list[tuple[int, int]] | None:  # fmt: skip
    """Return the corners of the cheapest untried rectangle through a cell."""
    i, j = cell
    small = np.where(hidden, 0.0, 0.2 * (np.nan_to_num(table) < min_cell))
    price = np.where(hidden, 0.0, 1.0 + small + 1e-6 * np.nan_to_num(table))
    price[-1] *= ALL
    if known is not None:
        price[known] = np.inf
    r, k = table.shape
    best: tuple[float, list[tuple[int, int]]] | None = None
    for a in range(r):
        for b in range(k):
            if a == i or b == j or (i, j, a, b) in tried:
                continue
            corners = [(i, b), (a, j), (a, b)]
            cost = float(sum(price[c] for c in corners))
            if 0 < cost < np.inf and (best is None or cost < best[0]):
                best = cost, corners
    if best is not None:
        a, b = best[1][2]
        tried.add((i, j, a, b))
    return None if best is None else best[1]

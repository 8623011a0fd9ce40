"""Agreement on what sites hide in Table 1, so that no sum reveals what one of them hides.

A site says of each of its counts whether its own rule hides it, but not how large it is
(`tell_cells`). The coordinator says which further cells each site hides (`Agreed`): if a site
would hide a cell alone, another site hides it too, whatever it has there.

The coordinator then asks for sums of hidden counts (`pooled.sum_hidden`). It knows the
rows and the shown counts of each site. So the hidden counts x of a variable satisfy

    Σ_i x_si = hidden rows of site s,    Σ_s x_si = the sum of cell i, if it is shown

These are flows in a network from sites to cells, in which all cells without a sum are one node. A
count is determined, whatever the values, if its arc is a bridge: the only connection between two
parts of the network. So the sum of a cell is shown only if no count that a site hides by its own
rule has a bridge to it (`shown_sums`). An arc is a bridge if its effective resistance in the
network, with a resistance of 1 for each arc, is 1 (Klein & Randić, J. Math. Chem. 12, 1993).

The moments of a number reveal how many values are known at the sites that hide its mean. Among the
counts that sites hide, these must be none, all, or at least two on either side.

Sites do not trust the coordinator. In the sum every site checks its own line, and refuses if
it differs from what the site hides. Each site computes which cells are shown. All sites get the
same lines, or masks do not cancel (`secure`), and the lines must be of the sites of the sum. So
the sum is computed only if all lines are true. What a site hides in its table is fixed with the
lines (`Step.once`). A coordinator that names other cells can only hide more.

Revealed: `CellStates` of each site, once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort import mapped
from fedcohort.arrays import Array
from fedcohort.data.describe.shown_number import HIDDEN, shown_number
from fedcohort.data.encode import Encoded
from fedcohort.privacy.disclosure.counts import hidden_variable
from fedcohort.protocol.errors import Refused
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered, mark_of

#: Name of sites that are shown, or take part, together.
OTHERS = "other hospitals"
#: State of a cell at a site: no rows, hidden by the site's own rule, or shown.
NONE, OWN, SHOWN = 0, 1, 2
#: Defaults: no sites, and no cells that are hidden beyond a site's own rule.
NO_MARKS, NO_MORE = np.zeros(0, np.int64), np.zeros((0, 0, 0), bool)
#: An arc of at least this resistance is a bridge: others have at most 1 − 1/arcs.
BRIDGE = 1.0 - 1e-6


@message
class CellStates:
    """Which cells one site would show: ``rows`` (), `HIDDEN` below m, ``state`` (c + k, w + 1).

    The w cells of a variable are missing values, then levels (of a number, known values); the last
    column is a number's mean.
    """

    rows: Array
    state: Array


def cells_of(data: Encoded, n_levels: Array) -> list[Array]:
    """Return the counts of each variable: missing values, then known ones or levels."""
    known = [np.count_nonzero(~np.isnan(x)) for x in mapped.each(data.numbers)]
    out = [np.array([len(x) - n, n]) for x, n in zip(data.numbers, known, strict=True)]
    pairs = zip(data.codes, n_levels.tolist(), strict=True)
    return [*out, *(np.bincount(c + 1, minlength=n + 1) for c, n in pairs)]


def states_of(data: Encoded, n_levels: Array, min_cell: int) -> tuple[int, Array]:
    """Return a site's number of rows and `CellStates.state`, by its own rule alone."""
    every = cells_of(data, n_levels)
    n = int(every[0].sum()) if every else 0
    state = np.zeros((len(every), max([2, *(len(c) for c in every)]) + 1), np.int64)
    for j, cells in enumerate(every):
        own = hidden_variable(cells, min_cell)
        state[j, : len(cells)] = np.where(own, OWN, SHOWN if n else NONE)
    for j, x in enumerate(mapped.each(data.numbers)):
        if not np.isnan(x).all():
            state[j, -1] = OWN if shown_number(x, min_cell).mean is None else SHOWN
    if 0 < n < 2 * min_cell and min_cell > 1:
        for j, cells in enumerate(every):
            state[j, : len(cells)] = OWN
        state[: len(data.numbers), -1] = OWN
    return n, state


def closed_at(name: str, marks: Array, closed: Array) -> Array | None:
    """Return the cells (c + k, w + 1) that the site of that name hides by `Agreed`; None without.

    Raises
    ------
    Refused : there is no line of the site.
    """
    if not len(marks):
        return None
    at = np.flatnonzero(marks == mark_of(name))
    if len(at) != 1 or closed.ndim != 3 or len(closed) != len(marks):
        raise Refused(
            "agreed",
            f"site {name!r}: the list of cells that sites hide in Table 1 has no line for it.",
        )
    return closed[at[0]].astype(bool)


def secret(cells: Array, row: Array | None, j: int, min_cell: int) -> Array:
    """Return which cells (k,) of variable j a site hides; `row` is that of `closed_at`."""
    own = hidden_variable(cells, min_cell)
    if row is None:
        return own
    if row.shape[0] <= j or row.shape[1] <= len(cells):
        raise Refused(
            "agreed",
            "the list of cells that sites hide in Table 1 is of other columns than the call.",
        )
    return own | row[j, : len(cells)]


@gathered(blocks="own")
def tell_cells(site: Site[Encoded, None], *, n_levels: Array, min_cell: int) -> CellStates:
    """Return which counts the site hides by its own rule, and whether it shows a mean; no count."""
    n, state = states_of(site.data, n_levels, min_cell)
    return CellStates(np.array(HIDDEN if 0 < n < min_cell else n), state)


def own_line(
    site: Site[Encoded, None], n_levels: Array, min_cell: int, marks: Array, closed: Array,
    own: Array, some: Array,
) -> tuple[Array, int]:  # fmt: skip
    """Return what the site hides by its line of `Agreed` (c + k, w + 1), and its number of rows.

    Raises
    ------
    Refused : the lines are of other sites than the sum, or this site's line differs from what it
        hides.
    """
    row = closed_at(site.name, marks, closed)
    n, state = states_of(site.data, n_levels, min_cell)
    fine = row is not None and closed.shape == own.shape == some.shape and row.shape == state.shape
    if site.among:
        known = sorted(mark_of(s) for s in site.among)
        fine = fine and sorted(int(v) for v in marks.tolist()) == known
    if fine and row is not None:
        at = marks == mark_of(site.name)
        fine = bool((row | (state != OWN)).all())
        fine = fine and np.array_equal(own[at][0].astype(bool), state == OWN)
        fine = fine and np.array_equal(some[at][0].astype(bool), state != NONE)
    if not fine or row is None:
        raise Refused(
            "agreed",
            f"site {site.name!r}: its line in the list of hidden cells of Table 1 is wrong, "
            f"or the list is of other sites than the sum. The sum could reveal a hidden count.",
        )
    return row, n


# what may be summed -----------------------------------------------------------------------


def shown_sums(closed: Array, own: Array, some: Array) -> Array:
    """Return for which cells (c + k, w + 1) the sum over sites is shown; the last is a mean.

    closed, own, some : see `Agreed`.
    """
    masks = [np.ascontiguousarray(a, bool) for a in (closed, own, some)]
    return _shown_sums(masks[0].shape, *(a.tobytes() for a in masks)).copy()


@lru_cache(maxsize=2)  # in a simulation every site computes it
def _shown_sums(shape: tuple[int, ...], *masks: bytes) -> Array:
    closed, own, some = (np.frombuffer(b, bool).reshape(shape) for b in masks)
    gives = closed & some
    shown = gives.sum(axis=0) > 1
    for j in range(shape[1]):
        arcs, secret = gives[:, j, :-1], own[:, j, :-1]
        cells = shown[j, :-1]  # a view
        while cells.any():
            follows = (_bridges(arcs, cells) & secret & cells).any(axis=0)
            if not follows.any():
                break
            cells &= ~follows
        shown[j, -1] &= not _alone(gives[:, j], own[:, j], shown[j, 1])
    return shown


def _alone(gives: Array, own: Array, shown: bool) -> bool:
    """Return whether sums at sites that hide a mean (S, w + 1) reveal one site's known values.

    shown : whether the sum of known values is shown for the sites that hide them.
    """
    inside, rest = _sides(gives)
    sides = (inside, rest) if shown else (inside,)
    return any(side.sum() == 1 and own[side, 1].any() for side in sides)


def _sides(gives: Array) -> tuple[Array, Array]:
    """Return which sites (S,) hide the number of known values, with the mean and without it."""
    return gives[:, 1] & gives[:, -1], gives[:, 1] & ~gives[:, -1]


def _bridges(arcs: Array, shown: Array) -> Array:
    """Return which arcs (S, w) from sites to cells are bridges; cells not in `shown` are one node.

    The resistance is 1 for an arc that alone connects two parts, as the whole flow passes it.
    """
    s, i = np.nonzero(arcs)
    head = np.where(shown[i], i, arcs.shape[1])
    nodes, ends = np.unique(np.append(s, len(arcs) + head), return_inverse=True)
    tail, head = ends[: len(s)], ends[len(s) :]
    laplacian = np.zeros((len(nodes), len(nodes)))
    for a, b, sign in ((tail, tail, 1), (head, head, 1), (tail, head, -1), (head, tail, -1)):
        np.add.at(laplacian, (a, b), sign)
    inverse = np.linalg.pinv(laplacian, hermitian=True)
    resistance = inverse[tail, tail] + inverse[head, head] - 2 * inverse[tail, head]
    out = np.zeros(arcs.shape, bool)
    out[s, i] = resistance > BRIDGE
    return out


@dataclass(frozen=True)
class Agreed:
    """Which site hides which cell of Table 1; S sites by name.

    Attributes
    ----------
    sites : their names, sorted.
    small : sites that are shown together as `OTHERS`.
    closed : (S, c + k, w + 1), bool: the site hides the cell, or the mean.
    own : the same shape: it does so by its own rule.
    some : the same shape: the site has rows; for a mean, known values.
    """

    sites: tuple[str, ...]
    small: tuple[str, ...]
    closed: Array
    own: Array
    some: Array

    @property
    def marks(self) -> Array:
        """Hashes of the sites' names (S,)."""
        return np.array([mark_of(s) for s in self.sites], np.int64)

    @property
    def asked(self) -> dict[str, Array]:
        """Arguments for steps that show a table."""
        return {"marks": self.marks, "closed": self.closed}

    @property
    def summed(self) -> dict[str, Array]:
        """Arguments for steps that add to a sum."""
        return {**self.asked, "own": self.own, "some": self.some}

    def shown(self) -> Array:
        """Return for which cells (c + k, w + 1) the sum over sites is shown."""
        return shown_sums(self.closed, self.own, self.some)

    def unshown(self) -> Array:
        """Return hidden cells (c + k, w + 1) without a shown sum, because it would reveal one
        site's.
        """
        return (self.closed & self.some).any(axis=0) & ~self.shown()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values."""
        packed = [np.packbits(a).tobytes().hex() for a in (self.closed, self.own, self.some)]
        shape = list(self.closed.shape)
        return {"sites": [*self.sites], "small": [*self.small], "shape": shape, "cells": packed}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Agreed:
        """Rebuild it from `to_dict`."""
        shape = tuple(plain["shape"])
        masks = (
            np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8), count=math.prod(shape))
            for text in plain["cells"]
        )
        closed, own, some = (m.reshape(shape).astype(bool) for m in masks)
        return cls(tuple(plain["sites"]), tuple(plain["small"]), closed, own, some)

    @classmethod
    def of(cls, states: Mapping[str, CellStates], min_cell: int) -> Agreed:
        """Return what all sites must hide, so that no sum is of one of them."""
        names = tuple(sorted(states))
        state = np.array([states[s].state for s in names])
        own, some = state == OWN, state != NONE
        closed = own.copy()
        rows = {s: max(int(t.rows), 1) for s, t in states.items() if t.rows != 0}
        order = sorted(rows, key=lambda s: (rows[s], s))
        small = [s for s in order if rows[s] < 2 * min_cell or s == OTHERS]
        for s in order:
            few = len(small) == 1 or sum(rows[x] for x in small) < 2 * min_cell
            if small and s not in small and few:
                small.append(s)
        small = small if len(small) > 1 else []
        closed[[names.index(s) for s in small]] = True
        large = [names.index(s) for s in order if s not in small]
        count = np.arange(state.shape[2]) < state.shape[2] - 1
        for j in range(state.shape[1]):
            for of in (count, ~count):
                _with_partners(closed[:, j], some[:, j], of, large)
            _with_means(closed[:, j], own[:, j], some[:, j], [names.index(s) for s in order])
        return cls(names, tuple(small), closed, own, some)


def _with_partners(closed: Array, some: Array, of: Array, large: Sequence[int]) -> None:
    """Let another site hide each cell that one site would hide alone; one variable, in place.

    Parameters
    ----------
    closed, some : (S, w + 1).
    of : (w + 1,) columns.
    large : sites that can, fewest rows first.
    """
    for i in [*large, *(i for i in range(len(closed)) if i not in large)]:
        gives = closed & some & of
        if not (gives[i] & (gives.sum(axis=0) == 1)).any():
            continue
        part = closed[i] & of
        able = [t for t in large if t != i and (some[t] & part).any()]
        if able:  # prefer a site with known values
            closed[min(able, key=lambda t: not some[t, -1])] |= part


def _with_means(closed: Array, own: Array, some: Array, order: Sequence[int]) -> None:
    """Hide further means, so that the number of known values behind hidden means is safe; in place.

    Parameters
    ----------
    closed, own, some : (S, w + 1).
    order : sites that can, fewest rows first.
    """
    if (closed & some)[:, -1].sum() < 2:
        return
    while _alone(closed & some, own, True):
        rest = _sides(closed & some)[1]
        able = [i for i in order if rest[i] and some[i, -1]]
        if not able:
            return
        closed[able[0], -1] = True

"""Cells of time that hold enough people, found from the whole downwards.

Counting a group's deaths in narrow intervals and joining those that hold few would show the
coordinator the few. Here the first cell is the whole follow-up. A cell is split, at that time of
the common grid that is nearest to the mean of those in it, only where

    of each count it holds 0 or 4 m                                                        (1)

or more, m the `min_cell`: of 4 m, each part gets m or more but for an unlucky one in about eighty
(m = 5). A part that then holds 1 … m − 1 is joined again and the cell stays whole. So each cell of
the result holds 0 or m of its own group, and 0 or m of the rest, whose count would otherwise be the
difference to a curve of all. Times are summed in cells of the result alone, or in those that they
are parts of.

Of three groups or more, several curves together may be taken off a curve of all: by who leaves in
(a, b], with C_i(t) a group's count up to a time t at which a cell of its ends, A(t) that of all,

    A(b) − A(a) − Σ_i (C_i(b) − C_i(a))   over the groups i with ends at a and at b          (2)

are told, which is 0 or m or more for fewer groups wherever it is for these. Where it is not, a cell
of the group with the most cells is joined to its neighbour, unless the groups left over are few in
all.

All together, the intervals of the grid hold m deaths as they are (`data.timegrid`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.algorithms.survival_curves.steps import DEATHS, LEAVERS, cell_counts, cell_times
from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.counts import few
from fedcohort.protocol import Federation

#: A cell is split where it holds so many times `min_cell`.
MARGIN = 4


@dataclass(frozen=True)
class Row:
    """Whom a question is about: a ``group``, and a ``kind`` of its records (`steps`)."""

    group: int
    kind: int


@dataclass(frozen=True)
class Cells:
    """Counts of one row in its cells.

    Attributes
    ----------
    edges : (m + 1,) places (`steps`) from 0 to T + 1 where cells begin and end.
    counts : (m,), 0 or `min_cell` or more each.
    totals : Σ time in each (m,), no later than the grid's end.
    """

    edges: Array
    counts: Array
    totals: Array

    @property
    def means(self) -> Array:
        """The mean time in each cell (m,), nan in empty ones."""
        full = np.full(len(self.counts), np.nan)
        return np.divide(self.totals, self.counts, out=full, where=self.counts > 0)


@dataclass(frozen=True)
class _Line:
    """A row's cells, some of which may yet be split; arrays (m,) as in `Cells` and `steps`.

    Attributes
    ----------
    final : cells that stay as they are.
    """

    row: Row
    edges: Array
    own: Array
    rest: Array
    totals: Array
    final: Array

    @classmethod
    def within(cls, row: Row, edges: Array) -> _Line:
        """Return a line of which nothing is known but where its cells begin and end."""
        none = np.zeros(len(edges) - 1)
        return cls(row, edges, none, none, none, none > 0)

    def watched(self, min_cell: int) -> Array:
        """Return the counts (c, m) that no cell may hold few of.

        Where the rest are few in all, a curve of all tells them whatever the cells, and the rest do
        not count.
        """
        own = self.own[None]
        return own if few(self.rest.sum(), min_cell) else np.stack([self.own, self.rest])


class Finder:
    """Finds cells for rows, all at once, on a common grid.

    Parameters
    ----------
    times : (T,), the common grid.
    groups : how many there are; 0 for all records together.
    min_cell : m.
    """

    def __init__(self, fed: Federation, times: Array, groups: int, min_cell: int):
        self._fed, self._times, self._groups, self._m = fed, times, groups, min_cell

    def find(self, rows: Sequence[Row], *, whole: bool) -> dict[Row, Cells]:
        """Return the cells of each row.

        Parameters
        ----------
        rows : each of m records or more, or of none.
        whole : whether deaths start as one cell, rather than as the grid's own intervals.
        """
        found = self._counted([_Line.within(row, self._start(row, whole)) for row in rows])
        while True:
            found = self._timed(found)
            tried = [self._split(line) for line in found]
            if all(new is line for new, line in zip(tried, found, strict=True)):
                kinds = dict.fromkeys(x.row.kind for x in found)
                apart = [y for kind in kinds for y in _apart(found, kind, self._m)]
                return {x.row: Cells(x.edges, x.own, x.totals) for x in apart}
            counted = self._counted(tried)
            found = [self._kept(old, new) for old, new in zip(found, counted, strict=True)]

    def _start(self, row: Row, whole: bool) -> Array:
        """Return the places where the first cells begin and end; no death has place 0."""
        first, last = int(row.kind == DEATHS), len(self._times) + 1
        if self._m <= 1 or (first and not whole):
            return np.arange(first, last + 1)
        return np.array([first, last])

    def _question(self, lines: Sequence[_Line]) -> dict[str, Any]:
        """Return the arguments of a question about all rows."""
        edges = np.full((len(lines), max(len(x.edges) for x in lines)), len(self._times) + 1)
        for padded, line in zip(edges, lines, strict=True):
            padded[: len(line.edges)] = line.edges
        return {
            "times": self._times,
            "groups": self._groups,
            "group": np.array([x.row.group for x in lines]),
            "kind": np.array([x.row.kind for x in lines]),
            "edges": edges,
        }

    def _counted(self, lines: Sequence[_Line]) -> list[_Line]:
        """Ask for the counts of all cells."""
        reply = self._fed.sum(cell_counts, **self._question(lines))
        both = zip(lines, reply.own, reply.rest, strict=True)
        return [replace(x, own=a[: len(x.own)], rest=b[: len(x.own)]) for x, a, b in both]

    def _timed(self, lines: Sequence[_Line]) -> list[_Line]:
        """Ask for the sums of times in all cells."""
        reply = self._fed.sum(cell_times, **self._question(lines))
        return [replace(x, totals=t[: len(x.own)]) for x, t in zip(lines, reply.total, strict=True)]

    def _split(self, line: _Line) -> _Line:
        """Return the line with each cell cut in two that may be, or the line itself."""
        wide = (np.diff(line.edges) > 1) & ~line.final & (line.own > 0)
        enough = ~few(line.watched(self._m), MARGIN * self._m).any(axis=0)
        cuts = [self._cut(line, i) for i in np.flatnonzero(wide & enough).tolist()]
        return _Line.within(line.row, np.union1d(line.edges, cuts)) if cuts else line

    def _cut(self, line: _Line, cell: int) -> int:
        """Return the place inside a cell where the time of the grid is nearest to the mean."""
        inside = np.arange(line.edges[cell] + 1, line.edges[cell + 1])
        at = self._times[inside - (2 if line.row.kind == DEATHS else 1)]
        off = np.abs(at - line.totals[cell] / line.own[cell])
        return int(inside[np.argmin(np.round(off / self._times[-1], 9))])

    def _kept(self, old: _Line, new: _Line) -> _Line:
        """Return the line after its splits: those that left a part with few are undone."""
        if new is old or len(new.edges) == len(old.edges):
            return old
        cuts = np.setdiff1d(new.edges, old.edges)
        small: Array = np.any(few(new.watched(self._m), self._m), axis=0)
        parts = np.searchsorted(new.edges, cuts)
        undone = cuts[small[parts] | small[parts - 1]]
        edges = np.setdiff1d(new.edges, undone)
        starts = np.searchsorted(new.edges, edges[:-1])
        own, rest = (np.add.reduceat(c, starts) for c in (new.own, new.rest))
        joined = np.isin(np.arange(len(edges) - 1), np.searchsorted(edges, undone) - 1)
        was = old.final[np.searchsorted(old.edges, edges[:-1], side="right") - 1]
        return replace(new, edges=edges, own=own, rest=rest, final=joined | was)


def _apart(lines: Sequence[_Line], kind: int, min_cell: int) -> list[_Line]:
    """Return the lines of a kind, with cells joined until eq. (2) is of no few."""
    found = [x for x in lines if x.row.kind == kind]
    while (at := _told(found, min_cell)) is not None:
        a, b = at
        both = [i for i, x in enumerate(found) if np.isin(at, x.edges).all()]
        most = max(both, key=lambda i: len(found[i].edges))
        found[most] = _joined(found[most], b if a == found[most].edges[0] else a)
    return found


def _told(lines: Sequence[_Line], min_cell: int) -> tuple[int, int] | None:
    """Return the places of the first a and b where eq. (2) is of few; None where nowhere.

    A test shows nothing by time, so who leaves for it is not looked at.
    """
    if min_cell <= 1 or len(lines) < 2 or lines[0].row.kind == LEAVERS:
        return None
    places = np.unique(np.concatenate([x.edges for x in lines]))
    ends = np.array([np.isin(places, x.edges) for x in lines])
    own, every = np.zeros(ends.shape), np.zeros(len(places))
    for row, at, x in zip(own, ends, lines, strict=True):
        row[at] = np.r_[0, np.cumsum(x.own)]
        every[at] = np.r_[0, np.cumsum(x.own + x.rest)]
    several = ends.T.astype(float) @ ends > 1
    left = np.subtract.outer(every, every).T
    whole = np.full(left.shape, every[-1])
    for row, at in zip(own, ends, strict=True):
        both = np.outer(at, at)
        left -= np.where(both, row - row[:, None], 0.0)
        whole -= np.where(both, row[-1], 0.0)
    small = np.triu(several & few(left, min_cell) & ~few(whole, min_cell), 1)
    if not small.any():
        return None
    a, b = np.argwhere(small)[0].tolist()
    return int(places[a]), int(places[b])


def _joined(line: _Line, place: int) -> _Line:
    """Return the line without an end of cells inside it."""
    at = int(np.searchsorted(line.edges, place))

    def together(values: Array) -> Array:
        return np.add.reduceat(values, np.delete(np.arange(len(values)), at))

    return replace(
        line,
        edges=np.delete(line.edges, at),
        own=together(line.own),
        rest=together(line.rest),
        totals=together(line.totals),
        final=np.delete(line.final, at),
    )

"""Cells of time with 0 or at least m = `min_cell` records, by repeated splitting.

The first cell is the whole follow-up, so that the coordinator sees no small counts of narrow
intervals. A cell is split at the time of the common grid nearest to the mean time in it, if

    each of its counts is 0 or at least 4 m.                                               (1)

Then both parts hold m or more, except in about one split of eighty (m = 5). If a part holds
1 … m − 1, the split is undone and the cell is final. So each cell of the result holds 0 or at least
m records of its group, and of the rest, which is the difference to a curve of all. Times are summed
only in cells of the result and in unions of them.

With three groups or more, several curves can be subtracted from a curve of all. With C_i(t) a
group's count up to the end t of one of its cells, A(t) that of all, this gives

    A(b) − A(a) − Σ_i (C_i(b) − C_i(a))   over the groups i with ends at a and at b.         (2)

If (2) is 0 or at least m for these groups, it is so for fewer of them. If not, a cell of the group
with the most cells is joined to its neighbour, unless the remaining groups have few records in all.

For all records together, the intervals of the grid already hold m deaths (`data.timegrid`).
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

#: Smallest count, in units of `min_cell`, of a cell that is split.
MARGIN = 4


@dataclass(frozen=True)
class Row:
    """A ``group`` and a ``kind`` of its records (`steps`), one row of a call."""

    group: int
    kind: int


@dataclass(frozen=True)
class Cells:
    """Counts of one row in its cells.

    Attributes
    ----------
    edges : (m + 1,) places (`steps`) from 0 to T + 1 where cells begin and end.
    counts : (m,), each 0 or at least `min_cell`.
    totals : Σ time in each (m,); times are cut to the grid's end.
    """

    edges: Array
    counts: Array
    totals: Array

    @property
    def means(self) -> Array:
        """Mean time in each cell (m,); nan in empty cells."""
        full = np.full(len(self.counts), np.nan)
        return np.divide(self.totals, self.counts, out=full, where=self.counts > 0)


@dataclass(frozen=True)
class _Line:
    """A row's cells during the search; arrays (m,) as in `Cells` and `steps`.

    Attributes
    ----------
    final : cells that are not split again.
    """

    row: Row
    edges: Array
    own: Array
    rest: Array
    totals: Array
    final: Array

    @classmethod
    def within(cls, row: Row, edges: Array) -> _Line:
        """Return a line with edges and no counts."""
        none = np.zeros(len(edges) - 1)
        return cls(row, edges, none, none, none, none > 0)

    def protected(self, min_cell: int) -> Array:
        """Return the counts (c, m) that may not be few in any cell.

        If the rest is few in all, a curve of all shows it with any cells: it is not protected.
        """
        own = self.own[None]
        return own if few(self.rest.sum(), min_cell) else np.stack([self.own, self.rest])


class Finder:
    """Finds the cells of all rows together, on a common grid.

    Parameters
    ----------
    times : (T,), the common grid.
    groups : number of groups; 0 for all records together.
    min_cell : m.
    """

    def __init__(self, fed: Federation, times: Array, groups: int, min_cell: int):
        self._fed, self._times, self._groups, self._m = fed, times, groups, min_cell

    def find(self, rows: Sequence[Row], *, split_deaths: bool) -> dict[Row, Cells]:
        """Return the cells of each row.

        Parameters
        ----------
        rows : each of 0 or at least m records.
        split_deaths : start deaths with one cell; otherwise use the grid's own intervals.
        """
        found = self._counted([_Line.within(row, self._start(row, split_deaths)) for row in rows])
        while True:
            found = self._timed(found)
            tried = [self._split(line) for line in found]
            if all(new is line for new, line in zip(tried, found, strict=True)):
                kinds = dict.fromkeys(x.row.kind for x in found)
                safe = [y for kind in kinds for y in _join_few(found, kind, self._m)]
                return {x.row: Cells(x.edges, x.own, x.totals) for x in safe}
            counted = self._counted(tried)
            found = [self._kept(old, new) for old, new in zip(found, counted, strict=True)]

    def _start(self, row: Row, split_deaths: bool) -> Array:
        """Return the edges of the first cells; no death has place 0."""
        first, last = int(row.kind == DEATHS), len(self._times) + 1
        if self._m <= 1 or (first and not split_deaths):
            return np.arange(first, last + 1)
        return np.array([first, last])

    def _question(self, lines: Sequence[_Line]) -> dict[str, Any]:
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
        reply = self._fed.sum(cell_counts, **self._question(lines))
        both = zip(lines, reply.own, reply.rest, strict=True)
        return [replace(x, own=a[: len(x.own)], rest=b[: len(x.own)]) for x, a, b in both]

    def _timed(self, lines: Sequence[_Line]) -> list[_Line]:
        reply = self._fed.sum(cell_times, **self._question(lines))
        return [replace(x, totals=t[: len(x.own)]) for x, t in zip(lines, reply.total, strict=True)]

    def _split(self, line: _Line) -> _Line:
        """Return the line with each cell split that satisfies eq. (1); the same line if none."""
        wide = (np.diff(line.edges) > 1) & ~line.final & (line.own > 0)
        enough = ~few(line.protected(self._m), MARGIN * self._m).any(axis=0)
        cuts = [self._cut(line, i) for i in np.flatnonzero(wide & enough).tolist()]
        return _Line.within(line.row, np.union1d(line.edges, cuts)) if cuts else line

    def _cut(self, line: _Line, cell: int) -> int:
        """Return the place inside a cell whose time of the grid is nearest to the mean time."""
        inside = np.arange(line.edges[cell] + 1, line.edges[cell + 1])
        at = self._times[inside - (2 if line.row.kind == DEATHS else 1)]
        off = np.abs(at - line.totals[cell] / line.own[cell])
        return int(inside[np.argmin(np.round(off / self._times[-1], 9))])

    def _kept(self, old: _Line, new: _Line) -> _Line:
        """Return the new line without the splits that gave a part with few records."""
        if new is old or len(new.edges) == len(old.edges):
            return old
        cuts = np.setdiff1d(new.edges, old.edges)
        small: Array = np.any(few(new.protected(self._m), self._m), axis=0)
        parts = np.searchsorted(new.edges, cuts)
        undone = cuts[small[parts] | small[parts - 1]]
        edges = np.setdiff1d(new.edges, undone)
        starts = np.searchsorted(new.edges, edges[:-1])
        own, rest = (np.add.reduceat(c, starts) for c in (new.own, new.rest))
        joined = np.isin(np.arange(len(edges) - 1), np.searchsorted(edges, undone) - 1)
        was = old.final[np.searchsorted(old.edges, edges[:-1], side="right") - 1]
        return replace(new, edges=edges, own=own, rest=rest, final=joined | was)


def _join_few(lines: Sequence[_Line], kind: int, min_cell: int) -> list[_Line]:
    """Return the lines of a kind, with cells joined until eq. (2) is never 1 … m − 1."""
    found = [x for x in lines if x.row.kind == kind]
    while (at := _few_between(found, min_cell)) is not None:
        a, b = at
        both = [i for i, x in enumerate(found) if np.isin(at, x.edges).all()]
        most = max(both, key=lambda i: len(found[i].edges))
        found[most] = _joined(found[most], b if a == found[most].edges[0] else a)
    return found


def _few_between(lines: Sequence[_Line], min_cell: int) -> tuple[int, int] | None:
    """Return the places of the first a and b with eq. (2) in 1 … m − 1; None if there are none.

    A test shows no count by time, so `LEAVERS` are not checked.
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
    total = np.full(left.shape, every[-1])
    for row, at in zip(own, ends, strict=True):
        both = np.outer(at, at)
        left -= np.where(both, row - row[:, None], 0.0)
        total -= np.where(both, row[-1], 0.0)
    small = np.triu(several & few(left, min_cell) & ~few(total, min_cell), 1)
    if not small.any():
        return None
    a, b = np.argwhere(small)[0].tolist()
    return int(places[a]), int(places[b])


def _joined(line: _Line, place: int) -> _Line:
    """Return the line without the inner edge `place`."""
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

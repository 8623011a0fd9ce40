"""Records of several strata on grids that stand one behind the other.

Each stratum has a baseline hazard, so a grid, of its own; times and exits of all are laid in a row,
and `blocks` (K, 2) says how many of either are each stratum's. Slots count within a stratum, or
from the first time of the first. Sums over risk sets, and over time, end where a stratum ends.
One stratum is K = 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.survival import leave_together, spans


class Block(NamedTuple):
    """One stratum's grid: where it starts in the row of times, its times and its exits."""

    first: int
    times: Array
    exits: Array


def blocks_of(times: Array, exits: Array, blocks: Array) -> Iterator[Block]:
    """Yield the grid of each stratum."""
    first = out = 0
    for n_times, n_exits in blocks.tolist():
        yield Block(first, times[first : first + n_times], exits[out : out + n_exits])
        first, out = first + n_times, out + n_exits


def rows_of(stratum: Array | None, k: int) -> Array | slice:
    """Return which records are of stratum k: all, where there is one."""
    return slice(None) if stratum is None else np.flatnonzero(stratum == k)


def starts(sizes: Array) -> Array:
    """Return where each stratum's times start, (K,), from how many there are."""
    return np.cumsum(sizes) - sizes


def apart(values: Array, sizes: Array) -> list[Array]:
    """Return each stratum's values, from those of all in a row."""
    return np.split(values, np.cumsum(sizes)[:-1])


def running(values: Array, sizes: Array | None) -> Array:
    """Return cumulative sums within each stratum; of one where there are no sizes (K,)."""
    if sizes is None or len(sizes) == 1:
        return np.cumsum(values, axis=0)
    return np.concatenate([np.cumsum(v, axis=0) for v in apart(values, sizes)])


class Laid(NamedTuple):
    """When records are at risk, each on its own stratum's grid.

    Attributes
    ----------
    enter : (n,) the first slot, counted within the stratum; None without entries.
    slot : (n,) the last, −1 where it is at risk at no time.
    dies : (n,) whether it dies there.
    start : where the stratum's slots start in the row of all, (n,) or the same for all.
    stratum : (n,), or 0.
    """

    enter: Array | None
    slot: Array
    dies: Array
    start: Array | int
    stratum: Array | int

    def in_row(self, slot: Array) -> Array:
        """Return slots from 0 as they count in the row of all strata; −1 stays."""
        return np.where(slot < 0, -1, slot + self.start)


def laid(
    time: Array,
    event: Array,
    grid: tuple[Array, Array, Array],
    entry: Array | None = None,
    stratum: Array | None = None,
    *,
    wait: bool = False,
) -> Laid:
    """Lay records on their stratum's grid.

    Parameters
    ----------
    grid : times, exits and blocks, as in the header.
    entry, stratum : (n,); None where there are none.
    wait : whether censored records leave at the exits alone.
    """
    if stratum is None:
        enter, slot, dies = spans(time, event, grid[0], entry)
        return Laid(enter, leave_together(slot, dies, grid[1]) if wait else slot, dies, 0, 0)
    n = len(time)
    enter = None if entry is None else np.zeros(n, np.int64)
    slot, dies = np.full(n, -1), np.zeros(n, bool)
    for k, block in enumerate(blocks_of(*grid)):
        at = rows_of(stratum, k)
        since = None if entry is None else entry[at]
        first, last, dead = spans(time[at], event[at], block.times, since)
        if enter is not None and first is not None:
            enter[at] = first
        slot[at] = leave_together(last, dead, block.exits) if wait else last
        dies[at] = dead
    return Laid(enter, slot, dies, starts(grid[2][:, 0])[stratum], stratum)

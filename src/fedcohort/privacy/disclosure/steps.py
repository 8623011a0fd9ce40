"""Merging of cells of counts, and of points of a curve, so that no step is of a few people.

Counts by time, risk or score are merged with neighbours until each step holds none or at least m,
the `min_cell`. A curve then has steps of at least m events. A grid of times for sums over risk sets
has m events, and so m leavers, in each interval. Numbers at risk are shown if nobody or m are left,
and nobody or m left since the last shown ones. So no difference of shown values is of 1 to m − 1
people.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.counts import few


def merged(counts: Array, at_least: int) -> Array:
    """Return where to cut cells (m,) into steps that each hold at least `at_least` counts.

    The rest after the last full step joins it.

    Returns
    -------
    ends : (s,) the last cell of each step, ascending; empty if all counts are fewer.
    """
    ends: list[int] = []
    held = 0
    for i, count in enumerate(np.asarray(counts).tolist()):
        held += count
        if held >= at_least:
            ends.append(i)
            held = 0
    if held and ends:
        ends[-1] = int(np.flatnonzero(counts)[-1])
    return np.array(ends, np.int64)


def late(counts: Array, at_least: int, of: float) -> Array:
    """Return counts (m,) with fewer than `at_least` moved to the following cells.

    The last counts also move if they would leave fewer than that of all `of` people.

    Returns
    -------
    moved : (m,), each 0 or `at_least` or more; the rest at the end is in no cell.
    """
    moved = np.zeros(len(counts), np.int64)
    held = 0
    for i, count in enumerate(np.asarray(counts, np.int64).tolist()):
        held += count
        if held >= at_least:
            moved[i], held = held, 0
    if moved.any() and 0 < of - moved.sum() < at_least:
        moved[np.flatnonzero(moved)[-1]] = 0
    return moved


def joined(cells: Array, at_least: int, size: int = 1) -> Array:
    """Return where to cut rows of counts (m, c) into steps without small counts.

    In each step every count is 0 or at least `at_least`, and their sum is at least `size`. The
    rest after the last such step joins it, and that the one before if needed.

    Returns
    -------
    ends : (s,) the last row of each step, ascending; empty if all rows together are no such step.
    """
    steps: list[Array] = []
    ends: list[int] = []
    held = np.zeros(np.shape(cells)[1:], np.int64)
    for i, row in enumerate(np.asarray(cells, np.int64)):
        held = held + row
        if held.sum() >= size and not few(held, at_least).any():
            steps.append(held)
            ends.append(i)
            held = np.zeros_like(row)
    while steps and held.any():
        held = steps.pop() + held
        if not few(held, at_least).any():
            break
        ends.pop()
    if ends:
        ends[-1] = len(cells) - 1
    return np.array(ends, np.int64)


def step_sums(rows: Array, ends: Array) -> Array:
    """Return the sums of rows (m, …) in the steps that end at `ends` (s,): (s, …)."""
    return np.add.reduceat(rows, np.r_[0, ends[:-1] + 1], axis=0) if len(ends) else rows[:0]


def even_ends(sizes: Array, groups: int) -> Array:
    """Return where to cut cells (m,) into about `groups` groups of equal size.

    Returns
    -------
    ends : (s,) the last cell of each group, ascending; s is at most `groups`.
    """
    reached = np.cumsum(sizes)
    wanted = reached[-1] * np.arange(1, groups + 1) / groups
    ends = np.searchsorted(reached, wanted - 1e-9)
    ends[-1] = len(sizes) - 1
    return np.unique(ends)


def separated(numbers: Array, at_least: int) -> Array:
    """Return which rows of falling numbers (m, g) may be shown: no number and no step is small."""
    kept: list[int] = []
    for i, row in enumerate(numbers):
        left = numbers[kept[-1]] - row if kept else row
        if not few(np.r_[row, left], at_least).any():
            kept.append(i)
    return np.array(kept, np.int64)


def interval_ends(events: Array, at_least: float, share: float = 0.0) -> Array:
    """Return the last cells (s,) of intervals of a time grid with at least `at_least` events each.

    The k-th interval also holds at least k · `share` events together with those before. The rest
    after the last full interval joins it; without a full one there is one interval.

    Parameters
    ----------
    events : (m,) in neighbouring cells of time, some above 0.
    """
    filled = np.flatnonzero(events)
    ends: list[int] = []
    held = seen = 0.0
    for i in filled.tolist():
        held += float(events[i])
        seen += float(events[i])
        if held >= at_least and seen >= share * (len(ends) + 1) - 1e-9:
            ends.append(i)
            held = 0.0
    return np.array([*ends[:-1], int(filled[-1])], np.int64)

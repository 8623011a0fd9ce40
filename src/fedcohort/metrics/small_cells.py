"""What may be shown of counts: none that is of one to four people.

A report leaves the coordinator, and a count of few people may tell who they are. A count below
`at_least` that is not 0 is not shown. Where counts add up to a total that is known, one hidden
count is the total less the others, and the sum of several follows too: so counts are hidden, the
smallest first and equal ones together, until two that differ are of `at_least` people in all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.arrays import Array

#: On fewer events (or, of a yes/no outcome, fewer of either class) ranks are no metric.
FEWEST_EVENTS = 5


def fewest(at_least: int) -> int:
    """Return how many events some rows need, or how many of either class, to be ranked."""
    return max(FEWEST_EVENTS, at_least)


def can_rank(event: Array, at_least: int, *, both: bool) -> bool:
    """Return whether a metric of ranks of these rows may be shown.

    Parameters
    ----------
    event : (n,) 0/1 or bool.
    both : whether those without the event count as a class too, as of a yes/no outcome.
    """
    events = int(np.count_nonzero(event))
    return (min(events, len(event) - events) if both else events) >= fewest(at_least)


def few(counts: Array, at_least: int) -> Array:
    """Return which counts are of some people, but of fewer than `at_least`: bool like `counts`."""
    counts = np.asarray(counts)
    return (counts > 0) & (counts < at_least)


def shown_parts(
    counts: Sequence[int] | Array, at_least: int, of: Sequence[int] | Array | None = None
) -> list[int | None]:
    """Return the counts of a known total as they may be shown; None stands for a hidden one.

    Parameters
    ----------
    counts : (g,), such as the events in each group.
    of : (g,), the people that they are counted among, where these are shown as well: what a count
        leaves of them is hidden with it.
    """
    cells = np.asarray(counts, np.int64)[:, None]
    if of is not None:
        cells = np.concatenate([cells, np.asarray(of, np.int64)[:, None] - cells], axis=1)
    hidden: Array = np.any(few(cells, at_least), axis=1)
    size = np.where(cells[:, 0] == 0, np.inf, cells[:, 0])
    while hidden.any() and not hidden.all() and _follows(cells[hidden], at_least):
        hidden |= size == size[~hidden].min()
    return [None if h else int(c) for h, c in zip(hidden, cells[:, 0], strict=True)]


def _follows(hidden: Array, at_least: int) -> bool:
    """Return whether hidden cells (h, c) follow from their sum, or that is of few."""
    alike = len(np.unique(hidden[:, 0])) == 1
    return alike or bool(few(hidden.sum(axis=0), at_least).any())


def merged(counts: Array, at_least: int) -> Array:
    """Return where to cut cells (m,) in steps that each hold `at_least` counts or more.

    What is left after the last full step joins it.

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


def joined(cells: Array, at_least: int, size: int = 1) -> Array:
    """Return where to cut rows of counts (m, c) in steps in which none is of few people.

    In each step every count is 0 or `at_least` or more, and all of them make `size` or more. What
    is left after the last such step joins it, and that the one before where it has to.

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

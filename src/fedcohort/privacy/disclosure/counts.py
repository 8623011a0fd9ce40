"""Counts that are shown: none of 1 to m − 1 people, and none from which one follows.

With m the `min_cell`, of k counts of a site with a known total n (`hidden`):

    n < m, not 0    all are hidden, and n                                                    (1)
    n ≤ k           all are hidden
    otherwise       if one is of 1 … m − 1, all up to a size v are hidden, but not 0: the    (2)
                    smallest v that takes in all of 1 … m − 1, two different counts, and m
                    rows; if no two differ, all of them, also 0

With n, the other counts and this rule, any two hidden counts that differ can be exchanged without a
visible change: each has at least two possible values. (If all are equal and none 0, c = n/k ≥ 2,
counts with a c − 1 and a c + 1, or with k − 1 times c − 1 and a larger one, would look the same.)

Of a variable with levels the first count is of missing values (`hidden_variable`). Others may know
it: columns of a panel are missing together, so another column reveals it. So it is shown, and
levels are hidden as counts of known values, unless one of the two is of 1 … m − 1, which no column
with as many missing values reveals; then it is one of k + 1 counts.

Published counts of a known total (`published_parts`) are hidden, the smallest first and equal ones
together, until two that differ are of m people in all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.arrays import Array

#: Fewest events (for a yes/no outcome, of either class) for metrics of ranks.
FEWEST_EVENTS = 5


def hidden(cells: Array, min_cell: int) -> Array:
    """Return which counts (k,) of a variable are hidden, eqs. (1), (2): bool (k,)."""
    cells = np.asarray(cells)
    n = int(cells.sum())
    if min_cell <= 1 or n == 0:
        return np.zeros(len(cells), bool)
    if n < min_cell or n <= len(cells):
        return np.ones(len(cells), bool)
    small = cells[(cells > 0) & (cells < min_cell)]
    if not len(small):
        return np.zeros(len(cells), bool)
    counts = np.unique(cells[cells > 0])
    if len(counts) == 1:
        return np.ones(len(cells), bool)
    held = np.array([cells[cells <= v].sum() for v in counts])
    return (cells > 0) & (cells <= max(small.max(), counts[1], counts[held >= min_cell][0]))


def hidden_variable(cells: Array, min_cell: int) -> Array:
    """Return which counts (1 + k,) of missing values and of k levels are hidden: bool (1 + k,)."""
    cells = np.asarray(cells)
    levels, out = cells[1:], hidden(cells, min_cell)
    if min_cell < 3 or len(levels) < 2 or cells.sum() <= len(cells) or few(levels.sum(), min_cell):
        return out
    if not few(cells[0], min_cell):
        return np.append(False, hidden(levels, min_cell))
    for count in np.unique(levels):  # it would be, were fewer missing and more of a hidden level
        if out.any() and (min_cell < 4 or count < cells[out].sum() + min_cell):
            out[1:] |= (levels > 0) & (levels <= count)
    return out


def few(counts: Array, at_least: int) -> Array:
    """Return which counts are above 0 and below `at_least`: bool like `counts`."""
    counts = np.asarray(counts)
    return (counts > 0) & (counts < at_least)


def fewest(at_least: int) -> int:
    """Return the smallest number of events, or of either class, for metrics of ranks."""
    return max(FEWEST_EVENTS, at_least)


def can_rank(event: Array, at_least: int, *, both: bool) -> bool:
    """Return whether a metric of ranks of these rows may be shown.

    Parameters
    ----------
    event : (n,) 0/1 or bool.
    both : whether rows without the event are a class too, as for a yes/no outcome.
    """
    events = int(np.count_nonzero(event))
    return (min(events, len(event) - events) if both else events) >= fewest(at_least)


def published_parts(
    counts: Sequence[int] | Array, at_least: int, of: Sequence[int] | Array | None = None
) -> list[int | None]:
    """Return the counts of a known total that may be shown; None: hidden.

    Parameters
    ----------
    counts : (g,), such as the events in each group.
    of : (g,), the people among whom they are counted, if these are shown as well: then a count is
        also hidden if the rest is small.
    """
    cells = np.asarray(counts, np.int64)[:, None]
    if of is not None:
        cells = np.concatenate([cells, np.asarray(of, np.int64)[:, None] - cells], axis=1)
    hidden = hidden_groups(cells, at_least)
    return [None if h else int(c) for h, c in zip(hidden, cells[:, 0], strict=True)]


def hidden_groups(cells: Array, at_least: int) -> Array:
    """Return which groups of a known total are hidden: bool (g,).

    These are the groups with a small cell. While their cells follow from the rest of the totals,
    the next larger groups by their first cell are hidden too. The last group hides no other.

    Parameters
    ----------
    cells : (g, c) counts of each group, such as of its records and events, whose totals are known.
    """
    cells = np.asarray(cells, np.int64)
    hidden: Array = np.any(few(cells, at_least), axis=1)
    size = np.where(cells[:, 0] == 0, np.inf, cells[:, 0])
    while hidden.any() and not hidden.all() and _follows(cells[hidden], at_least):
        hidden |= size == size[~hidden].min()
    return hidden


def base(counts: Array, of: Array, at_least: int) -> Array:
    """Return counts (…,) of people as the nearest multiples of `at_least`, or all of `of` (…,).

    If all parts of a total are shown so, as shares of groups of known size, each part has several
    possible values, and the rest of its group is also 0 or at least `at_least`.
    """
    near = at_least * np.round(np.asarray(counts) / at_least)
    most = at_least * np.floor((of - at_least) / at_least)
    whole = counts > (np.maximum(most, 0.0) + of) / 2
    return np.where(whole, of, np.clip(near, 0.0, np.maximum(most, 0.0)))


def _follows(hidden: Array, at_least: int) -> bool:
    """Return whether hidden cells (h, c) follow from their sum, or that is small."""
    alike = len(np.unique(hidden[:, 0])) == 1
    return alike or bool(few(hidden.sum(axis=0), at_least).any())


def nearly_same(apart: int, m: int) -> bool:
    """Return whether results over two sets with |A Δ B| = `apart` must not both be shown.

    Their difference is a signed sum over A Δ B, which must hold nobody or at least m patients.
    `network.state.cohorts` keeps the sets.
    """
    return 0 < apart < m

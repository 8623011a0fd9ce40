"""Hidden counts of a table of levels by groups, besides the shown totals of levels and groups.

`counts` decides which levels R₀ of the variable and which groups C of the rows a site hides, each
from its own counts; missing values are a level, rows without a group are a group. Of the
table x of levels by groups, with m the `min_cell`, these are hidden:

    all groups of C, for every level
    all levels of R, for every group: those of R₀; those with a count of 1 … m − 1 in a     (1)
        shown group, or in the groups of C together; and all with up to v rows, the
        smallest v that includes these and at least two levels, such that in every shown
        group Σ_{l ∈ R} x is 0, or at least m

So whole rows and columns are hidden. Given all shown counts, of the site, of levels and of groups,
the rest is a transportation problem: counts of at least two levels by at least two groups with
given sums. Unless a level or group has no rows at all, each count lies between two different whole
numbers, max(0, r + c − n) and min(r, c), and each of them is possible. The same holds for the
tables of all variables and groupings together, which share only these sums. For two
groupings' table by each other it holds for the cells that both hide.

Of a table of classes by likeliest class (`hidden_confusion`), the total of each row is known, and
its diagonal, since balanced accuracy and totals may tell it; no total of a column is told. So what
is wrong of a class is hidden by eqs. (1) and (2) of `counts`. A row is hidden as a whole if its
total is hidden, or if 1 … m − 1 of it are right, or wrong.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.counts import few, hidden, hidden_groups


def hidden_levels(
    table: Array, min_cell: int, also: Array | None = None, closed: Array | None = None
) -> tuple[Array, Array]:
    """Return which levels and which groups of a table are hidden, eq. (1).

    Parameters
    ----------
    table : (k, g) rows of each level, with missing values as a level, in each group; every row of
        the site is in one cell.
    also, closed : (k,) and (g,) bool, levels and groups that are hidden for another reason; they
        are in R₀ and C.

    Returns
    -------
    levels, groups : (k,) and (g,) bool.
    """
    table = np.asarray(table)
    groups = hidden(table.sum(axis=0), min_cell)
    groups = groups if closed is None else groups | closed
    rows = table.sum(axis=1)
    levels = hidden(rows, min_cell) if also is None else hidden(rows, min_cell) | also
    if min_cell <= 1 or groups.all():
        return levels | groups.all(), groups
    cells = table[:, ~groups]
    if groups.any():
        cells = np.column_stack([cells, table[:, groups].sum(axis=1)])
    levels |= few(cells, min_cell).any(axis=1)
    if not levels.any():
        return levels, groups
    for most in np.unique(rows[rows > 0]):
        up_to = levels | ((rows > 0) & (rows <= most))
        enough = most >= rows[levels].max() and up_to.sum() > 1
        if enough and not few(cells[up_to].sum(axis=0), min_cell).any():
            return up_to, groups
    return levels | (rows > 0), groups


def hidden_confusion(table: Array, min_cell: int) -> Array:
    """Return which counts (K, K) of records by class and likeliest class are hidden: bool (K, K).

    Parameters
    ----------
    table : (K, K), a row for each class; the total of all of it is known.
    """
    table = np.asarray(table, np.int64)
    rows, right = table.sum(axis=1), np.diag(table)
    closed = hidden_groups(rows[:, None], min_cell)
    closed |= few(right, min_cell) | few(rows - right, min_cell)
    out = np.repeat(closed[:, None], len(table), axis=1)
    for k, row in enumerate(table):
        others = np.arange(len(row)) != k
        out[k, others] |= hidden(row[others], min_cell)
    return out

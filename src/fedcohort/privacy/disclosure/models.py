"""Limits on a model's leaves, parameters and rows.

    leaf        a leaf, or a bin of a tree's histogram, is shown if it holds at least `LEAF` counted
                patients: for one patient the gradient g = p − y reveals the label
    parameters  at a site, at most one free parameter per `ROWS_EACH` rows: a model with more may
                hold single rows. A run warns by default; a site's policy may refuse instead
    rows        a site with fewer rows than its own minimum takes no part

"Counted" are patients with a weight above 0 and a known outcome; copies of a patient count once.
"""

from __future__ import annotations

from fedcohort.arrays import Array

#: Fewest counted patients of a leaf.
LEAF = 10
#: Fewest rows of a site for each free parameter.
ROWS_EACH = 10
#: Actions of a site on too many parameters; the first by default.
ACTIONS = ("warn", "refuse")


def thin_leaves(counted: Array) -> Array:
    """Return which leaves (k,) hold too few counted patients to be shown; empty ones do not
    count.
    """
    return (counted > 0) & (counted < LEAF)


def fewest(min_cell: int) -> int:
    """Return the fewest rows of a leaf that several sites show; 1 if counts of 1 may be shown."""
    return max(min_cell, LEAF) if min_cell > 1 else 1


def may_split(left: int, right: int) -> bool:
    """Return whether a node may be split: both children may be shown."""
    return min(left, right) >= LEAF


def most_parameters(rows: int) -> int:
    """Return the largest number of free parameters for a site with this many rows."""
    return rows // ROWS_EACH

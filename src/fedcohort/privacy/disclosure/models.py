"""Limits on a model's leaves, parameters and rows.

    leaf        a leaf, or a bin of a tree's histogram, that is told holds `LEAF` counted patients
                or more: of one patient the gradient g = p − y is the label
    parameters  at a site, one free parameter for `ROWS_EACH` rows: beyond that a model may hold
                single rows. A run says so by default; a site's policy may refuse instead
    rows        a site of fewer rows than its own least takes no part

"Counted" are patients with a weight above 0 and a known outcome; copies of a patient count once.
"""

from __future__ import annotations

from fedcohort.arrays import Array

#: Counted patients of a leaf.
LEAF = 10
#: Rows of a site for each free parameter.
ROWS_EACH = 10
#: What a site does about too many parameters; the first by default.
ACTIONS = ("warn", "refuse")


def thin_leaves(counted: Array) -> Array:
    """Return which leaves (k,) hold too few counted patients to be told; none of an empty one."""
    return (counted > 0) & (counted < LEAF)


def may_split(left: int, right: int) -> bool:
    """Return whether a node may be split: both children are leaves that may be told."""
    return min(left, right) >= LEAF


def most_parameters(rows: int) -> int:
    """Return how many free parameters a site of so many rows bears."""
    return rows // ROWS_EACH

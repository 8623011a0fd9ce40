"""The ROC curve of a predicted probability, too coarse to reveal single records.

Hanley & McNeil, Radiology 143, 1982. A cut at score s calls scores of s or more positive:

    fpr(s) = Σ_{y=0} 1(p ≥ s) / Σ_{y=0} 1,     tpr(s) = Σ_{y=1} 1(p ≥ s) / Σ_{y=1} 1         (1)

Points are cuts between groups of neighbours in score. Of each class a group holds nobody or at
least `at_least` records; groups are large enough for at most `most` points. Equal scores stay
together.

Revealed: counts of either class by group, only as sums over sites.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.steps import joined


def roc_points(score: Array, y: Array, at_least: int, most: int = 100) -> Array:
    """Return (fpr, tpr), eq. (1), from (0, 0) to (1, 1).

    Parameters
    ----------
    score, y : (n,), y 0 or 1.

    Returns
    -------
    points : (m, 2) with m ≤ `most`; empty if a class has fewer than `at_least` records, or none.
    """
    _, group = np.unique(-np.asarray(score, float), return_inverse=True)
    y = np.asarray(y, float)
    return points_of(
        np.stack([np.bincount(group, 1.0 - y), np.bincount(group, y)], axis=1), at_least, most
    )


def points_of(cells: Array, at_least: int, most: int = 100) -> Array:
    """Return the points of counts (g, 2) without and with the event, highest scores first."""
    totals = cells.sum(axis=0)
    ends = joined(cells, at_least, math.ceil(cells.sum() / (most - 1)))
    if not totals.all() or not len(ends):
        return np.empty((0, 2))
    return np.concatenate([np.zeros((1, 2)), np.cumsum(cells, axis=0)[ends] / totals])

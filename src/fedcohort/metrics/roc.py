"""The ROC curve of a predicted probability, coarse enough to show nobody's own.

Hanley & McNeil, Radiology 143, 1982. A cut at score s calls positive whoever scores s or more:

    fpr(s) = Σ_{y=0} 1(p ≥ s) / Σ_{y=0} 1,     tpr(s) = Σ_{y=1} 1(p ≥ s) / Σ_{y=1} 1         (1)

Points are cuts between groups of neighbours in score: each group holds `at_least` records or more,
and so many that there are at most `most` points. Equal scores are never parted.

Revealed: counts of either class by group, only as sums over sites.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.small_cells import merged


def roc_points(score: Array, y: Array, at_least: int, most: int = 100) -> Array:
    """Return (fpr, tpr), eq. (1), from (0, 0) to (1, 1).

    Parameters
    ----------
    score, y : (n,), y 0 or 1.

    Returns
    -------
    points : (m, 2) with m ≤ `most`; empty if a class is missing or fewer than `at_least` remain.
    """
    _, group = np.unique(-np.asarray(score, float), return_inverse=True)
    y = np.asarray(y, float)
    totals = np.array([(1.0 - y).sum(), y.sum()])
    rows = np.bincount(group)
    ends = merged(rows, max(at_least, math.ceil(len(y) / (most - 1))))
    if not totals.all() or not len(ends):
        return np.empty((0, 2))
    sums = np.cumsum(np.stack([np.bincount(group, 1.0 - y), np.bincount(group, y)], axis=1), axis=0)
    return np.concatenate([np.zeros((1, 2)), sums[ends] / totals])

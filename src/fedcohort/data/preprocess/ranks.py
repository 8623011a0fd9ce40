"""A number's rank among the pooled rows as a piecewise linear function of its value.

From a histogram of the pooled column, refined until no cell holds more than a share of
1 / `PARTS` of the rows or cannot be split, a few edges become knots. At a knot the share of rows
below is exact; between two it is linear, and wrong by at most the share of the rows between them.
Between neighbouring knots there are no rows, or at least `min_cell`.

Where values are whole numbers the knots lie half way between them, so that a value has the share
of the rows below it and half of those equal to it, as scikit-learn's QuantileTransformer has.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.sketch import Histogram

#: A cell with more than this part of the rows is split.
PARTS = 200


def crowded(h: Histogram) -> Array:
    """Return the cells (k,) that hold more than their part of the rows."""
    return np.flatnonzero(h.counts > h.counts.sum() / PARTS)


def knots(h: Histogram, tail: float, min_cell: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the values and shares of a column's knots, from the share `tail` to 1 − `tail`.

    Parameters
    ----------
    h : the pooled column.
    tail : share of the rows at each end whose values are not told apart.
    min_cell : fewest rows between neighbouring knots.
    """
    below = np.r_[0, np.cumsum(h.counts)]
    kept = _chosen(below, max(min_cell, below[-1] / PARTS), min_cell)
    x = h.edges[kept] + (0.5 if h.whole else 0.0)
    share = below[kept] / below[-1]
    inside = (share > tail) & (share < 1 - tail)
    ends = np.interp([tail, 1 - tail], share, x)
    values = np.r_[ends[0], x[inside], ends[1]]
    shares = np.r_[tail, share[inside], 1 - tail]
    return tuple(values.tolist()), tuple(shares.tolist())


def _chosen(below: Array, enough: float, min_cell: int) -> list[int]:
    """Return which edges are knots, where `below` (m + 1,) rows lie below each."""
    kept = [0]
    last = len(below) - 1
    ahead = np.diff(below, append=below[-1])
    for i in range(1, last + 1):
        since = below[i] - below[kept[-1]]
        if since >= enough or (ahead[i] >= enough and (since == 0 or since >= min_cell)):
            kept.append(i)
    if kept[-1] == last:
        return kept
    since = below[last] - below[kept[-1]]
    if 0 < since < min_cell and len(kept) > 1:
        kept.pop()
    return [*kept, last]

"""Rules for statistics of a numeric column: no dominated moments, extremes, or small quantiles.

With m the `min_cell`, of n known values x:

    counts_in_disguise  fewer than m values differ from the most frequent one, or of `FEW` distinct
                        values (or m) some count is one that `counts` hides: nothing is shown
    dominated           the squared distances from the median of all others add up to less
                        than a share of the m − 1 largest (a p % rule against fewer than m): no
                        mean and no standard deviation are shown

                        Σ_others d² < `SHARE` · Σ_largest d²                                    (1)
    winsorised          values beyond the m-th largest or smallest are set to that one, so that
                        results reveal nothing of fewer than m
    tail_rank           a limit that cuts a share p at a tail has the rank max(⌈p n⌉, m) from the
                        end; there is none for fewer than 4 m values                            (2)
    holding             a quantile found in a cell is shown as the middle of that cell and of its
                        neighbours, until they hold m values                                    (3)

So nobody's smallest, largest or middle value is shown.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.counts import hidden

#: A number with at most this many distinct values is a table of counts.
FEW = 6
#: Smallest rest of a sum of squares, as a share of its m − 1 largest parts.
SHARE = 0.1


def counts_in_disguise(ordered: Array, m: int) -> bool:
    """Return whether values (n,) are counts of which some must be hidden."""
    if m == 1:
        return False
    counts = np.unique(ordered, return_counts=True)[1]
    if differing(ordered) < m:
        return True
    return len(counts) <= max(FEW, m) and bool(hidden(counts, m).any())


def differing(values: Array) -> int:
    """Return the number of values (n,) that differ from the most frequent one."""
    return len(values) - int(np.unique(values, return_counts=True)[1].max(initial=0))


def dominated(ordered: Array, m: int) -> bool:
    """Return whether m − 1 values, or fewer, dominate the moments of all (n,), eq. (1)."""
    parts = np.sort(np.square(ordered - np.median(ordered)))
    others = len(parts) - (m - 1)
    return bool(parts[:others].sum() < SHARE * parts[others:].sum())


def winsorised(ordered: Array, m: int) -> Array:
    """Return ascending values (n,), n ≥ 2m, cut to the m-th smallest and the m-th largest."""
    return np.clip(ordered, ordered[m - 1], ordered[-m])


def tail_rank(share: float, n: float, m: int) -> float | None:
    """Return the rank, from an end, at which a tail of n values is cut, eq. (2)."""
    return None if n < 4 * m else max(float(math.ceil(share * n - 1e-9)), float(m))


def holding(counts: Array, widths: Array, cell: int, m: float) -> tuple[int, int]:
    """Return the first and last of the cells (k,) around `cell` that hold m values, eq. (3).

    The narrower neighbour is added, or both if they are equally wide, whatever is in them, so the
    ends reveal little about where values lie. All cells if they hold fewer than m.
    """
    low = high = cell
    last = len(counts) - 1
    held = float(counts[cell])
    while held < m and (low > 0 or high < last):
        below = float(widths[low - 1]) if low > 0 else math.inf
        above = float(widths[high + 1]) if high < last else math.inf
        if below <= above:
            low -= 1
            held += float(counts[low])
        if above <= below:
            high += 1
            held += float(counts[high])
    return low, high

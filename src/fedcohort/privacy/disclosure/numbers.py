"""Published statistics of a numeric column: no dominated moments, extremes, or small quantiles.

With m the `min_cell`, of n known values x:

    counts_in_disguise  fewer than m values differ from the most frequent one, or of `FEW` distinct
                        values (or m) some count is one that `counts` hides: nothing is shown
    dominated           of the squared distances from the median, those of all others add up to less
                        than a share of the m − 1 largest (a p % rule against fewer than m): no
                        mean, no standard deviation

                        Σ_others d² < `SHARE` · Σ_largest d²                                    (1)
    winsorised          values beyond the m-th largest or smallest count as that one, so that
                        results reveal nothing of fewer than m
    tail_rank           a limit that cuts a share p at a tail has from the end the rank
                        max(⌈p n⌉, m); there is none of fewer than 4 m values                   (2)
    holding             a quantile found in a cell is told as the middle of that cell and of as many
                        neighbours as hold m values                                             (3)

So nobody's smallest, largest or middle value is told.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.counts import hidden

#: Distinct values up to which a number is a table of counts.
FEW = 6
#: The rest of a sum of squares is at least this share of its m − 1 largest parts.
SHARE = 0.1


def counts_in_disguise(ordered: Array, m: int) -> bool:
    """Return whether values (n,) are counts in disguise, of which some must be hidden."""
    if m == 1:
        return False
    counts = np.unique(ordered, return_counts=True)[1]
    if differing(ordered) < m:
        return True
    return len(counts) <= max(FEW, m) and bool(hidden(counts, m).any())


def differing(values: Array) -> int:
    """Return how many values (n,) differ from the most frequent one."""
    return len(values) - int(np.unique(values, return_counts=True)[1].max(initial=0))


def dominated(ordered: Array, m: int) -> bool:
    """Return whether m − 1 values, or fewer, make the moments of all (n,), eq. (1)."""
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

    The narrower neighbour is taken, or both where they are as wide, whatever is in them: so the
    ends tell little of where values lie. All cells where they hold fewer than m.
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

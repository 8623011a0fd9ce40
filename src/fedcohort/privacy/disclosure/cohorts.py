"""When two sets of patients are so alike that results over both tell of the few between them.

Sums over A and B give by subtraction a sum over A Δ B, signed. With m the `min_cell` it may be of
nobody, where the sets are the same, or of m patients or more. `network.cohorts` keeps the sets.
"""

from __future__ import annotations


def nearly_same(apart: int, m: int) -> bool:
    """Return whether sets that differ in `apart` patients, |A Δ B|, must not both be told of."""
    return 0 < apart < m

"""Effective number of records of a sum, and when it is too small.

If few of the d² are large, a sum of d² is a sum over few records. A column that an
analyst chooses can make any sum one over few. The effective number, from powers that sites may sum
(Kish, "Survey Sampling", Wiley 1965), is

    (Σ d²)²/Σ d⁴,   or for weights of records, ω:   (Σ ω)²/Σ ω²                             (1)

One record dominates if the first is below `LONE`: if its share of Σ d² is `LONE`^-½ or more.
`data.isolation` and `data.differences` choose the checked columns.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array

#: Limit of eq. (1): a record dominates if it makes up 0.89 of Σ d², so that the root of the others'
#: sum is about a third of its d.
LONE = 1.25


def effective(squares: Array, fourth: Array) -> Array:
    """Return the effective number of records of sums of squares (…,), eq. (1); inf if all are 0."""
    out = np.full(np.shape(squares), np.inf)
    return np.divide(squares**2, fourth, out=out, where=fourth > 0)


def lone(squares: Array, fourth: Array, share: float = LONE) -> Array:
    """Return in which sums of squares (…,) one record dominates, eq. (1)."""
    return (squares > 0) & (squares**2 < share * fourth)


def over_few(total: Array, squares: Array, m: int) -> Array:
    """Return which totals (…,) of weights have an effective number below m, eq. (1)."""
    return total**2 < m * squares

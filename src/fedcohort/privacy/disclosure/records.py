"""The effective number of records of a sum, and when it is too small.

A sum of d² over records, of which few are large, is a sum over those few, and a column that an
analyst chooses can make any sum one over few. The effective number, by powers that sites may sum
(Kish, "Survey Sampling", Wiley 1965), is

    (Σ d²)²/Σ d⁴,   or of weights of records, ω:   (Σ ω)²/Σ ω²                              (1)

One record dominates if the first is below `LONE`: if its share of Σ d² is `LONE`^-½ or more.
`data.isolation` and `data.differences` choose the checked columns.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array

#: Eq. (1): a record of which the square is 0.89 of all is alone; others are a third of it.
LONE = 1.25


def effective(squares: Array, fourth: Array) -> Array:
    """Return how many records sums of squares (…,) are over, as (Σ d²)²/Σ d⁴; inf if all are 0."""
    out = np.full(np.shape(squares), np.inf)
    return np.divide(squares**2, fourth, out=out, where=fourth > 0)


def lone(squares: Array, fourth: Array, share: float = LONE) -> Array:
    """Return of which sums of squares (…,) nearly all is one record's, eq. (1)."""
    return (squares > 0) & (squares**2 < share * fourth)


def over_few(total: Array, squares: Array, m: int) -> Array:
    """Return which totals (…,) of what records count are over fewer than m in effect, eq. (1)."""
    return total**2 < m * squares

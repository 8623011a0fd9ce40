"""AUC of members against others, by any score, with its interval.

AUC = P(a member's score > another's), ties as ½, with the interval of DeLong, DeLong and
Clarke-Pearson (Biometrics 44, 1988): with the placements V_i of m members among the others and W_j
of n others among the members,

    var(AUC) = var(V)/m + var(W)/n                                                         (1)

cut to [0, 1].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array


class Auc(NamedTuple):
    """AUC with its 95 % interval, and the numbers of members and others."""

    value: float
    low: float
    high: float
    members: int
    others: int


def delong(members: Array, others: Array, confidence: float = 0.95) -> Auc:
    """Return P(member > other) of scores (m,) and (n,), with the interval of eq. (1)."""
    from scipy import stats  # slow to load

    m, n = len(members), len(others)
    both = stats.rankdata(np.concatenate([members, others]))
    above = (both[:m] - stats.rankdata(members)) / n
    below = 1.0 - (both[m:] - stats.rankdata(others)) / m
    value = float(above.mean())
    variance = (above.var(ddof=1) / m if m > 1 else 0.0) + (below.var(ddof=1) / n if n > 1 else 0.0)
    half = float(stats.norm.ppf(0.5 + confidence / 2) * np.sqrt(variance))
    return Auc(value, max(0.0, value - half), min(1.0, value + half), m, n)

"""Patients in groups of equal size by predicted risk.

A record's place is the middle of those whose risk ties with its own: with l records of lower risk
and u of lower or tied, group ⌊g (l + u) / 2n⌋ of g. Tied records share a group; where ties are
many, groups differ in size and some may be empty.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.survival.concordance import TIED, checked_risk


def risk_groups(risk: Array, groups: int) -> Array:
    """Return the group of each record (n,), 0 for the lowest risks.

    Raises
    ------
    DataError : a risk is nan.
    """
    risk = checked_risk(risk)
    scale = np.sort(risk)
    lower = np.searchsorted(scale, risk - TIED, side="left")
    up_to = np.searchsorted(scale, risk + TIED, side="right")
    return groups * (lower + up_to) // max(1, 2 * len(risk))

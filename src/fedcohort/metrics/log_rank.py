"""Do groups of patients die at different rates? The log-rank test.

Mantel, Cancer Chemother. Rep. 50, 1966; Peto & Peto, J. R. Stat. Soc. A 135, 1972. In cell k of a
time grid, of n_k records at risk d_k die; group g has n_gk and d_gk of them. If rates are equal,

    E_g  = Σ_k d_k n_gk / n_k                                                               (1)
    V_gh = Σ_k d_k (n_k − d_k)/(n_k − 1) · n_gk/n_k · (1[g = h] − n_hk/n_k)                 (2)
    χ²   = (O − E)ᵀ V⁻ (O − E) on as many degrees of freedom as groups with E_g > 0, less one  (3)

On the grid of all distinct times this is the test of the ungridded records.

Revealed: `Leavers` by group, only as sums over sites.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from fedcohort.arrays import Array
from fedcohort.metrics.censoring import Leavers, at_risk


class LogRank(NamedTuple):
    """χ² on ``df`` degrees of freedom and its p-value; deaths seen and expected by group (g,).

    χ² and p are nan where fewer than two groups could have had a death.
    """

    chi2: float
    df: int
    p: float
    observed: Array
    expected: Array


def log_rank(counts: Leavers) -> LogRank:
    """Return the test of eqs. (1) to (3) from pooled counts by group (g, T+1)."""
    by_group, risk = counts.deaths.astype(float), at_risk(counts).astype(float)
    died, all_risk = by_group.sum(axis=0), risk.sum(axis=0)
    on = died > 0
    share = risk[:, on] / all_risk[on]
    observed, expected = by_group.sum(axis=1), share @ died[on]
    spread = died[on] * (all_risk[on] - died[on]) / np.maximum(all_risk[on] - 1.0, 1.0)
    kept = np.flatnonzero(expected > 0)[1:]
    if not len(kept):
        return LogRank(math.nan, 0, math.nan, observed, expected)
    part = share[kept]
    variance = np.diag(part @ spread) - (part * spread) @ part.T
    gap = (observed - expected)[kept]
    chi2 = float(gap @ np.linalg.pinv(variance, hermitian=True) @ gap)
    return LogRank(chi2, len(kept), float(chdtrc(len(kept), chi2)), observed, expected)

"""The log-rank test of equal death rates in groups of patients.

Mantel, Cancer Chemother. Rep. 50, 1966; Peto & Peto, J. R. Stat. Soc. A 135, 1972. In cell k of a
time grid, of n_k records at risk d_k die; group g has n_gk and d_gk of them. If rates are equal,

    E_g  = Σ_k d_k n_gk / n_k                                                               (1)
    V_gh = Σ_k d_k (n_k − d_k)/(n_k − 1) · n_gk/n_k · (1[g = h] − n_hk/n_k)                 (2)
    χ²   = (O − E)ᵀ V⁻ (O − E) on as many degrees of freedom as groups with E_g > 0, less one  (3)

Weights w_k emphasise times of expected difference: the gap is Σ_k w_k (d_gk − d_k n_gk/n_k), and
each term of V is multiplied by w_k². With S(t−) the survival of all groups together before t
(Fleming & Harrington, 1991; Gehan, 1965; Tarone & Ware, 1977),

    w = S(t−)^ρ (1 − S(t−))^γ,   n,   √n                                                    (4)

On the grid of all distinct times this is the test of the ungridded records.

Revealed: `Leavers` by group, only as sums over sites.

Groups of equal size by predicted risk: a record with l records of lower risk and u of lower or
tied risk is in group ⌊g (l + u) / 2n⌋ of g. Tied records share a group; with many ties, groups
differ in size and some may be empty.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from fedcohort.arrays import Array
from fedcohort.metrics.survival.censoring import Leavers, at_risk, product_limit
from fedcohort.metrics.survival.concordance import TIED, checked_risk

#: Families of weights, eq. (4); the first is the log-rank test at ρ = γ = 0.
WEIGHTINGS = ("fleming-harrington", "gehan", "tarone-ware")


class LogRank(NamedTuple):
    """χ² on ``df`` degrees of freedom and its p-value; observed and expected deaths by group (g,).

    χ² and p are nan if fewer than two groups can have a death.
    """

    chi2: float
    df: int
    p: float
    observed: Array
    expected: Array


def log_rank(counts: Leavers) -> LogRank:
    """Return the test of eqs. (1) to (3) from pooled counts by group (g, T+1)."""
    deaths = counts.deaths
    return log_rank_of(deaths.sum(axis=1), deaths.sum(axis=0), at_risk(counts))


def log_rank_of(
    observed: Array,
    died: Array,
    risk: Array,
    weight: Array | None = None,
    weighted: Array | None = None,
    *,
    tied: bool = True,
) -> LogRank:
    """Return the test of eqs. (1) to (3).

    Parameters
    ----------
    observed : O (g,).
    died : d (T,), of all groups.
    risk : n_gk (g, T).
    weight, weighted : w (T,) of `weights`, and Σ w (g,) over each group's deaths; None: 1 and O.
        The returned O and E are without weights.
    tied : the deaths of a cell share their time; if not, each is a cell of its own in (2), with the
        same numbers at risk.
    """
    observed, risk = np.asarray(observed, float), np.asarray(risk, float)
    on = died > 0
    died, all_risk = np.asarray(died, float)[on], risk[:, on].sum(axis=0)
    share = risk[:, on] / all_risk
    w = np.ones(len(died)) if weight is None else weight[on]
    expected = share @ died
    spread = w**2 * died
    if tied:
        spread *= (all_risk - died) / np.maximum(all_risk - 1.0, 1.0)
    kept = np.flatnonzero(expected > 0)[1:]
    if not len(kept):
        return LogRank(math.nan, 0, math.nan, observed, expected)
    part = share[kept]
    variance = np.diag(part @ spread) - (part * spread) @ part.T
    gap = (observed if weighted is None else weighted)[kept] - part @ (w * died)
    chi2 = float(gap @ np.linalg.pinv(variance, hermitian=True) @ gap)
    return LogRank(chi2, len(kept), float(chdtrc(len(kept), chi2)), observed, expected)


def weights(kind: str, deaths: Array, risk: Array, rho: float, gamma: float) -> Array:
    """Return w (T,) of one of `WEIGHTINGS`, eq. (4), from all groups' deaths and risk (T,)."""
    if kind == "gehan":
        return risk
    if kind == "tarone-ware":
        return np.sqrt(risk)
    before = np.r_[1.0, product_limit(deaths, risk)[:-1]]
    return before**rho * (1.0 - before) ** gamma


def in_intervals(counts: Leavers) -> tuple[float, float, int]:
    """Return χ², p and the degrees of freedom of the test on intervals.

    A record that ends in an interval counts half at risk there; its deaths count one by one.
    """
    risk = at_risk(counts) - 0.5 * (counts.censored + counts.deaths)
    deaths = counts.deaths
    test = log_rank_of(deaths.sum(axis=1), deaths.sum(axis=0), risk, tied=False)
    return test.chi2, test.p, test.df


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

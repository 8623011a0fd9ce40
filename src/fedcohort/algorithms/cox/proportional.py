"""The score test of Grambsch and Therneau for effects of a Cox model that change with time.

P. M. Grambsch and T. M. Therneau, "Proportional hazards tests and diagnostics based on weighted
residuals", Biometrika 81(3), 1994; as a score test, after T. M. Therneau's R package survival
(cox.zph from version 3). The effect is β + θ g(t), with a given function g of time; θ = 0 is
tested. The notation is that of `numerics.coxph`; V_l is the covariance of the covariates at the
l-th death of time t, and g has mean 0 over deaths. Sums over deaths are weighted; g itself counts
every record once, as in R:

    U_θ  = Σ_deaths g x − Σ_t g Σ_l m_l                                                 (1)
    I_k  = Σ_t gᵏ Σ_l V_l = Σ_j w_j⁽ᵏ⁾ x_j x_jᵀ − Σ_t gᵏ Σ_l m_l m_lᵀ,   k = 0, 1, 2     (2)
    w_j⁽ᵏ⁾ = r_j (Σ_{t ≤ slot_j} g_tᵏ a_t − [j dies] g_slotᵏ b_slot)                      (3)

I_0, I_1 and I_2 are the information about β, of β with θ, and about θ. With a ridge penalty P on β:

    s = U_θ − I_1 δ,   V = I_2 − I_1 (I_0 + P)⁻¹ I_1                                     (4)
    χ²_j = s_j² / V_jj (1 df),   χ² = sᵀ V⁻¹ s (p df)                                    (5)

with δ the last Newton step, from the point at which the sums were asked to the fit.

    "km"        g = 1 − S(t−), S that of Kaplan and Meier over all records
    "rank"      g = the mean rank of the deaths at t among all deaths
    "identity"  g = t
    "log"       g = log t
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from fedcohort.arrays import Array
from fedcohort.numerics.coxph import Means, Placed, at_risk, hazard, means, tied

#: Names of g.
TRANSFORMS = ("km", "rank", "identity", "log")
#: Smallest ratio of a variance to its value without the other effects; below, χ² is NaN.
NOTHING = 1e-9


class Trend(NamedTuple):
    """Eqs. (1), (2): U_θ (p,), I_1 (p, p) and I_2 (p, p)."""

    score: Array
    cross: Array
    information: Array


class Tests(NamedTuple):
    """Eq. (5): χ² of each covariate (p,) and of all; NaN if the data do not determine it."""

    each: Array
    joint: float


def clock(
    kind: str, times: Array, deaths: Array, leaving: Array, weight: Array | None = None
) -> Array:
    """Return g (T,) at the grid `times`, with mean 0 over deaths; zeros without deaths.

    Parameters
    ----------
    kind : one of `TRANSFORMS`.
    times, deaths : (T,).
    leaving : (T,) records, deaths and censored, that leave at each grid time, less those who
        enter at the next.
    weight : (T,) of the deaths at each grid time; None: their number.
    """
    weight = deaths if weight is None else weight
    if kind == "km":
        left = np.cumprod(1 - deaths / np.maximum(at_risk(leaving), 1.0))
        g = 1 - np.r_[1.0, left[:-1]]
    elif kind == "rank":
        g = np.cumsum(deaths) - (deaths - 1) / 2
    else:
        g = np.log(times) if kind == "log" else np.asarray(times, float)
    return g - weight @ g / weight.sum() if weight.any() else np.zeros(len(g))


def over_records(
    records: Placed, risk: Array, a: Array, b: Array, g: Array
) -> tuple[Array, Array, Array]:
    """Return the sums over records of eqs. (1), (2), from g, a and b (T,).

    Returns
    -------
    dead : Σ_deaths g x (p,).
    once, twice : Σ_j w⁽ᵏ⁾ x xᵀ for k = 1 and 2, (p, p).
    """
    at = g[records.slot[records.dead]]
    at = at if records.weight is None else at * records.weight
    dead = at @ records.x[records.dead]
    once, twice = (records.expected(risk, a * g**k, b * g**k)[1] for k in (1, 2))
    return dead, once, twice


def trend(dead: Array, once: Array, twice: Array, m: Means, g: Array) -> Trend:
    """Return eqs. (1), (2) from `over_records` and the risk sets' means."""
    at = g[m.time]
    first, second = m.weight * at, m.weight * at**2
    return Trend(
        dead - first @ m.mean,
        once - (first[:, None] * m.mean).T @ m.mean,
        twice - (second[:, None] * m.mean).T @ m.mean,
    )


def pooled_trend(records: Placed, beta: Array, ties: str, g: Array) -> Trend:
    """Return eqs. (1), (2) of one table at β (p,), with g (T,)."""
    risk = records.risk(beta)
    weighted = risk[:, None] * records.x
    weight, alike = records.death_weight, tied(records.deaths, ties)
    s0, d0 = at_risk(records.leaving(risk), records.sizes), records.sharing_sum(risk, alike.at)
    s1 = at_risk(records.leaving(weighted), records.sizes)
    d1 = records.sharing_sum(weighted, alike.at)
    h = hazard(weight, s0, d0, alike)
    m = means(weight, alike, s0, d0, s1, d1)
    return trend(*over_records(records, risk, h.a, h.b, g), m, g)


def score_tests(found: Trend, last: Array, covariance: Array) -> Tests:
    """Return χ² of eq. (5).

    Parameters
    ----------
    last : δ (p,).
    covariance : (I_0 + P)⁻¹ (p, p).
    """
    s = found.score - found.cross @ last
    v = found.information - found.cross @ covariance @ found.cross
    own, without = np.diag(v), np.diag(found.information)
    tells = own > NOTHING * np.maximum(without, np.finfo(float).tiny)
    each = np.full(len(s), np.nan)
    each[tells] = s[tells] ** 2 / own[tells]
    root = np.sqrt(np.where(tells, own, 1.0))
    scaled = v / np.outer(root, root)
    if not tells.all() or np.linalg.eigvalsh(scaled)[0] < NOTHING:
        return Tests(each, float("nan"))
    return Tests(each, float(s / root @ np.linalg.solve(scaled, s / root)))


def p_value(chi2: float, df: int) -> float:
    """Return P(χ²_df > chi2); NaN for NaN."""
    return float(chdtrc(df, chi2)) if chi2 == chi2 else float("nan")

"""Random-effects meta-analysis of a metric's values at centres.

Centre i of k reports y_i with standard error s_i. Its true value is normal around μ with variance
τ² (DerSimonian & Laird, Control. Clin. Trials 7, 1986). With w_i = 1/(s_i² + τ²) and μ = Σwy/Σw,

    REML    τ² solves Σ w²(y − μ)² = Σ w − Σw²/Σw, or is 0                                  (1)
    Q       Σ (y − ȳ)²/s² at τ² = 0, χ² on k − 1 degrees of freedom;  I² = max(0, 1 − (k−1)/Q)  (2)
    mean    μ ± t_{k−1} e,   e² = max(1, Σ w(y − μ)²/(k − 1)) / Σ w                         (3)
    new     μ ± t_{k−2} √(τ² + e²), where the value of a new centre is expected             (4)

(1) Viechtbauer, J. Educ. Behav. Stat. 30, 2005; (2) Cochran, Biometrics 10, 1954, Higgins &
Thompson, Stat. Med. 21, 2002; (3) Hartung & Knapp, Stat. Med. 20, 2001, never narrower than
without their factor; (4) Higgins et al., J. R. Stat. Soc. A 172, 2009, Partlett & Riley, Stat. Med.
36, 2017.

A C-index or an AUC, c, is analysed as log(c/(1 − c)) with standard error s/(c(1 − c)), as Debray et
al., BMJ 356, 2017, i6460, advise; means and intervals are turned back, τ² is not. Likewise an R²,
which ends at 1 and has no lower end, is analysed as log(1 − R²), the share that is not explained,
with standard error s/(1 − R²).

Needs only each centre's value and its standard error: no records.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc, expit, logit, ndtri, stdtrit

from fedcohort.arrays import Array
from fedcohort.metrics.intervals import Interval


class Pooled(NamedTuple):
    """The centres together; nan if there are too few.

    Attributes
    ----------
    mean, low, high : eq. (3); the interval needs two centres.
    prediction_low, prediction_high : eq. (4), needs three.
    tau2 : eq. (1), of logits for `pooled_share`, of logarithms for `pooled_r2`.
    q, df, p, i2 : eq. (2), i2 in [0, 1).
    error : the mean's standard error, e of eq. (3).
    """

    mean: float
    low: float
    high: float
    prediction_low: float
    prediction_high: float
    tau2: float
    q: float
    df: int
    p: float
    i2: float
    error: float = math.nan


def random_effects(values: ArrayLike, errors: ArrayLike, level: float = 0.95) -> Pooled:
    """Return eqs. (1) to (4) for k centres.

    Parameters
    ----------
    values : (k,).
    errors : (k,), standard errors above 0.
    """
    y, v = np.asarray(values, float), np.asarray(errors, float) ** 2
    df = len(y) - 1
    nan = math.nan
    if df < 1:
        return Pooled(float(y.sum()) if len(y) else nan, nan, nan, nan, nan, nan, nan, 0, nan, nan)
    tau2 = _reml(y, v)
    mean, total, rest = _weighted(y, v, tau2)
    error2 = max(1.0, rest / df) / total
    q = _weighted(y, v, 0.0)[2]
    half = _t(df, level) * math.sqrt(error2)
    wide = _t(df - 1, level) * math.sqrt(tau2 + error2) if df > 1 else nan
    return Pooled(
        mean, mean - half, mean + half, mean - wide, mean + wide, tau2,
        q, df, float(chdtrc(df, q)), max(0.0, 1.0 - df / q) if q else 0.0, math.sqrt(error2),
    )  # fmt: skip


def fixed_effect(values: ArrayLike, errors: ArrayLike, level: float = 0.95) -> Pooled:
    """Return the mean of k centres without heterogeneity: τ² = 0, interval from the normal.

    Parameters
    ----------
    values, errors : as for `random_effects`; one centre gives its own value.
    """
    y, v = np.asarray(values, float), np.asarray(errors, float) ** 2
    df = len(y) - 1
    mean, total, q = _weighted(y, v, 0.0)
    half = float(ndtri((1.0 + level) / 2.0)) / math.sqrt(total)
    p = float(chdtrc(df, q)) if df else math.nan
    i2 = max(0.0, 1.0 - df / q) if q > 0 and df else 0.0
    nan = math.nan
    return Pooled(
        mean, mean - half, mean + half, nan, nan, 0.0, q, df, p, i2, 1.0 / math.sqrt(total)
    )


def pooled_share(values: ArrayLike, errors: ArrayLike, level: float = 0.95) -> Pooled:
    """Return `random_effects` of C-indices or AUCs (k,), each inside (0, 1), by their logits."""
    c = np.asarray(values, float)
    of_logits = random_effects(logit(c), np.asarray(errors, float) / (c * (1.0 - c)), level)
    mean, low, high, new_low, new_high = (float(v) for v in expit(np.array(of_logits[:5])))
    return of_logits._replace(
        mean=mean, low=low, high=high, prediction_low=new_low, prediction_high=new_high
    )


def share_interval(value: float, error: float, level: float = 0.95) -> Interval:
    """Return the interval of one C-index or AUC by its logit; nan without a spread."""
    if not (0 < value < 1 and error > 0):
        return Interval(math.nan, math.nan)
    half = float(ndtri((1.0 + level) / 2.0)) * error / (value * (1.0 - value))
    low, high = expit(logit(value) + np.array([-half, half]))
    return Interval(float(low), float(high))


def pooled_r2(values: ArrayLike, errors: ArrayLike, level: float = 0.95) -> Pooled:
    """Return `random_effects` of R² (k,), each below 1, by the logarithms of 1 − R²."""
    rest = 1.0 - np.asarray(values, float)
    of_logs = random_effects(np.log(rest), np.asarray(errors, float) / rest, level)
    mean, high, low, new_high, new_low = (float(v) for v in 1.0 - np.exp(np.array(of_logs[:5])))
    return of_logs._replace(
        mean=mean, low=low, high=high, prediction_low=new_low, prediction_high=new_high
    )


def r2_interval(value: float, error: float, level: float = 0.95) -> Interval:
    """Return the interval of one R² by the logarithm of 1 − R²; nan without a spread."""
    if not (value < 1 and 0 < error < math.inf):
        return Interval(math.nan, math.nan)
    half = float(ndtri((1.0 + level) / 2.0)) * error / (1.0 - value)
    if half > math.log(np.finfo(float).max):
        return Interval(math.nan, math.nan)
    return Interval(1.0 - (1.0 - value) * math.exp(half), 1.0 - (1.0 - value) * math.exp(-half))


def _weighted(y: Array, v: Array, tau2: float) -> tuple[float, float, float]:
    """Return μ, Σ w and Σ w(y − μ)²."""
    w = 1.0 / (v + tau2)
    total = float(w.sum())
    mean = float(w @ y) / total
    return mean, total, float(w @ (y - mean) ** 2)


def _reml(y: Array, v: Array) -> float:
    """Return τ², eq. (1), computed in units of the largest s², so that the unit has no
    influence.
    """
    unit = float(v.max())
    y, v = y / math.sqrt(unit), v / unit

    def score(tau2: float) -> float:
        """Return twice the derivative of the restricted log-likelihood."""
        w = 1.0 / (v + tau2)
        total = w.sum()
        return float(w**2 @ (y - w @ y / total) ** 2 - total + w @ w / total)

    from scipy.optimize import brentq  # slow to load, as all of scipy.optimize

    if score(0.0) <= 0:
        return 0.0
    high = max(float(np.var(y)), 1.0)
    while score(high) > 0:
        high *= 2.0
    return unit * float(brentq(score, 0.0, high, xtol=1e-15, rtol=1e-14))


def _t(df: int, level: float) -> float:
    return float(stdtrit(df, (1.0 + level) / 2.0))

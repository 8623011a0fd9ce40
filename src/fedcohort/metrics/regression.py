"""Metrics of predicted values, or means of a count: distance, level and spread.

With y_i observed, f_i predicted, and a weight m_i ≥ 0 for each record, ȳ and f̄ the weighted means
of these records:

    R²         1 − Σ m (y − f)² / Σ m (y − ȳ)²                                             (1)
    RMSE       √(Σ m (y − f)² / Σ m)                                                       (2)
    MAE        Σ m |y − f| / Σ m                                                           (3)
    intercept  ȳ − f̄, the predictions' mean shortfall: calibration in the large            (4)
    slope      Σ m (f − f̄)(y − ȳ) / Σ m (f − f̄)²                                           (5)
    deviance   2 Σ m [y log(y/f) − (y − f)] / Σ m, Poisson's, of counts; 0 log 0 = 0       (6)
    PCC        Σ m (f − f̄)(y − ȳ) / √(Σ m (f − f̄)² Σ m (y − ȳ)²)                           (7)
    NRMSE      √(Σ m (y − f)² / Σ m (y − ȳ)²) = √(1 − R²)                                  (8)

ȳ in (1) is that of the judged records, not of the training records: their own mean gives 0, any
other constant less, without lower bound. (2) to (4) are in the unit of the outcome. The slope of
the least squares line of y on f (Van Calster et al., BMC Medicine 17, 2019) is right at 1; below 1,
predictions are too extreme. (6) is McCullagh & Nelder's, Generalized Linear Models, 1989, section
2.3; it needs predictions above 0. (7), Pearson's correlation, and (8) are those of Nolte et al.,
Bioinformatics Advances 3, 2023, eq. 1: the mean of the judged records has an NRMSE of 1.

The derivative of (1) with respect to the weight of one record, at weights 1,

    ∂R²/∂m_i = [(1 − R²)(y_i − ȳ)² − (y_i − f_i)²] / Σ (y − ȳ)²,   se² = Σ_i (∂R²/∂m_i)²    (9)

is the infinitesimal jackknife, like that of the C-index in `concordance`.

Every metric takes y (n,), f (n,) and weights (…, n), by default all 1, and returns (…): with the
weights of B bootstrap draws (`resampled.multiplicities`), the metric of each draw. It is nan
without records; (1), (7) and (8) also if all outcomes are equal, (5) and (7) if all predictions
are, (6) if a prediction is not above 0.

Runs on the records of one place; nothing is revealed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import xlogy

from fedcohort.arrays import Array, ratio
from fedcohort.metrics.survival.concordance import Influence

#: Spread over size below which values are equal up to rounding.
EQUAL = 1e-12

Metric = Callable[[Array, Array, "Array | None"], Array]


def r2(y: Array, f: Array, weights: Array | None = None) -> Array:
    """Return the share of the variance that predictions explain, eq. (1)."""
    w = _weights(y, weights)
    return 1.0 - ratio(w @ (y - f) ** 2, _spread(y, w))


def rmse(y: Array, f: Array, weights: Array | None = None) -> Array:
    """Return the root of the mean squared error, eq. (2)."""
    return np.sqrt(_mean((y - f) ** 2, _weights(y, weights)))


def mae(y: Array, f: Array, weights: Array | None = None) -> Array:
    """Return the mean absolute error, eq. (3)."""
    return _mean(np.abs(y - f), _weights(y, weights))


def calibration_intercept(y: Array, f: Array, weights: Array | None = None) -> Array:
    """Return the predictions' mean shortfall, eq. (4)."""
    return _mean(y - f, _weights(y, weights))


def calibration_slope(y: Array, f: Array, weights: Array | None = None) -> Array:
    """Return the slope of the line of outcomes on predictions, eq. (5)."""
    w = _weights(y, weights)
    return ratio(_product(y, f, w), _spread(f, w))


def poisson_deviance(y: Array, f: Array, weights: Array | None = None) -> Array:
    """Return Poisson's mean deviance of counts y ≥ 0 from predicted means f > 0, eq. (6)."""
    w = _weights(y, weights)
    if not (f > 0).all():
        return np.full(w.shape[:-1], np.nan)
    return _mean(2.0 * (xlogy(y, y) - xlogy(y, f) - y + f), w)


def pcc(y: Array, f: Array, weights: Array | None = None) -> Array:
    """Return Pearson's correlation of outcomes and predictions, eq. (7)."""
    w = _weights(y, weights)
    return ratio(_product(y, f, w), np.sqrt(_spread(y, w) * _spread(f, w)))


def nrmse(y: Array, f: Array, weights: Array | None = None) -> Array:
    """Return the root mean squared error over the outcomes' standard deviation, eq. (8)."""
    w = _weights(y, weights)
    return np.sqrt(ratio(w @ (y - f) ** 2, _spread(y, w)))


def influence(y: Array, f: Array) -> Influence:
    """Return R² and its derivative with respect to each record's weight (n,), eqs. (1) and (9)."""
    value = float(r2(y, f))
    if not np.isfinite(value):
        return Influence(value, np.full(len(y), np.nan))
    far = (y - y.mean()) ** 2
    return Influence(value, ((1.0 - value) * far - (y - f) ** 2) / far.sum())


#: By the name that a study file uses; `poisson_deviance` is of counts only.
METRICS: Mapping[str, Metric] = {
    "r2": r2,
    "rmse": rmse,
    "mae": mae,
    "calibration_slope": calibration_slope,
    "calibration_intercept": calibration_intercept,
    "poisson_deviance": poisson_deviance,
    "pcc": pcc,
    "nrmse": nrmse,
}


def _weights(y: Array, weights: Array | None) -> Array:
    return np.ones(len(y)) if weights is None else np.asarray(weights, float)


def _product(y: Array, f: Array, w: Array) -> Array:
    """Return Σ w (f − f̄)(y − ȳ) (…)."""
    if not len(y):
        return np.zeros(w.shape[:-1])
    d, e = f - f.mean(), y - y.mean()
    return w @ (d * e) - _mean(e, w) * (w @ d)


def _spread(values: Array, w: Array) -> Array:
    """Return Σ w (v − v̄)² (…); 0 if values with weight above 0 are equal."""
    if not len(values):
        return np.zeros(w.shape[:-1])
    d = values - values.mean()
    total = w @ d**2 - _mean(d, w) * (w @ d)
    least = (EQUAL * np.abs(values).max()) ** 2 * w.sum(axis=-1)
    return np.where(total > least, total, 0.0)


def _mean(values: Array, w: Array) -> Array:
    return ratio(w @ values, w.sum(axis=-1))

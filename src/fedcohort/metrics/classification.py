"""Metrics of predicted probabilities of a yes/no outcome: distance, ranks and calibration.

With y_i 0 or 1, p_i the predicted probability of 1, and a weight m_i ≥ 0 for each record:

    AUC       Σ_{y_i=1} Σ_{y_j=0} m_i m_j [1(p_j < p_i) + ½ 1(p_j = p_i)]
              / (Σ_{y=1} m · Σ_{y=0} m)                                                    (1)
    accuracy  Σ m_i 1(y_i = 1(p_i > ½)) / Σ m                                              (2)
    Brier     Σ m_i (p_i − y_i)² / Σ m                                                     (3)
    log loss  −Σ m_i [y_i log p_i + (1 − y_i) log(1 − p_i)] / Σ m                          (4)
    slope     b of the logistic regression of y on f = logit p with an intercept           (5)

(1) is Mann & Whitney's U, Ann. Math. Stat. 18, 1947. A slope (Cox, Biometrika 45, 1958) of 1 is
right; below 1, predictions are too extreme. In (4) and (5) probabilities are kept `EDGE` away from
0 and 1.

Every function takes y (n,), p (n,) and weights (…, n), by default all 1, and returns (…): with the
weights of B bootstrap draws (`resampled.multiplicities`), the metric of each draw. It is nan
without records; (1) and (5) also with a single class; (5) also if the probabilities are equal or
separate the classes.

Runs on the records of one place; nothing is revealed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtri

from fedcohort.arrays import Array, ratio
from fedcohort.privacy.disclosure.steps import joined, step_sums

#: Smallest distance of a probability from 0 and 1.
EDGE = float(np.finfo(np.float64).eps)
_Z = float(ndtri(0.975))
#: Largest number of Newton steps for the slope, and the length of the last one.
STEPS, LAST_STEP = 60, 1e-8

Metric = Callable[[Array, Array, "Array | None"], Array]


def auc(y: Array, p: Array, weights: Array | None = None) -> Array:
    """Return the area under the ROC curve, eq. (1); p may be any score."""
    w = _weights(y, weights)
    if not len(y):
        return np.full(w.shape[:-1], np.nan)
    order = np.argsort(p, kind="stable")
    starts = np.flatnonzero(np.diff(p[order], prepend=-np.inf) > 0)
    cases = np.add.reduceat((w * y)[..., order], starts, axis=-1)
    controls = np.add.reduceat((w * (1 - y))[..., order], starts, axis=-1)
    lower = np.cumsum(controls, axis=-1) - 0.5 * controls
    return ratio((cases * lower).sum(axis=-1), cases.sum(axis=-1) * controls.sum(axis=-1))


def accuracy(y: Array, p: Array, weights: Array | None = None) -> Array:
    """Return the share of records on the right side of one half, eq. (2)."""
    return _mean((p > 0.5) == (y > 0.5), _weights(y, weights))


def brier(y: Array, p: Array, weights: Array | None = None) -> Array:
    """Return the mean squared error of the probabilities, eq. (3)."""
    return _mean((p - y) ** 2, _weights(y, weights))


def log_loss(y: Array, p: Array, weights: Array | None = None) -> Array:
    """Return the mean negative log-likelihood, eq. (4)."""
    return _mean(-np.log(_inside(np.where(y > 0.5, p, 1.0 - p))), _weights(y, weights))


def calibration_slope(y: Array, p: Array, weights: Array | None = None) -> Array:
    """Return the slope of logistic recalibration, eq. (5)."""
    w = _weights(y, weights)
    if not len(y):
        return np.full(w.shape[:-1], np.nan)
    table = w.reshape(-1, len(y))
    found = np.full(len(table), np.nan)
    f = logit(_inside(p))
    on = _overlap(y > 0.5, f, table)
    if on.any():
        spread = float(f.std())
        found[on] = _slope(y, (f - f.mean()) / spread, table[on]) / spread
    return found.reshape(w.shape[:-1])


def _overlap(y: Array, f: Array, w: Array) -> Array:
    """Return for which weights (B, n) the slope is finite: no cut separates the classes.

    Albert & Anderson, Biometrika 71, 1984.
    """

    def ends(some: Array) -> tuple[Array, Array]:
        here = (w > 0) & some
        return np.where(here, f, np.inf).min(axis=1), np.where(here, f, -np.inf).max(axis=1)

    (low0, high0), (low1, high1) = ends(~y), ends(y)
    return (low1 < high0) & (low0 < high1)


def _slope(y: Array, f: Array, w: Array) -> Array:
    """Return the slope (B,) on standardised f (n,) by Newton's method, for weights w (B, n)."""
    share = _mean(y, w)
    theta = np.stack([logit(share), np.zeros(len(w))], axis=1)
    step = np.zeros_like(theta)
    value = np.full(len(w), -np.inf)
    for _ in range(STEPS):
        eta = (theta + step)[:, :1] + (theta + step)[:, 1:] * f
        reached = -(w * np.logaddexp(0.0, np.where(y > 0.5, -eta, eta))).sum(axis=1)
        worse = reached < value - 1e-12 * (1.0 + np.abs(value))
        step[worse] /= 2.0
        up = ~worse
        theta[up] += step[up]
        value[up] = reached[up]
        mu = expit(eta[up])
        rest, curve = w[up] * (y - mu), w[up] * mu * (1.0 - mu)
        g0, g1 = rest.sum(axis=1), rest @ f
        h00, h01, h11 = curve.sum(axis=1), curve @ f, curve @ f**2
        det = h00 * h11 - h01**2
        step[up, 0] = (h11 * g0 - h01 * g1) / det
        step[up, 1] = (h00 * g1 - h01 * g0) / det
        if np.abs(step).max() < LAST_STEP:
            break
    theta += step
    return np.where(np.abs(step).max(axis=1) < 1e-4, theta[:, 1], np.nan)


class Groups(NamedTuple):
    """Mean prediction, share of class 1, and records ``n``: (g,), lowest prediction first.

    ``low`` and ``high`` are Wilson's 95 % interval of the share.
    """

    predicted: Array
    observed: Array
    n: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, predicted: Array, ones: Array, others: Array) -> Groups:
        """Return the groups from sums of predictions and counts of either class, (g,) each."""
        n = ones + others
        share = ones / n
        z2 = _Z**2 / n
        middle = (share + z2 / 2) / (1 + z2)
        half = np.sqrt(z2 * share * (1 - share) + z2**2 / 4) / (1 + z2)
        return cls(predicted / n, share, n.astype(np.int64), middle - half, middle + half)


def calibration_groups(y: Array, p: Array, groups: int = 10, least: int = 1) -> Groups:
    """Compare predictions with outcomes, by quantile group of the prediction.

    Neighbouring groups are joined until each has no record of a class, or at least `least`.
    """
    levels = np.arange(1, groups) / groups
    edges = np.unique(np.quantile(p, levels)) if len(p) else levels[:0]
    group = np.searchsorted(edges, p, side="right")
    of_each = (p, y, 1.0 - y)
    sums = np.array([np.bincount(group, v, minlength=len(edges) + 1) for v in of_each]).T
    ends = joined(sums[:, 1:], least)
    return Groups.of(*step_sums(sums, ends).T)


#: By the name that a study file uses.
METRICS: Mapping[str, Metric] = {
    "auc": auc,
    "accuracy": accuracy,
    "brier": brier,
    "calibration_slope": calibration_slope,
    "log_loss": log_loss,
}


def _weights(y: Array, weights: Array | None) -> Array:
    return np.ones(len(y)) if weights is None else np.asarray(weights, float)


def _inside(p: Array) -> Array:
    return np.clip(p, EDGE, 1.0 - EDGE)


def _mean(values: Array, w: Array) -> Array:
    return ratio(w @ values.astype(float), w.sum(axis=-1))

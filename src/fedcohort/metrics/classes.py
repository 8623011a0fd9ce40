"""Metrics of predicted probabilities of K classes.

With y_i one of 0 … K−1, p_ik the predicted probability of class k, ŷ_i the class of the largest
p_ik (the first of equals), and a weight m_i ≥ 0 for each record:

    accuracy            Σ m_i 1(ŷ_i = y_i) / Σ m                                           (1)
    balanced accuracy   mean over classes of Σ_{y_i=k} m_i 1(ŷ_i = k) / Σ_{y_i=k} m_i      (2)
    AUC of class k      eq. (1) of `classification` with 1(y_i = k) and p_ik: one against  (3)
                        the rest
    AUC                 mean over classes of (3) (macro average)                           (4)
    Brier               Σ m_i Σ_k (p_ik − 1(y_i = k))² / Σ m                               (5)
    log loss            −Σ m_i log p_{i y_i} / Σ m                                         (6)
    confusion           C_kl = Σ_{y_i=k} m_i 1(ŷ_i = l)                                    (7)

Brier, Monthly Weather Review 78, 1950, has (5), which is twice the binary score where K = 2. In (2)
classes without a record are left out; (4) is nan if a class has none, or has all. In (6)
probabilities are kept `EDGE` away from 0.

Functions take y (n,), p (n, K) and weights (…, n), by default all 1, and return (…): with the
weights of B bootstrap draws, the metric of each draw. It is nan without records.

Runs on the records of one place; nothing is revealed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcohort.arrays import Array, ratio
from fedcohort.metrics import classification
from fedcohort.metrics.classification import EDGE, Metric


def accuracy(y: Array, p: Array, weights: Array | None = None) -> Array:
    """Return the share of records whose likeliest class is their own, eq. (1)."""
    return _mean(likeliest(p) == y, _weights(y, weights))


def balanced_accuracy(y: Array, p: Array, weights: Array | None = None) -> Array:
    """Return the mean over classes of the share that is recognised, eq. (2)."""
    w, right = _weights(y, weights), likeliest(p) == y
    return of_recalls(
        np.stack([w @ (right & (y == k)).astype(float) for k in range(p.shape[1])], axis=-1),
        np.stack([w @ (y == k).astype(float) for k in range(p.shape[1])], axis=-1),
    )


def of_recalls(right: Array, rows: Array) -> Array:
    """Return eq. (2) of the right ones and of all of each class, (…, K) each."""
    there = rows > 0
    shares = np.divide(right, rows, out=np.zeros(np.shape(rows)), where=there)
    return ratio(shares.sum(axis=-1), there.sum(axis=-1))


def auc_of_class(y: Array, p: Array, k: int, weights: Array | None = None) -> Array:
    """Return the AUC of class k against the rest, eq. (3)."""
    return classification.auc((y == k).astype(float), p[:, k], weights)


def auc(y: Array, p: Array, weights: Array | None = None) -> Array:
    """Return the mean of the AUC of each class against the rest, eq. (4)."""
    return np.mean([auc_of_class(y, p, k, weights) for k in range(p.shape[1])], axis=0)


def brier(y: Array, p: Array, weights: Array | None = None) -> Array:
    """Return the mean squared distance from what happened, summed over classes, eq. (5)."""
    return _mean(squares(y, p), _weights(y, weights))


def log_loss(y: Array, p: Array, weights: Array | None = None) -> Array:
    """Return the mean negative log-likelihood, eq. (6)."""
    return _mean(losses(y, p), _weights(y, weights))


def squares(y: Array, p: Array) -> Array:
    """Return each record's own part of eq. (5), (n,)."""
    return np.sum((p - one_hot(y, p.shape[1])) ** 2, axis=1)


def losses(y: Array, p: Array) -> Array:
    """Return each record's own part of eq. (6), (n,)."""
    own = np.take_along_axis(p, np.asarray(y, np.int64)[:, None], axis=1)[:, 0]
    return -np.log(np.clip(own, EDGE, 1.0 - EDGE))


def confusion(y: Array, p: Array) -> Array:
    """Return records by their class and their likeliest class, eq. (7): (K, K)."""
    k = p.shape[1]
    return np.bincount(np.asarray(y, np.int64) * k + likeliest(p), minlength=k * k).reshape(k, k)


def likeliest(p: Array) -> Array:
    """Return the class of the largest probability (n,), the first of equals."""
    return np.argmax(p, axis=1) if len(p) else np.zeros(0, np.int64)


def one_hot(y: Array, k: int) -> Array:
    """Return 1(y_i = k) (n, K)."""
    return (np.asarray(y)[:, None] == np.arange(k)).astype(float)


#: By the name that a study file uses.
METRICS: Mapping[str, Metric] = {
    "auc": auc,
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
    "brier": brier,
    "log_loss": log_loss,
}


def chance(k: int) -> dict[str, float]:
    """Return the metrics of probability 1/K for every class of every record."""
    return {
        "auc": 0.5, "accuracy": 1.0 / k, "balanced_accuracy": 1.0 / k,
        "brier": 1.0 - 1.0 / k, "log_loss": float(np.log(k)),
    }  # fmt: skip


def _weights(y: Array, weights: Array | None) -> Array:
    return np.ones(len(y)) if weights is None else np.asarray(weights, float)


def _mean(values: Array, w: Array) -> Array:
    return ratio(w @ values.astype(float), w.sum(axis=-1))

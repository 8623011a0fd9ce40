"""Losses of boosting: gradient and hessian of each row by its margin F, and the loss itself.

    logistic   P(y = 1) = 1/(1 + e^−F)          g = p − y,           h = p (1 − p)
    softmax    P(y = k) = e^F_k / Σ_c e^F_c     g_k = p_k − [y = k], h_k = 2 p_k (1 − p_k)
    squared    E(y) = F                         g = F − y,           h = 1
    poisson    E(y) = e^F                       g = e^F − y,         h = e^(F + 0.7)
    cox        hazard e^F λ₀(t)                 g = e^F Λ(t) − δ,    h = e^F Λ(t) − e^2F Σ d/S₀²
    weibull    log T = F + σ ε, P(ε > z) = e^−e^z, z = (log t − F)/σ:
                                                g = (δ − e^z)/σ,     h = e^z/σ²

as in XGBoost 3 (Chen and Guestrin, KDD 2016; Barnwal, Cho, Hocking, JCGS 2022, of weibull, whose g
is cut to ± 15 and h to 15). cox is the exact partial likelihood of Breslow: Λ(t) is the sum of d/S₀
over the times of death up to t, by sums over all sites. Each row counts by its weight. h is at
least 1e-16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaln, logsumexp, softmax

from fedcohort.arrays import Array

#: Smallest hessian.
LEAST = 1e-16
#: The largest |F| of an exponential.
FARTHEST = 60.0
#: The largest |g| and h of weibull.
MOST = 15.0
#: Limit of a step of poisson, before the learning rate.
STEP = 0.7


@dataclass(frozen=True, eq=False)
class Outcome:
    """Outcome of n rows.

    Attributes
    ----------
    y : (n,) 0/1, number of the class, value or count; time of survival.
    event : (n,) bool of survival.
    hazard, squares : (n,) Λ(t) and Σ d/S₀² of cox, at each row's time.
    classes : K of softmax; else 1.
    sigma : σ of weibull.
    """

    y: Array
    event: Array | None = None
    hazard: Array | None = None
    squares: Array | None = None
    classes: int = 1
    sigma: float = 1.0


#: (F (n, K), outcome) → g (n, K), h (n, K), loss (n,); of rows of weight 1.
Pull = Callable[[Array, Outcome], tuple[Array, Array, Array]]


def _logistic(f: Array, of: Outcome) -> tuple[Array, Array, Array]:
    p = expit(f[:, 0])
    loss = np.logaddexp(0.0, f[:, 0]) - of.y * f[:, 0]
    return (p - of.y)[:, None], (p * (1 - p))[:, None], loss


def _softmax(f: Array, of: Outcome) -> tuple[Array, Array, Array]:
    p = softmax(f, axis=1)
    mine = of.y.astype(np.int64)
    at = np.arange(len(f)), mine
    hot = np.zeros_like(p)
    hot[at] = 1.0
    return p - hot, 2 * p * (1 - p), logsumexp(f, axis=1) - f[at]


def _squared(f: Array, of: Outcome) -> tuple[Array, Array, Array]:
    apart = f[:, 0] - of.y
    return apart[:, None], np.ones_like(f), apart**2


def _poisson(f: Array, of: Outcome) -> tuple[Array, Array, Array]:
    near = np.clip(f[:, 0], -FARTHEST, FARTHEST)
    mean = np.exp(near)
    loss = mean - of.y * near + gammaln(of.y + 1)
    return (mean - of.y)[:, None], np.exp(near + STEP)[:, None], loss


def _cox(f: Array, of: Outcome) -> tuple[Array, Array, Array]:
    assert of.event is not None and of.hazard is not None and of.squares is not None
    near = np.clip(f[:, 0], -FARTHEST, FARTHEST)
    risk = np.exp(near)
    expected = risk * of.hazard
    loss = expected - of.event * near
    return (expected - of.event)[:, None], (expected - risk**2 * of.squares)[:, None], loss


def _weibull(f: Array, of: Outcome) -> tuple[Array, Array, Array]:
    assert of.event is not None
    z = (np.log(of.y) - f[:, 0]) / of.sigma
    far = np.exp(np.clip(z, -FARTHEST, FARTHEST))
    loss = far + of.event * (np.log(of.sigma * of.y) - z)
    g = np.clip((of.event - far) / of.sigma, -MOST, MOST)
    return g[:, None], np.clip(far / of.sigma**2, LEAST, MOST)[:, None], loss


PULLS: Mapping[str, Pull] = {
    "logistic": _logistic, "softmax": _softmax, "squared": _squared, "poisson": _poisson,
    "cox": _cox, "weibull": _weibull,
}  # fmt: skip


def pulls(objective: str, f: Array, of: Outcome, weight: Array) -> tuple[Array, Array, Array]:
    """Return g (n, K), h (n, K) and the loss (n,) of rows at margins F (n, K), by their weights."""
    g, h, loss = PULLS[objective](f, of)
    return g * weight[:, None], np.maximum(h, LEAST) * weight[:, None], loss * weight


def start(objective: str, weight: float, target: Array) -> Array:
    """Return the margin before the first tree, float32 (K,).

    Parameters
    ----------
    weight : Σ w of all rows.
    target : (K,) Σ w y; of softmax Σ w of each class, of weibull Σ w log t.
    """
    with np.errstate(divide="ignore"):
        mean = np.asarray(target, float) / weight
        found = {
            "logistic": lambda: np.log(mean) - np.log1p(-mean),
            "softmax": lambda: np.where(mean > 0, np.log(mean), -FARTHEST),
            "poisson": lambda: np.log(mean),
            "cox": lambda: np.zeros(1),
        }.get(objective, lambda: mean)()
    return found.astype(np.float32)


def targets(objective: str, of: Outcome) -> Array:
    """Return what `start` sums over rows, (n, K)."""
    if objective == "softmax":
        return (of.y[:, None] == np.arange(of.classes)).astype(float)
    if objective == "weibull":
        return np.log(of.y)[:, None]
    return np.asarray(of.y, float)[:, None] * (objective != "cox")

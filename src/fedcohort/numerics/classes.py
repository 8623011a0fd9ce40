"""Likelihoods of an outcome of K classes: baseline-category logits, and cumulative logits.

Agresti, "Categorical Data Analysis", 3rd ed. 2013, sections 8.1 and 8.2. A record has weight w,
class y in 0 … K − 1 and covariates z = (1, x). With η_0 = 0 and one vector γ_c for each other class

    multinomial   p_c = e^{η_c}/Σ_d e^{η_d},  η_c = zᵀγ_c                                  (1)
        score of γ_c              Σ w (1[y = c] − p_c) z                                   (2)
        information of γ_c, γ_d   Σ w p_c (1[c = d] − p_d) z zᵀ                            (3)

and with thresholds θ_0 < … < θ_{K−2} and σ the logistic function, for classes in an order

    ordinal   P(y ≤ j) = σ(θ_j − xᵀβ)                                                      (4)

With u = θ_y − xᵀβ, v = θ_{y−1} − xᵀβ, δ = u − v, a = σ(u) and b = σ(v) (a = 1 for the last class,
b = 0 for the first), a class has the probability a (1 − b)(1 − e^{−δ}), and as δ does not depend
on x, observed information is a sum of three squares. With e_j the unit vector of θ_j, (θ, β) have

    score         Σ w [(1 − a + h)(e_y, −x) − (b + h)(e_{y−1}, −x)],   h = 1/(e^δ − 1)     (5)
    information   Σ w [a (1 − a) (e_y, −x)² + b (1 − b) (e_{y−1}, −x)²
                      + h (1 + h) (e_y − e_{y−1}, 0)²]                                     (6)

(v² is v vᵀ). Both log-likelihoods are concave: (4) by Pratt, JASA 76(373), 1981. The test that the
effects are the same at each threshold is a score test in the wider model P(y ≤ j) = σ(θ_j − xᵀβ_j):
Peterson & Harrell, Applied Statistics 39(2), 1990. At equal β_j, with η_j = θ_j − xᵀβ and
f_j = σ(η_j) σ(−η_j), the predictor η_j has

    score                                 w f_j (1[y = j]/p_j − 1[y = j + 1]/p_{j+1})      (7)
    expected information with η_j         w f_j² (1/p_j + 1/p_{j+1})
                         with η_{j+1}     −w f_j f_{j+1}/p_{j+1}                           (8)

Nothing is revealed here: who calls decides what leaves a site.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit, logsumexp

from fedcohort.arrays import Array

#: Smallest eigenvalue of an information with a unit diagonal; below, a test's χ² is NaN.
NOTHING = 1e-10


class Terms(NamedTuple):
    """Log-likelihood of all records at one γ, and its derivatives.

    Attributes
    ----------
    log_likelihood : ().
    score, information : (k,) and (k, k); k = (K − 1)(p + 1) by class, or K − 1 + p.
    squares : Σ ω and Σ ω² of what records count in the information, (2, m): ω = w p_c (1 − p_c)
        of each of m = K classes, or w (a (1 − a) + b (1 − b)), m = 1.
    """

    log_likelihood: float
    score: Array
    information: Array
    squares: Array


class Wider(NamedTuple):
    """Eqs. (7) and (8), by threshold: score (K − 1, p + 1), of (θ_j, β_j).

    own, next : (K − 1, p + 1, p + 1) and (K − 2, p + 1, p + 1), information of a threshold's
        parameters, and with those of the next threshold.
    """

    score: Array
    own: Array
    next: Array


def probabilities(eta: Array) -> Array:
    """Return eq. (1): p (n, K) for predictors (n, K − 1) of the classes after the first."""
    full = np.column_stack([np.zeros(len(eta)), eta])
    return np.exp(full - logsumexp(full, axis=1, keepdims=True))


def ordered_probabilities(thresholds: Array, eta: Array) -> Array:
    """Return eq. (4): p (n, K) for θ (K − 1,), rising, and predictors xᵀβ (n,)."""
    ends = thresholds[None, :] - eta[:, None]
    n, width = len(eta), np.diff(thresholds)
    upper = np.column_stack([log_expit(ends), np.zeros(n)])
    lower = np.column_stack([np.zeros(n), log_expit(-ends)])
    return np.exp(upper + lower + _between(width)[1])


def _between(width: Array) -> tuple[Array, Array]:
    """Return h and log(1 − e^{−δ}) of each class (K,), for widths δ (K − 2,) ≥ 0.

    A class of width 0 has no records and the probability 0.
    """
    with np.errstate(divide="ignore", over="ignore"):
        return (
            np.r_[0.0, 1.0 / np.expm1(width), 0.0],
            np.r_[0.0, np.log(-np.expm1(-width)), 0.0],
        )


def multinomial_terms(z: Array, y: Array, weight: Array, gamma: Array) -> Terms:
    """Sum eqs. (2) and (3).

    Parameters
    ----------
    z : (n, p + 1), with a first column of ones.
    y, weight : (n,), the class's number, and w.
    gamma : (K − 1, p + 1).
    """
    m, k = gamma.shape
    full = np.column_stack([np.zeros(len(z)), z @ gamma.T])
    log_p = full - logsumexp(full, axis=1, keepdims=True)
    p = np.exp(log_p)
    mine = (y[:, None] == np.arange(m + 1)) * 1.0
    score = ((mine - p)[:, 1:] * weight[:, None]).T @ z
    information = np.empty((m, k, m, k))
    for c in range(m):
        for d in range(c, m):
            omega = weight * p[:, c + 1] * ((c == d) - p[:, d + 1])
            block = (z.T * omega) @ z
            information[c, :, d] = block
            information[d, :, c] = block.T
    count = weight[:, None] * p * (1 - p)
    return Terms(
        float(weight @ log_p[np.arange(len(y)), y]),
        score.ravel(),
        information.reshape(m * k, m * k),
        np.array([count.sum(axis=0), (count**2).sum(axis=0)]),
    )


def spread_of_classes(classes: int) -> Array:
    """Return S (K − 1, K − 1) with Σ_c (b_c − mean b)² = bᵀ S b; 1 for K = 2.

    b is of the classes after the first, whose b is 0; sum and mean are over all K. The sum is the
    same whichever class is the first.
    """
    return np.eye(classes - 1) - (1.0 / classes if classes > 2 else 0.0)


def ordinal_terms(x: Array, y: Array, weight: Array, gamma: Array, classes: int) -> Terms:
    """Sum eqs. (5) and (6).

    Parameters
    ----------
    x : (n, p), without a column of ones.
    y, weight : (n,), the class's number, and w.
    gamma : (K − 1 + p,), the thresholds, rising, and β.
    """
    m, eta = classes - 1, x @ gamma[classes - 1 :]
    theta = np.r_[-math.inf, gamma[:m], math.inf]
    u, v = theta[y + 1] - eta, theta[y] - eta
    width = np.diff(gamma[:m])
    h, log_share = _between(width)
    h = h[y]
    log_p = log_expit(u) + log_expit(-v) + log_share[y]
    a, b = expit(u), expit(v)
    up, down = weight * (expit(-u) + h), weight * (b + h)
    bent, low = weight * a * expit(-u), weight * b * expit(-v)
    at = (y[:, None] == np.arange(m)) * 1.0  # e_y
    below = (y[:, None] - 1 == np.arange(m)) * 1.0  # e_{y−1}
    omega = bent + low
    score = np.r_[at.T @ up - below.T @ down, -x.T @ (up - down)]
    apart = at - below
    inner = (at.T * bent) @ at + (below.T * low) @ below
    inner += (apart.T * (weight * h * (1 + h))) @ apart
    cross = -((at.T * bent) @ x + (below.T * low) @ x)
    information = np.block([[inner, cross], [cross.T, (x.T * omega) @ x]])
    squares = np.array([[omega.sum()], [omega @ omega]])
    return Terms(float(weight @ log_p), score, information, squares)


def wider_terms(z: Array, y: Array, weight: Array, thresholds: Array, beta: Array) -> Wider:
    """Sum eqs. (7) and (8) at equal effects.

    Parameters
    ----------
    z : (n, p + 1), with a first column of ones.
    y, weight : (n,).
    thresholds, beta : θ (K − 1,) and β (p,).
    """
    m, k = len(thresholds), z.shape[1]
    ends = thresholds[None, :] - (z[:, 1:] @ beta)[:, None]
    gap = np.r_[np.inf, np.diff(thresholds), np.inf]
    fill = np.full((len(z), 1), np.inf)
    upper, lower = np.hstack([ends, fill]), np.hstack([-fill, ends])
    # f_j/p_j and f_j/p_{j+1}, without the difference that p is; 0 of a class that has no records
    share = np.divide(1.0, -np.expm1(-gap), out=np.zeros(m + 1), where=gap > 0)
    rise = np.exp(log_expit(-ends) - log_expit(-lower[:, :-1])) * share[:-1]
    fall = np.exp(log_expit(ends) - log_expit(upper[:, 1:])) * share[1:]
    f = expit(ends) * expit(-ends)
    on, above = y[:, None] == np.arange(m), y[:, None] - 1 == np.arange(m)
    slope = weight[:, None] * (on * rise - above * fall)
    z = z * np.r_[1.0, np.full(k - 1, -1.0)]  # η_j = θ_j − xᵀβ_j
    own = weight[:, None] * f * (rise + fall)
    next_ = -weight[:, None] * f[:, 1:] * fall[:, :-1]
    return Wider(
        slope.T @ z,
        np.array([(z.T * omega) @ z for omega in own.T]),
        np.array([(z.T * omega) @ z for omega in next_.T]).reshape(m - 1, k, k),
    )


def assembled(own: Array, following: Array) -> Array:
    """Return the information (m, k, m, k) of `Wider`'s blocks, m = K − 1."""
    m, k = own.shape[:2]
    out = np.zeros((m, k, m, k))
    for j in range(m):
        out[j, :, j] = own[j]
        if j:
            out[j - 1, :, j], out[j, :, j - 1] = following[j - 1], following[j - 1].T
    return out


def proportional_tests(score: Array, information: Array) -> tuple[tuple[float, int], ...]:
    """Return χ² and degrees of freedom of the score test of equal effects at all thresholds.

    Of each covariate alone, with K − 2 degrees of freedom, and of all at last, with p (K − 2). χ²
    is NaN if the data do not determine it.

    Parameters
    ----------
    score, information : (m, k) and (m, k, m, k), m = K − 1 and k = p + 1, of (θ_j, β_j) at the fit.
    """
    m, k = score.shape
    score, information = score.ravel(), information.reshape(m * k, m * k)
    unit = np.eye(m * k).reshape(m, k, m * k)
    narrow = [*unit[:, 0], *unit[:, 1:].sum(axis=0)]  # thresholds, and shared effects
    found: list[tuple[float, int]] = []
    for freed in (*([i] for i in range(1, k)), range(1, k)):
        wide = np.array([*narrow, *(unit[j, i] for i in freed for j in range(1, m))])
        u, inner = wide @ score, wide @ information @ wide.T
        scale = np.sqrt(np.diag(inner))
        scale[scale == 0] = 1.0
        inner = inner / np.outer(scale, scale)
        fine = np.linalg.eigvalsh(inner)[0] > NOTHING
        value = float(u / scale @ np.linalg.solve(inner, u / scale)) if fine else math.nan
        found.append((value, len(freed) * (m - 1)))
    return tuple(found)

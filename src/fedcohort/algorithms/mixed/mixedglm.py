"""The generalised linear model with a random intercept for each site: the likelihood of one site.

Breslow & Clayton, JASA 88, 1993. Row i of the site has η_i = x_iᵀβ + o_i + τ z, with z ~ N(0, 1)
for the site, and a canonical link: μ = g⁻¹(η), w = dμ/dη. With the rows' log-likelihoods l,

    h(z) = Σ l(y_i, η_i) − z²/2,      L(β, τ) = ∫ exp h(z) dz/√(2π)                        (1)

h is concave. With its mode ẑ and ŝ = (−h''(ẑ))^−½, the integral is a sum over points at distance d,
up to where h has fallen by `DEPTH` on either side of ẑ. Its error is about exp(−2π a/d), if exp h
is analytic and bounded up to a distance a from the real line (Trefethen & Weideman, SIAM Rev. 56,
2014). a is about π/τ for the logit, π/(2τ) for the logarithm, and π ŝ²/d for a normal curve. So
d = min(0.7 ŝ, 0.3/τ) leaves only rounding errors. Gauss-Hermite quadrature needs many nodes for a
site of one class, whose h is flat on one side.

Given the data, point z_k has the probability π_k, its share of the sum. With E, Var under π and the
derivative a(z) = (Xᵀ(y − μ), z Σ(y − μ)) of h in (β, τ),

    ∇ log L = E[a],      ∇² log L = Var[a] − E[Σ w_i (x_i, z)(x_i, z)ᵀ]                    (2)

At τ = 0 the second derivative in τ is (Σ(y − μ))² − Σ w. If its sum over sites is above 0 at the
best β, τ = 0 is no maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammaln

from fedcohort.arrays import Array

#: Largest number of steps to the mode of h, and tolerance.
STEPS, SHORT = 100, 1e-10
#: exp(−DEPTH) of the mode's height is less than rounding.
DEPTH = 37.0


class Canonical(NamedTuple):
    """A family with its canonical link.

    Attributes
    ----------
    log_likelihood : l of y (n,) at η (n,), summed: a number.
    mean, weight : μ and dμ/dη (n,) at η (n,).
    """

    log_likelihood: Callable[[Array, Array], float]
    mean: Callable[[Array], Array]
    weight: Callable[[Array], Array]


def _bernoulli(y: Array, eta: Array) -> float:
    return float(-np.logaddexp(0.0, np.where(y == 1, -eta, eta)).sum())


def _logistic_weight(eta: Array) -> Array:
    mu = expit(eta)
    return mu * (1.0 - mu)


def _exp(eta: Array) -> Array:
    """Return e^η, limited so that a step that is too long can be halved."""
    return np.exp(np.minimum(eta, 300.0))


def _poisson(y: Array, eta: Array) -> float:
    return float((y * eta - _exp(eta) - gammaln(y + 1.0)).sum())


FAMILIES: Mapping[str, Canonical] = {
    "binomial": Canonical(_bernoulli, expit, _logistic_weight),
    "poisson": Canonical(_poisson, _exp, _exp),
}


def first_guess(family: str, y: Array) -> tuple[Array, Array]:
    """Return weights w (n,) and working responses ζ (n,); their regression starts the ascent.

    As in R's glm, μ = y + 0.1 for counts, (y + ½)/2 for 0 and 1; ζ = η + (y − μ)/w.
    """
    if family == "binomial":
        mu = (y + 0.5) / 2.0
        weight, eta = mu * (1.0 - mu), np.log(mu / (1.0 - mu))
    else:
        mu = y + 0.1
        weight, eta = mu, np.log(mu)
    return weight, eta + (y - mu) / weight


class Terms(NamedTuple):
    """log L (), its first (p + 1,) and second derivative (p + 1, p + 1), τ last."""

    value: float
    slope: Array
    bend: Array


def terms(family: Canonical, x: Array, y: Array, offset: Array, point: Array) -> Terms:
    """Return log L, eq. (1), and its derivatives, eq. (2).

    Parameters
    ----------
    x : (n, p), with a column of ones for an intercept.
    y, offset : (n,).
    point : (β, τ) (p + 1,), with any τ; L is even in τ.
    """
    p, tau = x.shape[1], float(point[-1])
    eta = x @ point[:-1] + offset
    if not tau:
        return _without(family, x, y, eta)
    z, distance = _points(family, eta, y, tau)
    heights = np.array([_height(family, eta, y, tau, one) for one in z.tolist()])
    shares = np.exp(heights - heights.max())
    value = float(heights.max()) + math.log(shares.sum() * distance / math.sqrt(2.0 * math.pi))
    shares /= shares.sum()
    slopes = np.empty((len(z), p + 1))
    bend = np.zeros((p + 1, p + 1))
    weight = np.zeros(len(y))
    for k, (share, one) in enumerate(zip(shares.tolist(), z.tolist(), strict=True)):
        rest, w = y - family.mean(eta + tau * one), family.weight(eta + tau * one)
        slopes[k, :-1] = rest @ x
        slopes[k, -1] = one * rest.sum()
        weight += share * w
        bend[:-1, -1] -= share * one * (w @ x)
        bend[-1, -1] -= share * one**2 * w.sum()
    bend[:-1, :-1] = -(x.T * weight) @ x
    bend[-1, :-1] = bend[:-1, -1]
    slope = shares @ slopes
    away = slopes - slope
    return Terms(value, slope, bend + (away.T * shares) @ away)


def _without(family: Canonical, x: Array, y: Array, eta: Array) -> Terms:
    """Return log L and its derivatives at τ = 0."""
    rest, w = y - family.mean(eta), family.weight(eta)
    bend = np.zeros((x.shape[1] + 1, x.shape[1] + 1))
    bend[:-1, :-1] = -(x.T * w) @ x
    bend[-1, -1] = rest.sum() ** 2 - w.sum()
    return Terms(family.log_likelihood(y, eta), np.r_[rest @ x, 0.0], bend)


def _points(family: Canonical, eta: Array, y: Array, tau: float) -> tuple[Array, float]:
    """Return the points z (K,) of the sum, and their distance d."""
    mode = mode_of(family, eta, y, tau)
    spread = _curvature(family, eta, tau, mode) ** -0.5
    low = _height(family, eta, y, tau, mode) - DEPTH
    ends: list[float] = []
    for side in (-1.0, 1.0):
        reach = spread * math.sqrt(2.0 * DEPTH)
        while _height(family, eta, y, tau, mode + side * reach) > low:
            reach *= 1.25
        ends.append(reach)
    distance = min(0.7 * spread, 0.3 / abs(tau))
    k = np.arange(-math.ceil(ends[0] / distance), math.ceil(ends[1] / distance) + 1)
    return mode + distance * k, distance


def mode_of(family: Canonical, eta: Array, y: Array, tau: float) -> float:
    """Return ẑ, the maximum of h, for η (n,) at z = 0."""
    z, step = 0.0, 0.0
    height = -math.inf
    for _ in range(STEPS):
        tried = z + step
        here = _height(family, eta, y, tau, tried)
        if here < height - 1e-12 * (1.0 + abs(height)):
            step /= 2
            continue
        z, height = tried, here
        slope = tau * float((y - family.mean(eta + tau * z)).sum()) - z
        step = slope / _curvature(family, eta, tau, z)
        if abs(step) < SHORT:
            break
    return z


def _curvature(family: Canonical, eta: Array, tau: float, z: float) -> float:
    """Return −h''(z), at least 1."""
    return 1.0 + tau**2 * float(family.weight(eta + tau * z).sum())


def _height(family: Canonical, eta: Array, y: Array, tau: float, z: float) -> float:
    return family.log_likelihood(y, eta + tau * z) - z**2 / 2

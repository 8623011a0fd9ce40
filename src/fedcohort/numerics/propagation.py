"""Expectation propagation of a logistic regression with a Gaussian prior.

Minka, "Expectation propagation for approximate Bayesian inference", UAI 2001; Rasmussen & Williams,
"Gaussian Processes for Machine Learning", 2006, section 3.6; all factors are refreshed at once (van
Gerven et al., NeuroImage 50, 2010). Row i has zᵢ (q,), fᵢ = zᵢᵀγ, and the likelihood σ(sᵢ fᵢ) with
sᵢ = ±1. Its factor is exp(νᵢ fᵢ − ½ τᵢ fᵢ²), so with a prior N(0, P⁻¹) the posterior is N(m, V),

    V⁻¹ = P + Σ τᵢ zᵢ zᵢᵀ,   V⁻¹ m = Σ νᵢ zᵢ                                               (1)

With μ = zᵢᵀm and v = zᵢᵀV zᵢ, the cavity, the posterior of fᵢ without its factor, is N(c, w),

    1/w = 1/v − τᵢ,   c/w = μ/v − νᵢ                                                       (2)

The tilted density σ(sᵢ f) N(f; c, w) has the integral Ẑᵢ, the mean μ̂ and the variance v̂. The new
factor is the one that gives the posterior these moments:

    τᵢ = 1/v̂ − 1/w,   νᵢ = μ̂/v̂ − c/w                                                      (3)

σ is log-concave with a curvature of at most 1/4, so 0 ≤ τᵢ ≤ 1/4 at any m and V: no precision
becomes negative (Seeger, JMLR 9, 2008), and no row counts for more (Cramér–Rao's bound of v̂). At
the fixed point the logarithm of the evidence is about

    ½ ln|P V| + ½ mᵀV⁻¹m + Σ [ln Ẑᵢ + ½ ln(1 + τᵢ w) + ½ (c²/w − (c/w + νᵢ)²/(1/w + τᵢ))]  (4)

Integrals over f are sums over equidistant points, which for such integrands converge faster than
any power of the distance (Trefethen & Weideman, SIAM Review 56, 2014). Nothing is revealed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit

from fedcohort.arrays import Array

#: Points of an integral, in standard deviations from the mean, and rows at a time.
POINTS = np.linspace(-9.0, 9.0, 145)
ROWS = 4096
#: Standard deviation of f above which σ is too steep for `POINTS`; the cavity's is cut to it.
WIDEST = 30.0
#: Smallest variance of f, below which eq. (3) would be rounding errors, and largest τ.
NARROWEST, STEEPEST = 1e-10, 0.25
#: A step from old factors to new ones is halved if changes grow, down to this share; else it grows
#: by this factor, up to the whole way.
LEAST, GROWTH = 1 / 16, 1.5


def damped(share: float, grew: bool) -> float:
    """Return the share of the way to new factors after a round, by whether changes grew in it."""
    return max(share / 2, LEAST) if grew else min(share * GROWTH, 1.0)


@dataclass(frozen=True)
class Factors:
    """Factors of n rows.

    Attributes
    ----------
    precision, shift : τ (n,) and ν (n,).
    """

    precision: Array
    shift: Array

    def towards(self, new: Factors, share: float) -> Factors:
        """Return these factors moved by a share in (0, 1] of the way to new ones."""
        both = (self.precision, new.precision), (self.shift, new.shift)
        return Factors(*(share * b + (1.0 - share) * a for a, b in both))


class Refreshed(NamedTuple):
    """Factors after one pass over the rows, and the rows' part of eq. (4)."""

    factors: Factors
    evidence: float


def started(y: Array, share: float) -> Factors:
    """Return first factors of outcomes y (n,) of 0 and 1: those of Newton's step from the mean.

    Parameters
    ----------
    share : of rows with 1, in (0, 1).
    """
    weight = share * (1.0 - share)
    start = np.log(share / (1.0 - share))
    return Factors(np.full(len(y), weight), weight * start + y - share)


def refreshed(z: Array, y: Array, old: Factors, mean: Array, covariance: Array) -> Refreshed:
    """Return the new factors by eqs. (2) and (3), at the posterior N(m, V).

    Parameters
    ----------
    z : (n, q). y : (n,), 0 or 1.
    mean, covariance : m (q,) and V (q, q).
    """
    mu = z @ mean
    v = np.maximum(np.einsum("ij,jk,ik->i", z, covariance, z), NARROWEST)
    rest = np.maximum(1.0 / v - old.precision, WIDEST**-2)
    shift = mu / v - old.shift
    centre, width = shift / rest, 1.0 / rest
    log_z, hat, hat_v = tilted(y, centre, width)
    new = Factors(np.clip(1.0 / hat_v - rest, 0.0, STEEPEST), hat / hat_v - shift)
    both = shift + new.shift
    part = log_z + 0.5 * np.log1p(new.precision * width)
    part += 0.5 * (shift * centre - both * both / (rest + new.precision))
    return Refreshed(new, float(part.sum()))


def tilted(y: Array, centre: Array, width: Array) -> tuple[Array, Array, Array]:
    """Return ln Ẑ, μ̂ and v̂ (n,) of σ(s f) N(f; c, w), with s = 2y − 1.

    Parameters
    ----------
    y, centre, width : (n,), 0 or 1, c and w.
    """
    out = np.empty((3, len(y)))
    base = -0.5 * POINTS**2
    for start in range(0, len(y), ROWS):
        part = slice(start, start + ROWS)
        sign, c, sd = 2.0 * y[part] - 1.0, centre[part], np.sqrt(width[part])
        logs = log_expit((sign * c)[:, None] + (sign * sd)[:, None] * POINTS) + base
        top = logs.max(axis=1)
        mass = np.exp(logs - top[:, None])
        total = mass.sum(axis=1)
        first = mass @ POINTS / total
        second = mass @ POINTS**2 / total - first**2
        step = (POINTS[1] - POINTS[0]) / np.sqrt(2.0 * np.pi)
        out[:, part] = np.log(total * step) + top, c + sd * first, width[part] * second
    return out[0], out[1], out[2]


def skewness(z: Array, y: Array, rows: Factors, mean: Array, covariance: Array) -> Array:
    """Return the skewness (n,) of each row's tilted density at the posterior N(m, V).

    Parameters
    ----------
    z : (n, q). y : (n,), 0 or 1.
    rows : their factors.
    mean, covariance : m (q,) and V (q, q).
    """
    v = np.maximum(np.einsum("ij,jk,ik->i", z, covariance, z), NARROWEST)
    rest = np.maximum(1.0 / v - rows.precision, WIDEST**-2)
    centre, width = (z @ mean / v - rows.shift) / rest, 1.0 / rest
    out = np.empty(len(y))
    for start in range(0, len(y), ROWS):
        part = slice(start, start + ROWS)
        sign, c, sd = 2.0 * y[part] - 1.0, centre[part], np.sqrt(width[part])
        logs = log_expit((sign * c)[:, None] + (sign * sd)[:, None] * POINTS) - 0.5 * POINTS**2
        mass = np.exp(logs - logs.max(axis=1, keepdims=True))
        mass /= mass.sum(axis=1, keepdims=True)
        away = POINTS - (mass @ POINTS)[:, None]
        second, third = ((mass * away**power).sum(axis=1) for power in (2, 3))
        out[part] = third / second**1.5
    return out


def probability(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Return E σ(f) and Var σ(f) (n,) of f ~ N(mean, variance), both (n,)."""
    sd = np.sqrt(variance)
    mass = np.exp(-0.5 * POINTS**2)
    mass /= mass.sum()
    out = np.empty((2, len(mean)))
    for start in range(0, len(mean), ROWS):
        part = slice(start, start + ROWS)
        p = expit(mean[part, None] + sd[part, None] * POINTS)
        first = p @ mass
        out[:, part] = first, np.maximum((p - first[:, None]) ** 2 @ mass, 0.0)
    return out[0], out[1]

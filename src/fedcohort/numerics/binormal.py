"""The bivariate normal distribution: its probability, and correlations behind binary values.

With φ₂ the density of two standard normals of correlation r (Drezner, Wesolowsky, J. Stat. Comput.
Simul. 35, 1990),

    P(X > h, Y > k; ρ) = Φ(−h) Φ(−k) + ∫₀^ρ φ₂(h, k; r) dr                                 (1)

by Gauss and Legendre's rule in θ, r = sin θ. The tetrachoric correlation of two binary values with
shares p and q, and both with share p₁₁, solves P(X > Φ⁻¹(1 − p), Y > Φ⁻¹(1 − q); ρ) = p₁₁
(Pearson, 1900); (1) rises with ρ. The biserial one of a binary value and a standard normal is
their covariance over φ(Φ⁻¹(1 − p)). Noisy correlations are multiplied by the share of their
variance that is not noise (`shrunk`), as means by James and Stein, Proc. 4th Berkeley Symp., 1961.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from fedcohort.arrays import Array

#: Nodes of the rule, halvings of the interval, and the largest |ρ|.
NODES, HALVINGS, MOST = 24, 40, 0.999
#: Largest number of projections, and the change that ends them.
PROJECTIONS, SETTLED = 200, 1e-6
#: Smallest variance of correlations, in that of their noise.
LEAST = 0.01


def upper(h: Array, k: Array, rho: Array) -> Array:
    """Return P(X > h, Y > k) of correlation ρ, eq. (1); all of one shape."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    top = np.arcsin(rho)
    theta = 0.5 * top[..., None] * (nodes + 1.0)
    r, c2 = np.sin(theta), np.square(np.cos(theta))
    h_, k_ = h[..., None], k[..., None]
    inside = np.exp(-(h_**2 - 2 * r * h_ * k_ + k_**2) / (2 * c2))
    return ndtr(-h) * ndtr(-k) + 0.5 * top * (inside @ weights) / (2 * np.pi)


def tetrachoric(p: Array, q: Array, both: Array) -> Array:
    """Return ρ (…) of two binary values with shares p, q in (0, 1), and both with share `both`."""
    h, k = -ndtri(p), -ndtri(q)
    low, high = np.full(np.shape(both), -MOST), np.full(np.shape(both), MOST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        less = upper(h, k, middle) < both
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return (low + high) / 2


def biserial(p: Array, covariance: Array) -> Array:
    """Return ρ (…) of a binary value with share p and a standard normal, from their covariance."""
    density = np.exp(-np.square(ndtri(p)) / 2) / np.sqrt(2 * np.pi)
    return np.clip(covariance / density, -MOST, MOST)


def shrunk(r: Array, sd: Array, pairs: Array) -> Array:
    """Return noisy correlations r (d, d) times τ²/(τ² + sd²), τ² the variance of true ones.

    τ² is the mean of r² − sd² over the `pairs` (d, d) with weights 1/sd⁴, so that pairs with much
    noise count little.
    """
    if not pairs.any() or not (sd[pairs] > 0).all():
        return r
    weights = sd[pairs] ** -4
    spread = float(np.average(r[pairs] ** 2 - sd[pairs] ** 2, weights=weights))
    spread = max(spread, LEAST * float(np.average(sd[pairs] ** 2, weights=weights)))
    return r * spread / (spread + sd**2)


def nearest_correlation(r: Array, least: float = 1e-4) -> Array:
    """Return the nearest correlation matrix (d, d), with eigenvalues of about `least` or more.

    Alternating projections with Dykstra's correction (Higham, IMA J. Numer. Anal. 22, 2002).
    """
    y = (r + r.T) / 2
    correction = np.zeros(y.shape)
    for _ in range(PROJECTIONS):
        values, vectors = np.linalg.eigh(y - correction)
        x = (vectors * np.maximum(values, least)) @ vectors.T
        correction = x - (y - correction)
        moved = x.copy()
        np.fill_diagonal(moved, 1.0)
        done = np.abs(moved - y).max(initial=0.0) < SETTLED
        y = moved
        if done:
            break
    values, vectors = np.linalg.eigh(y)
    lifted = (vectors * np.maximum(values, least)) @ vectors.T
    scale = np.sqrt(np.diag(lifted))
    found = lifted / np.outer(scale, scale)
    np.fill_diagonal(found, 1.0)
    return (found + found.T) / 2

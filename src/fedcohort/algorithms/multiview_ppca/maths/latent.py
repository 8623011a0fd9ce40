"""Rows under given parameters: latent points, missing entries, unusual rows.

θ is that of one site, or the middle of the common distribution. For a row with the entries o,

    x | t_o ~ N(A (t_o − μ_o), Σ⁻¹)                                              (eq. E of `em`)
    t_m | t_o ~ N(W_m ⟨x⟩ + μ_m,  W_m Σ⁻¹ W_mᵀ + σ² I)                                     (1)

and Σ⁻¹ shrinks with each present view. A row without entries is at the origin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from fedcohort.algorithms.multiview_ppca.maths.em import Solved, solve
from fedcohort.algorithms.multiview_ppca.maths.model import Theta, Views
from fedcohort.arrays import Array


class Latent(NamedTuple):
    """``mean`` (n, q) and ``covariance`` (n, q, q) of x given each row's entries."""

    mean: Array
    covariance: Array


class Completed(NamedTuple):
    """``mean`` (n, p), present entries unchanged; ``sd`` (n, p), 0 for present entries."""

    mean: Array
    sd: Array


def posterior(x: Array, theta: Theta, views: Views) -> Latent:
    """Return the distribution of the latent point of each row of x (n, p), NaN where missing."""
    m, offset = theta.point, theta.offset
    mean = np.zeros((len(x), views.q))
    covariance = np.empty((len(x), views.q, views.q))
    for rows, columns, s in _parts(x, theta, views):
        mean[rows] = m + (x[np.ix_(rows, columns)] - offset[columns]) @ s.a.T
        covariance[rows] = s.inverse
    return Latent(mean, covariance)


def reconstruct(x: Array, theta: Theta, views: Views) -> Array:
    """Return W⟨x⟩ + μ (n, p) for each row of x (n, p)."""
    return posterior(x, theta, views).mean @ theta.w.T + theta.mu


def complete(x: Array, theta: Theta, views: Views) -> Completed:
    """Return eq. (1) for missing entries of x (n, p), and the present entries unchanged."""
    m, offset = theta.point, theta.offset
    mean, sd = x.copy(), np.zeros(x.shape)
    for rows, columns, s in _parts(x, theta, views):
        away = np.setdiff1d(np.arange(x.shape[1]), columns)
        point = m + (x[np.ix_(rows, columns)] - offset[columns]) @ s.a.T
        w = theta.w[away]
        spread = ((w @ s.inverse) * w).sum(axis=1) + theta.variance[views.noise[away]]
        mean[np.ix_(rows, away)] = point @ w.T + theta.mu[away]
        sd[np.ix_(rows, away)] = np.sqrt(spread)
    return Completed(mean, sd)


def log_densities(x: Array, theta: Theta, views: Views) -> Array:
    """Return ln p(t) (n,) of each row of x (n, p), from its present entries."""
    value = np.zeros(len(x))
    for rows, columns, s in _parts(x, theta, views):
        size = len(columns) * np.log(2.0 * np.pi) + np.linalg.slogdet(s.sigma)[1]
        size += np.log(theta.variance[views.noise[columns]]).sum()
        value[rows] = -0.5 * (size + _squares(x[np.ix_(rows, columns)], columns, s, theta, views))
    return value


def unusual(x: Array, theta: Theta, views: Views) -> Array:
    """Return the p-value (n,) of each row of x (n, p), by its squared Mahalanobis distance.

    It is uniform for rows of the model; 1 for a row without entries.
    """
    value = np.ones(len(x))
    for rows, columns, s in _parts(x, theta, views):
        d2 = _squares(x[np.ix_(rows, columns)], columns, s, theta, views)
        value[rows] = chdtrc(len(columns), d2) if len(columns) else 1.0
    return value


def sample(n: int, theta: Theta, views: Views, rng: np.random.Generator) -> Array:
    """Return n rows drawn from the model (n, p)."""
    point = theta.point + rng.standard_normal((n, views.q))
    noise = rng.standard_normal((n, len(theta.mu))) * np.sqrt(theta.variance[views.noise])
    return point @ theta.w.T + theta.mu + noise


def _squares(t: Array, columns: Array, s: Solved, theta: Theta, views: Views) -> Array:
    """Return (t − μ)ᵀ C⁻¹ (t − μ) of rows with these columns."""
    off = t - theta.offset[columns]
    plain = (np.square(off) / theta.variance[views.noise[columns]]).sum(axis=1)
    return np.maximum(plain - ((off @ s.b.T) * (off @ s.a.T)).sum(axis=1), 0.0)


def _parts(x: Array, theta: Theta, views: Views) -> list[tuple[Array, Array, Solved]]:
    """Return rows, columns and eq. (E) of each pattern of missing entries, also the empty one."""
    there = ~np.isnan(x)
    kinds, of = np.unique(there, axis=0, return_inverse=True)
    return [
        (np.flatnonzero(of.ravel() == k), columns, solve(theta, columns, views))
        for k, kind in enumerate(kinds)
        for columns in (np.flatnonzero(kind),)
    ]

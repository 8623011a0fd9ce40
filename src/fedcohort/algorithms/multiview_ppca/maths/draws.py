"""Draws from a site's posterior, and the criterion for q.

Gibbs' sampler: each of these is drawn given the others, with Z the latent points beside a 1,

    x_n ~ N(A (t_n − μ), Σ⁻¹)                                              (eq. E of `em`)
    (W_j, μ_j) ~ N(G⁻¹ h, G⁻¹),   G = ZᵀZ/σ² + P,   h = Zᵀt_j/σ² + P m_j                    (1)
    σ² ~ InvGamma(α̃ + entries/2, β̃ + Σ (t_j − μ_j − W_j x)²/2)                              (2)

over the rows that have the entry, with P and m_j the precision and mean of the prior. That mean is
estimated from the sites' rows: given all of them it is N((W̃_j, μ̃_j), V_j), and drawn anew:

    V_j⁻¹ = Σ_places [ I_j⁻¹ + P⁻¹ ]⁻¹                                                      (3)

with I_j the information of a site's rows on (W_j, μ_j), their latent points integrated out. t_j
given a row's other entries is normal about W_j x + μ_j with variance v = σ² + W_j S W_jᵀ, where x
and S are the mean and covariance of the latent point from the others:

    I_j = Σ_n zᵀz/v + 2 n (S W_jᵀ, 0)(S W_jᵀ, 0)ᵀ/v²,   z = (x, 1)                          (4)

A dimension that only reflects chance has uncertain points. With zᵀz/σ² of known points instead, as
in eq. (1), shared parameters would cost too little, and q would grow without limit. Near W_j = 0
eq. (4) goes to 0, and the posterior is not normal: its width is then about √(σ²/n) (n/p)^¼. So I_j
is kept above the share κ = s/(1 + s), s = √(p/n), of the information of known points.

Watanabe's criterion (Gelman, Hwang and Vehtari, 2014), of rows with their latent points integrated
out, is

    WAIC = −2 Σ_n [ ln mean_s p(t_n|θ_s) − var_s ln p(t_n|θ_s) ]                             (5)

It does not depend on the rotation of the latent axes, because p does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedcohort.algorithms.multiview_ppca.maths.em import solve
from fedcohort.algorithms.multiview_ppca.maths.latent import log_densities
from fedcohort.algorithms.multiview_ppca.maths.model import Prior, Theta, Views
from fedcohort.algorithms.multiview_ppca.maths.moments import Pattern
from fedcohort.arrays import Array

#: Relative rounding; range of a prior's variances in computations.
ROUNDING, RANGE = 1e-12, (1e-100, 1e100)


class Waic(NamedTuple):
    """For each row (n,): ``fit`` ln mean p, and ``cost`` the variance; eq. (5) sums them."""

    fit: Array
    cost: Array


def information(found: Sequence[Pattern], theta: Theta, prior: Prior, views: Views) -> Array:
    """Return a site's term of eq. (3), by column (p, q + 1, q + 1); the offset is the last.

    0 for columns without entries, and in latent dimensions that a view does not use.
    """
    seen, full, rows = _information(found, theta, views)
    out = np.zeros_like(seen)
    for k in range(views.count):
        at, scale = np.ix_(use := _used(views, k), use), _scales(prior, views, k)
        for j in np.flatnonzero((views.of == k) & (rows > 0)):
            s = np.sqrt(len(rows) / rows[j])
            own = _raised(seen[j][at], full[j][at], s / (1.0 + s))
            out[j][at] = _softened(own, scale)
    return out


def _softened(own: Array, scale: Array) -> Array:
    """Return [I_j⁻¹ + P⁻¹]⁻¹ of an information matrix, which may be nearly singular."""
    root = np.sqrt(np.clip(scale, *RANGE))
    values, turn = np.linalg.eigh(own * np.outer(root, root))
    values = np.maximum(values, 0.0)
    side = turn / root[:, None]
    return (side * (values / (1.0 + values))) @ side.T


def _information(
    found: Sequence[Pattern], theta: Theta, views: Views
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return eq. (4), the same with known points (p, q + 1, q + 1 each), and the rows (p,)."""
    p, q = len(views.of), views.q
    marginal, full, rows = np.zeros((p, q + 1, q + 1)), np.zeros((p, q + 1, q + 1)), np.zeros(p)
    for one in found:
        c, n, s = one.columns, one.rows, solve(theta, one.columns, views)
        w, psi = theta.w[c], theta.variance[views.noise[c]]
        off = one.mean - theta.offset[c]
        through, middle = one.factor @ s.b.T, s.b @ off
        rows[c] += n
        for i, j in enumerate(c):
            rest = np.arange(len(c)) != i
            others = np.linalg.inv(np.eye(q) + s.b[:, rest] @ w[rest])  # S
            x = theta.point + others @ (middle - s.b[:, i] * off[i])
            g = (through - np.outer(one.factor[:, i], s.b[:, i])) @ others
            lean = others @ w[i]
            v = psi[i] + w[i] @ lean
            seen = n * np.outer(z := np.r_[x, 1.0], z)
            seen[:q, :q] += g.T @ g
            marginal[j] += seen / v
            marginal[j][:q, :q] += 2.0 * n * np.outer(lean, lean) / v**2
            full[j] += seen / psi[i]
            full[j][:q, :q] += n * others / psi[i]
    return marginal, full, rows


def _raised(seen: Array, full: Array, share: float) -> Array:
    """Return an information matrix raised to at least a share of another in every direction."""
    root = np.linalg.cholesky(_positive(full))
    half = np.linalg.solve(root, np.linalg.solve(root, seen).T)
    values, turn = np.linalg.eigh((half + half.T) / 2.0)
    side = root @ turn
    return (side * np.maximum(values, share)) @ side.T


def roots(total: Array, views: Views) -> Array:
    """Return L_j, L_j L_jᵀ = V_j, from the sum of `information` over sites (p, q + 1, q + 1)."""
    out = np.zeros_like(total)
    for k in range(views.count):
        at = np.ix_(use := _used(views, k), use)
        for j in np.flatnonzero((views.of == k) & (total[:, -1, -1] > 0)):
            out[j][at] = np.linalg.cholesky(np.linalg.inv(_positive(total[j][at])))
    return out


def _positive(known: Array) -> Array:
    """Return an information matrix made positive definite against rounding."""
    return (known + known.T) / 2.0 + np.diag(ROUNDING * np.diag(known))


def _used(views: Views, view: int) -> Array:
    return np.r_[np.arange(views.used[view]), views.q]


def _scales(prior: Prior, views: Views, view: int) -> Array:
    return np.r_[np.full(views.used[view], prior.w_variance[view]), prior.mu_variance[view]]


def waic(
    x: Array, theta: Theta, prior: Prior, views: Views, shared: Array, rng: np.random.Generator, *,
    draws: int, burn: int,
) -> Waic:  # fmt: skip
    """Return the parts of eq. (5) of rows x (n, p), NaN where missing.

    Parameters
    ----------
    theta : start of the draws: the maximum of the posterior.
    shared : `roots` of the prior's middle.
    draws, burn : draws that count, and those before them.
    """
    n = len(x)
    total, mean, squares = np.full(n, -np.inf), np.zeros(n), np.zeros(n)
    for s, drawn in enumerate(gibbs(x, theta, prior, views, rng, draws + burn, shared)):
        if (k := s - burn + 1) < 1:
            continue
        value = log_densities(x, drawn, views)
        total = np.logaddexp(total, value)
        off = value - mean
        mean += off / k
        squares += off * (value - mean)
    return Waic(total - np.log(draws), squares / (draws - 1))


def gibbs(
    x: Array, theta: Theta, prior: Prior, views: Views, rng: np.random.Generator, draws: int,
    shared: Array | None = None,
) -> Iterator[Theta]:  # fmt: skip
    """Yield draws of θ given rows x (n, p), NaN where missing.

    Parameters
    ----------
    shared : as in `waic`; None if the prior's middle is known.
    """
    there = ~np.isnan(x)
    kinds, of = np.unique(there, axis=0, return_inverse=True)
    patterns = [(np.flatnonzero(of.ravel() == k), np.flatnonzero(c)) for k, c in enumerate(kinds)]
    alike, entries = list(_like_columns(there, views)), views.pooled(there.sum(axis=0, dtype=float))
    middle = np.column_stack([prior.w, prior.mu])
    for _ in range(draws):
        z = np.ones((len(x), views.q + 1))
        for rows, columns in patterns:
            s = solve(theta, columns, views)
            noise = rng.standard_normal((len(rows), views.q)) @ np.linalg.cholesky(s.inverse).T
            off = x[np.ix_(rows, columns)] - theta.offset[columns]
            z[rows, :-1] = theta.point + off @ s.a.T + noise
        at = middle
        if shared is not None:
            at = at + np.einsum("jab,jb->ja", shared, rng.standard_normal(at.shape))
        theta = _drawn(x, z, alike, entries, theta, prior, at, views, rng)
        yield theta


def _drawn(
    x: Array, z: Array, alike: Sequence[tuple[Array, Array]], entries: Array, theta: Theta,
    prior: Prior, middle: Array, views: Views, rng: np.random.Generator,
) -> Theta:  # fmt: skip
    """Draw by eq. (1), then by eq. (2)."""
    w, mu, misfit = np.zeros_like(theta.w), theta.mu.copy(), np.zeros(len(theta.mu))
    for some, mask in alike:
        view = int(views.of[some[0]])
        use, scale = _used(views, view), _scales(prior, views, view)
        if not mask.any() and np.isinf(scale).any():
            continue
        seen, t = z[np.ix_(mask, use)], x[np.ix_(mask, some)]
        sigma2 = theta.variance[views.noise[some]]
        precision = seen.T @ seen / sigma2[:, None, None] + np.diag(1.0 / scale)
        root = np.linalg.cholesky(precision)
        h = (seen.T @ t / sigma2).T + middle[np.ix_(some, use)] / scale
        inner = np.linalg.solve(root, h[..., None])
        noise = rng.standard_normal((len(some), len(use), 1))
        both = np.linalg.solve(root.transpose(0, 2, 1), inner + noise)[..., 0]
        w[np.ix_(some, use[:-1])], mu[some] = both[:, :-1], both[:, -1]
        misfit[some] = np.square(t - seen @ both.T).sum(axis=0)
    shape, rate = prior.alpha + entries / 2.0, prior.beta + views.pooled(misfit) / 2.0
    fine = (shape > 0) & (rate > 0)
    variance = theta.variance.copy()
    variance[fine] = rate[fine] / rng.gamma(shape[fine])
    centre, tau2 = theta.centre, prior.centre_variance
    if tau2 > 0:
        known = len(x) + 1.0 / tau2
        centre = z[:, :-1].sum(axis=0) / known + rng.standard_normal(views.q) / np.sqrt(known)
    return Theta(mu, w, variance, centre)


def _like_columns(there: Array, views: Views) -> Iterator[tuple[Array, Array]]:
    """Yield columns of the same view with the same missing rows, and their present rows (n,)."""
    for k in range(views.count):
        columns = np.flatnonzero(views.of == k)
        masks, like = np.unique(there[:, columns], axis=1, return_inverse=True)
        for m, mask in enumerate(masks.T):
            yield columns[like.ravel() == m], mask

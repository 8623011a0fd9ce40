"""EM for the maximum of a site's posterior, from the sums of its patterns.

Balelli et al. (2022), appendix A. With Ψ the variances of the columns, for each pattern:

    Σ = I + Wᵀ Ψ⁻¹ W,  A = Σ⁻¹ Wᵀ Ψ⁻¹,  ⟨x⟩ = m + A (t − μ − W m),  ⟨x xᵀ⟩ = Σ⁻¹ + ⟨x⟩⟨x⟩ᵀ   (E)
    W_j  = [Σ (t_j − μ_j)⟨x⟩ᵀ + r W̃_j] [Σ ⟨x xᵀ⟩ + r I]⁻¹,   r = σ_k²/σ_W̃²                 (W)
    σ_k² = (Σ ⟨(t_j − μ_j − W_j x)²⟩ + 2 β̃)/(entries of view k + 2 (α̃ + 1))               (21)

Each sum is over the rows (for σ_k² also the view's columns) that have the entry, so entries and
views missing at random need nothing else. μ and m maximise the posterior itself, before each E
step. The rows determine only the offset c = μ + W m, with the prior N(μ̃, D + τ² W Wᵀ):

    [Σ_patterns n C⁻¹ + (D + τ² W Wᵀ)⁻¹] c = Σ_patterns n C⁻¹ t̄ + (D + τ² W Wᵀ)⁻¹ μ̃           (c)
    m = M Wᵀ D⁻¹ (c − μ̃),   μ = c − W m,   M = (I/τ² + Wᵀ D⁻¹ W)⁻¹                           (μ)

with C = W Wᵀ + Ψ, D = diag(σ_μ̃²). Alternating μ and m would take thousands of iterations with
large noise, because either can replace the other. With one view and without m, (c) is the paper's
update. The paper uses C of each view separately; with several views its posterior can fall. Here
each step raises it, so this is an ECME (Liu and Rubin, 1994).

Σ ≥ I is well conditioned for any W and σ_k² > 0: see `FLOOR`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import digamma

from fedcohort.algorithms.multiview_ppca.maths.model import Prior, Theta, Views
from fedcohort.algorithms.multiview_ppca.maths.moments import Pattern
from fedcohort.arrays import Array

#: Least σ², as a share of the mean variance of its columns; it would be 0 for columns that the
#: latent space explains exactly.
FLOOR = 1e-9
#: Relative to the mean square, a variance up to this is rounding.
ROUNDING = 1e-24


class Solved(NamedTuple):
    """E step of a pattern: ``a`` A (q, o), ``b`` WᵀΨ⁻¹ (q, o), ``sigma`` Σ (q, q), ``inverse`` Σ⁻¹
    (q, q).
    """

    a: Array
    b: Array
    sigma: Array
    inverse: Array


def solve(theta: Theta, columns: Array, views: Views) -> Solved:
    """Return the matrices of eq. (E) for rows with these columns."""
    w = theta.w[columns]
    b = w.T / theta.variance[views.noise[columns]]
    sigma = np.eye(views.q) + b @ w
    inverse = np.linalg.inv(sigma)
    inverse = (inverse + inverse.T) / 2.0
    return Solved(inverse @ b, b, sigma, inverse)


def floors(found: Sequence[Pattern], views: Views) -> Array:
    """Return the least σ² (G,); for columns that do not vary, from the variance of all columns."""
    own, overall, least = _variances(found, views)
    return FLOOR * np.where(own > least, own, overall)


def varies(found: Sequence[Pattern], views: Views) -> Array:
    """Return the σ² whose columns vary: bool (G,). The others cannot be estimated here."""
    own, _, least = _variances(found, views)
    return own > least


def _variances(found: Sequence[Pattern], views: Views) -> tuple[Array, float, Array]:
    """Return mean variances of each σ²'s columns (G,) and of all columns, and their zero (G,)."""
    total, squares, entries = (np.zeros(len(views.of)) for _ in range(3))
    for p in found:
        total[p.columns] += p.rows * p.mean
        entries[p.columns] += p.rows
    mean = total / np.maximum(entries, 1.0)
    for p in found:
        off = p.mean - mean[p.columns]
        squares[p.columns] += np.square(p.factor).sum(axis=0) + p.rows * np.square(off)
    overall = float(squares.sum() / max(entries.sum(), 1.0))
    n = np.maximum(views.pooled(entries), 1.0)
    size = views.pooled(squares + entries * np.square(mean)) / n
    return views.pooled(squares) / n, overall, np.maximum(FLOOR * overall, ROUNDING * size)


def step(found: Sequence[Pattern], theta: Theta, prior: Prior, views: Views, least: Array) -> Theta:
    """Return θ after one iteration.

    Parameters
    ----------
    least : least σ² (G,).
    """
    mu, centre = _mu_and_centre(found, theta, prior, views)
    theta = Theta(mu, theta.w, theta.variance, centre)
    sums = _Sums.of(found, theta, views)
    w = _loadings(sums, theta, prior, views)
    misfit = sums.squares - 2.0 * (w * sums.right).sum(axis=1)
    misfit += np.einsum("jq,jqr,jr->j", w, sums.left, w)
    size = views.pooled(sums.entries)
    top = np.maximum(views.pooled(misfit), 0.0) + 2.0 * prior.beta
    bottom = size + 2.0 * (prior.alpha + 1.0)
    seen = size > 0
    variance = np.divide(top, bottom, out=theta.variance.copy(), where=seen)
    variance = np.where(seen, np.maximum(variance, least), variance)
    return Theta(mu, w, variance, centre)


def _mu_and_centre(
    found: Sequence[Pattern], theta: Theta, prior: Prior, views: Views
) -> tuple[Array, Array | None]:
    """Return μ (p,) and m (q,) by eq. (c) and (μ)."""
    system = _System.of(found, theta, prior, views)
    if not prior.centre_variance > 0:
        return system.solution(prior.mu), theta.centre
    through, left = _through(theta, prior, views)
    offset = system.solution(prior.mu)
    centre = np.linalg.solve(left, through @ (offset - prior.mu))
    return offset - theta.w @ centre, centre


def _through(theta: Theta, prior: Prior, views: Views) -> tuple[Array, Array]:
    """Return Wᵀ D⁻¹ (q, p) and M⁻¹ (q, q) of eq. (μ)."""
    through = theta.w.T / prior.mu_variance[views.of]
    return through, np.eye(views.q) / prior.centre_variance + through @ theta.w


class Spread(NamedTuple):
    """Uncertainty of a site's posterior.

    Sums over columns of the variances of ``mu`` and of ``w``, by view (K,); covariance of m,
    ``centre`` (q, q), 0 if m is fixed; for each noise (G,) ⟨ln σ²⟩ and ⟨1/σ²⟩, ``log_variance`` and
    ``precision``.
    """

    mu: Array
    w: Array
    centre: Array
    log_variance: Array
    precision: Array


def spread(found: Sequence[Pattern], theta: Theta, prior: Prior, views: Views) -> Spread:
    """Return the uncertainty of θ's μ and m, and of W given the latent points.

    These are the inverses of the matrices on the left of eq. (c) and eq. (W), the latter times
    σ_k². For μ and W, 0 for views without entries. σ_k² ~ InvGamma(α̃ + N/2, β̃ + S/2), with N
    entries, and S the sum of eq. (21) plus σ_k² for each parameter estimated from the rows: the
    mode σ_k² alone is too small if a site has few rows.
    """
    system = _System.of(found, theta, prior, views)
    if prior.centre_variance > 0:
        through, left = _through(theta, prior, views)
        middle = np.linalg.inv(left)
        back = middle @ through
        offset = system.inverse()
        rest = np.eye(len(offset)) - theta.w @ back
        mu = ((rest @ offset) * rest).sum(axis=1) + ((theta.w @ middle) * theta.w).sum(axis=1)
        centre = middle + back @ offset @ back.T
    else:
        mu, centre = system.variances(), np.zeros((views.q, views.q))
    sums = _Sums.of(found, theta, views)
    ratio = theta.variance[views.noise] / prior.w_variance[views.of]
    left = sums.left + ratio[:, None, None] * np.eye(views.q)
    seen = sums.entries > 0
    w = np.zeros(len(mu))
    for used in np.unique(views.used):
        rows = np.flatnonzero((views.used[views.of] == used) & seen)
        inverse = np.linalg.inv(left[rows][:, :used, :used])
        w[rows] = np.trace(inverse, axis1=1, axis2=2) * theta.variance[views.noise[rows]]
    mu = np.where(seen, mu, 0.0)
    estimated = views.used[views.of] - w / prior.w_variance[views.of]
    estimated += 1.0 - mu / prior.mu_variance[views.of]
    n, own = views.pooled(sums.entries), views.pooled(np.where(seen, estimated, 0.0))
    shape = np.maximum(prior.alpha + n / 2.0, 0.5)
    rate = theta.variance * (prior.alpha + 1.0 + (n + own) / 2.0)
    rate = np.where(rate > 0, rate, theta.variance * shape)
    return Spread(
        views.total(mu), views.total(w), centre, np.log(rate) - digamma(shape), shape / rate
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of the E step for the M step.

    ``right`` (p, q) and ``left`` (p, q, q) are the sums of eq. (W), ``squares`` Σ (t − μ)² and
    ``entries`` by column (p,).
    """

    right: Array
    left: Array
    squares: Array
    entries: Array

    @classmethod
    def of(cls, found: Sequence[Pattern], theta: Theta, views: Views) -> _Sums:
        p, q = len(views.of), views.q
        sums = cls(np.zeros((p, q)), np.zeros((p, q, q)), np.zeros(p), np.zeros(p))
        m, offset = theta.point, theta.offset
        for one in found:
            c, n = one.columns, one.rows
            s, off = solve(theta, c, views), one.mean - theta.mu[c]
            g, x = one.factor @ s.a.T, m + s.a @ (one.mean - offset[c])
            sums.right[c] += one.factor.T @ g + n * np.outer(off, x)
            sums.left[c] += n * s.inverse + g.T @ g + n * np.outer(x, x)
            sums.squares[c] += np.square(one.factor).sum(axis=0) + n * np.square(off)
            sums.entries[c] += n
        return sums


def _loadings(sums: _Sums, theta: Theta, prior: Prior, views: Views) -> Array:
    """Return W by eq. (W), in its free entries; W̃ for columns without entries."""
    ratio = theta.variance[views.noise] / prior.w_variance[views.of]
    right = sums.right + ratio[:, None] * prior.w
    left = sums.left + ratio[:, None, None] * np.eye(views.q)
    w = prior.w.copy()
    for used in np.unique(views.used):
        rows = np.flatnonzero((views.used[views.of] == used) & (sums.entries > 0))
        inside = left[rows][:, :used, :used]
        w[rows] = 0.0
        w[rows, :used] = np.linalg.solve(inside, right[rows, :used, None])[..., 0]
    return w


@dataclass(frozen=True, eq=False)
class _System:
    """Eq. (c): the matrix on its left is diag(``diagonal``) − Uᵀ S⁻¹ U, with q rows a pattern.

    The prior of c adds q rows. If m is fixed, it is eq. (c) of μ, with t less W m. Woodbury's
    identity solves it if these rows are fewer than the columns.
    """

    diagonal: Array
    right: Array
    u: Array
    inner: Array

    @classmethod
    def of(cls, found: Sequence[Pattern], theta: Theta, prior: Prior, views: Views) -> _System:
        q, known = views.q, 1.0 / prior.mu_variance[views.of]
        diagonal, right = known.copy(), known * prior.mu
        free = prior.centre_variance > 0
        size = (len(found) + free) * q
        u, inner = np.zeros((size, len(known))), np.zeros((size, size))
        moved = np.zeros(len(known)) if free else theta.offset - theta.mu
        for k, one in enumerate(found):
            c, n, at = one.columns, one.rows, slice(k * q, (k + 1) * q)
            s, psi = solve(theta, c, views), theta.variance[views.noise[c]]
            diagonal[c] += n / psi
            mean = one.mean - moved[c]
            right[c] += n * (mean / psi - s.b.T @ (s.a @ mean))
            u[at, c] = s.b
            inner[at, at] = s.sigma / n
        if free:
            u[-q:], inner[-q:, -q:] = _through(theta, prior, views)
            right -= u[-q:].T @ np.linalg.solve(inner[-q:, -q:], u[-q:] @ prior.mu)
        return cls(diagonal, right, u, inner)

    def solution(self, otherwise: Array) -> Array:
        """Return μ (p,); `otherwise` for columns without information."""
        seen, plain = self._seen()
        mu = otherwise.copy()
        if self._narrow:
            u = self.u[:, seen]
            lent = np.linalg.solve(self.inner - (u * plain) @ u.T, u @ (plain * self.right[seen]))
            mu[seen] = plain * (self.right[seen] + u.T @ lent)
            return mu
        mu[seen] = np.linalg.solve(self._dense(seen), self.right[seen])
        return mu

    def variances(self) -> Array:
        """Return the diagonal of the matrix's inverse (p,); infinite without information."""
        seen, plain = self._seen()
        found = np.full(len(self.diagonal), np.inf)
        if self._narrow:
            u = self.u[:, seen] * plain
            lent = np.linalg.solve(self.inner - u @ self.u[:, seen].T, u)
            found[seen] = plain + (u * lent).sum(axis=0)
            return found
        found[seen] = np.diag(np.linalg.inv(self._dense(seen)))
        return found

    def inverse(self) -> Array:
        """Return the matrix's inverse (p, p), if each column has information."""
        return np.linalg.inv(self._dense(self.diagonal > 0))

    @property
    def _narrow(self) -> bool:
        return len(self.u) < len(self.diagonal)

    def _seen(self) -> tuple[Array, Array]:
        seen = self.diagonal > 0
        return seen, 1.0 / self.diagonal[seen]

    def _dense(self, seen: Array) -> Array:
        u = self.u[:, seen]
        return np.diag(self.diagonal[seen]) - u.T @ np.linalg.solve(self.inner, u)


def log_likelihood(found: Sequence[Pattern], theta: Theta, views: Views) -> float:
    """Return Σ ln p(t|θ) over all rows, by their present entries."""
    value = 0.0
    for one in found:
        c, n = one.columns, one.rows
        s, off = solve(theta, c, views), one.mean - theta.offset[c]
        psi = theta.variance[views.noise[c]]
        f = one.factor
        spread = float((np.square(f) / psi).sum() - ((f @ s.b.T) * (f @ s.a.T)).sum())
        spread += n * float((np.square(off) / psi).sum() - (s.b @ off) @ (s.a @ off))
        size = len(c) * np.log(2.0 * np.pi) + np.log(psi).sum() + np.linalg.slogdet(s.sigma)[1]
        value -= 0.5 * (n * float(size) + spread)
    return value


def log_posterior(found: Sequence[Pattern], theta: Theta, prior: Prior, views: Views) -> float:
    """Return ln p(t|θ) + ln p(θ), which never falls in a `step`."""
    return log_likelihood(found, theta, views) + prior.log_density(theta, views)

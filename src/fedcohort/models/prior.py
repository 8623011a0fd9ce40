"""Gaussian mixtures as the prior p(z) of `models.vae`, and how those of sites are combined.

GenoMed4All D6.2, 6.3.1 and 6.5.1. With components c of weight w_c,

    p(z) = Σ_c w_c N(z; μ_c, diag v_c)                                                      (1)
    KL   = E_q ln q(z|x) − E_q ln p(z),   E_q ln q = −½ Σ_i (1 + ln 2π + ln τ_i²)            (2)

E_q ln p(z) is the mean over the points of `vae.Posterior.points`; of one component it is exact.

VampPrior (Tomczak and Welling, AISTATS 2018): the best prior of a site is the mean of q(z|x) over
its rows (eq. 6.17), and K pseudo-inputs α stand for the rows (6.18):

    p_m(z) = 1/K Σ_k q(z|α_mk)                                                             (3)

so it is (1) with the means and variances that the encoder gives to the α_mk.

Sites m with n_m of n rows have a common prior, the mixture of experts (4) or the product (5):

    p(z) = Σ_m n_m/n p_m(z)                                                                 (4)
    p(z) ∝ Π_m N(z; μ_m, v_m)^(n_m/n),   1/v = Σ_m n_m/n 1/v_m,   μ/v = Σ_m n_m/n μ_m/v_m   (5)

At its site p_m is a function of the encoder and of the α_m that are being trained (λ = {φ, α},
eq. 6.19), while the other sites' parts are held (`Common`). With all of p held, a small τ at the
pseudo-inputs draws the rows' posteriors together, which makes p narrower in the next round, and the
scale of z goes to 0. Trained within p, p_m covers what the other parts do not; it need not be the
mean of q(z|x) over the site's rows.

Corrected, see eq. 6.23 of D6.2: a product of M mixtures of K components has K^M components, so in
(5) each site's mixture is replaced by one Gaussian of its mean and variance. Without the exponents
M equal experts have a product M times as narrow. As each site's mixture then follows the narrower
prior, it would shrink without end, round after round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.arrays import Array

#: The largest |ln v|.
WIDEST = 20.0
#: Nodes of the quadrature of `Gaussians.marginal_divergences`.
NODES = 16
#: Distance of the means of a learnt mixture from 0, at first.
START = 2.0


class Gaussians(NamedTuple):
    """Eq. (1): ln w (C,), μ (C, q) and ln v (C, q)."""

    log_weights: Tensor
    means: Tensor
    log_variances: Tensor

    def joint(self, z: Tensor) -> Tensor:
        """Return ln w_c + ln N(z; μ_c, v_c) (…, C) of points z (…, q)."""
        apart = (z[..., None, :] - self.means).square() * (-self.log_variances).exp()
        each = -0.5 * (math.log(2.0 * math.pi) + self.log_variances + apart).sum(dim=-1)
        return self.log_weights + each

    def log_density(self, z: Tensor) -> Tensor:
        """Return ln p(z) (…) of points z (…, q)."""
        return self.joint(z).logsumexp(dim=-1)

    def expected(self, mean: Tensor, log_variance: Tensor, points: Tensor) -> Tensor:
        """Return E_q ln p(z) (n,) of q = N(m, diag τ²).

        Parameters
        ----------
        mean, log_variance : m and ln τ² (n, q). points : (L, n, q), whose mean approximates E_q.
        """
        if len(self.log_weights) > 1:
            return self.log_density(points).mean(dim=0)
        spread = (log_variance - self.log_variances).exp().sum(dim=-1)
        return self.log_density(mean) - 0.5 * spread

    def divergence(self, mean: Tensor, log_variance: Tensor, points: Tensor) -> Tensor:
        """Return eq. (2) (n,); arguments as in `expected`."""
        entropy = 0.5 * (1.0 + math.log(2.0 * math.pi) + log_variance).sum(dim=-1)
        return -entropy - self.expected(mean, log_variance, points)

    def marginal_divergences(self, mean: Tensor, log_variance: Tensor) -> Tensor:
        """Return KL(q_i ‖ p_i) (n, q) of the marginals of q and p, by Gauss-Hermite quadrature.

        Of one component this is eq. (4) of `models.vae` for another Gaussian, exactly.
        """
        nodes, shares = np.polynomial.hermite_e.hermegauss(NODES)
        found = -0.5 * (1.0 + math.log(2.0 * math.pi) + log_variance)
        for node, share in zip(nodes, shares / shares.sum(), strict=True):
            z = mean + node * (0.5 * log_variance).exp()
            apart = (z[:, None] - self.means).square() * (-self.log_variances).exp()
            each = -0.5 * (math.log(2.0 * math.pi) + self.log_variances + apart)
            found = found - share * (self.log_weights[:, None] + each).logsumexp(dim=1)
        return found

    def mean(self) -> Tensor:
        """Return E z (q,)."""
        return self.log_weights.exp() @ self.means


class LearntMixture(nn.Module):
    """Eq. (1) with parameters of its own: logits of w, ln v, then the means."""

    def __init__(self, components: int, latent: int):
        super().__init__()
        self._logits = nn.Parameter(torch.empty(components))
        self._log_variances = nn.Parameter(torch.empty(components, latent))
        self._means = nn.Parameter(torch.empty(components, latent))

    def forward(self) -> Gaussians:
        """Return the mixture."""
        log = self._log_variances.clamp(-WIDEST, WIDEST)
        return Gaussians(self._logits.log_softmax(dim=0), self._means, log)

    def begin(self, draws: np.random.Generator) -> None:
        """Write equal weights, v = 1, and means `spread`."""
        self._logits.zero_()
        self._log_variances.zero_()
        self._means.copy_(torch.from_numpy(spread(len(self._means), self._means.shape[1], draws)))


def spread(components: int, latent: int, draws: np.random.Generator) -> Array:
    """Return points (C, q) at a distance `START` from 0 that repel each other.

    With means near each other at first, one component may take two clusters. One component begins
    at 0, and on a line the points are at equal distances.
    """
    if components == 1:
        return np.zeros((1, latent))
    if latent == 1:
        return np.linspace(-START, START, components)[:, None]
    found = draws.standard_normal((components, latent))
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    for _ in range(100):
        apart = found[:, None] - found
        cubes = (np.square(apart).sum(axis=2) + 1e-6) ** 1.5
        found = found + 0.3 / components * (apart / cubes[:, :, None]).sum(axis=1)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
    return START * found


class PseudoInputs(nn.Module):
    """The α (K, p) of eq. (3), which stay at their site."""

    def __init__(self, number: int, inputs: int):
        super().__init__()
        self.points = nn.Parameter(torch.empty(number, inputs))


@dataclass(frozen=True)
class Common:
    """Eq. (4) or (5) at a site, as a function of the site's own part.

    Attributes
    ----------
    rest : of (4), the other parts (C, 1 + 2q), whose weights need not sum to 1. Of (5), one row:
        0, and the others' μ/v (q,) and 1/v (q,).
    weight : n_m/n; 0: the prior is the rest.
    product : whether it is (5).
    """

    rest: Array
    weight: float = 0.0
    product: bool = False

    def prior(self, own: Gaussians | None, like: Tensor) -> Gaussians:
        """Return p(z) with the site's own mixture p_m."""
        rest = torch.from_numpy(np.array(self.rest, float)).to(like)
        if self.product:
            pull, precision = rest[0, 1:].chunk(2)
            if own is not None:
                mean = own.means.mean(dim=0)
                variance = (own.log_variances.exp() + (own.means - mean).square()).mean(dim=0)
                precision = precision + self.weight / variance
                pull = pull + self.weight * mean / variance
            log = -precision.log().clamp(-WIDEST, WIDEST)
            return Gaussians(torch.zeros_like(log[:1]), (pull / precision)[None], log[None])
        means, logs = rest[:, 1:].chunk(2, dim=1)
        if own is None or not self.weight:
            return Gaussians(rest[:, 0].log(), means, logs)
        return Gaussians(
            torch.cat([own.log_weights + math.log(self.weight), rest[:, 0].log()]),
            torch.cat([own.means, means]),
            torch.cat([own.log_variances, logs]),
        )


def without(prior: Array, means: Array, logs: Array) -> Common:
    """Return eq. (4) (C, 1 + 2q) as a function of the part of μ (K, q) and ln v (K, q).

    A site whose part is not in the prior has it whole.
    """
    parts, own = prior[:, 1:], np.concatenate([means, logs], axis=1)
    for at in range(0, len(parts), len(own)):
        here = slice(at, at + len(own))
        if parts[here].shape == own.shape and np.allclose(parts[here], own, rtol=1e-6, atol=1e-9):
            return Common(np.delete(prior, here, axis=0), float(prior[here, 0].sum()))
    return Common(prior)


def divided(prior: Array, weight: float, means: Array, logs: Array) -> Common:
    """Return eq. (5) (1, 1 + 2q) as a function of the part of μ (K, q) and ln v (K, q)."""
    mean, variance = matched(means, logs)
    centre, log = np.split(prior[0, 1:], 2)
    precision = np.exp(-log)
    # Nothing but rounding is left of a prior that is the site's own.
    rest = np.maximum(precision - weight / variance, 0.0)
    pull = centre * precision - weight * mean / variance
    return Common(np.concatenate([[0.0], pull, rest])[None], weight, product=True)


def gaussians(prior: Array, like: Tensor) -> Gaussians:
    """Return the mixture of rows (w_c, μ_c, ln v_c): (C, 1 + 2q)."""
    held = torch.from_numpy(np.array(prior, float)).to(like)
    means, log = held[:, 1:].chunk(2, dim=1)
    return Gaussians(held[:, 0].log(), means, log)


def standard(latent: int) -> Array:
    """Return N(0, I) as a mixture (1, 1 + 2q)."""
    return np.concatenate([np.ones((1, 1)), np.zeros((1, 2 * latent))], axis=1)


def experts(rows: Sequence[float], means: Sequence[Array], logs: Sequence[Array]) -> Array:
    """Return eq. (4), (C, 1 + 2q), of sites' rows n_m, μ (K, q) and ln v (K, q).

    Sites without rows are left out; without any site it is N(0, I).
    """
    n, parts = sum(rows), zip(rows, means, logs, strict=True)
    found = [
        np.column_stack([np.full(len(mean), m / n / len(mean)), mean, log])
        for m, mean, log in parts
        if m > 0
    ]
    return np.concatenate(found) if found else standard(means[0].shape[1])


def matched(means: Array, logs: Array) -> tuple[Array, Array]:
    """Return mean and variance (q,) of a mixture of equal weights, of μ (K, q) and ln v (K, q)."""
    mean = means.mean(axis=0)
    return mean, (np.exp(logs) + (means - mean) ** 2).mean(axis=0)


def product(rows: float, precision: Array, pull: Array) -> Array:
    """Return eq. (5), (1, 1 + 2q), of sums over sites: n, Σ n_m/v_m (q,), Σ n_m μ_m/v_m (q,)."""
    if not rows:
        return standard(len(pull))
    log = -np.log(precision / rows)
    return np.concatenate([[1.0], pull / precision, np.clip(log, -WIDEST, WIDEST)])[None]


def drawn_from(prior: Array, n: int, rng: np.random.Generator) -> Array:
    """Return n points (n, q) of a mixture (C, 1 + 2q)."""
    at = rng.choice(len(prior), n, p=prior[:, 0] / prior[:, 0].sum())
    means, log = np.split(prior[at, 1:], 2, axis=1)
    return means + np.exp(0.5 * log) * rng.standard_normal(means.shape)


def draws_of(prior: Gaussians, noise: Tensor, seed: int) -> Tensor:
    """Return a point of the mixture for each row of standard normal noise (n, q)."""
    draws = torch.Generator().manual_seed(seed & 0xFFFFFFFF)
    ends = prior.log_weights.exp().cumsum(dim=0)
    at = torch.searchsorted(ends, torch.rand(len(noise), generator=draws).to(noise))
    at = at.clamp(max=len(ends) - 1)
    return prior.means[at] + (0.5 * prior.log_variances[at]).exp() * noise


def memberships(prior: Gaussians, z: Tensor) -> Tensor:
    """Return the probability of each component (n, C) given points z (n, q)."""
    return prior.joint(z).softmax(dim=-1)

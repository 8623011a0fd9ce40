"""Cox regression with effects of sites (partial pooling), by sums over sites.

Gelman et al., "Bayesian Data Analysis", 3rd ed. 2013, chapters 5 and 15; Gelman, Bayesian Analysis
1, 2006 (priors of τ); Tierney & Kadane, JASA 81, 1986, and Rue, Martino & Chopin, JRSS B 71, 2009
(nested Laplace). In the notation of `program`, site k has its own baseline hazard and coefficients

    γ_k = γ + u_k,   u_kj ~ N(0, τ²),   γ_j ~ N(0, s²),   τ ~ |N(0, s_τ²)|                    (1)

of standardised covariates. ℓ_k is the partial likelihood of site k. At each point of a grid of τ
(`training.site_effects`), Laplace's approximation of the integral over all u_k and γ is at their
joint mode. A site finds its own part of it,

    γ_k* = argmax ℓ_k(γ_k) − |γ_k − γ|²/(2 τ²),                                              (2)

and replaces ℓ_k by the quadratic form of (γ_k, −1) with the matrix, at γ_k*,

    S_k = [I, I γ_k* + U; ·, γ_k*ᵀ I γ_k* + 2 Uᵀγ_k* − 2 ℓ_k],                               (3)

from which u_k is integrated out by eq. (1) of `training.site_effects`. The sum over sites is
Newton's step for γ, and at its fixed point the evidence of τ. Laplace's mean is the mode; with C_k
the covariance of γ_k in the posterior, C_γk that of γ with γ_k, the first term of its error is

    E γ − γ̂ ≈ ½ Σ_k C_γk t_k,   t_kj = Σ_ab ∂³ℓ_k/∂γ_j∂γ_a∂γ_b C_k,ab                        (4)

by central differences of U along a root of C_k.

First all points of τ share one γ_k* of each site, at the mean of γ and τ of the round before, until
both hold still; then each point has its own, in one round or two. So a site's likelihood is seen at
some three points, and once or twice the grid's 15. If it were seen at all of these in every round,
the sums could tell more of it than its coefficients and their covariance.

Revealed, only as sums over all sites: the sums of a stratified fit (`program`), but `OwnLikelihood`
only at 0 and at the end; `Taking` once; `Expanded` (G (p + 1)² + G) some five times; `Skewed` (G p)
once. **Sums at several τ come apart by site**, as in `bayes_glm.hierarchical`: the coordinator can
learn each site's score and information near γ_k*, so its own coefficients and their covariance, as
`meta_analysis` with ``pool: multivariate`` tells them. So a site takes part under the rules of
`site_steps`, and the fit says how many do not. With `site_effects`, also each site's posterior mean
and standard deviation of u_k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.algorithms.cox.ascent import Climb, Here
from fedcohort.algorithms.cox.likelihood import Ground
from fedcohort.algorithms.cox.settings import BayesCoxSettings
from fedcohort.algorithms.cox.site_steps import (
    Expanded,
    count_partaking,
    expand_sites,
    own_ratios,
    skew_sites,
)
from fedcohort.arrays import Array
from fedcohort.data.exact import Exact
from fedcohort.protocol import NotConverged, Task
from fedcohort.training.site_effects import (
    Grid,
    Own,
    check_enough,
    note_of,
    own_rows,
    tau_row,
    weights_of,
)

#: First τ at which sites expand their likelihoods.
START = 0.3
#: Largest change of a mean, in standard deviations, at which rounds end. Newton's steps square it.
STILL = 0.1
#: The same of the mean of τ, as a share of it, before each point has its own expansion.
STILL_TAU = 0.1
#: Points of τ with a smaller share of the posterior need not hold still.
SLIGHT = 1e-3


@dataclass(frozen=True)
class BySite:
    """The posterior, of standardised covariates, at G points of τ.

    Attributes
    ----------
    shares : of the points (G,).
    mean, covariance : (G, p) and (G, p, p), of γ.
    tau : (G, p).
    log_evidence : logarithm of the probability of the order of deaths under the prior, approximate.
    rows : of τ, and of each site's own effects where they were asked for.
    sites : number of sites that take part.
    note : warnings; may be empty.
    """

    shares: Array
    mean: Array
    covariance: Array
    tau: Array
    log_evidence: float
    rows: tuple[dict[str, Any], ...]
    sites: int
    note: str

    @property
    def middle(self) -> Array:
        """Mean of γ (p,)."""
        return self.shares @ self.mean

    @property
    def total(self) -> Array:
        """Covariance of γ (p, p)."""
        away = self.mean - self.middle
        return np.einsum("g,gij->ij", self.shares, self.covariance) + (
            (self.shares[:, None] * away).T @ away
        )


@dataclass(frozen=True)
class _Reached:
    """γ's modes (G, p) and covariances (G, p, p), and the logarithm of the mass of τ (G,)."""

    mean: Array
    covariance: Array
    log_mass: Array

    @property
    def shares(self) -> Array:
        return weights_of(self.log_mass)

    def moved(self, before: Array) -> Array:
        """Return the largest change of a mode at each point (G,), in standard deviations."""
        sd = np.sqrt(np.einsum("gii->gi", self.covariance))
        return (np.abs(self.mean - before) / sd).max(axis=1)


def posterior_by_site(
    sites: Exact, begun: Climb[Here], ground: Ground, config: BayesCoxSettings, task: Task
) -> BySite:
    """Return the posterior of a Cox model with effects of sites.

    Raises
    ------
    NothingToLearn : too few sites can take part.
    NotConverged : `max_rounds` is reached.
    SiteUnavailable : a site left during the fit.
    """
    p, fed = len(ground.scale), sites.fed
    taking = sites.sum(count_partaking, covariates=p, least=sites.least)
    partaking, out = int(taking.sites), int(taking.others_out)
    check_enough(config.by_site, partaking, out)
    grid = Grid.over(config.site_scale, float(ground.deaths.sum()), 0).of(p)
    tau = grid.spread
    asked: dict[str, Any] = {
        "centre": ground.centre, "scale": ground.scale, "spread": tau, "ties": config.ties,
    }  # fmt: skip

    def expanded(points: Array, around: Array) -> _Reached:
        told = sites.sum(expand_sites, **asked, points=points, around=around, least=sites.least)
        return _combined(told, grid, config.prior_scale)

    points, around = np.zeros((1, p)), np.full((1, p), min(START, config.site_scale / 2))
    before, apart, change = np.zeros((len(tau), p)), False, math.inf
    for _, round_ in zip(range(config.max_rounds), begun.rounds, strict=False):
        at = points
        found = expanded(points, around)
        shares, typical = found.shares, grid.mean(found.shares, 0)
        heavy = shares > SLIGHT
        change = float(found.moved(before)[heavy].max())
        fed.record(change=change, tau=typical)
        still = change < STILL and (apart or abs(typical - around[0, 0]) < STILL_TAU * typical)
        if apart and still:
            break
        before = found.mean
        if apart or still or (round_ and change < STILL):
            points, around, apart = found.mean, tau, True
        else:
            points, around = (shares @ found.mean)[None], np.full((1, p), typical)
    else:
        raise NotConverged(
            f"means still move by {change:.1e} standard deviations after {config.max_rounds} "
            f"rounds. Raise max_rounds, or give a smaller prior_scale."
        )
    one: dict[str, Any] = {**asked, "points": at, "covariance": found.covariance}
    shift = sites.sum(skew_sites, **one, least=sites.least).shift
    own: dict[str, Own] = {}
    if config.site_effects:
        replies = fed.gather(
            own_ratios, **one, mean=found.mean, shares=shares, min_cell=task.min_cell
        )
        own = {
            name: Own(reply.mean.tolist(), reply.sd.tolist())
            for name, reply in replies.items()
            if reply.told
        }
    row = tau_row(
        "coefficients, per SD of the covariate",
        typical,
        grid.interval(found.log_mass, 0, config.level),
        "log hazard ratio",
    )
    top = float(found.log_mass.max())
    return BySite(
        shares=shares,
        mean=found.mean + shift,
        covariance=found.covariance,
        tau=tau,
        log_evidence=top + math.log(float(np.exp(found.log_mass - top).sum())),
        rows=(row, *own_rows(own, sites.names)),
        sites=partaking,
        note=note_of(partaking, out, sites.least),
    )


def _combined(told: Expanded, grid: Grid, scale: float) -> _Reached:
    """Return γ's posterior at each point, from the sum of sites and the prior's scale s."""
    p = told.inner.shape[1] - 1
    precision = told.inner[:, :p, :p] + scale**-2.0 * np.eye(p)
    covariance = np.linalg.inv((precision + np.swapaxes(precision, 1, 2)) / 2)
    covariance = (covariance + np.swapaxes(covariance, 1, 2)) / 2
    mean = np.einsum("gij,gj->gi", covariance, told.inner[:, :p, p])
    fit = np.linalg.slogdet(covariance)[1] - 2 * p * math.log(scale) - told.log_det
    fit += np.einsum("gi,gi->g", mean, told.inner[:, :p, p]) - told.inner[:, p, p]
    return _Reached(mean, covariance, grid.log_prior + 0.5 * fit)

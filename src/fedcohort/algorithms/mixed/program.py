"""Regression with a random intercept for each site, from sums over sites.

The outcome of row i at site j has the family's distribution, with

    g(μ_ij) = b₀ + x_ijᵀβ + u_j,   u_j ~ N(0, τ²)                                          (1)

Gaussian (Laird & Ware, Biometrics 38, 1982): restricted or full maximum likelihood, with the result
of the pooled table; equations in `algorithms.mixed.mixedlm`, search in `linear`. Binomial (logit)
and Poisson (log): maximum likelihood, each site integrates over its u_j (Pinheiro & Bates, J.
Comput. Graph. Stat. 4, 1995); equations in `algorithms.mixed.mixedglm`, search in `generalised`.

The test of τ² = 0 compares 2(ℓ − ℓ₀) with ½χ²₀ + ½χ²₁, since 0 is on the boundary (Self & Liang,
JASA 82, 1987). The interval of τ² is Wald's on the logarithm.

Revealed, only as sums over all sites: the sums of `data.exact`; `Totals` once. Gaussian: `Products`
once, `Means` at one θ per round. B(θ) is a sum of one matrix of rank one per site, and two such
sums (two θ, or θ = 0 and its derivatives) have the same directions s_j. With p + 2 sites or fewer
they can be solved for each site's number of records and its means of covariates and outcome
(`tests/algorithms/test_mixed_disclosure.py` does so). So a site with fewer than `min_cell` records
is left out, and the fit says so; of other sites no single record can be solved for. Binomial and
Poisson: `Working` once and `Likelihoods` every round, which cannot be separated by site. K rounds
give about K p²/2 equations about n p numbers. With `site_effects`, also the û_j of each site with
`min_cell` records or more. Sites learn the coefficients, τ², and the covariates' pooled means and
standard deviations.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from fedcohort.algorithms.mixed import generalised, linear
from fedcohort.algorithms.mixed.ground import Ground, Top, survey
from fedcohort.algorithms.mixed.model import MixedModel
from fedcohort.algorithms.mixed.settings import MixedSettings
from fedcohort.algorithms.mixed.steps import own_effect
from fedcohort.protocol import Federation, Task


def fit(fed: Federation, config: MixedSettings, task: Task) -> MixedModel:
    """Fit a regression with site effects on all sites that answer the first call.

    Raises
    ------
    DataError : no covariates, no records, an outcome that the family excludes, with one class only,
        or that the covariates explain without error.
    SettingError : the family does not go with the kind of task.
    SiteUnavailable : a site left during the fit.
    SingularInformation : some covariates are collinear or constant; they are named.
    NotConverged : some covariates separate the classes, every site has one class, or `max_rounds`
        is reached.
    """
    ground = survey(fed, config, task)
    top = (linear if ground.family == "gaussian" else generalised).climb(ground, config)
    back = np.diag(np.r_[1.0, 1.0 / top.scale])
    back[0, 1:] = -ground.centre / top.scale
    coefficients = back @ top.gamma[:-1]
    gaussian = ground.family == "gaussian"
    tau2 = float(top.gamma[-1]) ** 2
    low, high = tau2_interval(tau2, top.log_tau2_error, config.level)
    return MixedModel(
        features=task.features,
        offset=task.offset,
        family=ground.family,
        likelihood=config.likelihood if gaussian else "ml",
        intercept=float(coefficients[0]) + (ground.middle if gaussian else 0.0),
        coefficients=coefficients[1:],
        covariance=back @ top.covariance @ back.T,
        sigma2=top.sigma2 if gaussian else math.nan,
        tau2=tau2,
        tau2_low=low,
        tau2_high=high,
        log_likelihood=top.log_likelihood,
        null_log_likelihood=top.null_log_likelihood,
        rows=ground.rows,
        sites=ground.sites,
        level=config.level,
        note=ground.note,
        site_effects=site_effects(ground, top, task.min_cell) if config.site_effects else {},
    )


def tau2_interval(tau2: float, log_error: float, level: float) -> tuple[float, float]:
    """Return Wald's interval of τ² on the logarithm; (0, nan) if τ² is 0."""
    if not tau2:
        return 0.0, math.nan
    half = float(ndtri((1.0 + level) / 2.0)) * log_error
    high = math.log(tau2) + half
    return tau2 * math.exp(-half), math.exp(high) if high < 700.0 else math.inf


def site_effects(ground: Ground, top: Top, min_cell: int) -> dict[str, float]:
    """Return each site's own effect; sites with too few records are left out."""
    gaussian = ground.family == "gaussian"
    point = top.gamma.copy()
    point[0] += ground.middle if gaussian else 0.0
    replies = ground.fed.gather(
        own_effect,
        centre=ground.centre,
        scale=top.scale,
        offset=ground.offset,
        family=ground.family,
        point=point,
        sigma2=top.sigma2,
        min_cell=min_cell,
    )
    return {name: float(reply.effect) for name, reply in replies.items() if reply.told}

"""Bayesian regressions over sites, with the posterior of the pooled table.

Gelman, Carlin, Stern, Dunson, Vehtari, Rubin, "Bayesian Data Analysis", 3rd ed. 2013, sections 14.2
and 14.8. D6.2 chapter 4 names both as cases in which partitioned variational inference has a known
answer: a site's factor is Gaussian, and factors multiply by adding natural parameters.

`bayes_linear`. With covariates about their pooled means, their standard deviations s_j, the prior
scale s, and σ² ~ inverse gamma (a₀, b₀), where a₀ = b₀ = 0 is p(σ²) ∝ 1/σ²:

    b₀' ~ flat,  β_j | σ² ~ N(0, σ² s²/s_j²),  A = S + diag(s_j²)/s²                      (1)
    β | σ² ~ N(A⁻¹ s_xy, σ² A⁻¹),  b₀' | σ² ~ N(ȳ, σ²/n)                                  (2)
    σ² ~ inverse gamma (a₀ + (n − 1)/2,  b₀ + (t − s_xyᵀ A⁻¹ s_xy)/2)                       (3)

with S, s_xy, t of `training.linear.cross_products`. The posterior is exact, from one sum.

`bayes_logistic`. With z = (1, (x − centre)/s), γ₀ ~ N(0, s₀²) and γ_j ~ N(0, s²), by expectation
propagation with a factor for each row, kept at its site (`numerics.propagation`). Each round is one
sum of τ z zᵀ and ν z, so the result is that of the pooled table for any split.

Revealed, only as sums over all sites: with several sites the sums of `data.exact`; `Products` of
`training.linear.cross_products` once, or twice if the mean is far from the public point; of
`bayes_logistic` also `Projected`, once before the first round and in every round. Sites learn the
posterior of every round. K rounds give about K p²/2 equations about n p numbers, as those of
`logistic` do. With ``skewness``, see `skewed`; with effects of sites (``by_site``), `hierarchical`;
with ``predictive_draws``, `checks`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.algorithms.bayes_glm.checks import Points, checked
from fedcohort.algorithms.bayes_glm.errors import OUTLYING, no_variance
from fedcohort.algorithms.bayes_glm.hierarchical import linear_by_site, logistic_by_site
from fedcohort.algorithms.bayes_glm.model import BayesLinearModel, BayesLogisticModel
from fedcohort.algorithms.bayes_glm.settings import BayesLinearSettings, BayesLogisticSettings
from fedcohort.algorithms.bayes_glm.skewed import TOO_SKEWED, corrected, cubes
from fedcohort.algorithms.bayes_glm.steps import Projected, project
from fedcohort.arrays import Array
from fedcohort.data.exact import Exact, exact_sums
from fedcohort.numerics.propagation import damped
from fedcohort.protocol import Federation, NotSupported, Task
from fedcohort.training.linear.cross_products import (
    Moments,
    inverted,
    moments,
    origin_of,
    with_intercept,
)
from fedcohort.training.linear.newton import check_weight, unfinished


def fit_linear(fed: Federation, config: BayesLinearSettings, task: Task) -> BayesLinearModel:
    """Return the posterior of a linear regression on all sites that answer the first call.

    Raises
    ------
    DataError : no covariates.
    NothingToLearn : few records, an outcome of one value, or a column singles out records.
    SingularInformation : a covariate is constant; it is named.
    SiteUnavailable : a site left during the fit.
    """
    if config.by_site != "none":
        return linear_by_site(fed, config, task)
    next(fed.rounds(1))
    sites = exact_sums(fed, task, "number")
    m = moments(sites, task, "number")
    scale = m.deviations(task.features)
    inverse = inverted(m.varying + np.diag((scale / config.prior_scale) ** 2), task.features)
    beta = inverse @ m.xy
    shape = config.noise_shape + (m.rows - 1.0) / 2.0
    rate = config.noise_rate + max(m.yy - float(m.xy @ beta), 0.0) / 2.0
    if rate <= 0.0 or shape <= 0.0:
        raise no_variance()
    fed.record(residual_sd=math.sqrt(rate / shape))
    units = np.diag(np.r_[1.0 / math.sqrt(m.rows), scale])
    within = np.zeros_like(units)
    within[0, 0], within[1:, 1:] = 1.0, inverse
    points = Points(
        np.ones(1), np.r_[0.0, beta * scale][None], (units @ within @ units)[None], shape,
        np.array([rate]), np.zeros((1, 0)),
    )  # fmt: skip
    checks = checked(
        sites, m, scale, points, config.predictive_draws, task.rng, _asked(sites, task)
    )
    return BayesLinearModel(
        features=task.features,
        intercept=float(m.intercept(beta)),
        coefficients=beta,
        rows=int(m.rows),
        caution=sites.caution,
        covariance=rate / shape * with_intercept(inverse, m),
        centre=m.mean,
        scatter=m.xx / m.rows,
        shape=shape,
        rate=rate,
        level=config.level,
        checks=checks,
    )


def forget_linear(
    fed: Federation, config: BayesLinearSettings, task: Task, model: BayesLinearModel
) -> BayesLinearModel:
    """Return the posterior without the sites that `fed` lacks (`Method.forget`): one new sum."""
    return fit_linear(fed, config, task)


def fit_logistic(
    fed: Federation,
    config: BayesLogisticSettings,
    task: Task,
    start: BayesLogisticModel | None = None,
) -> BayesLogisticModel:
    """Return the posterior of a logistic regression on all sites that answer the first call.

    Parameters
    ----------
    start : model at whose posterior the rows' kept factors are refreshed first; None: they begin
        anew.

    Raises
    ------
    DataError : no covariates, or an outcome of more than two classes.
    NothingToLearn : one class only, a class of few records, columns that single out records, or few
        records that count for nearly all.
    SingularInformation : a covariate is constant; it is named.
    NotConverged : `max_rounds` is reached.
    SiteUnavailable : a site left during the fit.
    """
    if config.by_site != "none":
        return logistic_by_site(fed, config, task)
    sites = exact_sums(fed, task, "class")
    m = moments(sites, task, "class")
    scale = m.deviations(task.features)
    prior = np.r_[config.intercept_scale, np.full(len(scale), config.prior_scale)] ** -2.0
    first = None
    if start is not None:
        forth = np.diag(np.r_[1.0, scale])
        forth[0, 1:] = m.mean
        first = (
            forth @ np.r_[start.intercept, start.coefficients],
            (forth @ start.covariance @ forth.T),
        )
    found = propagate(sites, m, scale, prior, config, first)
    covariance, third, caution = found.covariance, np.zeros((0, 0, 0)), sites.caution
    if config.skewness:
        told = sites.sum(
            cubes, centre=m.mean, scale=scale, mean=found.mean, covariance=found.covariance
        )
        check_weight(told.squares[0], told.squares[1], sites.least, OUTLYING)
        better = corrected(told, found.covariance)
        if better is None:
            caution = "; ".join(filter(None, (caution, TOO_SKEWED)))
        else:
            covariance, third = better
    points = Points(
        np.ones(1), found.mean[None], covariance[None], 1.0, np.zeros(0), np.zeros((1, 0))
    )
    checks = checked(
        sites, m, scale, points, config.predictive_draws, task.rng, _asked(sites, task)
    )
    back = np.diag(np.r_[1.0, 1.0 / scale])
    back[0, 1:] = -m.mean / scale
    coefficients = back @ found.mean
    return BayesLogisticModel(
        features=task.features,
        intercept=float(coefficients[0]),
        coefficients=coefficients[1:],
        rows=int(m.rows),
        caution=caution,
        covariance=back @ covariance @ back.T,
        centre=m.mean,
        scatter=m.xx / m.rows,
        log_evidence=found.log_evidence,
        rounds=found.rounds,
        third=np.einsum("abc,ia,jb,kc->ijk", third, *[back[:, : len(third)]] * 3, optimize=True)
        if len(third)
        else third,
        level=config.level,
        checks=checks,
    )


def _asked(sites: Exact, task: Task) -> dict[str, Any]:
    """Return what `replicate` is asked with where no site has effects of its own."""
    return {"origin": origin_of(task), "slopes": False, "least": sites.least}


def forget_logistic(
    fed: Federation, config: BayesLogisticSettings, task: Task, model: BayesLogisticModel
) -> BayesLogisticModel:
    """Return the posterior without the sites that `fed` lacks (`Method.forget`).

    The factors of the other rows are fixed at the model's posterior, so the first sum is over
    these factors alone. From there to the fixed point, which is that of a new fit.

    Raises
    ------
    NotSupported : preprocessing without the site gives other columns, or sites have effects.
    FedcohortError : as `fit_logistic`.
    """
    if config.by_site != "none":
        raise NotSupported("the kept parts hold effects of sites")
    if task.features != model.features:
        raise NotSupported("without this site the regression has other covariates or levels")
    return fit_logistic(fed, config, task, model)


@dataclass(frozen=True)
class Reached:
    """The posterior at the fixed point, of z.

    Attributes
    ----------
    mean, covariance : m (p + 1,) and V (p + 1, p + 1).
    log_evidence : eq. (4) of `numerics.propagation`.
    rounds : number of rounds.
    """

    mean: Array
    covariance: Array
    log_evidence: float
    rounds: int


def propagate(
    sites: Exact, m: Moments, scale: Array, prior: Array, config: BayesLogisticSettings,
    start: tuple[Array, Array] | None = None,
) -> Reached:  # fmt: skip
    """Return the fixed point of expectation propagation.

    The change of a round is that of a whole step: it is divided by the share of it that is taken.

    Parameters
    ----------
    scale : s (p,).
    prior : diagonal of P (p + 1,).
    start : m and V, of factors that the sites keep; None without.
    """
    fed, share = sites.fed, m.middle
    mean, covariance = (np.zeros(0), np.zeros((0, 0))) if start is None else start
    damping, change = 1.0, math.inf

    def asked() -> Projected:
        return sites.sum(
            project, centre=m.mean, scale=scale, share=share, mean=mean, covariance=covariance,
            damping=damping,
        )  # fmt: skip

    def posterior(told: Projected) -> tuple[Array, Array]:
        inner = told.precision + np.diag(prior)
        spread = np.linalg.inv((inner + inner.T) / 2)
        return spread @ told.shift, spread

    mean, covariance = posterior(asked())
    for round_ in fed.rounds(config.max_rounds):
        told = asked()
        before, sd, last = mean, np.sqrt(np.diag(covariance)), change
        mean, covariance = posterior(told)
        now = np.sqrt(np.diag(covariance))
        moved = np.r_[np.abs(mean - before) / sd, np.abs(now / sd - 1)]
        change = float(moved.max()) / damping
        fit = np.linalg.slogdet(covariance)[1] + np.log(prior).sum() + float(mean @ told.shift)
        evidence = 0.5 * float(fit) + float(told.evidence)
        fed.record(log_evidence=evidence, change=change)
        if change < config.tol:
            check_weight(told.squares[0], told.squares[1], sites.least, OUTLYING)
            return Reached(mean, covariance, evidence, round_ + 1)
        damping = damped(damping, change > last)
    raise unfinished(change, config.max_rounds, config.tol, "Raise max_rounds.")

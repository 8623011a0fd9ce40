"""Generalised linear models over sites, with exactly the result of the pooled table.

McCullagh & Nelder, "Generalized Linear Models", 2nd ed. 1989, sections 2.5 and 4.4: iteratively
reweighted least squares, with the equations of `numerics.families` and the ascent of `scoring`.
With w the sum of prior weights, the objective is −ℓ(β)/w + l2/2 ‖β‖², ℓ at dispersion φ = 1. Then

    φ = Pearson's χ²/(n − p − 1) of Gaussian and gamma, otherwise 1                       (1)
    covariance of β = φ (I + P)⁻¹,  ℓ = ℓ_s(φ) − D/(2φ)                                   (2)

`logistic` is the binomial with the logit; with consensus ADMM (`training.admm`) no curvature leaves
a site.

Revealed, only as sums over all sites: with several sites the sums of `data.exact`; `Totals` (6 + p)
once; `Curvature` (4 + p + p²) every round, with 2 p² if the link is not canonical, 3 more with an
offset; before it, with several sites and links "sqrt" and "inverse", `Reach` (2), so that no sum is
over some sites alone if another has an impossible mean; `Saturated` (1) once, except for
`logistic`. Sites learn γ, the covariates' pooled means and standard deviations, and φ. `disclosure`
defines what is refused. K rounds give about K p²/2 equations about n p numbers: too few to solve if
n is well above K p/2. This is a count, not a proof.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fedcohort.algorithms.glm import private
from fedcohort.algorithms.glm.disclosure import (
    KINDS,
    check_outcome,
    check_products,
    curvature_at,
)
from fedcohort.algorithms.glm.logistic import LogisticModel
from fedcohort.algorithms.glm.model import GlmModel
from fedcohort.algorithms.glm.scoring import Ground, Top, ascend
from fedcohort.algorithms.glm.settings import GlmSettings, LogisticSettings, Scored
from fedcohort.algorithms.glm.steps import Totals, saturated, totals
from fedcohort.data.exact import Exact, exact_sums
from fedcohort.numerics.families import CANONICAL, FAMILIES, USUAL, Family
from fedcohort.protocol import (
    DataError,
    Federation,
    NothingToLearn,
    SettingError,
    SingularInformation,
    Task,
)
from fedcohort.training.admm import Penalty, consensus

LOGIT = Family("binomial", "logit")
#: A dispersion below this share of the outcome's variance is rounding.
EXACT = 1e-24


def fit(fed: Federation, config: GlmSettings, task: Task) -> GlmModel:
    """Fit a generalised linear model on all sites that answer the first call.

    Raises
    ------
    SettingError : family, link and outcome do not go together.
    DataError : no covariates, or an outcome that the family excludes.
    NothingToLearn : no records, few records of a kind or of nearly all the weight, or an outcome
        of one value.
    SiteUnavailable : a site left during the fit.
    SingularInformation : some covariates are collinear or constant; they are named.
    NotConverged : the likelihood rises without limit, or `max_rounds` is reached.
    """
    family = family_of(config, task)
    if task.dp is not None:
        beta, rounds = private.coefficients(fed, family.name, config, task, task.dp)
        return GlmModel(
            features=task.features,
            intercept=float(beta[0]),
            coefficients=beta[1:],
            spread=None,
            rows=0,
            rounds=rounds,
            level=config.level,
            family=family,
            **dict.fromkeys(
                ("dispersion", "deviance", "null_deviance", "pearson", "log_likelihood"), math.nan
            ),
        )
    sites, _, ground, top = regress(fed, family, config, task, "glm")
    left = ground.rows - len(ground.names) - 1
    if family.dispersed and left < 1:
        raise SingularInformation(
            f"{ground.rows} records leave no degree of freedom for the dispersion, with "
            f"{len(ground.names)} covariates. Use fewer."
        )
    dispersion = top.pearson / left if family.dispersed else 1.0
    if not dispersion > EXACT * top.null_deviance / ground.weight:
        raise NothingToLearn(
            "the outcome is the same in all records, or the covariates predict it without any "
            "error, so the dispersion cannot be estimated. Is one of them the outcome itself?"
        )
    beta, covariance = top.unscaled(ground.centre)
    return GlmModel(
        features=ground.names,
        offset=task.features[-1] if task.offset else "",
        intercept=float(beta[0]),
        coefficients=beta[1:],
        spread=dispersion * covariance,
        rows=ground.rows,
        rounds=top.rounds,
        level=config.level,
        family=family,
        dispersion=dispersion,
        deviance=top.deviance,
        null_deviance=top.null_deviance,
        pearson=top.pearson,
        log_likelihood=likelihood(sites, ground, top, dispersion),
        caution=sites.caution,
    )


def fit_logistic(fed: Federation, config: LogisticSettings, task: Task) -> LogisticModel:
    """Fit a logistic regression on all sites that answer the first call.

    Raises
    ------
    FedcohortError : as `fit`; with solver "admm" as `training.admm.consensus`.
    """
    offset = task.features[-1] if task.offset else ""
    if task.dp is not None:
        beta, rounds = private.coefficients(fed, LOGIT.name, config, task, task.dp)
        return LogisticModel(
            features=task.features,
            intercept=float(beta[0]),
            coefficients=beta[1:],
            spread=None,
            log_likelihood=None,
            null_log_likelihood=None,
            rows=0,
            rounds=rounds,
            ones=None,
            level=config.level,
        )
    if config.solver == "admm":
        penalty = Penalty(l2=config.ridge, intercept=config.penalise_intercept)
        sites = exact_sums(fed, task, "class", LOGIT.link)
        found = consensus(sites.fed, "logistic", penalty, config, task)
        beta = np.r_[found.intercept * config.penalise_intercept, found.coefficients]
        loss = found.objective - 0.5 * config.ridge * float(beta @ beta)
        return LogisticModel(
            features=task.features[: len(found.coefficients)],
            offset=offset,
            intercept=found.intercept,
            coefficients=found.coefficients,
            spread=None,
            log_likelihood=None if config.weighting == "sites" else -found.weight * loss,
            null_log_likelihood=None,
            rows=found.rows,
            rounds=found.rounds,
            ones=None,
            level=config.level,
            caution=sites.caution,
        )
    sites, total, ground, top = regress(fed, LOGIT, config, task, "logistic")
    beta, covariance = top.unscaled(ground.centre)
    return LogisticModel(
        features=ground.names,
        offset=offset,
        intercept=float(beta[0]),
        coefficients=beta[1:],
        spread=covariance,
        log_likelihood=-0.5 * top.deviance,
        null_log_likelihood=-0.5 * top.null_deviance,
        rows=ground.rows,
        rounds=top.rounds,
        ones=int(total.positive),
        level=config.level,
        caution=sites.caution,
    )


def family_of(config: GlmSettings, task: Task) -> Family:
    """Return the family and link of the settings, by default those of the outcome's type.

    Raises
    ------
    SettingError : they do not go with each other, or with the outcome.
    """
    outcome = task.outcome or ("binary" if task.kind == "classification" else "continuous")
    if outcome not in USUAL:
        raise SettingError(
            f"method 'glm' has no family for an outcome of type {outcome!r}; give a binary, a "
            f"continuous or a count outcome."
        )
    name = USUAL[outcome] if config.family == "auto" else config.family
    if (name == "binomial") != (outcome == "binary"):
        fits = [f for f in FAMILIES if (f == "binomial") == (outcome == "binary")]
        raise SettingError(
            f"family {name!r} does not go with a {outcome} outcome; give "
            f"{' or '.join(map(repr, fits))}, or declare another outcome."
        )
    link = FAMILIES[name][0] if config.link == "auto" else config.link
    if link not in FAMILIES[name]:
        raise SettingError(
            f"link {link!r} does not go with family {name!r}, the family of the outcome's type; "
            f"give {' or '.join(map(repr, FAMILIES[name]))}."
        )
    return Family(name, link)


def regress(
    fed: Federation, family: Family, config: Scored, task: Task, method: str
) -> tuple[Exact, Totals, Ground, Top]:
    """Return the maximum of the likelihood, with the sites that answered the first call."""
    names = task.features[: len(task.features) - task.offset]
    sites = exact_sums(fed, task, KINDS.get(family.name, "number"), family.link)
    total = sites.sum(totals, family=family.name, link=family.link, offset=task.offset)
    check_outcome(total, family, sites.least, method)
    ground = survey(total, family, names, config, task.offset, sites.least)
    if not config.ridge and ground.rows <= len(names):
        raise SingularInformation(
            f"{ground.rows} records are too few for {len(names)} covariates. Use fewer, or refit "
            f"with a ridge penalty (l2 > 0)."
        )

    rounds = config.max_rounds
    ask, look = partial(curvature_at, sites, ground), partial(check_products, sites, ground)
    return sites, total, ground, ascend(sites.fed, ask, ground, config.tol, rounds, look)


def survey(
    total: Totals,
    family: Family,
    names: tuple[str, ...],
    config: Scored,
    offset: bool,
    min_cell: int,
) -> Ground:
    """Return the centre of the covariates, and the start of the ascent."""
    weight, mean = float(total.weight), float(total.outcome / total.weight)
    if family.link == "log" and mean <= 0:
        raise DataError(
            "the outcome's mean over all sites is 0 or below, which link 'log' excludes. Choose "
            "link 'identity'."
        )
    if family.link == "log":
        start = math.log(float(total.outcome / total.exposure))
    else:
        start = family.predictor(mean) - float(total.exposure) / weight
    return Ground(
        family=family,
        rows=int(total.rows),
        weight=weight,
        mean=mean,
        centre=total.x / weight,
        start=start,
        offset=offset,
        l2=config.ridge,
        min_cell=min_cell,
        names=names,
    )


def likelihood(sites: Exact, ground: Ground, top: Top, dispersion: float) -> float:
    """Return ℓ, eq. (2); the sites sum ℓ_s once."""
    family = ground.family
    at = dispersion
    if family == Family("gaussian", CANONICAL["gaussian"]):
        at = top.deviance / ground.rows
    best = sites.sum(saturated, family=family.name, link=family.link, dispersion=at)
    return float(best.value) - top.deviance / (2 * at)

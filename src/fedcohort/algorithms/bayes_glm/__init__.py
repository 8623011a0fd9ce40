"""Bayesian regressions of a value and of two classes: `bayes_linear` and `bayes_logistic`."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.bayes_glm.checks import replicate
from fedcohort.algorithms.bayes_glm.model import BayesLinearModel, BayesLogisticModel
from fedcohort.algorithms.bayes_glm.program import (
    fit_linear,
    fit_logistic,
    forget_linear,
    forget_logistic,
)
from fedcohort.algorithms.bayes_glm.settings import BayesLinearSettings, BayesLogisticSettings
from fedcohort.algorithms.bayes_glm.site_model import BayesLinearBySite, BayesLogisticBySite
from fedcohort.algorithms.bayes_glm.site_steps import (
    integrate,
    own_effects,
    project_sites,
    take_part,
)
from fedcohort.algorithms.bayes_glm.skewed import cubes
from fedcohort.algorithms.bayes_glm.steps import project
from fedcohort.data import exact
from fedcohort.protocol import Method, Step, Task
from fedcohort.training.linear import cross_products
from fedcohort.training.settings import BySiteSettings

_ONCE = (
    "Only sums over all sites: once, over several, how many records differ in each column, and how "
    "far; once the number of records, and totals and cross-products of the covariates and the "
    "outcome, with what tells over how few records these are"
)


_BY_SITE = (
    " With by_site, sums of what remains of these products, or of the rows' Gaussian "
    "approximations, when a site's own effects are integrated out at several standard deviations: "
    "with few sites they can be solved for each site's number of records and its means, and with "
    "by_site: all for its cross-products. So sites whose sums would tell of fewer than min_cell "
    "records are left out."
)
_CHECKS = (
    " With predictive_draws, once sums of powers of the outcome and of outcomes that sites draw "
    "from the model, and of squares of the sites' totals."
)
_EFFECTS = " With site_effects, each site's own effects, shrunken means, if records suffice."
_ROUNDS = (
    f"{_ONCE}; per round, of the rows' Gaussian approximations, one p x p matrix and the totals. "
    "The approximation of each row stays at its site."
)


_SKEWNESS = (
    " With skewness, once sums of third powers and of products of the covariates, weighted by the "
    "skewness of the rows' approximations."
)


def _bounds(config: BySiteSettings, *, kinds: bool) -> Mapping[str, Collection[Any]]:
    return {
        "link": ("",), "kinds": (kinds,), "slopes": (config.by_site == "all",),
        "linear": (not kinds,), "number": (config.predictive_draws,),
    }  # fmt: skip


def bounds_of_linear(config: BayesLinearSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    return _bounds(config, kinds=False)


def bounds_of_logistic(config: BayesLogisticSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    return _bounds(config, kinds=True)


def asked_by_linear(config: BayesLinearSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps that a fit can call (`Method.asks`)."""
    return _asked(config, cross_products.products, (), integrate)


def asked_by_logistic(config: BayesLogisticSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps that a fit can call (`Method.asks`)."""
    then = (project, cubes) if config.skewness else (project,)
    return _asked(config, cross_products.products, then, project_sites)


def _asked(
    config: BySiteSettings, first: Step[..., Any], then: tuple[Step[..., Any], ...],
    by_site: Step[..., Any],
) -> tuple[Step[..., Any], ...]:  # fmt: skip
    drawn = (replicate,) if config.predictive_draws else ()
    if config.by_site == "none":
        return (*exact.STEPS, first, *then, *drawn)
    own = (own_effects,) if config.site_effects else ()
    return (*exact.STEPS, take_part, by_site, *own, *drawn)


def reveals_of_linear(config: BayesLinearSettings) -> str:
    """Describe what leaves a site with these settings."""
    return _said(f"{_ONCE}.", config)


def reveals_of_logistic(config: BayesLogisticSettings) -> str:
    """Describe what leaves a site with these settings."""
    return _said(_ROUNDS + _SKEWNESS * config.skewness, config)


def _said(text: str, config: BySiteSettings) -> str:
    by_site, checks = config.by_site != "none", config.predictive_draws > 0
    return text + _BY_SITE * by_site + _EFFECTS * config.site_effects + _CHECKS * checks


LINEAR = Method(
    name="bayes_linear",
    title="Bayesian linear regression, with the posterior of the pooled table",
    tasks=("regression",),
    outcomes=("continuous",),
    paper="Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, section 14.2",
    reveals=f"{_ONCE}.{_BY_SITE}{_EFFECTS}{_CHECKS}",
    reveals_with=reveals_of_linear,
    settings=BayesLinearSettings,
    fit=fit_linear,
    model=BayesLinearBySite,
    steps=(*exact.STEPS, *cross_products.STEPS, take_part, integrate, own_effects, replicate),
    asks=asked_by_linear,
    bounds=bounds_of_linear,
    preprocess={"scale": "none", "impute": "median"},
    forget=forget_linear,
)

LOGISTIC = Method(
    name="bayes_logistic",
    title="Bayesian logistic regression by expectation propagation, as on the pooled table",
    tasks=("classification",),
    outcomes=("binary",),
    paper="Minka, Expectation propagation for approximate Bayesian inference, UAI 2001",
    reveals=_ROUNDS + _SKEWNESS + _BY_SITE + _EFFECTS + _CHECKS,
    reveals_with=reveals_of_logistic,
    settings=BayesLogisticSettings,
    fit=fit_logistic,
    model=BayesLogisticBySite,
    steps=(
        *exact.STEPS,
        *cross_products.STEPS,
        project,
        cubes,
        take_part,
        project_sites,
        own_effects,
        replicate,
    ),
    asks=asked_by_logistic,
    bounds=bounds_of_logistic,
    preprocess={"scale": "none", "impute": "median"},
    forget=forget_logistic,
)

__all__ = [
    "LINEAR",
    "LOGISTIC",
    "BayesLinearModel",
    "BayesLinearSettings",
    "BayesLogisticModel",
    "BayesLogisticSettings",
    "fit_linear",
    "fit_logistic",
]

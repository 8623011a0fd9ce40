"""Bayesian regressions of a value and of two classes: `bayes_linear` and `bayes_logistic`."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.bayes_glm.model import BayesLinearModel, BayesLogisticModel
from fedcohort.algorithms.bayes_glm.program import (
    fit_linear,
    fit_logistic,
    forget_linear,
    forget_logistic,
)
from fedcohort.algorithms.bayes_glm.settings import BayesLinearSettings, BayesLogisticSettings
from fedcohort.algorithms.bayes_glm.steps import project
from fedcohort.data import exact
from fedcohort.protocol import Method, Settings, Task
from fedcohort.training.linear import cross_products

_ONCE = (
    "Only sums over all sites: once, over several, how many records differ in each column, and how "
    "far; once the number of records, and totals and cross-products of the covariates and the "
    "outcome, with what tells over how few records these are"
)


def _bounds(kinds: bool) -> Mapping[str, Collection[Any]]:
    return {"link": ("",), "kinds": (kinds,)}


def bounds_of_linear(config: Settings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    return _bounds(kinds=False)


def bounds_of_logistic(config: Settings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    return _bounds(kinds=True)


LINEAR = Method(
    name="bayes_linear",
    title="Bayesian linear regression, with the posterior of the pooled table",
    tasks=("regression",),
    outcomes=("continuous",),
    paper="Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, section 14.2",
    reveals=f"{_ONCE}.",
    settings=BayesLinearSettings,
    fit=fit_linear,
    model=BayesLinearModel,
    steps=(*exact.STEPS, *cross_products.STEPS),
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
    reveals=(
        f"{_ONCE}; per round, of the rows' Gaussian approximations, one p x p matrix and the "
        "totals. The approximation of each row stays at its site."
    ),
    settings=BayesLogisticSettings,
    fit=fit_logistic,
    model=BayesLogisticModel,
    steps=(*exact.STEPS, *cross_products.STEPS, project),
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

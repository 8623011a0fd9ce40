"""Generalised linear models: `glm` and `logistic`, by one program."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fedcohort.algorithms.glm import private
from fedcohort.algorithms.glm.disclosure import BOUNDED, KINDS
from fedcohort.algorithms.glm.logistic import LogisticModel
from fedcohort.algorithms.glm.model import GlmModel
from fedcohort.algorithms.glm.program import LOGIT, family_of, fit, fit_logistic
from fedcohort.algorithms.glm.settings import GlmSettings, LogisticSettings
from fedcohort.algorithms.glm.steps import (
    STEPS,
    curvature,
    reach,
    saturated,
    totals,
)
from fedcohort.data import exact
from fedcohort.numerics.families import FAMILIES
from fedcohort.protocol import Method, PrivateFits, Step, Task
from fedcohort.training import admm

_ONCE = (
    "Only sums over all sites: once how many records differ in each column, and how far; the "
    "number of records, of those with an outcome above 0 and above 1, and totals of the outcome "
    "and the covariates; "
)
_ROUNDS = "per round the log-likelihood, its gradient and one p x p matrix."
_ADMM = (
    "once how many records differ in each column, and how far; the number of records, those of "
    "class 1, and totals and squares of the covariates; per round the sites' solutions and prices "
    "of consensus, as sums over sites, without any curvature."
)


def reveals_with(config: LogisticSettings) -> str:
    """Describe what leaves a site with these settings."""
    if config.solver == "admm":
        return f"Only sums over all sites: {_ADMM}"
    return _ONCE + _ROUNDS


def asks(config: GlmSettings) -> Iterator[Step[..., Any]]:
    """Yield the steps that a fit with these settings can ask for."""
    yield from (*exact.STEPS, totals, curvature, saturated)
    families = FAMILIES if config.family == "auto" else (config.family,)
    links = {FAMILIES[f][0] for f in families} if config.link == "auto" else {config.link}
    if links.intersection(BOUNDED):
        yield reach


def asks_of_logistic(config: LogisticSettings) -> Iterator[Step[..., Any]]:
    """Yield the steps that a fit with these settings can ask for."""
    if config.solver == "admm":
        yield from (exact.isolation, *admm.asks())
    else:
        yield from (*exact.STEPS, totals, curvature)


def bounds(config: GlmSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    family = family_of(config, task)
    kinds = family.name in KINDS
    return {"family": (family.name,), "link": (family.link,), "kinds": (kinds,)}


def bounds_of_logistic(config: LogisticSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    own = {"family": (LOGIT.name,), "link": (LOGIT.link,), "kinds": (True,)}
    return {**admm.bounds(config, "logistic"), **own}


METHOD = Method(
    name="glm",
    title="Generalised linear models, exactly as on the pooled table",
    tasks=("regression", "classification"),
    paper="McCullagh & Nelder, Generalized Linear Models, 1989",
    reveals=(
        f"{_ONCE}per round the deviance, its gradient and one p x p matrix (two if the link is "
        "not the canonical one); with links sqrt and inverse, before that, how many sites have an "
        "impossible mean; at the end one sum over the outcomes."
    ),
    settings=GlmSettings,
    fit=fit,
    model=GlmModel,
    steps=(*STEPS, *private.STEPS),
    asks=asks,
    bounds=bounds,
    private=PrivateFits(
        releases=private.releases,
        reveals=private.reveals,
        clips=private.CLIPS,
        held=private.held,
    ),
    preprocess={"scale": "none", "impute": "median"},
)

LOGISTIC = Method(
    name="logistic",
    title="Logistic regression, exactly as on the pooled table",
    tasks=("classification",),
    paper="McCullagh & Nelder, Generalized Linear Models, 1989; ridge as GenoMed4All D6.2 (2021), "
    "eq. 3.6",
    reveals=f"{_ONCE}{_ROUNDS} By ADMM: {_ADMM}",
    reveals_with=reveals_with,
    settings=LogisticSettings,
    fit=fit_logistic,
    model=LogisticModel,
    steps=(*STEPS, *admm.STEPS, *private.STEPS),
    asks=asks_of_logistic,
    bounds=bounds_of_logistic,
    private=PrivateFits(
        releases=private.releases,
        reveals=private.reveals,
        clips=private.CLIPS,
        held=private.held,
    ),
    preprocess={"scale": "none", "impute": "median"},
)

__all__ = [
    "LOGISTIC",
    "METHOD",
    "GlmModel",
    "GlmSettings",
    "LogisticModel",
    "LogisticSettings",
    "fit",
    "fit_logistic",
]

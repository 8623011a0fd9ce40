"""Regressions of an outcome of several classes: `multinomial` and `ordinal`, by one program."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fedcohort.algorithms.multinomial.model import MultinomialModel, OrdinalModel
from fedcohort.algorithms.multinomial.program import fit_multinomial, fit_ordinal, levels_of
from fedcohort.algorithms.multinomial.settings import MultinomialSettings, OrdinalSettings
from fedcohort.algorithms.multinomial.steps import STEPS, freed, slopes, tally
from fedcohort.data import exact
from fedcohort.protocol import Method, Step, Task

_ONCE = (
    "Only sums over all sites: once how many records differ in each column, and how far; the "
    "number of records of each class, and their totals of the covariates; "
)


def asks(config: OrdinalSettings) -> Iterator[Step[..., Any]]:
    """Yield the steps that a fit of `ordinal` with these settings can ask for."""
    yield from (*exact.STEPS, tally, slopes)
    if config.po_check and not config.l2:
        yield freed


def _bounds(law: str, task: Task) -> Mapping[str, Collection[Any]]:
    classes = {f"{step.name}.classes": (len(levels_of(task)),) for step in (tally, slopes, freed)}
    return {"law": (law,), "link": ("",), "kinds": (True,), **classes}


def bounds(config: MultinomialSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    return _bounds("multinomial", task)


def bounds_of_ordinal(config: OrdinalSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    return _bounds("ordinal", task)


METHOD = Method(
    name="multinomial",
    title="Regression of an outcome of several classes, exactly as on the pooled table",
    tasks=("classification",),
    outcomes=("binary", "category", "ordinal"),
    paper="Agresti, Categorical Data Analysis, 3rd ed. 2013, section 8.1",
    reveals=(
        f"{_ONCE}per round the log-likelihood, its gradient and its curvature, a p x p matrix for "
        f"each pair of classes."
    ),
    settings=MultinomialSettings,
    fit=fit_multinomial,
    model=MultinomialModel,
    steps=(*exact.STEPS, tally, slopes),
    bounds=bounds,
    preprocess={"scale": "none", "impute": "median"},
)

ORDINAL = Method(
    name="ordinal",
    title="Regression of ordered classes with proportional odds, exactly as on the pooled table",
    tasks=("classification",),
    outcomes=("binary", "ordinal"),
    paper="McCullagh, Regression models for ordinal data, JRSS B 42(2), 1980",
    reveals=(
        f"{_ONCE}per round the log-likelihood, its gradient and one matrix of its curvature; at "
        f"the end, for the test of proportional odds, gradient and curvature by threshold."
    ),
    settings=OrdinalSettings,
    fit=fit_ordinal,
    model=OrdinalModel,
    steps=STEPS,
    asks=asks,
    bounds=bounds_of_ordinal,
    preprocess={"scale": "none", "impute": "median"},
)

__all__ = [
    "METHOD",
    "ORDINAL",
    "MultinomialModel",
    "MultinomialSettings",
    "OrdinalModel",
    "OrdinalSettings",
]

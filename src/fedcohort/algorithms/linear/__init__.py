"""Linear models of a continuous outcome: ridge and least squares, lasso, elastic net."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fedcohort.algorithms.linear import lasso, private, ridge
from fedcohort.algorithms.linear.course import Course
from fedcohort.algorithms.linear.model import LinearModel
from fedcohort.algorithms.linear.settings import (
    ElasticNetSettings,
    LassoSettings,
    PathSettings,
    RidgeSettings,
)
from fedcohort.algorithms.linear.steps import STEPS as PRODUCTS
from fedcohort.algorithms.linear.steps import differences, fold_products, isolation, products
from fedcohort.protocol import Method, PrivateFits, Step, Task
from fedcohort.training import admm
from fedcohort.training.linear.private_products import products_privately

_ONCE = (
    "Only sums over all sites, once: the number of records, totals and cross-products of the "
    "covariates and the outcome, sums of their fourth powers, and how many records differ from "
    "each one's fill and from their site's median, and how far."
)
_FOLDS = (
    " To choose the penalty, the same sums once more, over each fold: over two sites or more each, "
    "or over records of all sites, drawn by a hash of their values."
)
_ADMM = (
    "Only sums over all sites: the number of records, totals and squares of the covariates; per "
    "round, coefficients that each site moved towards its own data, the loss, and a few products "
    "of these."
)


def reveals_with(config: RidgeSettings | PathSettings) -> str:
    """Return what leaves a site, in plain words."""
    if config.solver == "admm":
        return _ADMM
    held_out = isinstance(config, PathSettings) and config.holds_out
    return _ONCE + _FOLDS * held_out


def asks(config: RidgeSettings | PathSettings) -> Iterator[Step[..., Any]]:
    """Yield the steps of a fit."""
    if config.solver == "admm":
        yield from (isolation, *admm.asks())
        return
    yield from (products, differences)
    if isinstance(config, PathSettings) and config.holds_out:
        yield fold_products


def bounds(config: RidgeSettings | PathSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    most = config.n_folds if isinstance(config, PathSettings) else 0
    return {
        **admm.bounds(config, "squared"),
        "link": ("",),
        "kinds": (False,),
        "n_folds": range(2, most + 1),
    }


_SHARED: dict[str, Any] = {
    "tasks": ("regression",),
    "reveals_with": reveals_with,
    "model": LinearModel,
    "steps": (*PRODUCTS, *admm.STEPS, products_privately),
    "asks": asks,
    "bounds": bounds,
    "private": PrivateFits(
        releases=private.releases,
        reveals=private.reveals,
        clips=private.CLIPS,
        held=private.held,
    ),
    "preprocess": {"scale": "none", "impute": "median"},
}

RIDGE = Method(
    name="ridge",
    title="Least squares and ridge regression, exactly as on the pooled table, in one round",
    paper="Hoerl & Kennard, Technometrics 12(1), 1970; as GenoMed4All D6.2 (2021), eq. 3.4",
    reveals=f"{_ONCE} With solver 'admm': {_ADMM}",
    settings=RidgeSettings,
    fit=ridge.fit,
    **_SHARED,
)
LASSO = Method(
    name="lasso",
    title="Lasso, exactly as on the pooled table, with its path of penalties",
    paper="Tibshirani, JRSS B 58(1), 1996; as GenoMed4All D6.2 (2021), eq. 3.5",
    reveals=f"{_ONCE}{_FOLDS} With solver 'admm': {_ADMM}",
    settings=LassoSettings,
    fit=lasso.fit,
    **_SHARED,
)
ELASTIC_NET = Method(
    name="elastic_net",
    title="Elastic net, exactly as on the pooled table, with its path of penalties",
    paper="Zou & Hastie, JRSS B 67(2), 2005",
    reveals=f"{_ONCE}{_FOLDS} With solver 'admm': {_ADMM}",
    settings=ElasticNetSettings,
    fit=lasso.fit,
    **_SHARED,
)

__all__ = [
    "ELASTIC_NET",
    "LASSO",
    "RIDGE",
    "Course",
    "ElasticNetSettings",
    "LassoSettings",
    "LinearModel",
    "RidgeSettings",
]

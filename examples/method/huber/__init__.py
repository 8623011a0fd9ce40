"""Huber's robust regression: what the catalogue, a site and a report know of the method."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.data import exact
from fedcohort.protocol import Method, Task
from fedcohort.training.linear import cross_products
from huber.model import HuberModel
from huber.program import fit, weighted
from huber.settings import HuberSettings


def bounds(config: HuberSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return what a site lets the arguments of the steps be; it refuses all else.

    Arguments that are whole numbers, yes or no, or text are named here; arrays and real numbers
    are not. Those of `isolation`, the first question of every exact fit, are `link` and `kinds`.
    """
    return {"link": ("",), "kinds": (False,)}


METHOD = Method(
    name="huber",
    title="Linear regression that large residuals do not draw, as on the pooled table",
    tasks=("regression",),
    paper="Huber, Ann. Math. Statist. 35(1), 1964",
    reveals=(
        "Only sums over all sites: once how many records differ in each column, and how far, and "
        "the cross-products of covariates and outcome; per round the loss and the cross-products "
        "again, each record weighted by how large its residual is."
    ),
    settings=HuberSettings,
    fit=fit,
    model=HuberModel,
    steps=(*exact.STEPS, *cross_products.STEPS[:1], weighted),
    bounds=bounds,
    preprocess={"scale": "none", "impute": "median"},
)

"""Linear discriminant analysis: two classes with a common covariance."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.lda.program import LdaModel, fit
from fedcohort.algorithms.lda.settings import LdaSettings
from fedcohort.data.exact import isolation
from fedcohort.protocol import Method, Task
from fedcohort.training.linear import cross_products


def bounds(config: LdaSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    return {"link": ("",), "kinds": (True,)}


METHOD = Method(
    name="lda",
    title="Linear discriminant analysis of two classes, exactly as on the pooled table",
    tasks=("classification",),
    paper="Fisher, Annals of Eugenics 7(2), 1936",
    reveals=(
        "Only sums over all sites: once, over several, how many records differ in each column, and "
        "how far; once the number of records, and totals and cross-products of the covariates and "
        "the class, with what tells over how few records these are."
    ),
    settings=LdaSettings,
    fit=fit,
    model=LdaModel,
    steps=(isolation, *cross_products.STEPS),
    bounds=bounds,
    preprocess={"scale": "none", "impute": "median"},
)

__all__ = ["METHOD", "LdaModel", "LdaSettings"]

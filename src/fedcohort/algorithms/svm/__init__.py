"""Linear support vector machine over sites, with probabilities by Platt's rule."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.svm.model import SvmModel
from fedcohort.algorithms.svm.program import SvmSettings, fit, platt
from fedcohort.data.exact import isolation
from fedcohort.protocol import Method, Task
from fedcohort.training import admm


def bounds(config: SvmSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    return {**admm.bounds(config, "hinge"), "link": ("",), "kinds": (True,)}


METHOD = Method(
    name="svm",
    title="Linear support vector machine, exactly as on the pooled table",
    tasks=("classification",),
    paper="GenoMed4All D6.2 (2021), section 3.4 (ADMM); Platt, 1999 (probabilities)",
    reveals=(
        "Only sums over all sites: once, over several, how many records differ in each column and "
        "how far; once the number of records, those of class 1, totals and "
        "squares of the covariates; in the first rounds, about 10, a loss, its p + 1 slopes and a "
        "(p + 1) x (p + 1) matrix of curvature (start: zero leaves these out); then per round sums "
        "of the sites' own solutions (two vectors of p + 1), of the loss, and squares and inner "
        "products of these; at the end, per round, a "
        "likelihood, its 2 slopes and their 2 x 2 matrix."
    ),
    settings=SvmSettings,
    fit=fit,
    model=SvmModel,
    steps=(isolation, *admm.STEPS, platt),
    bounds=bounds,
    preprocess={"scale": "none", "impute": "median"},
)

__all__ = ["METHOD", "SvmModel", "SvmSettings", "fit"]

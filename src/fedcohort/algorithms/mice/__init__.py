"""Multiple imputation by chained equations over sites."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.mice.model import MiceModel
from fedcohort.algorithms.mice.program import fit
from fedcohort.algorithms.mice.settings import MiceSettings
from fedcohort.algorithms.mice.steps import STEPS
from fedcohort.protocol import Method, Task


def bounds(config: MiceSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    columns = range(-1, max(len(task.features), 1))
    return {"chains": (config.draws,), "drawn": columns, "asked": columns[1:]}


METHOD = Method(
    name="mice",
    title="chained equations: missing values of mixed columns, drawn or by their mean",
    tasks=("latent", "imputation"),
    paper="van Buuren, Groothuis-Oudshoorn, J. Stat. Softw. 45(3), 2011",
    reveals=(
        "Only sums over all sites: at the start, over several, how many records differ in each "
        "column, and how far; how many have one column and not another, and how many of these "
        "have each level; then, in each sweep, of each column with missing values, totals and "
        "products of all columns over the records that have it, with missing values as drawn at "
        "the sites, for each chain."
    ),
    unguarded=(
        "Each sum is over min_cell records or more, and so is the difference of two "
        "(`algorithms.mice.program`)."
    ),
    settings=MiceSettings,
    fit=fit,
    model=MiceModel,
    steps=STEPS,
    bounds=bounds,
    preprocess={"scale": "standard", "impute": "none"},
)

__all__ = ["METHOD", "MiceModel", "MiceSettings"]

"""Influence: value of each site to one user, by leave-one-out and Shapley's value."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.influence.model import InfluenceModel
from fedcohort.algorithms.influence.program import fit
from fedcohort.algorithms.influence.settings import InfluenceSettings
from fedcohort.algorithms.influence.steps import STEPS
from fedcohort.protocol import Method, Task
from fedcohort.training.coalitions import FITS, law_of


def bounds(config: InfluenceSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    law = law_of(config.model, task, "influence")
    return {
        "law": (law.name,),
        "classes": (law.classes,),
        "user": (config.user,),
        "held": (config.held,),
    }


METHOD = Method(
    name="influence",
    title="A model for one site's patients, and what every other site is worth to it",
    tasks=("classification", "regression"),
    outcomes=tuple(FITS),
    paper="Ghorbani, Zou, ICML 2019; for a user among sites Grimberg, EPFL 2020, sec. 2.2",
    reveals=(
        "Each site's own number of rows, deviance, its gradient and a p x p matrix, of several "
        "classes one for each pair, once at a common point, and, except of linear models, each "
        "round at the models of all coalitions of sites; if these could be of fewer than "
        "min_cell rows, only the reason and its columns. "
        "Of the user's site the loss of each coalition's model on its private rows."
    ),
    unguarded=("Each site looks at its own rows before it tells of them (`training.disclosure`)."),
    settings=InfluenceSettings,
    fit=fit,
    model=InfluenceModel,
    steps=STEPS,
    bounds=bounds,
    preprocess={"scale": "standard", "impute": "median"},
)

__all__ = ["METHOD", "InfluenceModel", "InfluenceSettings", "fit"]

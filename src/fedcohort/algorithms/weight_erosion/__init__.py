"""Weight Erosion: a personalised model, from the sites whose gradients agree with the user's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.weight_erosion.model import ErosionModel
from fedcohort.algorithms.weight_erosion.program import STEPS, asks, fit
from fedcohort.algorithms.weight_erosion.settings import ErosionSettings
from fedcohort.models.predictor import LINKS, USUAL
from fedcohort.protocol import Method, Task
from fedcohort.training.hazard import REVEALS as HAZARD


def bounds(config: ErosionSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    model = config.model_of(task)
    return {
        "plan": (config.plan(task, model).text,),
        "visit": (config.visit,),
        "against": (config.against,),
        "draw": range(config.rounds),
        "sum_risks.draw": (-1,),
        "held_out": (False,),
        "together": (True,),
        "past": range(config.rounds),
        "user": (config.user,) if config.user else (),
        "link": (LINKS[model],),
        "kinds": (model != "linear",),
    }


METHOD = Method(
    name="weight_erosion",
    title="Weight Erosion: a model for one site, from the sites that agree with it",
    tasks=("classification", "regression", "survival"),
    outcomes=tuple(USUAL),
    paper="Grimberg 2020 (EPFL), Algorithm 1",
    reveals=(
        "Each round the user's own gradient, which the coordinator and all sites see; each other "
        "site's distance from it, one number or two, and with it the site's weight; the weighted "
        "sum of the other sites' gradients; once how many records differ in each column, and how "
        "far, as sums over sites. " + HAZARD
    ),
    settings=ErosionSettings,
    fit=fit,
    model=ErosionModel,
    steps=STEPS,
    asks=asks,
    bounds=bounds,
    preprocess={"scale": "standard", "impute": "median"},
)

__all__ = ["METHOD", "ErosionModel", "ErosionSettings", "fit"]

"""Gradient boosting over sites, by sums of histograms: `boosting`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fedcohort.algorithms.boosting.model import BoostedModel
from fedcohort.algorithms.boosting.objectives import PULLS
from fedcohort.algorithms.boosting.program import KINDS, fit
from fedcohort.algorithms.boosting.settings import BoostingSettings
from fedcohort.algorithms.boosting.steps import (
    STEPS,
    begin,
    count_cells,
    pull_rows,
    sum_cells,
    sum_risks,
)
from fedcohort.data import binning, timegrid
from fedcohort.numerics.trees.histogram import FINEST
from fedcohort.protocol import Method, Step, Task


def asks(config: BoostingSettings) -> Iterator[Step[..., Any]]:
    """Return the steps that a fit with these settings can ask for."""
    yield from (*binning.STEPS, begin, pull_rows, count_cells, sum_cells)
    if config.objective in ("auto", "cox"):
        yield from (sum_risks, *timegrid.asks(config.time_grid, known=True))


def bounds(config: BoostingSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    objective = config.objective_of(task)
    classes = len(task.levels) if objective == "softmax" else 1
    return {
        "objective": (objective,),
        "classes": (classes,),
        "kinds": (KINDS.get(objective, classes),),
        "together": (objective == "cox" and config.time_grid != "exact",),
        "bits": range(-1100, FINEST + 1),
    }


METHOD = Method(
    name="boosting",
    title="Gradient boosted trees, the same however rows are divided; an XGBoost model",
    tasks=("survival", "classification", "regression"),
    outcomes=("survival", "binary", "category", "ordinal", "continuous", "count"),
    paper="Chen and Guestrin, XGBoost, KDD 2016",
    reveals=(
        "Only sums over all sites: once histograms of each covariate, and numbers of rows by kind "
        "of outcome; per round the loss, and per level of a tree the rows, gradients and hessians "
        "in groups of values of each covariate, in the smaller child of each node; of cox per "
        "round the risk and the deaths by time."
    ),
    unguarded=(
        "Values of a covariate are joined until each node and its sibling have none or min_cell "
        "rows of each group (`numerics.trees.splits`); numbers of rows may be smaller."
    ),
    settings=BoostingSettings,
    fit=fit,
    model=BoostedModel,
    steps=STEPS,
    asks=asks,
    bounds=bounds,
    preprocess={"scale": "none", "impute": "none"},
)

__all__ = ["METHOD", "PULLS", "BoostedModel", "BoostingSettings"]

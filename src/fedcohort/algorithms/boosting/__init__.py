"""Gradient boosting over sites, by sums of histograms: `boosting`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fedcohort.algorithms.boosting import explaining, local, private, proposals
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
from fedcohort.privacy.disclosure.models import fewest
from fedcohort.protocol import Method, PrivateFits, Step, Task


def asks(config: BoostingSettings) -> Iterator[Step[..., Any]]:
    """Return the steps that a fit with these settings can ask for."""
    yield from (*binning.STEPS, begin, pull_rows, *explaining.STEPS)
    yield from {
        "histogram": (count_cells, sum_cells), "top-s": proposals.STEPS,
        "bagging": local.STEPS, "cyclic": local.STEPS,
    }[config.strategy]  # fmt: skip
    if config.objective in ("auto", "cox"):
        yield from (sum_risks, *timegrid.asks(config.time_grid, known=True))
    if config.objective == "weibull":
        yield from timegrid.asks("protected", known=True)


def bounds(config: BoostingSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    objective = config.objective_of(task)
    classes = len(task.levels) if objective == "softmax" else 1
    return {
        "objective": (objective,),
        "classes": (classes,),
        "kinds": (KINDS.get(objective, classes),),
        "counted": (False, True),
        "together": (objective == "cox" and config.time_grid != "exact",),
        "bits": range(-1100, FINEST + 1),
        "most": (config.proposals,),
        "trees": (config.local_trees,),
        "depth": (config.max_depth,),
        "least": (fewest(task.min_cell),),
    }


_BEFORE = (
    "Sums over all sites: once histograms of each covariate, and numbers of rows by kind of "
    "outcome, of survival also histograms of times; per round the loss, and of cox the risk and "
    "the deaths by time. "
)
_AFTER = (
    " At the end, as sums over all sites: rows by value of six covariates, and by group of these "
    "the Shapley values; of each covariate their absolute values; predictions with one of the six "
    "replaced."
)
_REVEALS = {
    "top-s": _BEFORE + (
        "Of each site, for each node of a tree: its best splits, with rows times gain of each; "
        "they have at least 10 of its rows, or min_cell, on each side and between two of one "
        "covariate. "
        "As sums over all sites: rows, gradients and hessians of each node."
    ),
    "bagging": _BEFORE + (
        "Of each site, in every round: its number of rows and its own trees, with the value, the "
        "gain and the sum of hessians of each node, none of fewer rows than 10 or min_cell."
    ),
    "cyclic": _BEFORE + (
        "Of one site, in every round: its number of rows and its own trees, with the value, the "
        "gain and the sum of hessians of each node, none of fewer rows than 10 or min_cell."
    ),
}  # fmt: skip


def reveals_with(config: BoostingSettings) -> str:
    """Return what leaves a site with these settings."""
    own = _REVEALS.get(config.strategy)
    return METHOD.reveals if own is None else own + _AFTER


METHOD = Method(
    name="boosting",
    title="Gradient boosted trees, the same however rows are divided; an XGBoost model",
    tasks=("survival", "classification", "regression"),
    outcomes=("survival", "binary", "category", "ordinal", "continuous", "count"),
    paper="Chen and Guestrin, XGBoost, KDD 2016",
    reveals=(
        "Only sums over all sites: once histograms of each covariate, of survival also of times, "
        "and numbers of rows by kind of outcome; per round the loss, and per level of a tree the "
        "rows, gradients and hessians in groups of values of each covariate, in the smaller child "
        "of each node, no group and no leaf of fewer rows than 10 or min_cell; of cox per round "
        "the risk and the deaths by time." + _AFTER
    ),
    unguarded=(
        "Values of a covariate are joined until each node and its sibling have none or min_cell "
        "rows of each group (`numerics.trees.splits`); numbers of rows may be smaller. With other "
        "strategies a node of a site's own trees, or a side of its own splits, has at least "
        "min_cell of its rows. Shapley values are summed by groups of min_cell rows or more."
    ),
    reveals_with=reveals_with,
    settings=BoostingSettings,
    fit=fit,
    model=BoostedModel,
    steps=(*STEPS, *proposals.STEPS, *local.STEPS, *private.STEPS, *explaining.STEPS),
    asks=asks,
    bounds=bounds,
    private=PrivateFits(
        releases=private.releases,
        reveals=private.reveals,
        clips=private.CLIPS,
        held=private.held,
    ),
    preprocess={"scale": "none", "impute": "none"},
)

__all__ = ["METHOD", "PULLS", "BoostedModel", "BoostingSettings"]

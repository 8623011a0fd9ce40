"""Random forests over sites: of classes, values and survival."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.forest import steps, union
from fedcohort.algorithms.forest.model import ForestModel
from fedcohort.algorithms.forest.program import KINDS, fit
from fedcohort.algorithms.forest.settings import PARTS, ForestSettings
from fedcohort.data import binning, timegrid
from fedcohort.protocol import Method, Step, Task

GRID = "histograms of each covariate, as sums over sites"
TIMES = "for survival histograms of times, and deaths and leavers by interval, as sums over sites"
SUMS = (
    "at each level of the trees counts of rows on both sides of splits, and sums of the outcome of "
    "sides with 10 rows or more, over a share of the rows that each site draws in secret, as sums "
    "over sites, from which whoever knows the covariates of all rows can guess many outcomes"
)
UNION = (
    "of each site, once, its own trees with the values of their leaves, none of fewer than 10 "
    "rows, which the coordinator sees, and from which whoever knows the covariates of all rows can "
    "guess most outcomes"
)
ONCE = "once, how many rows each class has, or the outcome's mean and spread, as sums over sites"


def _reveals(config: ForestSettings) -> str:
    """Return what leaves a site with these settings."""
    times = TIMES
    if config.time_grid == "exact":
        times = f"{TIMES}, and each site's own times of death, which the coordinator sees"
    text = f"{GRID}; {ONCE}; {times}; {UNION if config.strategy == 'union' else SUMS}."
    return text[0].upper() + text[1:]


def asks(config: ForestSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps of a fit."""
    grown = union.STEPS if config.strategy == "union" else (steps.count_sides, steps.sum_sides)
    return (
        *binning.STEPS, steps.sum_outcome, steps.sum_leaves, *grown,
        *timegrid.asks(config.time_grid, known=True),
    )  # fmt: skip


def bounds(config: ForestSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    kind = KINDS.get(task.kind, "class")
    classes = max(2, len(task.levels)) if kind == "class" else 1
    least = config.rows_of_leaf(task.min_cell)
    p = len(task.features)
    return {
        "drawn_parts": (config.parts,),
        "sum_leaves.drawn_parts": (config.parts, PARTS),
        "kind": (kind,),
        "classes": (classes,),
        "together": (True,) if kind != "event" or config.time_grid != "exact" else (False,),
        "trees": (config.trees,),
        "depth": (config.depth,),
        "leaf": (config.leaf, least),
        "tried": (config.tried(p, number=kind == "number"),) if p else range(1, 100_000),
    }


METHOD = Method(
    name="forest",
    title="Random forest: trees grown together from sums, or the union of the sites' own",
    tasks=("survival", "classification", "regression"),
    outcomes=("survival", "binary", "category", "ordinal", "continuous", "count"),
    paper=(
        "Geurts, Ernst, Wehenkel, Machine Learning 63, 2006; Ishwaran, Kogalur, Blackstone, Lauer, "
        "Annals of Applied Statistics 2(3), 2008; Breiman, Machine Learning 45, 2001 (union)"
    ),
    reveals=(f"{GRID[0].upper()}{GRID[1:]}; {ONCE}; {TIMES}; sums: {SUMS}; union: {UNION}."),
    reveals_with=_reveals,
    unguarded=(
        "Each sum is over a share of the rows of a leaf that the site draws in secret, ten or more "
        "of them (`algorithms.forest.draws`); a site's own leaves hold as many."
    ),
    settings=ForestSettings,
    fit=fit,
    model=ForestModel,
    steps=(*binning.STEPS, *steps.STEPS, *union.STEPS, *timegrid.STEPS),
    asks=asks,
    bounds=bounds,
    preprocess={"scale": "none", "impute": "none"},
)

__all__ = ["METHOD", "ForestModel", "ForestSettings", "fit"]

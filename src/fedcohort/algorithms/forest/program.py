"""Random forests over sites: trees grown together from sums, or the union of sites' own trees.

`sums`: extremely randomised trees (Geurts, Ernst, Wehenkel, Machine Learning 63, 2006). All trees
grow together (`growth`). The coordinator draws covariates and thresholds from a public grid
(`grid`), and at each level asks for two sums over sites:

    counts   of each split that is tried, the drawn rows on both sides
    sums     of the outcome on both sides, only of splits with `leaf` drawn rows on each

Values of leaves are those of the side that they were when their parent was split. For survival they
are Nelson-Aalen's cumulative hazards on a public grid of times (Ishwaran et al., Annals of Applied
Statistics 2, 2008), asked for when the trees are grown; splits go by log-rank scores (`outcome`).

Each sum is over a share of the rows that the site draws in secret, anew for each region of each
split (`draws`); two sums differ by rows that nobody knows, and many. So one fit is not equal to a
forest of the pooled table, but for a share of 1.

`union`: `union`.

Revealed: see `grid`, `steps` and `union`; for survival also the replies of `data.timegrid`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.algorithms.forest import union
from fedcohort.algorithms.forest.growth import Growing
from fedcohort.algorithms.forest.model import ForestModel
from fedcohort.algorithms.forest.outcome import Target, hazards, unit_of
from fedcohort.algorithms.forest.settings import PARTS, ForestSettings
from fedcohort.algorithms.forest.steps import count_sides, sum_leaves, sum_outcome, sum_sides
from fedcohort.arrays import Array
from fedcohort.data.binning import bin_edges, count_values, thresholds
from fedcohort.data.classes import check_classes, check_each_class, check_kinds
from fedcohort.data.exact import check_covariates
from fedcohort.data.timegrid import Intervals, intervals
from fedcohort.numerics.trees.nodes import Trees
from fedcohort.protocol import Federation, Task

KINDS = {"survival": "event", "classification": "class", "regression": "number"}


def fit(fed: Federation, config: ForestSettings, task: Task) -> ForestModel:
    """Grow a forest.

    Raises
    ------
    DataError : there are no covariates.
    NothingToLearn : a class, or deaths, of too few records; or no event.
    SettingError : sums over several sites are to be of nearly all rows.
    SiteUnavailable : a site left after the first call.
    """
    check_covariates(task)
    several = len(fed.sites) > 1
    least = task.min_cell if several else 1
    leaf = config.least(task.min_cell, len(fed.sites))
    first = fed.sum(count_values)
    fed = fed.only(fed.answered).awaiting()
    grid = None
    if task.kind == "survival":
        grid = intervals(fed, config.time_grid, least)
    target = _target(fed, task, grid)
    target, root = _root(fed, target, task, least, grid)
    cuts = thresholds(bin_edges(fed, first, config.bins, least))
    tried = config.tried(len(task.features), number=target.kind == "number")
    if config.strategy == "union":
        next(iter(fed.rounds(1)))
        trees, weights = union.union(fed, config, cuts, target, grid, leaf, tried)
        fed.record(leaves=float(trees.leaf.sum()))
    else:
        growing = Growing.planted(config.trees, cuts, tried, root, task.rng)
        _grow(fed, config, growing, target, leaf)
        trees = growing.grown()
        if grid is not None:
            trees = replace(trees, value=_curves(fed, config, trees, target, grid))
        weights = np.full(len(trees), 1.0 / max(len(trees), 1))
    times, known = np.zeros(0), 0.0
    if grid is not None:
        inside = grid.times <= grid.known
        times, known = grid.times[inside], grid.known
        trees = replace(trees, value=np.cumsum(trees.value, axis=1)[:, inside])
    return ForestModel(
        features=task.features, levels=task.levels if target.classes > 2 else (), kind=target.kind,
        strategy=config.strategy, trees=trees, weights=weights, times=times, known=known,
    )  # fmt: skip


def _target(fed: Federation, task: Task, grid: Intervals | None) -> Target:
    """Return the form in which the outcome is summed."""
    none = np.zeros(0)
    if grid is not None:
        return Target(
            kind="event", times=grid.times, hazard=np.zeros(len(grid.times)),
            together=grid.together,
        )  # fmt: skip
    if task.kind == "classification":
        return Target(kind="class", classes=max(2, len(task.levels)), times=none, hazard=none)
    first = fed.sum(sum_outcome, centre=0.0)
    mean = float(first.total) / max(float(first.rows), 1.0)
    about = fed.sum(sum_outcome, centre=mean)
    unit = unit_of(float(np.sqrt(about.squares / np.maximum(about.rows, 1))))
    quarter = unit * 2.0**14  # the sum's last bits depend on the split
    return Target(
        kind="number", centre=round(mean / quarter) * quarter, unit=unit, times=none, hazard=none
    )


def _root(
    fed: Federation, target: Target, task: Task, least: int, grid: Intervals | None
) -> tuple[Target, Array]:
    """Return the target with the pooled hazard, and the value (v,) of all rows together.

    Raises
    ------
    NothingToLearn : a class, or deaths, of too few records.
    """
    alone = Growing.planted(1, [], 1, np.zeros(0), task.rng)
    asked: dict[str, Any] = {**alone.arrays(), **target.asked}
    told = fed.sum(sum_leaves, nodes=alone.open, drawn_parts=PARTS, **asked)
    rows, sums = int(told.counts[0]), told.sums
    if grid is not None:
        t = len(grid.times)
        died = int(sums[0, :t].sum())
        check_kinds(rows, died, "event", least)
        hazard = hazards(sums[:, :t], sums[:, t:], grid.single)
        return replace(target, hazard=np.cumsum(hazard[0])), np.zeros(0)
    if target.kind == "class":
        sizes = sums[0].tolist()
        if len(sizes) == 2:
            check_classes(rows, sizes[1], least)
        else:
            check_each_class(sizes, task.levels, least)
    return target, values(target, told.counts, sums)[0]


def values(target: Target, counts: Array, sums: Array) -> Array:
    """Return the values (…, v) of regions: shares of classes (of two, of the second), or means.

    Of survival there are none until the trees are grown: (…, 0).

    Parameters
    ----------
    counts, sums : (…,) and (…, C) of the regions.
    """
    n = np.maximum(counts, 1)[..., None]
    if target.kind == "event":
        return np.zeros((*np.shape(counts), 0))
    if target.kind == "number":
        return target.centre + target.unit * sums / n
    shares = sums / n
    return shares[..., 1:] if target.classes == 2 else shares


def _grow(
    fed: Federation, config: ForestSettings, growing: Growing, target: Target, leaf: int
) -> None:
    """Split leaves level by level until none may be split."""
    for _ in fed.rounds(config.depth):
        tried = growing.drawn()
        if not len(growing.open):
            fed.record(leaves=0.0, gain=0.0)
            return
        trees = {**growing.arrays(), "drawn_parts": config.parts}
        asked: dict[str, Any] = {**trees, **tried.arrays()}
        counts = fed.sum(count_sides, **asked).counts
        may = tried.asked & (counts >= leaf).all(axis=-1)
        tried = replace(tried, asked=may)
        if not may.any():
            fed.record(leaves=float(len(growing.open)), gain=0.0)
            return
        asked = {**trees, **tried.arrays(), **target.asked}
        sums = fed.sum(sum_sides, **asked).sums
        leaves = len(growing.open)
        gain = growing.split(tried, counts, sums, values(target, counts, sums))
        fed.record(leaves=float(leaves), gain=gain)
        if not len(growing.open):
            return


def _curves(
    fed: Federation, config: ForestSettings, trees: Trees, target: Target, grid: Intervals
) -> Array:
    """Return the hazard in each interval (N, T) of leaves; 0 in other nodes."""
    nodes = np.flatnonzero(trees.leaf)
    told = fed.sum(
        sum_leaves, nodes=nodes, drawn_parts=config.parts, roots=trees.roots,
        feature=trees.feature, threshold=trees.threshold, left=trees.left, right=trees.right,
        goes_left=trees.missing_left, **target.asked,
    )  # fmt: skip
    t = len(grid.times)
    out = np.zeros((len(trees.feature), t))
    out[nodes] = hazards(told.sums[:, :t], told.sums[:, t:], grid.single)
    return out

"""Gradient boosting over sites: the trees of the pooled table, from sums of histograms.

Friedman, Annals of Statistics 29(5), 2001; Chen and Guestrin, "XGBoost", KDD 2016. Each round grows
a tree, or one for each class, from the gradients g and hessians h of the loss at the margins F of
all rows (`objectives`), and adds η times its leaves' weights to F. The covariates' bins come from
one grid of quantiles over all sites (`data.binning`). A level's histograms of (Σg, Σh, rows) by
node, covariate and bin are one sum over sites; the coordinator chooses the splits
(`numerics.trees.splits`). g and h are rounded to multiples of 2^-b, so sums are exact: the trees
do not depend on how rows are divided among sites, bit for bit. With a `min_cell` of 1 they are
those of the pooled table; with a larger one groups of bins have m rows or more (below), which one
site alone does not need.

cox: before each tree, one more sum gives Σ e^F of those who leave at each time, and the coordinator
returns d/S₀ (Breslow). weibull needs no such sum.

Revealed, only as sums over all sites: `data.binning`, once; `Begun`, once; for cox the grid of
times, once, and `Risks` for each tree; for each round `Root`, and for each level `Numbers` and
`Sums`. With a `min_cell` above 1, and m the larger of it and 10 (`disclosure.models`), every group
of bins has at least m rows, or none, in each node and in its sibling, so no Σg or Σh is of fewer;
`Numbers` may count fewer. The groups of different nodes and trees overlap, and differences of their
counts may be of few rows. Gradients change with each tree, so sums of two trees cannot be
subtracted. A group of rows of one class shows that class of all of them. Sites learn all splits,
and the leaves' values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcohort.algorithms.boosting.growth import NO_MOVES, Shape, Tree, first_level, grow
from fedcohort.algorithms.boosting.model import BoostedModel
from fedcohort.algorithms.boosting.objectives import STEP, start
from fedcohort.algorithms.boosting.response import Objective
from fedcohort.algorithms.boosting.settings import BoostingSettings
from fedcohort.algorithms.boosting.steps import (
    Begun,
    Root,
    begin,
    count_cells,
    pull_rows,
    sum_cells,
    sum_risks,
)
from fedcohort.arrays import Array
from fedcohort.data import timegrid
from fedcohort.data.binning import bin_edges, count_values
from fedcohort.data.classes import check_classes, check_each_class, check_kinds
from fedcohort.data.exact import check_covariates
from fedcohort.numerics.survival import Baseline
from fedcohort.numerics.trees import histogram, splits
from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.nodes import Trees
from fedcohort.numerics.trees.splits import Cells, Rule
from fedcohort.privacy.disclosure.models import LEAF
from fedcohort.protocol import Federation, NothingToLearn, Task

#: How much Σ|g| + Σh may grow in a round; more is an error at the site.
GROWTH = 16.0
NONE = np.zeros(0)
#: Number of kinds of outcome by objective; of softmax, the number of classes.
KINDS = {"logistic": 2, "squared": 0, "poisson": 2, "cox": 2, "weibull": 2}


class Booster:
    """A fit in progress: what is asked of the sites, and what they have yet to be told.

    Parameters
    ----------
    fed : the sites that answered first.
    edges : (p, E) of the bins.
    begun : sums over training rows.
    """

    def __init__(
        self, fed: Federation, config: BoostingSettings, task: Task, edges: Array, begun: Begun,
        objective: str,
    ):  # fmt: skip
        self.fed, self.config, self.task, self.objective = fed, config, task, objective
        self.shape = _shape(config, task, edges, objective, least_of(fed, task))
        self.classes = len(begun.target)
        self.rng = task.rng
        self.class_weight = _class_weight(config, objective, begun)
        weight, target = float(begun.summed_weight), begun.target
        if len(self.class_weight):
            by_class = target if objective == "softmax" else np.r_[weight - target[0], target[0]]
            by_class = by_class * self.class_weight
            weight, target = by_class.sum(), by_class[-self.classes :]
        self.base = start(objective, weight, target)
        self.moves, self.values = NO_MOVES, self.base[:, None].astype(float)
        self.bits, self.size = 0, math.inf
        self.grid: timegrid.Intervals | None = None
        self.hazard = self.squares = NONE
        self.baselines: list[Baseline] = []
        self.ends: Array | None = self._each if self.shape.rule.min_rows < 2 else None
        self._used = self._nothing
        if objective == "cox":
            self.grid = timegrid.intervals(fed, config.time_grid, task.min_cell)

    def sums(self, *, more: bool) -> tuple[Root, Cells | None]:
        """Add the last trees' values; return losses there, and if `more` the next roots' sums."""
        if self.grid is not None:
            self._risks(self.grid)
        if self.size == math.inf:
            self.size = float(self._pull(self._nothing).size)
        self.bits = histogram.bits_for(GROWTH * self.size)
        known = more and self.ends is not None
        told = self._pull(self._drawn() if known else self._nothing)
        self.size = float(told.size)
        if not more:
            return told, None
        groups = told.cells
        if not known:
            roots = np.column_stack([np.arange(self.classes), np.zeros(self.classes, np.int64)])
            asked: dict[str, Any] = {"moves": NO_MOVES, "asked": roots}
            rows = self.fed.sum(count_cells, ends=self._each, **asked).cells
            self.ends = splits.joined(
                rows, splits.alone(rows, self._each), self.shape.rule.min_rows
            )
            groups = self.fed.sum(sum_cells, ends=self._drawn(), **asked).cells
        found = Cells.of(groups, self._used)
        if self.config.subsample < 1 and self.shape.rule.min_rows > 1:
            self.ends = None
        return told, found

    def add(self, roots: Cells) -> list[Tree]:
        """Grow a round's trees from the sums of their roots."""
        trees, self.moves = grow(self.fed, self.shape, first_level(roots), self.bits)
        self.values = np.zeros((len(trees), max(len(t.weight) for t in trees)))
        for row, tree in zip(self.values, trees, strict=True):
            row[: len(tree.weight)] = np.array(tree.weight, np.float32)
        return trees

    def _pull(self, ends: Array) -> Root:
        config, grid = self.config, self.grid
        told = self.fed.sum(
            pull_rows, moves=self.moves, values=self.values, objective=self.objective,
            sigma=config.sigma, class_weight=self.class_weight,
            times=NONE if grid is None else grid.times,
            together=grid is not None and grid.together, hazard=self.hazard, squares=self.squares,
            share=config.subsample, bits=self.bits, ends=ends,
        )  # fmt: skip
        self.moves, self.values = NO_MOVES, np.zeros((0, 0))
        return told

    def _risks(self, grid: timegrid.Intervals) -> None:
        """Take d/S₀ at the margins after the last trees, and the baseline hazard there."""
        told = self.fed.sum(
            sum_risks, moves=self.moves, values=self.values, times=grid.times,
            together=grid.together,
        )  # fmt: skip
        self.moves, self.values = NO_MOVES, np.zeros((0, 0))
        self.hazard = grid.hazard(told.d, told.leaving, told.s0)
        self.squares = np.divide(
            self.hazard**2, told.d, out=np.zeros(len(told.s0)), where=told.d > 0
        )
        self.baselines.append(grid.baseline(self.hazard, told.d, self.task.min_cell))

    @property
    def _each(self) -> Array:
        """Groups of one bin each, at the root of each tree (K, p, B)."""
        return np.tile(self.shape.ends, (self.classes, 1, 1))

    @property
    def _nothing(self) -> Array:
        return np.zeros((0, *self.shape.ends.shape), bool)

    def _drawn(self) -> Array:
        """Draw the covariates of a round; return the groups of bins at its roots (K, p, B)."""
        p = len(self.shape.edges)
        used = np.ones(p, bool)
        if self.config.colsample < 1:
            some = max(1, round(self.config.colsample * p))
            used = np.isin(np.arange(p), self.rng.permutation(p)[:some])
        ends = self._each if self.ends is None else self.ends
        last = np.arange(ends.shape[2]) == ends.shape[2] - 1
        self._used = ends & used[:, None] | last
        return self._used


def fit(fed: Federation, config: BoostingSettings, task: Task) -> BoostedModel:
    """Grow the trees of all rounds.

    Raises
    ------
    DataError : there are no covariates.
    NothingToLearn : no records, no covariate with two bins, or few records of one kind.
    SiteUnavailable : a site left during the fit.
    SettingError : a setting names no column, or does not suit the outcome.
    """
    check_covariates(task)
    objective = config.objective_of(task)
    first = fed.sum(count_values)
    fed = fed.only(fed.answered).awaiting()
    if not first.rows:
        raise NothingToLearn("no site holds any record; check their selection.")
    edges = bin_edges(fed, first, config.max_bins, least_of(fed, task))
    levels = task.levels if objective == "softmax" else ()
    begun = fed.sum(
        begin, edges=edges, objective=objective, classes=max(len(levels), 1),
        kinds=KINDS.get(objective, len(levels)), held_out=config.held_out,
    )  # fmt: skip
    _check(objective, begun, task, least_of(fed, task), bool(np.isfinite(edges).any()))
    if config.patience and not begun.held_out:
        raise NothingToLearn(config.holds_none)
    booster = Booster(fed, config, task, edges, begun, objective)
    grown: list[list[Tree]] = []
    told, roots = booster.sums(more=True)
    held, best = float(begun.held_out), (math.inf, 0)
    for number in fed.rounds(config.rounds):
        assert roots is not None
        if held and not number:
            best = float(told.held_out_loss) / held, 0
        grown.append(booster.add(roots))
        told, roots = booster.sums(more=number + 1 < config.rounds)
        report = {"loss": float(told.loss) / float(begun.training)}
        if held:
            report["held_out_loss"] = float(told.held_out_loss) / held
            best = min(best, (report["held_out_loss"], number + 1))
        fed.record(**report)
        if held and number + 1 - best[1] >= config.patience:
            break
    kept = grown[: max(best[1], 1)] if held else grown
    return BoostedModel(
        features=task.features,
        objective=Objective.of_loss(objective, config.sigma),
        ensemble=_ensemble(booster, kept),
        levels=task.levels if objective in ("logistic", "softmax") else (),
        baselines=tuple(booster.baselines[: len(kept) + 1]),
    )


def least_of(fed: Federation, task: Task) -> int:
    """Return the smallest number of rows of a sum: 1 at a single site, or with a min_cell of 1."""
    several = len(fed.sites) > 1 and task.min_cell > 1
    return max(task.min_cell, LEAF) if several else 1


def _ensemble(booster: Booster, grown: list[list[Tree]]) -> Ensemble:
    made = [tree.made() for trees in grown for tree in trees]
    return Ensemble(
        base=booster.base,
        trees=Trees.joined([tree for tree, _, _ in made]),
        gain=np.concatenate([gain for _, gain, _ in made]),
        cover=np.concatenate([cover for _, _, cover in made]),
        group=np.tile(np.arange(booster.classes, dtype=np.int32), len(grown)),
    )


def _shape(config: BoostingSettings, task: Task, edges: Array, objective: str, least: int) -> Shape:
    """Return what the trees may be."""
    p = len(edges)
    monotone = np.zeros(p, np.int64)
    for name, way in (("increasing", 1), ("decreasing", -1)):
        monotone[config.columns(name, getattr(config, name), task.features)] = way
    groups = np.zeros((len(config.interactions), p), bool)
    for row, names in zip(groups, config.interactions, strict=True):
        row[config.columns("interactions", names, task.features)] = True
    rule = Rule(
        l2=config.l2, l1=config.l1, gamma=config.gamma, min_hessian=config.min_child_weight,
        min_rows=least, max_delta_step=STEP if objective == "poisson" else 0.0, monotone=monotone,
    )  # fmt: skip
    return Shape(
        edges=edges, rule=rule, depth=config.max_depth, rate=config.learning_rate, groups=groups
    )


def _class_weight(config: BoostingSettings, objective: str, begun: Begun) -> Array:
    """Return the weight n/(K n_k) of each class (K,); (0,) for none."""
    if config.class_weight == "none" or objective not in ("logistic", "softmax"):
        return NONE
    sizes = begun.kinds.astype(float)
    there = sizes > 0
    return np.divide(sizes.sum(), there.sum() * sizes, out=np.zeros(len(sizes)), where=there)


def _check(objective: str, begun: Begun, task: Task, least: int, split: bool) -> None:
    """Refuse what trees cannot learn from, or could tell of few records.

    Raises
    ------
    NothingToLearn : few records in all, held out or of one kind; or no covariate has two bins.
    """
    rows, held = int(begun.training), int(begun.held_out)
    if rows < 2 * least or 0 < held < least:
        raise NothingToLearn(
            f"there are {rows} records to learn from and {held} held out at all sites together; "
            f"trees need {2 * least} and {least}. Add sites or records, or train "
            f"without a patience."
        )
    if not split:
        raise NothingToLearn(
            "no covariate has two values in enough records, so no tree has a split. "
            "Add covariates, sites or records."
        )
    kinds, cell = begun.kinds.tolist(), task.min_cell if least > 1 else 1
    if objective == "softmax":
        check_each_class(kinds, task.levels, cell)
    elif objective == "logistic":
        check_classes(sum(kinds), kinds[1], cell)
    elif kinds:
        check_kinds(sum(kinds), kinds[1], "count" if objective == "poisson" else "event", cell)
        if not kinds[1]:
            what = "count is above 0" if objective == "poisson" else "record has the event"
            raise NothingToLearn(f"no {what}; a fit needs some. Check how the outcome is coded.")

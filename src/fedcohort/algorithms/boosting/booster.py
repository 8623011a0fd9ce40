"""A boosting fit in progress: what the sites are asked in a round, and what they are to hear next.

`program` has the equations and what is revealed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcohort.algorithms.boosting.growth import (
    NO_MOVES,
    Histograms,
    OverSites,
    Shape,
    Source,
    Tree,
    first_level,
    grow,
)
from fedcohort.algorithms.boosting.local import farthest, grow_trees, moves_of, received
from fedcohort.algorithms.boosting.objectives import STEP, start
from fedcohort.algorithms.boosting.proposals import Voted
from fedcohort.algorithms.boosting.settings import BoostingSettings
from fedcohort.algorithms.boosting.steps import (
    Begun,
    Risks,
    Root,
    count_cells,
    pull_rows,
    sum_cells,
    sum_risks,
)
from fedcohort.arrays import Array
from fedcohort.data import timegrid
from fedcohort.numerics.survival import Baseline
from fedcohort.numerics.trees import histogram, splits
from fedcohort.numerics.trees.splits import Cells, Rule
from fedcohort.privacy.disclosure.models import LEAF, fewest
from fedcohort.privacy.disclosure.steps import interval_ends
from fedcohort.protocol import Federation, NothingToLearn, Task, check_all_answered

#: How much Σ|g| + Σh may grow in a round; more is an error at the site.
GROWTH = 16.0
#: Bits before Σ|g| + Σh is known.
COARSEST = -1100
NONE = np.zeros(0)


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
        self.local = config.strategy in ("bagging", "cyclic")
        self.shape = _shape(config, task, edges, objective, least_of(fed, config, task))
        self.classes, self.rows = len(begun.target), int(begun.training)
        self.rng = task.rng
        self.class_weight = _class_weight(config, objective, begun)
        weight, target = float(begun.summed_weight), begun.target
        if len(self.class_weight):
            by_class = target if objective == "softmax" else np.r_[weight - target[0], target[0]]
            by_class = by_class * self.class_weight
            weight, target = by_class.sum(), by_class[-self.classes :]
        self.base = start(objective, weight, target)
        self.moves, self.values = NO_MOVES, self.base[:, None].astype(float)
        self.bits, self.size = COARSEST, math.inf
        self.grid: timegrid.Intervals | None = None
        self.hazard = self.squares = NONE
        self.baselines: list[Baseline] = []
        self.ends: Array | None = self._each if self.shape.rule.min_rows < 2 else None
        self.used, self.loss, self.turn = self._nothing, math.inf, 0
        self.roots: Cells | None = None
        if objective == "cox":
            self.grid = timegrid.intervals(fed, config.time_grid, task.min_cell)
            self.last = np.arange(len(self.grid.times))

    def sums(self, *, more: bool) -> Root:
        """Add the last trees' values; return losses there, and if `more` take the next roots'
        sums.
        """
        if self.grid is not None:
            self._risks(self.grid)
        if self.size == math.inf:
            self.size = float(self._pull(self._nothing).size)
        self.bits = histogram.bits_for(GROWTH * self.size)
        ends = self._nothing
        if more and self.config.strategy != "histogram":
            self.used = self._drawn(self._each)
            ends = ends if self.local else self._totals
        elif more and self.ends is not None:
            ends = self.used = self._drawn(self.ends)
        told = self._pull(ends)
        self.size = float(told.size)
        self.loss = float(told.loss)
        if not more or self.local:
            return told
        groups = told.cells
        if not len(ends):
            roots = np.column_stack([np.arange(self.classes), np.zeros(self.classes, np.int64)])
            asked: dict[str, Any] = {"moves": NO_MOVES, "asked": roots}
            rows = self.fed.sum(count_cells, ends=self._each, **asked).cells
            drawn = splits.alone(rows, self._each)
            _check_drawn(int(drawn.size[0]), self.shape.rule.min_rows)
            self.ends = splits.joined(rows, drawn, self.shape.rule.min_rows)
            ends = self.used = self._drawn(self.ends)
            groups = self.fed.sum(sum_cells, ends=ends, counted=True, **asked).cells
        self.roots = Cells.of(groups, ends)
        if self.config.subsample < 1 and self.shape.rule.min_rows > 1:
            self.ends = None
        return told

    def add(self) -> list[Tree]:
        """Grow a round's trees."""
        if self.local:
            trees = self._local_trees()
        else:
            assert self.roots is not None
            trees, self.moves = grow(self._source, self.shape, first_level(self.roots), self.bits)
        self.values = np.zeros((len(trees), max(len(t.weight) for t in trees)))
        for row, tree in zip(self.values, trees, strict=True):
            row[: len(tree.weight)] = np.array(tree.weight, np.float32)
        return trees

    @property
    def _source(self) -> Source:
        if self.config.strategy == "histogram":
            return Histograms(OverSites(self.fed, self.shape.rule.min_rows), self.shape, self.bits)
        return Voted(self.fed, self.shape, self.bits, self.used, self.config.proposals)

    def _local_trees(self) -> list[Tree]:
        """Return the trees of all sites, or of the next one; rows have yet to move down them."""
        config, shape, fed = self.config, self.shape, self.fed
        if config.strategy == "cyclic":
            fed = fed.only([fed.sites[self.turn % len(fed.sites)]])
            self.turn += 1
        told = fed.gather(
            grow_trees, trees=config.local_trees, depth=shape.depth, rate=shape.rate,
            rule=shape.rule.numbers, monotone=shape.rule.monotone, groups=shape.groups,
            ends=self.used, bits=self.bits, least=shape.rule.min_rows,
            farthest=farthest(self.objective, self.loss), **self._outcome,
        )  # fmt: skip
        check_all_answered(fed)
        weighted = config.strategy == "bagging"
        trees = received(list(told.values()), shape, self.rows, weighted=weighted)
        self.moves = moves_of(trees)
        return trees

    @property
    def _outcome(self) -> dict[str, Any]:
        """Return what gradients of a row follow from, besides its margins."""
        grid = self.grid
        return {
            "objective": self.objective, "sigma": self.config.sigma,
            "class_weight": self.class_weight, "times": NONE if grid is None else grid.times,
            "together": grid is not None and grid.together, "hazard": self.hazard,
            "squares": self.squares,
        }  # fmt: skip

    def _pull(self, ends: Array) -> Root:
        told = self.fed.sum(
            pull_rows, moves=self.moves, values=self.values, share=self.config.subsample,
            bits=self.bits, ends=ends, **self._outcome,
        )  # fmt: skip
        self.moves, self.values = NO_MOVES, np.zeros((0, 0))
        return told

    def _risks(self, grid: timegrid.Intervals) -> None:
        """Take d/S₀ at the margins after the last trees, and the baseline hazard there."""
        told = self.fed.sum(
            sum_risks, moves=self.moves, values=self.values, times=grid.times,
            together=grid.together, last=self.last,
        )  # fmt: skip
        self.moves, self.values = NO_MOVES, np.zeros((0, 0))
        if grid.together and self.shape.rule.min_rows > 1 and not self.baselines:
            self.last, told = _without_held_out(told, self.task.min_cell)
        own, begins = grid.joined(self.last), np.r_[0, self.last[:-1] + 1]
        steps = own.hazard(told.d, told.leaving, told.s0)
        # at the first interval of those joined: who leaves in any of them is at risk in all
        self.hazard, self.squares = np.zeros((2, len(grid.times)))
        self.hazard[begins] = steps
        self.squares[begins] = np.divide(
            steps**2, told.d, out=np.zeros(len(steps)), where=told.d > 0
        )
        self.baselines.append(own.baseline(steps, told.d, self.task.min_cell))

    @property
    def _each(self) -> Array:
        """Groups of one bin each, at the root of each tree (K, p, B)."""
        return np.tile(self.shape.ends, (self.classes, 1, 1))

    @property
    def _nothing(self) -> Array:
        return np.zeros((0, *self.shape.ends.shape), bool)

    @property
    def _totals(self) -> Array:
        """One group of all bins, at the root of each tree (K, p, B)."""
        return np.zeros_like(self._each) | self._last

    @property
    def _last(self) -> Array:
        size = self.shape.ends.shape[1]
        return np.arange(size) == size - 1

    def _drawn(self, ends: Array) -> Array:
        """Draw the covariates of a round; return the groups of bins of these alone (K, p, B)."""
        p = len(self.shape.edges)
        used = np.ones(p, bool)
        if self.config.colsample < 1:
            some = max(1, round(self.config.colsample * p))
            used = np.isin(np.arange(p), self.rng.permutation(p)[:some])
        return ends & used[:, None] | self._last


def least_of(fed: Federation, config: BoostingSettings, task: Task) -> int:
    """Return the smallest number of rows of a sum: 1 with a min_cell of 1, or of histograms at a
    single site.
    """
    several = len(fed.sites) > 1 or config.strategy != "histogram"
    return fewest(task.min_cell) if several else 1


def _without_held_out(told: Risks, least: int) -> tuple[Array, Risks]:
    """Join intervals until `least` rows leave in each, as fewer may once some are held out.

    Parameters
    ----------
    told : at the first margin, the same for all rows, so that it tells no more than numbers of
        rows, and their weights.

    Returns
    -------
    last, told : the last interval of each group, and the sums by group.
    """
    last = interval_ends(told.leaving, least)
    last[-1] = len(told.leaving) - 1
    begins = np.r_[0, last[:-1] + 1]
    d, leaving = (np.add.reduceat(a, begins) for a in (told.d, told.leaving))
    return last, Risks(told.s0[begins], d, leaving)


def _check_drawn(rows: int, least: int) -> None:
    """Refuse roots of few rows.

    Raises
    ------
    NothingToLearn : fewer rows than `least` were drawn.
    """
    if 0 < rows < least:
        raise NothingToLearn(
            f"fewer than {least} records (min_cell, or {LEAF}) were drawn at all sites together "
            f"for a round's trees. Raise 'subsample', or add sites or records."
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

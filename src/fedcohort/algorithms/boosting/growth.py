"""Growth of K trees over sites, level by level: which sums are asked, which splits are chosen.

At each level the coordinator has the sums of gradients, hessians and rows of the level's nodes, by
covariate and bin (`numerics.trees.splits.Cells`), and splits each node that gains. Of the two
children it asks for the smaller; the other's sums follow by subtraction. Before sums of gradients,
with several sites and a `min_cell` above 1, it asks for the rows of the child by bin, and joins
bins until each group has none or at least `min_cell` rows of the child, and of its sibling
(`splits.joined`). So a level takes two sums; with a `min_cell` of 1, or one site, one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedcohort.algorithms.boosting.steps import count_cells, sum_cells
from fedcohort.arrays import Array
from fedcohort.numerics.trees import splits
from fedcohort.numerics.trees.nodes import LEAF, Trees
from fedcohort.numerics.trees.splits import Cells, Rule
from fedcohort.protocol import Federation

#: Thresholds that no value, and that every value, is below.
LOWEST, HIGHEST = np.finfo(np.float32).min, np.finfo(np.float32).max
#: No splits.
NO_MOVES = np.zeros((0, 6), np.int64)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What trees may be.

    Attributes
    ----------
    edges : (p, E) of the bins.
    rule : of splitting.
    depth : largest number of splits on a path.
    rate : η.
    groups : (q, p) bool, covariates that may stand together on a path; (0, p) for all.
    """

    edges: Array
    rule: Rule
    depth: int
    rate: float
    groups: Array

    @property
    def ends(self) -> Array:
        """The bins that close a group where each has one of its own, (p, E + 2)."""
        known = np.isfinite(self.edges)
        return np.column_stack([np.ones(len(known), bool), known, np.ones(len(known), bool)])

    def threshold(self, feature: int, cut: int) -> float:
        """Return the edge above a bin: `LOWEST` above bin 0."""
        if cut == 0:
            return float(LOWEST)
        edge = self.edges[feature, cut - 1] if cut <= self.edges.shape[1] else np.inf
        return float(edge) if np.isfinite(edge) else float(HIGHEST)


@dataclass(eq=False)
class Tree:
    """The nodes of one growing tree, by their number."""

    feature: list[int] = field(default_factory=list[int])
    threshold: list[float] = field(default_factory=list[float])
    left: list[int] = field(default_factory=list[int])
    missing_left: list[bool] = field(default_factory=list[bool])
    weight: list[float] = field(default_factory=list[float])
    gain: list[float] = field(default_factory=list[float])
    cover: list[float] = field(default_factory=list[float])

    def add(self, weight: float, cover: float) -> int:
        """Add a leaf; return its number."""
        for name, value in (
            ("feature", LEAF), ("threshold", 0.0), ("left", -1), ("missing_left", False),
            ("weight", weight), ("gain", 0.0), ("cover", cover),
        ):  # fmt: skip
            getattr(self, name).append(value)
        return len(self.feature) - 1

    def made(self) -> tuple[Trees, Array, Array]:
        """Return the tree, and the gain and the Σ h of each node (N,), float32."""
        left = np.array(self.left, np.int32)
        tree = Trees(
            roots=np.zeros(1, np.int32),
            feature=np.array(self.feature, np.int32),
            threshold=np.array(self.threshold, np.float32),
            left=left,
            right=np.where(left < 0, -1, left + 1).astype(np.int32),
            missing_left=np.array(self.missing_left, bool),
            value=np.array(self.weight, np.float32)[:, None],
        )
        return tree, np.array(self.gain, np.float32), np.array(self.cover, np.float32)


@dataclass(frozen=True, eq=False)
class Level:
    """The A nodes of a level that may be split.

    ``tree``, ``node`` (A,); ``cells``; bounds ``low``, ``high`` (A,) of their weights; ``path``
    (A, p), covariates on the path to each.
    """

    tree: Array
    node: Array
    cells: Cells
    low: Array
    high: Array
    path: Array

    def __getitem__(self, at: Array) -> Level:
        return Level(
            self.tree[at], self.node[at], self.cells[at], self.low[at], self.high[at],
            self.path[at],
        )  # fmt: skip


def first_level(cells: Cells) -> Level:
    """Return the roots of K trees."""
    k, p = cells.ends.shape[:2]
    bound = np.full(k, np.inf)
    return Level(np.arange(k), np.zeros(k, np.int64), cells, -bound, bound, np.zeros((k, p), bool))


def grow(fed: Federation, shape: Shape, level: Level, bits: int) -> tuple[list[Tree], Array]:
    """Grow a tree from each root; return the trees, and the moves that sites have yet to make.

    Parameters
    ----------
    level : the roots.
    bits : of the sums.
    """
    trees = [Tree() for _ in level.tree]
    unit = 2.0**-bits
    weights = shape.rule.weight(*_columns(level.cells.total * unit), level.low, level.high)
    for tree, weight, cover in zip(trees, weights, level.cells.total[:, 1] * unit, strict=True):
        tree.add(shape.rate * weight, cover)
    moves = NO_MOVES
    for depth in range(shape.depth):
        found = splits.best(
            level.cells, bits, shape.rule, _allowed(level.path, shape.groups), level.low, level.high
        )
        at = np.flatnonzero(np.isfinite(found.gain))
        if not len(at):
            return trees, moves
        level, found = level[at], replace(found, **{k: v[at] for k, v in vars(found).items()})
        moves, bounds = _split(trees, level, found, shape, unit)
        if depth + 1 == shape.depth:
            break
        level, moves = _children(fed, level, found, moves, bounds, shape.rule)
        if not len(level.tree):
            break
    return trees, moves


def _split(
    trees: list[Tree], level: Level, found: splits.Splits, shape: Shape, unit: float
) -> tuple[Array, Array]:
    """Split nodes; return the moves (m, 6), and the bounds (m, 4) of the children's weights."""
    rule = shape.rule
    sums = [found.left * unit, found.right * unit]
    w = np.column_stack([rule.weight(*_columns(s), level.low, level.high) for s in sums])
    moves = np.column_stack(
        [level.tree, level.node, found.feature, found.bin, found.missing_left, level.node]
    ).astype(np.int64)
    way, middle = rule.monotone[found.feature], w.mean(axis=1)
    bounds = np.column_stack(
        [
            np.where(way < 0, middle, level.low), np.where(way > 0, middle, level.high),
            np.where(way > 0, middle, level.low), np.where(way < 0, middle, level.high),
        ]
    )  # fmt: skip
    for i, (k, node) in enumerate(zip(level.tree.tolist(), level.node.tolist(), strict=True)):
        tree, feature, cut = trees[k], int(found.feature[i]), int(found.bin[i])
        tree.feature[node], tree.threshold[node] = feature, shape.threshold(feature, cut)
        tree.missing_left[node] = bool(found.missing_left[i])
        tree.gain[node] = float(found.gain[i])
        tree.left[node] = moves[i, 5] = tree.add(shape.rate * w[i, 0], sums[0][i, 1])
        tree.add(shape.rate * w[i, 1], sums[1][i, 1])
    return moves, bounds


def _children(
    fed: Federation, level: Level, found: splits.Splits, moves: Array, bounds: Array, rule: Rule
) -> tuple[Level, Array]:
    """Return the children that may be split, and the moves that sites have yet to make."""
    left, right = found.left_rows, level.cells.size - found.left_rows
    at = np.flatnonzero(np.maximum(left, right) >= 2 * rule.min_rows)
    if not len(at):
        return level[at], moves
    parent, own = level.cells[at], moves[at]
    other = (right[at] < left[at]).astype(np.int64)
    asked = np.column_stack([own[:, 0], own[:, 5] + other])
    ends = parent.ends
    if rule.min_rows > 1:
        told = fed.sum(count_cells, moves=moves, asked=asked, ends=ends)
        ends, moves = splits.joined(told.cells, parent, rule.min_rows), NO_MOVES
    told = fed.sum(sum_cells, moves=moves, asked=asked, ends=ends)
    small = Cells.of(told.cells, ends)
    every = Cells.joined([small, parent.less(small)])
    path = level.path[at]
    path[np.arange(len(at)), found.feature[at]] = True
    number = np.r_[asked[:, 1], own[:, 5] + 1 - other]
    side = np.r_[other, 1 - other]
    both = np.tile(bounds[at].reshape(-1, 2, 2), (2, 1, 1))
    low, high = _columns(both[np.arange(len(side)), side])
    made = Level(np.tile(own[:, 0], 2), number, every, low, high, np.tile(path, (2, 1)))
    large = np.flatnonzero(every.size >= 2 * rule.min_rows)
    return made[large[np.lexsort((number[large], made.tree[large]))]], NO_MOVES


def _allowed(path: Array, groups: Array) -> Array:
    """Return the covariates (A, p) that may follow on paths (A, p): of a group with all of it."""
    if not len(groups):
        return np.ones(path.shape, bool)
    fits = ~np.any(path[:, None] & ~groups, axis=2)
    return np.any(fits[..., None] & groups, axis=1) | path


def _columns(pairs: Array) -> tuple[Array, Array]:
    return pairs[:, 0], pairs[:, 1]

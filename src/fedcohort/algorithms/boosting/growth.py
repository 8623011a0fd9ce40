"""K trees grown over sites, level by level: the sums that are asked, and the splits chosen.

At each level the coordinator has the sums of gradients, hessians and rows of the level's nodes, by
covariate and bin (`numerics.trees.splits.Cells`), and splits each node that gains. Of the two
children it asks for the smaller; the other's sums follow by subtraction. Before sums of gradients,
with several sites and a `min_cell` above 1, it asks for the rows of the child by bin, and joins
bins until each group has none or at least `min_cell` rows of the child, and of its sibling
(`splits.joined`). So a level takes two sums; with a `min_cell` of 1, or one site, one. Counts are
of no other sum: a child's rows follow from the gradients of the level above, and its groups from
the counts.

Other strategies grow by the same program with another `Source` of splits (`proposals`), or of sums
(`local`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

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
    cut: list[int] = field(default_factory=list[int])
    threshold: list[float] = field(default_factory=list[float])
    left: list[int] = field(default_factory=list[int])
    missing_left: list[bool] = field(default_factory=list[bool])
    weight: list[float] = field(default_factory=list[float])
    gain: list[float] = field(default_factory=list[float])
    cover: list[float] = field(default_factory=list[float])

    def add(self, weight: float, cover: float) -> int:
        """Add a leaf; return its number."""
        for name, value in (
            ("feature", LEAF), ("cut", -1), ("threshold", 0.0), ("left", -1),
            ("missing_left", False), ("weight", weight), ("gain", 0.0), ("cover", cover),
        ):  # fmt: skip
            getattr(self, name).append(value)
        return len(self.feature) - 1

    def split(
        self, node: int, feature: int, cut: int, threshold: float, missing_left: bool, left: int
    ) -> None:
        """Split a node, whose children are the nodes `left` and the next: bins up to `cut`."""
        self.feature[node], self.cut[node], self.threshold[node] = feature, cut, threshold
        self.missing_left[node], self.left[node] = missing_left, left

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
    """The A nodes of a level that may be split, in order of trees and of nodes.

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
        """Return some of the nodes, by their numbers, ascending."""
        if len(at) == len(self.tree):
            return self
        return Level(
            self.tree[at], self.node[at], self.cells[at], self.low[at], self.high[at],
            self.path[at],
        )  # fmt: skip

    def large(self, least: int) -> Level:
        """Return the nodes with rows for two children."""
        return self[np.flatnonzero(self.cells.size >= 2 * least)]


def first_level(cells: Cells) -> Level:
    """Return the roots of K trees."""
    k, p = cells.ends.shape[:2]
    bound = np.full(k, np.inf)
    return Level(np.arange(k), np.zeros(k, np.int64), cells, -bound, bound, np.zeros((k, p), bool))


class Source(Protocol):
    """What the splits of a level follow from."""

    def best(self, level: Level, allowed: Array, moves: Array) -> tuple[splits.Splits, Array]:
        """Return the best split of each node, and the moves that rows have yet to make.

        allowed : (A, p), covariates by which a node may be split. moves (m, 6) : not yet made.
        """
        ...

    def children(
        self, level: Level, found: splits.Splits, moves: Array, bounds: Array
    ) -> tuple[Level, Array]:
        """Return the children that may be split, and the moves that rows have yet to make.

        moves, bounds : of the level, as `_split` returns them.
        """
        ...


def grow(source: Source, shape: Shape, level: Level, bits: int) -> tuple[list[Tree], Array]:
    """Grow a tree from each root; return the trees, and the moves that rows have yet to make.

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
        found, moves = source.best(level, _allowed(level.path, shape.groups), moves)
        at = np.flatnonzero(np.isfinite(found.gain))
        if not len(at):
            return trees, moves
        level, found = level[at], replace(found, **{k: v[at] for k, v in vars(found).items()})
        moves, bounds = _split(trees, level, found, shape, unit)
        if depth + 1 == shape.depth:
            break
        level, moves = source.children(level, found, moves, bounds)
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
        tree.gain[node] = float(found.gain[i])
        moves[i, 5] = left = tree.add(shape.rate * w[i, 0], sums[0][i, 1])
        tree.add(shape.rate * w[i, 1], sums[1][i, 1])
        way = bool(found.missing_left[i])
        tree.split(node, feature, cut, shape.threshold(feature, cut), way, left)
    return moves, bounds


class Sums(Protocol):
    """What answers with sums over rows."""

    def cells(self, moves: Array, asked: Array, parent: Cells) -> Groups:
        """Return the sums of a child of each of A nodes, after the rows have moved.

        Parameters
        ----------
        moves (m, 6), asked (A, 2) : as in the steps.
        parent : the nodes.
        """
        ...


#: Σg, Σh and the rows of groups of bins (G, 3), and the last bin of each group (A, p, B).
Groups = tuple[Array, Array]


@dataclass(frozen=True)
class OverSites:
    """Sums over sites.

    Attributes
    ----------
    least : fewest rows of a sum; 1 for any.
    """

    fed: Federation
    least: int

    def cells(self, moves: Array, asked: Array, parent: Cells) -> Groups:
        """Return the sums; of `least` above 1 count rows first, and join bins."""
        ends = parent.ends
        if self.least < 2:
            told = self.fed.sum(sum_cells, moves=moves, asked=asked, ends=ends, counted=True)
            return told.cells, ends
        rows = self.fed.sum(count_cells, moves=moves, asked=asked, ends=ends).cells
        wider = splits.joined(rows, parent, self.least)
        told = self.fed.sum(sum_cells, moves=NO_MOVES, asked=asked, ends=wider, counted=False)
        return np.column_stack([told.cells, splits.regrouped(rows, ends, wider)]), wider


@dataclass(frozen=True)
class Histograms:
    """Splits from the histograms of each level; see the module's header."""

    sums: Sums
    shape: Shape
    bits: int

    def best(self, level: Level, allowed: Array, moves: Array) -> tuple[splits.Splits, Array]:
        """Return the best split of each node, and the same moves."""
        found = splits.best(level.cells, self.bits, self.shape.rule, allowed, level.low, level.high)
        return found, moves

    def children(
        self, level: Level, found: splits.Splits, moves: Array, bounds: Array
    ) -> tuple[Level, Array]:
        """Ask for the smaller child of each node; return both, and the moves yet to make."""
        left, right = found.left_rows, level.cells.size - found.left_rows
        at = np.flatnonzero(np.maximum(left, right) >= 2 * self.shape.rule.min_rows)
        if not len(at):
            return level[at], moves
        parent, own = level.cells[at], moves[at]
        other = (right[at] < left[at]).astype(np.int64)
        asked = np.column_stack([own[:, 0], own[:, 5] + other])
        cells = parent.children(*self.sums.cells(moves, asked, parent), other)
        below = _below(level[at], found.feature[at], own, bounds[at], cells)
        return below.large(self.shape.rule.min_rows), NO_MOVES


def both_children(
    level: Level, found: splits.Splits, moves: Array, bounds: Array, rule: Rule
) -> Level:
    """Return the children that may be split, of which the totals alone are known."""
    left, right = found.left_rows, level.cells.size - found.left_rows
    sums = np.stack([found.left, found.right], axis=1).reshape(-1, 2)
    cells = Cells.whole(sums, np.column_stack([left, right]).ravel())
    return _below(level, found.feature, moves, bounds, cells).large(rule.min_rows)


def _below(level: Level, feature: Array, moves: Array, bounds: Array, cells: Cells) -> Level:
    """Return 2A children of A nodes: of each the left one, then the right."""
    path = level.path.copy()
    path[np.arange(len(path)), feature] = True
    low, high = _columns(bounds.reshape(-1, 2))
    number = (moves[:, 5:] + [0, 1]).ravel()
    return Level(moves[:, 0].repeat(2), number, cells, low, high, path.repeat(2, axis=0))


def _allowed(path: Array, groups: Array) -> Array:
    """Return the covariates (A, p) that may follow on paths (A, p): of a group with all of it."""
    if not len(groups):
        return np.ones(path.shape, bool)
    fits = ~np.any(path[:, None] & ~groups, axis=2)
    return np.any(fits[..., None] & groups, axis=1) | path


def _columns(pairs: Array) -> tuple[Array, Array]:
    return pairs[:, 0], pairs[:, 1]

"""The union of sites' own forests: each site grows trees on its rows alone.

The baseline that costs one call. A site grows a random forest (Breiman, Machine Learning 45, 2001)
by scikit-learn, on the numbers of the intervals of the public grid in place of values, so that a
threshold is none between two patients' values. Survival trees are regression trees of the log-rank
scores (`outcome`), with Nelson-Aalen leaves. A tree's weight is its site's share of the rows.

Revealed: of each site, once, its trees with the values of their leaves, each of `leaf` different
rows or more, and its number of rows. A site with fewer than twice as many rows grows none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort.algorithms.forest import draws
from fedcohort.algorithms.forest.outcome import Target, hazards
from fedcohort.algorithms.forest.settings import ForestSettings
from fedcohort.arrays import Array
from fedcohort.data.timegrid import Intervals
from fedcohort.numerics.trees.nodes import LEAF, Trees
from fedcohort.protocol import (
    DataError,
    Federation,
    Site,
    check_all_answered,
    gathered,
    message,
)

#: Threshold above all values.
LARGEST = np.finfo(np.float32).max


@message
class OwnForest:
    """A site's trees, as `Trees`, and its number of rows (0 without trees)."""

    roots: Array
    feature: Array
    threshold: Array
    left: Array
    right: Array
    goes_left: Array
    value: Array
    rows: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        n, p = len(self.feature), len(asked["cuts"])
        inner = self.feature != LEAF
        below, nodes = np.array([self.left, self.right]), np.arange(n)
        parts = (self.threshold, self.left, self.right, self.goes_left)
        several = asked["classes"] if asked["classes"] > 2 else 1
        width = len(asked["times"]) if asked["kind"] == "event" else several
        fine = (
            all(a.shape == (n,) for a in parts)
            and self.value.shape == (n, width if n else 0)
            and len(self.roots) == (asked["trees"] if n else 0)
            and ((self.feature >= LEAF) & (self.feature < p)).all()
            and ((below > nodes) & (below < n))[:, inner].all()
            and ((self.roots >= 0) & (self.roots < n)).all()
        )
        return "" if fine else "trees whose nodes do not fit together."


@gathered
def own_forest(
    site: Site[Any, None],
    *,
    cuts: Array,
    trees: int,
    depth: int,
    leaf: int,
    tried: int,
    kind: str,
    classes: int,
    centre: float,
    unit: float,
    times: Array,
    hazard: Array,
    together: bool,
    single: Array,
) -> OwnForest:
    """Grow a forest on the site's own rows; return its trees, with leaves of enough rows.

    `cuts` are the thresholds of each covariate (p, k), padded with inf.
    """
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    target = Target(
        kind=kind, classes=classes, centre=centre, unit=unit, times=times, hazard=hazard,
        together=together,
    )  # fmt: skip
    x = np.asarray(site.data.x, np.float32)
    y = target.selected(site.data)
    if len(x) < 2 * leaf:
        return _message([], 0)
    codes = np.full(x.shape, np.nan, np.float32)
    for j, own in enumerate(cuts):
        seen = ~np.isnan(x[:, j])
        codes[seen, j] = np.searchsorted(own[np.isfinite(own)], x[seen, j], side="right")
    options: dict[str, Any] = {
        "n_estimators": trees, "max_depth": depth, "min_samples_leaf": leaf, "max_features": tried,
        "random_state": draws.secret(site) % 2**32, "n_jobs": 1,
    }  # fmt: skip
    if kind == "class":
        forest: Any = RandomForestClassifier(**options).fit(codes, y)
    else:
        forest = RandomForestRegressor(**options).fit(codes, y.astype(float))
    grown = [_tree(one.tree_, cuts, forest, target) for one in forest.estimators_]
    if kind == "event":
        grown = [_with_curves(one, site.data, x, target, single) for one in grown]
    return _message(grown, len(x))


def _tree(tree: Any, cuts: Array, forest: Any, target: Target) -> Trees:
    """Return one tree of scikit-learn's on the values of covariates."""
    inner = tree.children_left >= 0
    feature = np.where(inner, tree.feature, LEAF).astype(np.int32)
    threshold = np.zeros(len(feature), np.float32)
    whole = np.isfinite(tree.threshold)  # an infinite one divides known from missing values
    threshold[inner] = LARGEST
    own = inner & whole
    threshold[own] = cuts[feature[own], np.floor(tree.threshold[own]).astype(int)]
    if target.kind == "class":
        value = np.zeros((len(feature), target.classes))
        value[:, forest.classes_] = tree.value[:, 0, :]
        value /= value.sum(axis=1, keepdims=True)
        value = value[:, 1:] if target.classes == 2 else value
    else:
        value = target.centre + target.unit * tree.value[:, 0, :]
    return Trees(
        roots=np.zeros(1, np.int32), feature=feature, threshold=threshold,
        left=tree.children_left.astype(np.int32), right=tree.children_right.astype(np.int32),
        missing_left=inner & (np.asarray(tree.missing_go_to_left) > 0), value=value,
    )  # fmt: skip


def _with_curves(tree: Trees, table: Any, x: Array, target: Target, single: Array) -> Trees:
    """Return a tree whose leaves have the hazards of the site's rows in them."""
    slot, dies = target.on_grid(table)
    t, n = len(target.times), len(tree.feature)
    seen = slot >= 0
    cell = tree.leaves(x)[seen, 0] * t + slot[seen]
    deaths = np.bincount(cell[dies[seen]], minlength=n * t).reshape(n, t)
    leaving = np.bincount(cell, minlength=n * t).reshape(n, t)
    found = hazards(deaths, leaving, single if target.together else None)
    return Trees(**{**tree.arrays(), "value": found})


def _message(grown: list[Trees], rows: int) -> OwnForest:
    if not grown:
        none = np.zeros(0, np.int32)
        return OwnForest(
            none, none, np.zeros(0, np.float32), none, none, np.zeros(0, bool), np.zeros((0, 0)),
            np.array(0),
        )  # fmt: skip
    all_trees = Trees.joined(grown)
    return OwnForest(
        all_trees.roots, all_trees.feature, all_trees.threshold, all_trees.left, all_trees.right,
        all_trees.missing_left, all_trees.value, np.array(rows),
    )  # fmt: skip


def union(
    fed: Federation,
    config: ForestSettings,
    cuts: list[Array],
    target: Target,
    grid: Intervals | None,
    leaf: int,
    tried: int,
) -> tuple[Trees, Array]:
    """Return all sites' trees, and their weights (T,).

    Raises
    ------
    DataError : no site has rows enough.
    """
    padded = np.full((len(cuts), max(1, *(len(c) for c in cuts))), np.inf, np.float32)
    for j, own in enumerate(cuts):
        padded[j, : len(own)] = own
    single = np.zeros(0, bool) if grid is None or grid.single is None else grid.single
    replies = fed.gather(
        own_forest, cuts=padded, trees=config.trees, depth=config.depth, leaf=leaf, tried=tried,
        single=single, **target.asked,
    )  # fmt: skip
    check_all_answered(fed)
    own = [reply for _, reply in sorted(replies.items()) if len(reply.roots)]
    if not own:
        raise DataError(
            f"no site has {2 * leaf} rows, enough for a tree of its own. Take strategy: sums."
        )
    weights = [np.full(len(o.roots), float(o.rows) / len(o.roots)) for o in own]
    joined = Trees.joined(
        [
            Trees(
                roots=o.roots, feature=o.feature, threshold=o.threshold, left=o.left,
                right=o.right, missing_left=o.goes_left, value=o.value,
            )
            for o in own
        ]
    )  # fmt: skip
    every = np.concatenate(weights)
    return joined, every / every.sum()


STEPS = (own_forest,)

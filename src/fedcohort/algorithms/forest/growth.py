"""Growth of many trees at once, level by level, at the coordinator.

Extremely randomised trees (Geurts, Ernst, Wehenkel, Machine Learning 63, 2006): at each leaf K
covariates are drawn, and for each one threshold between the leaf's own limits; the split that
separates the outcome best is taken. With n rows in a leaf's sum, and n_s rows and sums S_s on the
sides s of a split,

    gain = 1/n · (Σ_s ‖S_s‖²/n_s − ‖Σ_s S_s‖²/n)                                            (1)

which is the decrease of Gini's impurity for counts by class, and of the variance for values. For
survival the values are log-rank scores. A row without the covariate goes to a side that is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedcohort.algorithms.forest.regions import Tried
from fedcohort.arrays import Array
from fedcohort.numerics.trees.nodes import LEAF, Trees

#: Gains up to this are rounding.
NOTHING = 1e-12


def gains(counts: Array, sums: Array) -> Array:
    """Return the gain of splits, eq. (1): (…,).

    Parameters
    ----------
    counts, sums : (…, 2) and (…, 2, C) of both sides; all counts above 0.
    """
    n, s = np.asarray(counts, float), np.asarray(sums, float)
    whole = n.sum(axis=-1)
    within = (np.square(s).sum(axis=-1) / n).sum(axis=-1)
    return (within - np.square(s.sum(axis=-2)).sum(axis=-1) / whole) / whole


@dataclass
class Growing:
    """Trees that grow.

    Attributes
    ----------
    cuts : thresholds of each covariate, ascending float32.
    tried : K, covariates tried at a leaf.
    rng : of the coordinator's draws.
    open : (F,) leaves that may be split.
    low, high : (F, p) thresholds of each covariate that divide the rows of a leaf: low ≤ k < high.
    tree, feature, threshold, left, right, missing_left, value : of all nodes.
    """

    cuts: list[Array]
    tried: int
    rng: np.random.Generator
    open: Array
    low: Array
    high: Array
    tree: Array
    feature: Array
    threshold: Array
    left: Array
    right: Array
    missing_left: Array
    value: Array
    roots: Array = field(init=False)

    def __post_init__(self) -> None:
        self.roots = np.arange(len(self.open), dtype=np.int32)

    @classmethod
    def planted(
        cls, trees: int, cuts: list[Array], tried: int, value: Array, rng: np.random.Generator
    ) -> Growing:
        """Return trees of a root each, whose value is (v,)."""
        high = np.array([len(c) for c in cuts], np.int16)
        return cls(
            cuts=cuts,
            tried=tried,
            rng=rng,
            open=np.arange(trees),
            low=np.zeros((trees, len(cuts)), np.int16),
            high=np.tile(high, (trees, 1)),
            tree=np.arange(trees),
            feature=np.full(trees, LEAF, np.int32),
            threshold=np.zeros(trees, np.float32),
            left=np.full(trees, -1, np.int32),
            right=np.full(trees, -1, np.int32),
            missing_left=np.zeros(trees, bool),
            value=np.tile(value, (trees, 1)),
        )

    def arrays(self) -> dict[str, Array]:
        """Return the trees so far, as arguments of a step."""
        return {
            "roots": self.roots, "feature": self.feature, "threshold": self.threshold,
            "left": self.left, "right": self.right, "goes_left": self.missing_left,
        }  # fmt: skip

    def drawn(self) -> Tried:
        """Return splits to try at the open leaves; leaves that nothing divides are closed."""
        some = (self.high > self.low).any(axis=1)
        self.open, self.low, self.high = self.open[some], self.low[some], self.high[some]
        f, p = self.low.shape
        order = np.where(self.high > self.low, self.rng.random((f, p)), np.inf)
        k = min(self.tried, p)
        covariate = np.argpartition(order, k - 1, axis=1)[:, :k] if k < p else order.argsort(axis=1)
        covariate = np.sort(covariate[:, :k], axis=1).astype(np.int32)
        low = np.take_along_axis(self.low, covariate, axis=1).astype(float)
        high = np.take_along_axis(self.high, covariate, axis=1).astype(float)
        place = np.floor(low + self.rng.random((f, k)) * (high - low))
        place = np.maximum(np.minimum(place, high - 1), 0).astype(int)
        widest = max((len(c) for c in self.cuts), default=0)
        table = np.zeros((p, max(widest, 1)), np.float32)
        for j, c in enumerate(self.cuts):
            table[j, : len(c)] = c
        return Tried(
            nodes=self.open,
            covariate=covariate,
            cut=table[covariate, place],
            missing_left=self.rng.random((f, k)) < 0.5,
            asked=high > low,
        )

    def split(self, tried: Tried, counts: Array, sums: Array, value: Array) -> float:
        """Split each open leaf where that gains most; the new leaves are open next.

        Parameters
        ----------
        tried : the splits; those not asked for are not taken.
        counts, sums : (F, K, 2) and (F, K, 2, C).
        value : (F, K, 2, v) of the sides.

        Returns
        -------
        gain : mean over the leaves.
        """
        gain = np.full(tried.asked.shape, -np.inf)
        gain[tried.asked] = gains(counts[tried.asked], sums[tried.asked])
        best = gain.argmax(axis=1)
        f = np.flatnonzero(np.take_along_axis(gain, best[:, None], axis=1)[:, 0] > NOTHING)
        k, node, n = best[f], self.open[f], len(self.feature)
        covariate, cut = tried.covariate[f, k], tried.cut[f, k]
        below = n + np.arange(2 * len(f)).reshape(-1, 2)
        self._add(np.repeat(self.tree[node], 2), value[f, k].reshape(2 * len(f), value.shape[-1]))
        self.feature[node], self.threshold[node] = covariate, cut
        self.missing_left[node] = tried.missing_left[f, k]
        self.left[node], self.right[node] = below[:, 0], below[:, 1]
        place = self._place(covariate, cut)
        low, high = np.repeat(self.low[f], 2, axis=0), np.repeat(self.high[f], 2, axis=0)
        each = np.arange(len(f))
        high[2 * each, covariate] = place
        low[2 * each + 1, covariate] = place + 1
        self.open, self.low, self.high = below.ravel(), low, high
        return float(gain[f, k].sum()) / max(len(gain), 1)

    def _place(self, covariate: Array, cut: Array) -> Array:
        """Return the number of each threshold (m,) among those of its covariate."""
        out = np.zeros(len(cut), np.int16)
        for j in np.unique(covariate):
            own = covariate == j
            out[own] = np.searchsorted(self.cuts[j], cut[own])
        return out

    def _add(self, tree: Array, value: Array) -> None:
        """Add leaves to the arrays of nodes, which are new ones: calls hold the old."""
        m = len(tree)
        more = {
            "tree": tree, "feature": np.full(m, LEAF), "threshold": np.zeros(m),
            "left": np.full(m, -1), "right": np.full(m, -1), "missing_left": np.zeros(m),
            "value": value,
        }  # fmt: skip
        for name, new in more.items():
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, new.astype(old.dtype)]))

    def grown(self) -> Trees:
        """Return the trees, each one's nodes together."""
        order = np.argsort(self.tree, kind="stable")
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))

        def moved(child: Array) -> Array:
            return np.where(child < 0, -1, place[child])[order].astype(np.int32)

        return Trees(
            roots=place[self.roots],
            feature=self.feature[order],
            threshold=self.threshold[order],
            left=moved(self.left),
            right=moved(self.right),
            missing_left=self.missing_left[order],
            value=self.value[order],
        )

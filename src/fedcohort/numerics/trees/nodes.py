"""Binary decision trees as arrays of nodes, and the leaves that rows reach.

The nodes of all trees are concatenated, each tree's root first. A row goes left at a node if its
value of the node's covariate is below the threshold, and a missing value (NaN) goes as
`missing_left` says:

    left    x_j < t,  or x_j is missing and missing_left
    right   x_j ≥ t,  or x_j is missing and not missing_left

Values and thresholds are compared as float32, as XGBoost does (Chen and Guestrin, KDD 2016), so
that a tree sends a row the same way here and there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedcohort.arrays import Array

#: Feature of a leaf.
LEAF = -1
#: Rows whose leaves are found at a time.
BLOCK = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Trees:
    """T trees of N nodes in all.

    Attributes
    ----------
    roots : (T,) first node of each tree, ascending.
    feature : (N,) int32, the covariate that a node splits; `LEAF` in a leaf.
    threshold : (N,) float32; 0 in a leaf.
    left, right : (N,) int32, a node's children; -1 in a leaf.
    missing_left : (N,) bool; False in a leaf.
    value : (N, v) what the node predicts, in every node; v is 1 for a margin.
    """

    roots: Array
    feature: Array
    threshold: Array
    left: Array
    right: Array
    missing_left: Array
    value: Array

    def __len__(self) -> int:
        return len(self.roots)

    @property
    def leaf(self) -> Array:
        """Whether each node (N,) is a leaf."""
        return self.feature == LEAF

    def parts(self) -> list[slice]:
        """Return the nodes of each tree."""
        ends = [*self.roots[1:].tolist(), len(self.feature)]
        return [slice(a, b) for a, b in zip(self.roots.tolist(), ends, strict=False)]

    @property
    def tree_of(self) -> Array:
        """Return the tree (N,) of each node."""
        sizes = np.diff(np.append(self.roots, len(self.feature)))
        return np.repeat(np.arange(len(self)), sizes)

    def leaves(self, x: Array) -> Array:
        """Return the leaf (n, T) that each row of x (n, p) reaches in each tree."""
        x = np.asarray(x, np.float32)
        blocks = [self._leaves(x[i : i + BLOCK]) for i in range(0, len(x), BLOCK)]
        return np.concatenate([np.empty((0, len(self)), np.int64), *blocks])

    def _leaves(self, x: Array) -> Array:
        at = np.broadcast_to(self.roots, (len(x), len(self))).astype(np.int64)
        inner = ~self.leaf
        rows, trees = np.nonzero(inner[at])
        while len(rows):
            node = at[rows, trees]
            own = x[rows, self.feature[node]]
            goes = np.where(np.isnan(own), self.missing_left[node], own < self.threshold[node])
            node = np.where(goes, self.left[node], self.right[node])
            at[rows, trees] = node
            on = inner[node]
            rows, trees = rows[on], trees[on]
        return at

    def arrays(self) -> dict[str, Array]:
        """Return the fields by name, to save."""
        return {name: getattr(self, name) for name in Trees.__dataclass_fields__}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Return the trees of `arrays`."""
        return cls(**{name: arrays[name] for name in Trees.__dataclass_fields__})

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """Return all trees of several, in order."""
        shifts = np.cumsum([0, *(len(t.feature) for t in several[:-1])]).tolist()

        def moved(name: str) -> Array:
            return np.concatenate(
                [
                    np.where(getattr(t, name) < 0, -1, getattr(t, name) + shift)
                    for t, shift in zip(several, shifts, strict=True)
                ]
            ).astype(np.int32)

        rest = {
            name: np.concatenate([getattr(t, name) for t in several])
            for name in ("feature", "threshold", "missing_left", "value")
        }
        places = {name: moved(name) for name in ("roots", "left", "right")}
        return cls(**rest, **places)

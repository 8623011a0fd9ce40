"""Boosted trees: margins that trees add up to, and what each covariate adds.

With b_k the base margin of output k and v_t(x) the value of the leaf that x reaches in tree t:

    F_k(x) = b_k + Σ_{t of output k} v_t(x)

Margins are added in float64, tree by tree.

Importance has the names of XGBoost's `get_score`: over the nodes that split a covariate, `weight`
is their number, `total_gain` and `total_cover` are sums, `gain` and `cover` are means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedcohort.arrays import Array, ratio
from fedcohort.numerics.trees.nodes import BLOCK, LEAF, Trees

#: Most splits on a path from a root to a leaf.
DEEPEST = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class Ensemble:
    """T trees with one value per node, for K outputs.

    Attributes
    ----------
    trees : N nodes in all; `value` is (N, 1), in units of the margin.
    gain : (N,) change of the loss by a node's split; 0 in a leaf.
    cover : (N,) sum of the loss's second derivatives of the rows that reach a node.
    group : (T,) output of each tree, from 0 to K − 1.
    base : b (K,), margin of no trees.
    parallel : number of trees of each output in a round.
    """

    trees: Trees
    gain: Array
    cover: Array
    group: Array
    base: Array
    parallel: int = 1

    @property
    def round_of(self) -> Array:
        """Return the round of each tree (T,), from 0: earlier trees of its output / parallel."""
        order = np.argsort(self.group, kind="stable")
        group = self.group[order]
        out = np.empty(len(order), int)
        out[order] = np.arange(len(order)) - np.searchsorted(group, group)
        return out // self.parallel

    def first(self, rounds: int) -> Self:
        """Return the trees of the first rounds."""
        return self.part(self.round_of < rounds)

    def part(self, kept: Array) -> Self:
        """Return some of the trees, kept (T,) bool."""
        sizes = [part.stop - part.start for part in self.trees.parts()]
        nodes = np.repeat(kept, sizes)
        place = np.cumsum(nodes) - 1

        def cut(a: Array) -> Array:
            return np.where(a < 0, -1, place[a]).astype(np.int32)

        arrays = {name: a[nodes] for name, a in self.trees.arrays().items() if name != "roots"}
        arrays["roots"] = cut(self.trees.roots[kept])
        arrays |= {name: cut(arrays[name]) for name in ("left", "right")}
        return type(self)(
            trees=Trees.from_arrays(arrays), gain=self.gain[nodes], cover=self.cover[nodes],
            group=self.group[kept], base=self.base, parallel=self.parallel,
        )  # fmt: skip

    def margins(self, x: Array) -> Array:
        """Return F (n, K) of each row of x (n, p)."""
        out = np.tile(np.asarray(self.base, float), (len(x), 1))
        values = np.asarray(self.trees.value[:, 0], float)
        for start in range(0, len(x), BLOCK):
            block = slice(start, start + BLOCK)
            found = values[self.trees.leaves(x[block])]
            for t, k in enumerate(self.group.tolist()):
                out[block, k] += found[:, t]
        return out

    def importance(self, p: int) -> dict[str, Array]:
        """Return weight, gain, cover, total_gain and total_cover of p covariates: (p,) each.

        A mean over no nodes is NaN.
        """
        inner = ~self.trees.leaf
        at = self.trees.feature[inner]
        weight = np.bincount(at, minlength=p)
        gain, cover = (
            np.bincount(at, np.asarray(a[inner], float), p) for a in (self.gain, self.cover)
        )
        return {
            "weight": weight,
            "gain": ratio(gain, weight),
            "cover": ratio(cover, weight),
            "total_gain": gain,
            "total_cover": cover,
        }

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by name, to save."""
        own = {name: getattr(self, name) for name in ("gain", "cover", "group", "base")}
        if self.parallel > 1:
            own["parallel"] = np.array(self.parallel)
        return self.trees.arrays() | own

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], p: int) -> Self:
        """Return the ensemble of saved arrays.

        Parameters
        ----------
        p : number of covariates.

        Raises
        ------
        LookupError : an array is missing.
        ValueError : the arrays are no trees over p covariates.
        """
        own = {name: arrays[name] for name in ("gain", "cover", "group", "base")}
        several = np.asarray(arrays.get("parallel", 1))
        if several.shape or several.dtype.kind not in "iu" or several < 1:
            raise ValueError("the number of trees in a round is no whole number above 0")
        made = cls(trees=Trees.from_arrays(arrays), parallel=int(several), **own)
        made.check(p)
        return made

    def check(self, p: int) -> None:
        """Check that every path ends in a leaf, and that all numbers are in their range.

        Raises
        ------
        ValueError : they are not.
        """
        trees, n, outputs = self.trees, len(self.trees.feature), len(self.base)
        flat = (trees.feature, trees.threshold, trees.left, trees.right, trees.missing_left,
                self.gain, self.cover)  # fmt: skip
        if any(a.shape != (n,) for a in flat) or trees.value.shape != (n, 1):
            raise ValueError("arrays of nodes differ in length")
        whole = (trees.roots, trees.feature, trees.left, trees.right, self.group)
        if any(a.dtype.kind not in "iu" for a in whole):
            raise ValueError("numbers of nodes, covariates or outputs are not whole numbers")
        if any(a.dtype.kind not in "iuf" for a in (trees.threshold, trees.value, self.base)):
            raise ValueError("thresholds or values are not numbers")
        if self.base.ndim != 1 or not outputs or self.group.shape != trees.roots.shape:
            raise ValueError("outputs are not one for each tree")
        if self.group.size and not 0 <= self.group.min() <= self.group.max() < outputs:
            raise ValueError("a tree is of an output that does not exist")
        if n and not LEAF <= trees.feature.min() <= trees.feature.max() < p:
            raise ValueError("a node splits a covariate that does not exist")
        if (self.cover < 0).any():
            raise ValueError("the cover of a node is negative")
        if (depths(trees.roots, trees.left, trees.right) < 0).any():
            raise ValueError("no path reaches a node")
        if ((trees.left < 0) != trees.leaf).any():
            raise ValueError("a leaf splits a covariate")


def depths(roots: Array, left: Array, right: Array) -> Array:
    """Return the number of splits above each node (N,); -1 for a node that no path reaches.

    Parameters
    ----------
    roots : (T,) first node of each tree, ascending.
    left, right : (N,) children; -1 in a leaf.

    Raises
    ------
    ValueError : the first root is not node 0, or roots do not ascend; a node has one child, a child
        outside its tree, or one that another path reaches as well; or there are more than `DEEPEST`
        splits on a path.
    """
    roots, left, right = (np.asarray(a, np.int64) for a in (roots, left, right))
    n = len(left)
    if (n > 0) != (len(roots) > 0) or roots[:1].any() or (roots >= n).any():
        raise ValueError("the roots of the trees are no nodes")
    if (np.diff(roots) <= 0).any():
        raise ValueError("the roots of the trees do not ascend")
    ends = np.append(roots[1:], n)
    if ((left < 0) != (right < 0)).any():
        raise ValueError("a node has one child")
    depth = np.full(n, -1)
    at, tree = roots, np.arange(len(roots))
    for level in range(DEEPEST + 1):
        depth[at] = level
        on = left[at] >= 0
        at, tree = at[on], tree[on]
        if not len(at):
            return depth
        at, tree = np.concatenate([left[at], right[at]]), np.tile(tree, 2)
        if ((at <= roots[tree]) | (at >= ends[tree])).any():
            raise ValueError("a child is no node of its tree")
        if (depth[at] >= 0).any() or len(np.unique(at)) < len(at):
            raise ValueError("two paths lead to one node")
    raise ValueError(f"a path has more than {DEEPEST} splits")

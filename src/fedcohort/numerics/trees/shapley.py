"""Shapley values of trees (TreeSHAP, path-dependent), for all rows at once.

Lundberg et al., "From local explanations to global understanding with explainable AI for trees",
Nature Machine Intelligence 2, 2020, algorithm 2 (`tree_path_dependent`). A covariate that is not
known sends a row both ways, in proportion to `cover`. A leaf of value v has d covariates on its
path; covariate i is met by the row or not (o_i = 1 or 0), and without it the row goes on with the
share z_i of the cover. With t the share of covariates that are known (Owen, "Multilinear extensions
of games", Management Science 18, 1972), the value of covariate j is

    φ_j = Σ_leaves v (o_j − z_j) ∫₀¹ Π_{i≠j} (t o_i + (1 − t) z_i) dt                       (1)
    E   = Σ_leaves v Π_i z_i                                                               (2)

The integrand is a polynomial of degree d − 1. Gauss-Legendre quadrature with d/2 nodes integrates
it exactly, and all its terms are positive: nothing cancels. F(x) = E + Σ_j φ_j.

Values of a row are of one patient, and are as secret as the row. They need no other row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from fedcohort.arrays import Array
from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.nodes import Trees

#: Leaves × covariates × rows that are computed at a time.
CHUNK = 2**16
#: Stands for a share of 0, so that a product can be divided by it.
TINY = 1e-150


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths to L leaves with d covariates each.

    Attributes
    ----------
    leaf : (L,) nodes.
    feature : (L, d), distinct covariates of each path.
    low, high : (L, d) float32; the path takes low ≤ x_j < high.
    missing : (L, d), whether it takes a missing x_j.
    share : z (L, d).
    """

    leaf: Array
    feature: Array
    low: Array
    high: Array
    missing: Array
    share: Array

    def __getitem__(self, at: Array) -> Paths:
        return Paths(*(getattr(self, name)[at] for name in Paths.__dataclass_fields__))


def shapley(ensemble: Ensemble, x: Array) -> tuple[Array, Array]:
    """Return the Shapley values (n, K, p) of rows x (n, p), and E (K,), eqs. (1) and (2).

    Both are in units of the margin; margins are E + Σ_j φ_j.
    """
    x = compared(x)
    (n, p), outputs = x.shape, len(ensemble.base)
    trees = ensemble.trees
    tree_of = trees.tree_of
    out = np.zeros((outputs * p, n))
    expected = np.asarray(ensemble.base, float).copy()
    for paths in paths_to_leaves(trees, ensemble.cover):
        group = np.asarray(ensemble.group)[tree_of[paths.leaf]]
        value = np.asarray(trees.value[paths.leaf, 0], float)
        expected += np.bincount(group, value * paths.share.prod(axis=1), outputs)
        if paths.feature.shape[1]:
            _add(out, x, paths, value, group)
    return out.reshape(outputs, p, n).transpose(2, 0, 1), expected


def _add(out: Array, x: Array, paths: Paths, value: Array, group: Array) -> None:
    """Add eq. (1) over leaves of paths of the same length to `out` (K p, n)."""
    (n, p), (leaves, d) = x.shape, paths.feature.shape
    rows = min(max(n, 1), 1024)
    step = max(1, CHUNK // (rows * d))
    points, weights = np.polynomial.legendre.leggauss((d + 1) // 2)
    points, weights = (points + 1) / 2, weights / 2
    for first in range(0, leaves, step):
        part = slice(first, first + step)
        at = paths.feature[part]
        z = np.maximum(paths.share[part], TINY)[:, :, None]
        place = (group[part, None] * p + at).ravel()
        adds = csr_array(
            (np.repeat(value[part], d), (place, np.arange(at.size))), shape=(len(out), at.size)
        )
        low, high, missing = (a[part][:, :, None] for a in (paths.low, paths.high, paths.missing))
        for start in range(0, n, rows):
            met = taken(x[start : start + rows].T[at], low, high, missing).astype(float)
            total, factor = np.zeros(met.shape), np.empty(met.shape)
            for t, w in zip(points.tolist(), weights.tolist(), strict=True):
                np.multiply(met, t, out=factor)
                factor += (1 - t) * z
                product = w * factor.prod(axis=1)
                np.divide(product[:, None, :], factor, out=factor)
                total += factor
            met -= z
            total *= met
            out[:, start : start + rows] += adds @ total.reshape(at.size, -1)


def paths_to_leaves(trees: Trees, cover: Array) -> Iterator[Paths]:
    """Yield the paths to all leaves, those with the same number of covariates together."""
    leaves = np.flatnonzero(trees.leaf)
    parent = np.full(len(trees.feature), -1)
    inner = np.flatnonzero(~trees.leaf)
    parent[trees.left[inner]] = inner
    parent[trees.right[inner]] = inner
    share = _shares(trees, cover, inner)
    of, nodes, own = np.arange(len(leaves)), parent[leaves], leaves
    steps: list[tuple[Array, Array, Array]] = []
    while len(of := of[on := nodes >= 0]):
        own, nodes = own[on], nodes[on]
        steps.append((of, nodes, own))
        own, nodes = nodes, parent[nodes]
    if not steps:
        none = np.zeros((len(leaves), 0))
        yield Paths(leaves, none.astype(int), none, none, none.astype(bool), none)
        return
    leaf, node, child = (np.concatenate(a) for a in zip(*steps, strict=True))
    order = np.lexsort((trees.feature[node], leaf))
    leaf, node, child = leaf[order], node[order], child[order]
    feature, goes = trees.feature[node], child == trees.left[node]
    new = np.r_[True, (leaf[1:] != leaf[:-1]) | (feature[1:] != feature[:-1])]
    start = np.flatnonzero(new)
    threshold = np.asarray(trees.threshold, np.float32)[node]
    low = np.maximum.reduceat(np.where(goes, np.float32(-np.inf), threshold), start)
    high = np.minimum.reduceat(np.where(goes, threshold, np.float32(np.inf)), start)
    missing = np.logical_and.reduceat(trees.missing_left[node] == goes, start)
    shares = np.multiply.reduceat(share[child], start)
    feature, leaf = feature[start], leaf[start]
    count = np.bincount(leaf, minlength=len(leaves))
    for d in np.unique(count).tolist():
        kept, which = count[leaf] == d, np.flatnonzero(count == d)
        split = (a[kept].reshape(len(which), d) for a in (feature, low, high, missing, shares))
        yield Paths(leaves[which], *split)


def compared(x: Array) -> Array:
    """Return x as trees compare it: float32, below the open end of a path."""
    return np.minimum(np.asarray(x, np.float32), np.finfo(np.float32).max)


def taken(x: Array, low: Array, high: Array, missing: Array) -> Array:
    """Return whether paths take values x, see `Paths`; all of one shape, or broadcast."""
    return ((x >= low) & (x < high)) | (missing & np.isnan(x))


def _shares(trees: Trees, cover: Array, inner: Array) -> Array:
    """Return each node's share (N,) of the cover of its parent's children; half without cover."""
    cover = np.asarray(cover, float)
    one, other = trees.left[inner], trees.right[inner]
    both = cover[one] + cover[other]
    share = np.ones(len(cover))
    share[one] = np.divide(cover[one], both, out=np.full(len(inner), 0.5), where=both > 0)
    share[other] = 1 - share[one]
    return share

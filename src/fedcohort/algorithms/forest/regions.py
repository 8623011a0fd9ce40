"""Counts and sums of a site's rows over the regions of many trees at once.

A region is a leaf, or a side of a split that is tried there. For each row, tree and tried split the
side is found by comparison; the sums of all regions are one `bincount` each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from fedcohort.algorithms.forest import draws
from fedcohort.algorithms.forest.outcome import Target
from fedcohort.arrays import Array
from fedcohort.data.tables import remembered
from fedcohort.numerics.trees.nodes import LEAF, Trees
from fedcohort.protocol import Refused, Site

#: Rows times trees that are looked at together.
BLOCK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Splits tried at F leaves, K each.

    Attributes
    ----------
    nodes : (F,) the leaves.
    covariate, cut, missing_left : (F, K) of the splits, as in `Trees`.
    asked : (F, K) whether a split is asked for.
    """

    nodes: Array
    covariate: Array
    cut: Array
    missing_left: Array
    asked: Array

    def arrays(self) -> dict[str, Array]:
        """Return the fields by name, as arguments of a step."""
        return {name: getattr(self, name) for name in Tried.__dataclass_fields__}


@dataclass(frozen=True)
class _Rows:
    """A site's table as trees see it: x (n, p) float32, and h(k + i) (n,)."""

    x: Array
    noise: Array


def checked(site: Site[Any, Any], trees: Trees) -> Trees:
    """Return trees that a coordinator sent, if rows can go down in them.

    Raises
    ------
    Refused : "trees": arrays of different lengths, covariates that there are not, or nodes that are
        their own ancestors or have two parents.
    """
    n, p = len(trees.feature), np.shape(site.data.x)[1]
    nodes = np.arange(n)
    inner = trees.feature != LEAF
    fine = (
        all(np.shape(a) == (n,) for k, a in trees.arrays().items() if k not in ("roots", "value"))
        and n > 0
        and all(_within(a, n) for a in (trees.roots, trees.left[inner], trees.right[inner]))
        and _within(trees.feature[inner], p)
        and bool((trees.left[inner] > nodes[inner]).all())
        and bool((trees.right[inner] > nodes[inner]).all())
        and _once(np.concatenate([trees.roots, trees.left[inner], trees.right[inner]]))
    )
    if not fine:
        raise Refused("trees", _told(site, "trees whose nodes do not fit together"))
    return trees


def checked_tried(site: Site[Any, Any], tried: Tried, trees: Trees) -> Tried:
    """Return splits that a coordinator asks for, if they are of leaves of the trees.

    Raises
    ------
    Refused : "trees": arrays of different shapes, or covariates or leaves that there are not.
    """
    p, shape = np.shape(site.data.x)[1], np.shape(tried.covariate)
    parts = (tried.cut, tried.missing_left, tried.asked)
    fine = (
        len(shape) == 2
        and np.shape(tried.nodes) == shape[:1]
        and all(np.shape(a) == shape for a in parts)
        and _within(tried.nodes, len(trees.feature))
        and _once(tried.nodes)
        and bool(trees.leaf[tried.nodes].all())
        and _within(tried.covariate, p)
    )
    if not fine:
        raise Refused("trees", _told(site, "splits that are not of leaves of the trees"))
    return tried


def _within(a: Array, n: int) -> bool:
    """Return whether these are whole numbers from 0 to n − 1."""
    a = np.asarray(a)
    return a.dtype.kind in "iu" and bool(((a >= 0) & (a < n)).all())


def _once(a: Array) -> bool:
    """Return whether no number is there twice."""
    return len(np.unique(a)) == len(a)


def _told(site: Site[Any, Any], what: str) -> str:
    return (
        f"site {site.name!r} is asked for sums over {what}, and answers none. The coordinator must "
        f"run the same version."
    )


def tried_sums(
    site: Site[Any, Any], trees: Trees, tried: Tried, parts: int, target: Target | None
) -> tuple[Array, Array]:
    """Return counts (F, K, 2) of the drawn rows left and right, and their sums (F, K, 2, C).

    Splits that are not asked for have zeros.

    Parameters
    ----------
    parts : see `draws.drawn`.
    target : of the sums; None: they have no columns.
    """
    f, k = tried.covariate.shape
    width = 0 if target is None else target.classes
    counts = np.zeros((k, f * 2), np.int64)
    sums = np.zeros((k, f * 2, width), np.int64)
    data, key = _rows(site), draws.secret(site)
    below = draws.of_children(
        draws.of_nodes(key, trees)[tried.nodes][:, None], tried.covariate, tried.cut,
        tried.missing_left,
    )  # fmt: skip
    chosen = None if target is None else target.selected(site.data)
    for rows, at in _active(site, trees, tried.nodes):
        for j in range(k):
            on = tried.asked[at, j]
            some = slice(None) if on.all() else on
            r, node = rows[some], at[some]
            values = data.x[r, tried.covariate[node, j]]
            left = np.where(
                np.isnan(values), tried.missing_left[node, j], values < tried.cut[node, j]
            )
            region = node * 2 + ~left
            kept = draws.drawn(below[node, j, region & 1], data.noise[r], parts)
            region, r = region[kept], r[kept]
            counts[j] += np.bincount(region, minlength=2 * f)
            if chosen is not None:
                sums[j] += _summed(region, chosen[r], 2 * f, width)
    shape = (k, f, 2)
    return (
        np.moveaxis(counts.reshape(shape), 0, 1),
        np.moveaxis(sums.reshape(*shape, width), 0, 1),
    )


def leaf_sums(
    site: Site[Any, Any], trees: Trees, nodes: Array, parts: int, target: Target
) -> tuple[Array, Array]:
    """Return counts (L,) of the drawn rows of leaves, and their sums (L, W).

    W columns by class, one of values, or deaths and leavers by interval (`Target.width`). Of a tree
    without a split all rows are in the sum.
    """
    n = len(nodes)
    counts = np.zeros(n, np.int64)
    sums = np.zeros((n, target.width), np.int64)
    data, keys = _rows(site), draws.of_nodes(draws.secret(site), trees)[nodes]
    whole = np.isin(nodes, trees.roots)
    t = len(target.times)
    slot = dies = chosen = None
    if target.kind == "event":
        slot, dies = target.on_grid(site.data)
    else:
        chosen = target.selected(site.data)
    for rows, at in _active(site, trees, nodes):
        kept = whole[at] | draws.drawn(keys[at], data.noise[rows], parts)
        r, region = rows[kept], at[kept]
        counts += np.bincount(region, minlength=n)
        if chosen is not None:
            sums += _summed(region, chosen[r], n, target.width)
        elif slot is not None and dies is not None:
            seen = slot[r] >= 0
            cell = region[seen] * 2 * t + slot[r][seen]
            cells = [cell[dies[r][seen]], cell + t]
            sums += np.bincount(np.concatenate(cells), minlength=n * 2 * t).reshape(n, 2 * t)
    return counts, sums


def _summed(region: Array, chosen: Array, n: int, width: int) -> Array:
    """Return sums (n, width) by region of labels, or of values if the width is 1."""
    if width > 1:
        return np.bincount(region * width + chosen, minlength=n * width).reshape(n, width)
    total = np.bincount(region, chosen.astype(float), minlength=n)  # whole numbers below 2^53
    return np.rint(total).astype(np.int64)[:, None]


def _rows(site: Site[Any, Any]) -> _Rows:
    def made() -> _Rows:
        x = np.asarray(site.data.x, np.float32)
        return _Rows(x, draws.of_rows(draws.secret(site), len(x)))

    return remembered(site.data, ("forest rows", site.entropy[:2]), made)


def _active(site: Site[Any, Any], trees: Trees, nodes: Array) -> Iterator[tuple[Array, Array]]:
    """Yield, a few trees at a time, rows (m,) and the place in `nodes` of the leaf they are in."""
    at = _leaves(site, trees)
    place = np.full(len(trees.feature), -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    step = max(1, BLOCK // max(1, len(at)))
    for first in range(0, at.shape[1], step):
        found = place[at[:, first : first + step]]
        rows, columns = np.nonzero(found >= 0)
        yield rows, found[rows, columns]


def _leaves(site: Site[Any, Any], trees: Trees) -> Array:
    """Return the leaf (n, T) of each row; those of the latest trees are kept for the next step."""
    kept: dict[str, Any] = remembered(site.data, "forest leaves", dict[str, Any])
    parts = (trees.roots, trees.feature, trees.threshold, trees.left, trees.missing_left)
    found = blake2b(b"".join(np.ascontiguousarray(a).tobytes() for a in parts)).digest()
    if kept.get("trees") != found:
        kept["at"], kept["trees"] = trees.leaves(_rows(site).x), found
    return kept["at"]

"""Strategies bagging and cyclic: trees that sites grow on their own rows.

As in Flower's `FedXgbBagging` and `FedXgbCyclic`. In a round a site boosts `local_trees` trees, for
each class, from the common margins F, by XGBoost's rules on its own rows and the common grid:

    bagging   F ← F + Σ_k (n_k/n) ΔF_k   of all sites k, each with n_k of n training rows        (1)
    cyclic    F ← F + ΔF_k               of one site k: sites take turns, in order of their names

Flower adds ΔF_k in full by default, which multiplies η by the number of sites; with (1) the step of
K sites is that of their mean, and sites of equal size have η/K, as with Flower's `scaled-lr`. One
site's trees are those of the pooled booster.

For cox the common d/S₀ of the round's start is used, so a first tree's gradients are those of the
pooled partial likelihood.

Revealed: `LocalTrees` of each site in its turn: its number of rows, all splits, and the values,
gains and Σh of all nodes, of its own rows alone. Each node has at least m of its rows
(`models.fewest`), but groups of different trees overlap, and differences may be of few rows.
Σh shows the size of a group, and values show its classes (Di Gennaro et al., "TimberStrike", 2025).
Other sites get the splits and values. A site with fewer rows sends trees without a split, of value
0. `Root`, as a sum over sites, has the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.algorithms.boosting import arguments
from fedcohort.algorithms.boosting.growth import Groups, Histograms, Shape, Tree, first_level, grow
from fedcohort.algorithms.boosting.objectives import FARTHEST, pulls
from fedcohort.algorithms.boosting.steps import (
    BoostingSite,
    Growing,
    extent,
    moved,
    outcome_of,
    sums_in,
    weights_of,
)
from fedcohort.arrays import Array
from fedcohort.numerics.trees import histogram
from fedcohort.numerics.trees.ensemble import depths
from fedcohort.numerics.trees.splits import Cells, Rule
from fedcohort.protocol import DataError, Refused, gathered, message


@message
class LocalTrees:
    """T trees of a site with ``rows`` () training rows; tree t is of class t mod K.

    ``moves`` (m, 6) are the splits (see `steps`); ``sizes`` (T,) the numbers of nodes; ``value``,
    ``gain`` and ``cover`` (N,) of all nodes, tree by tree. Values include η.
    """

    rows: Array
    moves: Array
    sizes: Array
    value: Array
    gain: Array
    cover: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        moves, sizes, ends = self.moves, self.sizes, asked["ends"]
        if self.rows.shape or moves.ndim != 2 or moves.shape[1:] != (6,):
            return "rows or splits of other shapes than () and (m, 6)."
        if moves.dtype.kind not in "iu" or sizes.dtype.kind not in "iu":
            return "splits or sizes that are not whole numbers."
        if sizes.shape != (asked["trees"] * len(ends),):
            return "another number of trees than asked for."
        most = 2 ** (asked["depth"] + 1) - 1
        if ((sizes < 1) | (sizes > most)).any() or len(moves) != (sizes - 1).sum() // 2:
            return "trees of another size than asked for."
        if any(a.shape != (int(sizes.sum()),) for a in (self.value, self.gain, self.cover)):
            return "other numbers of nodes than their sizes."
        if why := _splits_fault(moves, sizes, ends, asked["depth"]):
            return why
        if (self.gain < 0).any() or (self.cover < 0).any():
            return "a gain or a cover below 0."
        return "" if (np.abs(self.value) <= asked["farthest"]).all() else "a value that is too far."


def _splits_fault(moves: Array, sizes: Array, ends: Array, depth: int) -> str:
    """Return the fault of splits, or ""; the result of trees without one can be walked."""
    tree, node, feature, cut, missing_left, left = moves.T
    if ((tree < 0) | (tree >= len(sizes))).any():
        return "a split of a tree that does not exist."
    size = sizes[tree]
    if ((node < 0) | (left <= node) | (left + 1 >= size)).any():
        return "a split whose nodes do not exist."
    if ((feature < 0) | (feature >= ends.shape[1]) | (cut < 0) | (cut >= ends.shape[2])).any():
        return "a split by a covariate or a bin that does not exist."
    if (
        not ends[tree % len(ends), feature, cut].all()
        or ((missing_left != 0) & (missing_left != 1)).any()
    ):
        return "a split that was not asked for."
    roots = np.cumsum(sizes) - sizes
    at = roots[tree] + node
    if len(np.unique(at)) < len(at):
        return "two splits of one node."
    first = np.full(int(sizes.sum()), -1, np.int64)
    first[at] = roots[tree] + left
    try:
        found = depths(roots, first, np.where(first < 0, -1, first + 1))
    except ValueError as error:
        return f"no tree: {error}."
    if (found < 0).any():
        return "no tree: no path reaches a node."
    return "a tree deeper than asked for." if found.max(initial=0) > depth else ""


@gathered
def grow_trees(
    site: BoostingSite, *, trees: int, depth: int, rate: float, rule: Array, monotone: Array,
    groups: Array, ends: Array, bits: int, least: int, objective: str, sigma: float,
    class_weight: Array, times: Array, together: bool, hazard: Array, squares: Array,
    farthest: float,
) -> LocalTrees:  # fmt: skip
    """Grow trees on the site's own rows, from the common margins.

    trees : number for each class. rate : η. rule : see `Rule.numbers`. ends (K, p, B) : bins after
    which a node of a class may be split. least : fewest rows of a node. farthest : largest value.
    """
    state = site.state
    if state is None:
        raise DataError(
            f"site {site.name!r} has begun no trees for these rows. Start the fit again."
        )
    n, classes = int((~state.held).sum()), len(ends)
    roots = np.column_stack([np.arange(classes), np.zeros(classes, np.int64)])
    arguments.check_asked(site.name, roots, ends, *extent(state))
    arguments.check_pull(site.name, objective, sigma, 1.0, class_weight, state.margin.shape[1])
    arguments.check_times(site.name, times, hazard, squares)
    if state.used.sum() < max(least, 1):
        nothing, one = np.zeros(trees * classes), np.ones(trees * classes, np.int64)
        return LocalTrees(np.array(0), np.zeros((0, 6), np.int64), one, nothing, nothing, nothing)
    shape = Shape(
        edges=state.edges, rule=Rule.of(rule, monotone, least), depth=depth, rate=rate,
        groups=groups.astype(bool),
    )  # fmt: skip
    weight = weights_of(site.data, class_weight)
    of = outcome_of(site.data, classes, sigma, times, hazard, squares, together=together)
    grown: list[Tree] = []
    for number in range(trees):
        if number:
            g, h, _ = pulls(objective, state.margin, of, weight)
            state = replace(
                state, gradient=histogram.whole(g, bits), hessian=histogram.whole(h, bits)
            )
        state = replace(state, node=np.zeros_like(state.margin, np.int64))
        own = OwnRows(site, state)
        level = first_level(Cells.of(sums_in(site, state, roots, ends), ends))
        found, moves = grow(Histograms(own, shape, bits), shape, level, bits)
        for tree in found:
            values = np.array(tree.weight, np.float32)
            tree.weight = np.clip(values, -farthest, farthest).tolist()
        margin = state.margin.copy()
        state = moved(replace(site, state=own.state), moves)
        for k, tree in enumerate(found):
            margin[:, k] += np.array(tree.weight)[state.node[:, k]]
        state = replace(state, margin=margin)
        grown += found
    gain, cover = ([x for tree in grown for x in getattr(tree, k)] for k in ("gain", "cover"))
    return LocalTrees(
        rows=np.array(n),
        moves=moves_of(grown),
        sizes=np.array([len(tree.feature) for tree in grown]),
        value=np.array([w for tree in grown for w in tree.weight], np.float32),
        gain=np.array(gain, np.float32),
        cover=np.array(cover, np.float32),
    )


STEPS = (grow_trees,)


@dataclass
class OwnRows:
    """Sums over a site's own rows, which stay there."""

    site: BoostingSite
    state: Growing

    def cells(self, moves: Array, asked: Array, parent: Cells) -> Groups:
        """Return the sums; the site itself may know any."""
        self.state = moved(replace(self.site, state=self.state), moves)
        return sums_in(self.site, self.state, asked, parent.ends), parent.ends


def received(told: Sequence[LocalTrees], shape: Shape, rows: int, *, weighted: bool) -> list[Tree]:
    """Return the trees of sites.

    Parameters
    ----------
    rows : of all sites, which they told before.
    weighted : whether values are scaled by the site's share of the rows, eq. (1).

    Raises
    ------
    Refused : the sites have more rows than they told before, of which shares follow.
    """
    n = max(sum(int(one.rows) for one in told), 1)
    if n > rows:
        raise Refused(
            "counts",
            f"sites have {n} rows with their trees, and had {rows} before. A site sent wrong "
            f"numbers, by a fault or on purpose. Let each site compare its rows with `fedcohort "
            f"data check`, and run the same version.",
        )
    out: list[Tree] = []
    for one in told:
        share = int(one.rows) / n if weighted else 1.0
        ends = np.cumsum(one.sizes).tolist()
        starts = [0, *ends[:-1]]
        for t, (a, b) in enumerate(zip(starts, ends, strict=True)):
            tree = Tree()
            for w, cover in zip(one.value[a:b].tolist(), one.cover[a:b].tolist(), strict=True):
                tree.add(share * w, cover)
            tree.gain = one.gain[a:b].tolist()
            for _, node, feature, cut, goes, left in one.moves[one.moves[:, 0] == t].tolist():
                tree.split(node, feature, cut, shape.threshold(feature, cut), bool(goes), left)
            out.append(tree)
    return out


def moves_of(trees: Sequence[Tree]) -> Array:
    """Return the splits of trees as moves (m, 6)."""
    found = [
        [t, node, tree.feature[node], tree.cut[node], int(tree.missing_left[node]), left]
        for t, tree in enumerate(trees)
        for node, left in enumerate(tree.left)
        if left >= 0
    ]
    return np.array(found, np.int64).reshape(-1, 6)


def farthest(objective: str, loss: float) -> float:
    """Return the largest value of a leaf, in float32.

    Margins beyond `FARTHEST` are cut. Values of squared error have the outcome's unit, and their
    limit is that number of root summed squares.

    Parameters
    ----------
    loss : Σ w · loss of the training rows.
    """
    scale = max(1.0, loss**0.5) if objective == "squared" else 1.0
    return float(np.float32(FARTHEST * scale))

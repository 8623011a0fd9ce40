"""Strategy top-s: sites propose splits, and the coordinator takes the one with most votes.

GenoMed4All D6.2, section 10.2. For each node, each site p ranks the splits of the common grid by
their gains L on its own rows (`numerics.trees.splits`), and proposes the S best. The coordinator
takes

    argmax_s Σ_p N_p L_{s,p},   N_p rows of the node at site p                              (1)

where a split that a site does not propose counts as 0 there. A site sends N_p L as one number, so
neither is seen by itself. Sums of Σg, Σh and rows of the left child follow, over all sites; of the
right one by subtraction. They give the leaves' weights w = −G/(H + λ) (the minus is missing in
D6.2), and the gain that the split has over all sites: it must also keep the rules there, or the
node stays a leaf. This is not lossless: a split that is good over all sites may be among the best
of none.

A site without missing values in a node says which side the larger child is. Its vote counts for
both sides; on a tie the missing values go to the side of the larger vote.

Revealed: `Proposals` of each site, for each level of a tree: which splits are best there, and their
votes. A site proposes only splits with at least m of its own rows on each side
(`models.fewest`), and none or at least m rows between two splits by one covariate. `Sides`, as
sums over sites: each child has at least m rows, since a site that proposes it has. Not protected:
votes of several splits of one node are equations in the sums of its groups of m rows or more; and a
site that lies can propose a split with few rows of others, as it can count rows wrongly for
`histogram`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.algorithms.boosting import arguments
from fedcohort.algorithms.boosting.growth import NO_MOVES, Level, Shape, both_children
from fedcohort.algorithms.boosting.steps import (
    BoostingSite,
    Growing,
    bins_of,
    extent,
    moved,
    places,
    sums_in,
)
from fedcohort.arrays import Array
from fedcohort.numerics.trees import histogram, splits
from fedcohort.numerics.trees.splits import Cells, Rule
from fedcohort.protocol import Federation, Keep, check_all_answered, gathered, message, summed

#: Where missing values go: right, left; or either, with the larger child right, or left.
RIGHT, LEFT, LARGER_RIGHT, LARGER_LEFT = range(4)


@message
class Proposals:
    """A site's best splits (m, 4): asked node, covariate, bin, and side of missing values (0 … 3).

    ``votes`` (m,) is N_p L of each.
    """

    splits: Array
    votes: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        found, allowed = self.splits, asked["ends"]
        if found.ndim != 2 or found.shape[1:] != (4,) or self.votes.shape != found.shape[:1]:
            return "splits and votes of other shapes than (m, 4) and (m,)."
        if found.dtype.kind not in "iu" or self.votes.dtype.kind != "f":
            return "splits that are not whole numbers, or votes that are."
        most = [*allowed.shape, 4]
        if len(found) and ((found < 0) | (found >= most)).any():
            return "a split of a node, covariate or bin that does not exist."
        node, feature, cut, _ = found.T
        if not (allowed[node, feature, cut] & allowed[node, feature, :-1].any(axis=1)).all():
            return "a split that was not asked for."
        if (np.bincount(node, minlength=1) > asked["most"]).any():
            return "more splits of a node than asked for."
        if len(np.unique(found[:, :3] * 2 + (found[:, 3:] == LEFT), axis=0)) < len(found):
            return "one split twice."
        return "" if (self.votes > 0).all() else "a vote that is not above 0."


@message
class Sides:
    """Σg and Σh, in multiples of 2^-b, and rows (A, 3) of the left child of each split."""

    left: Array


@gathered
def propose(
    site: BoostingSite, *, moves: Array, asked: Array, ends: Array, low: Array, high: Array,
    rule: Array, monotone: Array, bits: int, most: int, least: int,
) -> Keep[Proposals, Growing]:  # fmt: skip
    """Move rows to the children of their nodes; propose the best splits of the asked nodes.

    asked (A, 2) : tree and node. ends (A, p, B) : bins after which a node may be split. low, high
    (A,) : bounds of the weights. rule : see `Rule.numbers`. most : splits of a node. least : fewest
    rows of each side, and between two splits by one covariate.
    """
    state = moved(site, moves)
    arguments.check_asked(site.name, asked, ends, *extent(state))
    every = np.ones_like(ends)
    told = sums_in(site, state, asked, every)
    cells, known = Cells.of(told, every), ends
    if least > 1:
        known = ends & splits.joined(told[:, 2], splits.alone(told[:, 2], every), least)
    found, gain = splits.ranked(
        Cells(cells.rows, cells.sums, known), bits, Rule.of(rule, monotone, least),
        np.ones(ends.shape[:2], bool), low, high, most,
    )  # fmt: skip
    return Keep(Proposals(found, gain * cells.size[found[:, 0]]), state)


@summed
def sum_sides(site: BoostingSite, *, moves: Array, chosen: Array) -> Keep[Sides, Growing]:
    """Move rows to the children of their nodes; sum their gradients in the left part of splits.

    chosen (A, 6) : splits in the form of moves, of each node at most one.
    """
    state = moved(site, moves)
    arguments.check_moves(site.name, chosen, *extent(state))
    bins = bins_of(site, state)
    out = np.zeros((len(chosen), 3), np.int64)
    for k, which, at in places(state, chosen[:, :2]):
        rows = np.flatnonzero(at >= 0)
        node = at[rows]
        goes = histogram.goes_left(bins, rows, chosen[which], node)
        rows, node = rows[goes], node[goes]
        np.add.at(out[which], node, np.column_stack(
            [state.gradient[rows, k], state.hessian[rows, k], np.ones(len(rows), np.int64)]
        ))  # fmt: skip
    return Keep(Sides(out), state)


STEPS = (propose, sum_sides)


@dataclass(frozen=True)
class Voted:
    """Splits that sites propose.

    Attributes
    ----------
    ends : (K, p, B), bins after which a node of each tree may be split.
    most : S.
    """

    fed: Federation
    shape: Shape
    bits: int
    ends: Array
    most: int

    def best(self, level: Level, allowed: Array, moves: Array) -> tuple[splits.Splits, Array]:
        """Return the elected split of each node; rows have made the moves."""
        rule, asked = self.shape.rule, np.column_stack([level.tree, level.node])
        ends = self.ends[level.tree] & allowed[..., None]
        ends[..., -1] = True
        told = self.fed.gather(
            propose, moves=moves, asked=asked, ends=ends,
            low=level.low, high=level.high, rule=rule.numbers, monotone=rule.monotone,
            bits=self.bits, most=self.most, least=rule.min_rows,
        )  # fmt: skip
        check_all_answered(self.fed)
        node, feature, cut, missing_left = elected(list(told.values())).T
        chosen = np.column_stack([asked[node], feature, cut, missing_left, asked[node, 1] + 1])
        left = np.zeros((len(asked), 3), np.int64)
        if len(node):
            left[node] = self.fed.sum(sum_sides, moves=NO_MOVES, chosen=chosen).left
        places = np.zeros((len(asked), 3), np.int64)
        places[node] = np.column_stack([feature, cut, missing_left])
        return self._splits(level, left, places), NO_MOVES

    def _splits(self, level: Level, left: Array, places: Array) -> splits.Splits:
        """Return the splits with their sums over all sites; one that breaks a rule has no gain."""
        rule, unit, cells = self.shape.rule, 2.0**-self.bits, level.cells
        inner, rows = left[:, :2], left[:, 2]
        other = cells.total - inner
        whole = cells.total * unit
        score = rule.score(whole[:, 0], whole[:, 1], level.low, level.high)
        gain = rule.gain(inner * unit, other * unit, score, places[:, 0], level.low, level.high)
        large = np.minimum(rows, cells.size - rows) >= rule.min_rows
        gain = np.where(large, gain, -np.inf)
        feature, cut, missing_left = places.T
        return splits.Splits(gain, feature, cut, missing_left > 0, inner, other, rows)

    def children(
        self, level: Level, found: splits.Splits, moves: Array, bounds: Array
    ) -> tuple[Level, Array]:
        """Return the children that may be split, and the same moves."""
        return both_children(level, found, moves, bounds, self.shape.rule), moves


def elected(told: list[Proposals]) -> Array:
    """Return the split of eq. (1) of each node that has one: (m, 4) node, covariate, bin, left.

    Of equal votes the first covariate's; of these missing values right, and the lowest bin; then
    missing values left, and the highest bin.
    """
    found = np.concatenate([np.zeros((0, 4), np.int64), *(one.splits for one in told)])
    votes = np.concatenate([np.zeros(0), *(one.votes for one in told)])
    if not len(found):
        return found
    key, place = np.unique(found[:, :3], axis=0, return_inverse=True)
    by_side = np.zeros((len(key), 4))
    np.add.at(by_side, (place.ravel(), found[:, 3]), votes)
    either = by_side[:, LARGER_RIGHT] + by_side[:, LARGER_LEFT]
    total = by_side[:, [RIGHT, LEFT]] + either[:, None]
    out: list[list[int]] = []
    for node in np.unique(key[:, 0]).tolist():
        at = np.flatnonzero(key[:, 0] == node)
        best = zip(*(a.tolist() for a in np.nonzero(total[at] == total[at].max())), strict=True)
        ties = [(*key[at[row], 1:].tolist(), side, at[row]) for row, side in best]
        feature, cut, side, row = min(ties, key=lambda t: (t[0], t[2], -t[1] if t[2] else t[1]))
        if total[row, 0] == total[row, 1]:
            side = int(by_side[row, LARGER_LEFT] >= by_side[row, LARGER_RIGHT])
        out.append([node, feature, cut, side])
    return np.array(out, np.int64)

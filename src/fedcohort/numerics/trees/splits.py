"""The best split of a node from its histogram, as in XGBoost; and bins joined until none is small.

Chen and Guestrin, "XGBoost", KDD 2016, eqs. (5) to (7). With G and H the sums of gradients and
hessians of a node, and T_α(G) = sign(G) max(|G| − α, 0),

    weight   w = −T_α(G)/(H + λ),  cut to the node's bounds and to ± `max_delta_step`       (1)
    score    s = T_α(G)²/(H + λ);  where w was cut, −(2 G w + (H + λ) w² + 2 α |w|)         (2)
    gain     s_left + s_right − s_node                                                      (3)

A row whose value is missing goes left or right, whichever gains more. The split with the largest
gain is taken; of equal gains the first covariate's, and of these the lowest edge.

Sums are prefix sums over bins. `ends` marks bins that close a group: only there the sums are known,
so only there a node can be split. `joined` closes a group once both of two sibling nodes have no
row or at least m rows in it, so that no sum over a group, nor a difference of two, is over
1 to m − 1 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.trees.histogram import compiled

#: Smallest gain of a split, as in XGBoost.
LEAST_GAIN = 1e-6


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Rules of splitting.

    Attributes
    ----------
    l2, l1 : λ and α of eq. (1).
    gamma : smallest gain of a split.
    min_hessian : smallest H of a child.
    min_rows : smallest number of rows of a child.
    max_delta_step : largest absolute weight before the learning rate; 0 for none.
    monotone : (p,) 1 for a covariate whose effect may only rise, −1 for only fall, 0 for neither.
    """

    l2: float
    l1: float
    gamma: float
    min_hessian: float
    min_rows: int
    max_delta_step: float
    monotone: Array

    @property
    def numbers(self) -> Array:
        """λ, α, γ, `min_hessian` and `max_delta_step`, (5,)."""
        return np.array([self.l2, self.l1, self.gamma, self.min_hessian, self.max_delta_step])

    @classmethod
    def of(cls, numbers: Array, monotone: Array, min_rows: int) -> Rule:
        """Return the rule of `numbers` (5,)."""
        l2, l1, gamma, min_hessian, step = numbers.tolist()
        return cls(
            l2=l2, l1=l1, gamma=gamma, min_hessian=min_hessian, min_rows=min_rows,
            max_delta_step=step, monotone=monotone,
        )  # fmt: skip

    def weight(self, g: Array, h: Array, low: Array | float, high: Array | float) -> Array:
        """Return the weight of eq. (1), of sums of any shape, within bounds."""
        with np.errstate(divide="ignore", invalid="ignore"):
            w = -self._shrunk(g) / (h + self.l2)
        w = np.where(h + self.l2 > 0, w, 0.0)
        if self.max_delta_step:
            w = np.clip(w, -self.max_delta_step, self.max_delta_step)
        return np.clip(w, low, high)

    def score(self, g: Array, h: Array, low: Array | float, high: Array | float) -> Array:
        """Return the score of eq. (2)."""
        if self.free:
            top = self._shrunk(g)
            below = h + self.l2
            return np.divide(top * top, below, out=np.zeros(np.shape(top)), where=below > 0)
        w = self.weight(g, h, low, high)
        return -(2 * g * w + (h + self.l2) * w * w + 2 * self.l1 * np.abs(w))

    def gain(
        self, left: Array, right: Array, score: Array, feature: Array, low: Array, high: Array
    ) -> Array:
        """Return the gain of eq. (3) of m splits; −inf where a rule forbids one.

        Parameters
        ----------
        left, right : (m, 2) G and H of the children.
        score : (m,) of the node.
        feature : (m,), the covariate.
        low, high : (m,), bounds of the node's weights.
        """
        (g, h), (g2, h2) = left.T, right.T
        gain = self.score(g, h, low, high) + self.score(g2, h2, low, high) - score
        fine = (h >= self.min_hessian) & (h2 >= self.min_hessian) & (h > 0) & (h2 > 0)
        if self.monotone.any():
            rise = self.weight(g2, h2, low, high) - self.weight(g, h, low, high)
            fine &= self.monotone[feature] * rise >= 0
        return np.where(fine & (gain > LEAST_GAIN) & (gain >= self.gamma), gain, -np.inf)

    @property
    def free(self) -> bool:
        """Whether no weight is ever cut."""
        return not self.max_delta_step and not self.monotone.any()

    def _shrunk(self, g: Array) -> Array:
        if not self.l1:
            return g
        return np.sign(g) * np.maximum(np.abs(g) - self.l1, 0.0)


@dataclass(frozen=True, eq=False)
class Cells:
    """Prefix sums over the bins of A nodes.

    Attributes
    ----------
    rows : (A, p, size) int64, rows in bins up to each; bin 0 has the missing values.
    sums : (A, p, size, 2) int64, Σg and Σh, in multiples of 2^-bits.
    ends : (A, p, size) bool, where both are known; the last is.
    """

    rows: Array
    sums: Array
    ends: Array

    def __getitem__(self, at: Array) -> Cells:
        """Return some of the nodes, by their numbers, ascending."""
        if len(at) == len(self.rows):
            return self
        return Cells(self.rows[at], self.sums[at], self.ends[at])

    @property
    def total(self) -> Array:
        """Σg and Σh of each node, (A, 2)."""
        return self.sums[:, 0, -1]

    @property
    def size(self) -> Array:
        """Number of rows of each node, (A,)."""
        return self.rows[:, 0, -1]

    def children(self, groups: Array, ends: Array, side: Array) -> Cells:
        """Return the sums of the nodes' children (2A): of each node the left one, then the right.

        Parameters
        ----------
        groups, ends : of one child of each node, as in `of`; ends are some of the node's.
        side : (A,) 0 if that is the left one, otherwise 1.
        """
        rows = np.empty((2 * len(ends), *ends.shape[1:]), np.int64)
        sums = np.empty((*rows.shape, 2), np.int64)
        if fast := compiled(2 * ends.size):
            fast.share_out(groups, ends, side, self.rows, self.sums, rows, sums)
        else:
            own, before = Cells.of(groups, ends), 2 * np.arange(len(ends))
            rows[before + side], sums[before + side] = own.rows, own.sums
            rows[before + 1 - side] = self.rows - own.rows
            sums[before + 1 - side] = self.sums - own.sums
        return Cells(rows, sums, ends.repeat(2, axis=0))

    @classmethod
    def of(cls, groups: Array, ends: Array) -> Cells:
        """Return prefix sums of groups (G, 3): Σg, Σh and rows of each, in the order of `ends`."""
        found = prefixed(groups, ends)
        return cls(found[..., 2], found[..., :2], ends)

    @classmethod
    def whole(cls, sums: Array, rows: Array) -> Cells:
        """Return nodes of which Σg and Σh (A, 2) and the rows (A,) alone are known."""
        one = np.asarray(rows, np.int64)[:, None, None]
        return cls(one, np.asarray(sums, np.int64)[:, None, None], np.ones(one.shape, bool))

    @classmethod
    def joined(cls, several: Sequence[Cells]) -> Cells:
        """Return the nodes of several, in order."""
        return cls(*(np.concatenate([getattr(c, k) for c in several]) for k in cls.__annotations__))


def prefixed(groups: Array, ends: Array) -> Array:
    """Return prefix sums over bins (A, p, size, v) of groups (G, v)."""
    held = np.zeros((*ends.shape, groups.shape[1]), np.int64)
    if fast := compiled(held.size):
        fast.add_up(groups, ends, held)
        return held
    held[ends] = groups
    return held.cumsum(axis=2)


def alone(rows: Array, ends: Array) -> Cells:
    """Return nodes without siblings that tell rows (G,) alone."""
    held = prefixed(rows[:, None], ends)[..., 0]
    return Cells(held, np.zeros((*held.shape, 2), np.int64), ends)


@dataclass(frozen=True, eq=False)
class Splits:
    """The best split of each of A nodes.

    ``gain`` (A,), −inf without a split; ``feature``, ``bin``, ``missing_left`` (A,): rows of bins
    up to `bin` go left, but those of bin 0 as `missing_left` says. ``left``, ``right`` (A, 2): Σg
    and Σh of the children, whole numbers; ``left_rows`` (A,).
    """

    gain: Array
    feature: Array
    bin: Array
    missing_left: Array
    left: Array
    right: Array
    left_rows: Array


def best(cells: Cells, bits: int, rule: Rule, allowed: Array, low: Array, high: Array) -> Splits:
    """Return the best split of each node.

    Parameters
    ----------
    bits : of the sums.
    allowed : (A, p), covariates by which a node may be split.
    low, high : (A,), bounds of the node's weights.
    """
    total, size, gaps = cells.total, cells.size, _gaps(cells)
    every, unit = np.arange(len(size)), 2.0**-bits
    fast = compiled(cells.ends.size) if rule.free else None
    if fast:
        at_node = rule.score(total[:, 0] * unit, total[:, 1] * unit, low, high)
        gain, place = np.full(len(size), -np.inf), np.zeros((len(size), 3), np.int64)
        fast.pick_splits(
            cells.rows, cells.sums, cells.ends, allowed, at_node, unit, rule.l2, rule.l1,
            rule.gamma, rule.min_hessian, rule.min_rows, gain, place,
        )  # fmt: skip
        j, k, b = place.T
    else:
        found = _gains(cells, bits, rule, allowed, low, high)
        flat = found.reshape(len(found), -1)
        chosen = flat.argmax(axis=1)
        gain, (j, k, b) = flat[every, chosen], _places(chosen, found.shape)
    apart = gaps[every, j] & (k == 0)
    left = cells.sums[every, j, b] - apart[:, None] * cells.sums[every, j, 0]
    rows = cells.rows[every, j, b] - apart * cells.rows[every, j, 0]
    # a node without missing values sends later ones with the larger child
    none = cells.ends[every, j, 0] & ~gaps[every, j]
    goes = np.where(none & (b > 0), rows >= size - rows, ~apart)
    return Splits(gain, j, b, goes, left, total - left, rows)


def ranked(
    cells: Cells, bits: int, rule: Rule, allowed: Array, low: Array, high: Array, most: int
) -> tuple[Array, Array]:
    """Return the splits of each node with the largest gains, best first.

    Parameters
    ----------
    cells : whose rows are known in each bin, whatever the groups.
    bits, allowed, low, high : as in `best`.
    most : number of splits of a node.

    Returns
    -------
    splits : (m, 4) node, covariate, bin, and where missing values go: 0 right, 1 left; of a node
        without missing values 2 right and 3 left, the side of the larger child.
    gain : (m,) of each.
    """
    found = _gains(cells, bits, rule, allowed, low, high)
    flat = found.reshape(len(found), -1)
    order = np.argsort(-flat, axis=1, kind="stable")[:, :most]
    node, place = np.nonzero(np.isfinite(np.take_along_axis(flat, order, axis=1)))
    at = order[node, place]
    j, k, b = _places(at, found.shape)
    either = 2 + (2 * cells.rows[node, j, b] >= cells.size[node])
    side = np.where(_gaps(cells)[node, j], k, 1)
    way = np.where(cells.rows[node, j, 0] == 0, either, side)
    return np.column_stack([node, j, b, way]).astype(np.int64), flat[node, at]


def _gaps(cells: Cells) -> Array:
    """Return whether the missing values of a node and covariate (A, p) are a group of their own."""
    return cells.ends[..., 0] & (cells.rows[..., 0] > 0)


def _gains(cells: Cells, bits: int, rule: Rule, allowed: Array, low: Array, high: Array) -> Array:
    """Return the gain of each split (A, p, 2, size), −inf where there is none; see `_places`."""
    total, size = cells.total, cells.size
    n, p, width = cells.ends.shape
    unit = 2.0**-bits
    at_node = rule.score(total[:, 0] * unit, total[:, 1] * unit, low, high)
    known = cells.ends & allowed[..., None]
    gaps = _gaps(cells)[..., None]
    missing = gaps * cells.rows[..., :1], gaps[..., None] * cells.sums[..., :1, :]
    right = known.copy()
    right[..., 0] &= ~gaps[..., 0]
    right[..., -1] &= gaps[..., 0]
    known[..., -1] = False
    found = np.full((n, p, 2, width), -np.inf)
    for k, (where, rows, sums) in enumerate(
        (
            (right, cells.rows - missing[0], cells.sums - missing[1]),
            (known & gaps, cells.rows, cells.sums),
        )
    ):
        a, j, b = np.nonzero(
            where & (rows >= rule.min_rows) & (size[:, None, None] - rows >= rule.min_rows)
        )
        inner, whole = sums[a, j, b] * unit, total[a] * unit
        gain = rule.gain(inner, whole - inner, at_node[a], j, low[a], high[a])
        found[a, j, k, width - 1 - b if k else b] = gain
    return found


def _places(flat: Array, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Return covariate, side of missing values and bin of positions in a node's `_gains`.

    Missing values go right (0), then left (1) with bins from the highest on: XGBoost's order.
    """
    j, k, b = np.unravel_index(flat, shape[1:])
    return j, k, np.where(k, shape[3] - 1 - b, b)


def joined(groups: Array, parent: Cells, least: int) -> Array:
    """Return the groups of bins that both of two siblings may tell.

    Parameters
    ----------
    groups : (G,) rows of a child in each group of its parent.
    parent : of A nodes.
    least : m; every group has none or at least m rows of the child, and of its sibling.

    Returns
    -------
    ends : (A, p, size), some of the parent's; bin 0 too if no row of either is in it. The last is
        among them: the child and its sibling have at least m rows each.
    """
    ends = parent.ends
    rows = prefixed(groups[:, None], ends)[..., 0]
    found = np.zeros_like(ends)
    if fast := compiled(ends.size):
        fast.close_groups(rows, parent.rows, ends, least, found)
        return found
    begun = np.zeros((*rows.shape[:2], 2), np.int64)
    both = np.stack([rows, parent.rows - rows], axis=-1)
    for b in range(ends.shape[2]):
        inside = both[:, :, b] - begun
        fine = ((inside == 0) | (inside >= least)).all(axis=-1)
        fine &= ((inside > 0).any(axis=-1) | (b == 0)) & ends[:, :, b]
        found[:, :, b] = fine
        begun = np.where(fine[..., None], both[:, :, b], begun)
    # the rows after the last group belong to it
    left = (begun != both[:, :, -1]).any(axis=-1)
    if left.any():
        a, j = np.nonzero(left)
        found[a, j] = _closed(both[a, j], found[a, j], least)
    found[..., -1] = True
    return found


def regrouped(groups: Array, ends: Array, wider: Array) -> Array:
    """Return the sums of wider groups of bins (H,), of those (G,) of `ends` (A, p, size).

    Parameters
    ----------
    wider : (A, p, size), some of `ends`.
    """
    last = np.cumsum(ends)[wider.ravel()]
    return np.add.reduceat(groups, np.r_[0, last[:-1]]) if len(last) else groups[:0]


def _closed(both: Array, ends: Array, least: int) -> Array:
    """Take back the last groups (m, size) until the rest with them is none or at least `least`."""
    ends = ends.copy()
    total = both[:, -1]
    for row, (prefix, own) in enumerate(zip(both, ends, strict=True)):
        for b in np.flatnonzero(own)[::-1]:
            rest = total[row] - prefix[b]
            if ((rest == 0) | (rest >= least)).all():
                break
            own[b] = False
    return ends

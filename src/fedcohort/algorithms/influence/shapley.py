"""Shapley's value of players in a game of coalitions, exact or from drawn orders.

Shapley, "A value for n-person games", 1953; Ghorbani & Zou, "Data Shapley", ICML 2019, algorithm 1.
In an order π of m players, the one that comes after those of S gains v(S ∪ i) − v(S), and

    φ_i = mean gain of i over all orders = Σ_{S ∌ i} s!(m − s − 1)!/m! [v(S ∪ i) − v(S)]   (1)
    Σ φ_i = v(all) − v(none)                                                              (2)

From T random orders, φ_i is the mean of T gains, with Student's interval. An order is cut if
|v(all) − v(S)| is at most a tolerance: the remaining players share the rest equally, so that (2)
holds for every order (Ghorbani and Zou give them 0). The interval is for the draw of orders alone:
not for the cut, nor for the rows that v is measured on.

A player may have little value only because another is present. Over orders in which j comes before
i, and in which it comes after,

    φ_i = ½ (φ_i|j + φ_i|¬j),   redundancy r_ij = 1 − φ_i|j / φ_i|¬j                        (3)

(the first exactly if all orders are known). If another player can replace i, then φ_i|j is about 0,
and leaving one of the two out costs nothing: v(all) − v(all ∖ i) shows neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from fedcohort.arrays import Array

#: Coalitions (C, m) bool → their values (C,).
Game = Callable[[Array], Array]


class Values(NamedTuple):
    """Values of m players.

    Attributes
    ----------
    value, low, high : φ and its interval (m,); three equal arrays if exact.
    after, before : φ_i|j and φ_i|¬j (m, m), row i; NaN on the diagonal, and without such an order.
    orders : T, number of drawn orders; 0 if exact.
    """

    value: Array
    low: Array
    high: Array
    after: Array
    before: Array
    orders: int


def every(m: int) -> Array:
    """Return all coalitions of m players (2^m, m), bool; player i is in row r if r has bit i."""
    return (np.arange(2**m)[:, None] >> np.arange(m) & 1).astype(bool)


def exact(game: Game, m: int) -> Values:
    """Return eq. (1) from the values of all coalitions."""
    member = every(m)
    v = game(member)
    size = member.sum(axis=1)
    missing = np.full((m, m), np.nan)
    value, after, before = np.zeros(m), missing.copy(), missing.copy()
    for i in range(m):
        out = np.flatnonzero(~member[:, i])
        weight = np.array([1 / (m * math.comb(m - 1, int(s))) for s in size[out]])
        gain = weight * (v[out + 2**i] - v[out])
        value[i] = gain.sum()
        for j in range(m):
            if j != i:
                first = member[out, j]
                after[i, j], before[i, j] = 2 * gain[first].sum(), 2 * gain[~first].sum()
    return Values(value, value.copy(), value.copy(), after, before, 0)


def drawn(game: Game, m: int, orders: Array, tolerance: float, level: float) -> Values:
    """Return eq. (1) from orders (T, m) of players.

    Parameters
    ----------
    game : called for all orders at once, place by place: at most m times.
    tolerance : an order is cut when this share of |v(all) − v(none)| is left.
    level : coverage of the intervals.
    """
    count = len(orders)
    value_none, value_all = game(np.array([[False] * m, [True] * m]))
    least = tolerance * abs(value_all - value_none)
    gains, reached = np.zeros((count, m)), np.full(count, value_none)
    member, live = np.zeros((count, m), bool), np.arange(count)
    for place in range(m):
        at = orders[live, place]
        member[live, at] = True
        v = game(member[live]) if place < m - 1 else np.full(len(live), value_all)
        gains[live, at] = v - reached[live]
        reached[live] = v
        left = value_all - v
        cut = (np.abs(left) <= least) & (least > 0) & (place < m - 1)
        for t, left_over in zip(live[cut], left[cut], strict=True):
            gains[t, orders[t, place + 1 :]] = left_over / (m - 1 - place)
        live = live[~cut]
        if not len(live):
            break
    value = gains.mean(axis=0)
    half = float(stdtrit(count - 1, 0.5 + level / 2)) * gains.std(axis=0, ddof=1) / math.sqrt(count)
    rank = np.argsort(orders, axis=1)
    after, before = np.full((m, m), np.nan), np.full((m, m), np.nan)
    for i in range(m):
        for j in range(m):
            later = rank[:, j] < rank[:, i]
            if i != j and later.any():
                after[i, j] = gains[later, i].mean()
            if i != j and not later.all():
                before[i, j] = gains[~later, i].mean()
    return Values(value, value - half, value + half, after, before, count)


def leave_one_out(game: Game, m: int) -> Array:
    """Return v(all) − v(all ∖ i) (m,)."""
    v = game(np.vstack([np.ones((1, m), bool), ~np.eye(m, dtype=bool)]))
    return v[0] - v[1:]

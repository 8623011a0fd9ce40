"""Cox's partial likelihood in pieces: contributions of records, and formulas of the total.

At the times t of the grid, with d_t deaths D(t), the risk set R(t) and risk weights r = exp(xᵀβ):

    S₀ = Σ_R r,   S₁ = Σ_R r x,   D₀ = Σ_D r,   D₁ = Σ_D r x,   f_l = l/d_t (Efron), 0 (Breslow)
    φ_l = S₀ − f_l D₀,   m_l = (S₁ − f_l D₁)/φ_l,   l = 0 … d_t − 1

    log-likelihood  ℓ(β) = Σ_deaths xᵀβ − Σ_t Σ_l log φ_l                               (1)
    score           U(β) = Σ_deaths x − Σ_t Σ_l m_l                                     (2)
    information     I(β) = Σ_t Σ_l [(Σ_R r x xᵀ − f_l Σ_D r x xᵀ)/φ_l − m_l m_lᵀ]        (3)

Summed over times first and records last, with slot_j the last grid time at which j is at risk,

    w_j = r_j (Σ_{t ≤ slot_j} a_t − [j dies] b_{slot_j}),   a_t = Σ_l 1/φ_l,   b_t = Σ_l f_l/φ_l

are the expected deaths of record j (they sum to all deaths d), and (2), (3) become

    U = Σ_deaths x − d x̄,                     x̄ = Σ_j w_j x_j / d                       (4)
    I = Σ_j w_j (x_j − x̄)(x_j − x̄)ᵀ − Σ_t Σ_l (m_l − x̄)(m_l − x̄)ᵀ                       (5)

So ℓ and U need only S₀ and D₀, the first term of I is one (p, p) sum over records, and S₁ enters I
only through its drift over time. If d_t < 2, f = 0: D₀ and D₁ are needed at tied times only.

If t ends an interval whose J_t leavers have an unknown order, D(t) is all of them: each of
l = 0 … J_t − 1 counts as d_t/J_t deaths, with f_l = l/J_t (Efron's average over orders, of deaths
and censored records alike). If all left at one time, the d_t deaths were the first:
l = 0 … d_t − 1.

With an offset o and case weights v, r = v exp(xᵀβ + o), sums over deaths are weighted by v, and
each l of a time counts as the mean weight ω_t of its deaths, as in R's survival. A record that
enters at slot e > 0 is at risk from then on: with S over the records that leave at each slot, less
those that enter at the next, sums over risk sets stay one reversed cumulative sum
(`Placed.leaving`). Strata have one baseline hazard each; their times follow one another, and a
cumulative sum ends with its stratum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.strata import laid, running
from fedcohort.numerics.survival import count_at

#: |xᵀβ| at which risk weights saturate, so that a step that goes too far can be taken back.
CEILING = 600.0
#: |log S₀| up to which no saturated weight matters, and Σ log φ beyond: no ℓ is lower.
TRUSTED, HOPELESS = CEILING - 25.0, 1e300
#: Most means of one tied time that `means` keeps one by one.
LONG = 256


class Hazard(NamedTuple):
    """What the total at all sites tells about the times.

    Attributes
    ----------
    log_phi : Σ_t Σ_l log φ_l; `HOPELESS` where risk weights are saturated.
    a, b : (T,) as in the header.
    """

    log_phi: float
    a: Array
    b: Array


class Ties(NamedTuple):
    """Times at which risk sets shrink between simultaneous deaths.

    Attributes
    ----------
    at : (G,) indices of grid times.
    sharers : (G,) records that share the time: the deaths, or all leavers of an interval.
    places : (G,) possible places of the deaths in the order of the sharers.
    """

    at: Array
    sharers: Array
    places: Array

    def one_by_one(self) -> tuple[Array, Array]:
        """Return, for each of the places, the index of its time in `at` and f_l."""
        q = self.places.astype(np.int64)
        k = np.repeat(np.arange(len(q)), q)
        rank = np.arange(len(k)) - np.repeat(np.cumsum(q) - q, q)
        return k, rank / self.sharers[k]


def tied(deaths: Array, ties: str) -> Ties:
    """Return the grid times at which deaths (T,) tie; none for Breslow."""
    at = np.flatnonzero(deaths > 1) if ties == "efron" else np.zeros(0, np.int64)
    return Ties(at, deaths[at], deaths[at])


def hazard(weight: Array, s0: Array, d0: Array, ties: Ties) -> Hazard:
    """Return Σ log φ, a and b.

    Parameters
    ----------
    weight, s0 : of all deaths at each time, d ω, and S₀, (T,).
    d0 : D₀ at the times of `ties`, (G,).
    """
    dead = weight > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        a = np.where(dead, weight / s0, 0.0)
        log_s0 = np.where(dead, np.log(s0), 0.0)
    each, b = weight * log_s0, np.zeros(len(weight))
    if len(ties.at):
        (k, f), at = ties.one_by_one(), ties.at
        omega, phi = (weight[at] / ties.places)[k], s0[at][k] - f * d0[k]
        with np.errstate(divide="ignore", invalid="ignore"):
            each[at] = np.bincount(k, omega * np.log(phi))
            a[at] = np.bincount(k, omega / phi)
            b[at] = np.bincount(k, omega * f / phi)
    saturated = not np.abs(log_s0).max(initial=0.0) <= TRUSTED
    return Hazard(HOPELESS if saturated else float(each.sum()), a, b)


class Means(NamedTuple):
    """The means of the covariates over risk sets, m_l of the header.

    Attributes
    ----------
    time : (M,) index of the grid time; at tied times one m_l for each death.
    weight : (M,) of the deaths with this mean: all of their time, or one of those tied.
    mean : (M, p) m_l.
    """

    time: Array
    weight: Array
    mean: Array


def means(weight: Array, ties: Ties, s0: Array, d0: Array, s1: Array, d1: Array) -> Means:
    """Return m_l at each grid time with deaths.

    Those of one tied time are on a line, m(β) = S₁/S₀ + β (S₁ D₀/S₀ − D₁) with β = f_l/φ_l. Where
    they are more than `LONG`, two points stand for them, with the same weight, mean and second
    moment.

    Parameters
    ----------
    weight, s0, s1 : as for `hazard`, and S₁ (T, p).
    d0, d1 : D₀ (G,) and D₁ (G, p) at the times of `ties`.
    """
    once = weight > 0
    once[ties.at] = False
    long = ties.places > LONG
    short = Ties(*(part[~long] for part in ties))
    (k, f), at = short.one_by_one(), short.at
    phi = s0[at][k] - f * d0[~long][k]
    two, half, points = _two_points(
        weight, Ties(*(p[long] for p in ties)), s0, d0[long], s1, d1[long]
    )
    return Means(
        np.r_[np.flatnonzero(once), at[k], two],
        np.r_[weight[once], (weight[at] / short.places)[k], half],
        np.r_[
            s1[once] / s0[once, None],
            (s1[at][k] - f[:, None] * d1[~long][k]) / phi[:, None],
            points,
        ],
    )


def _two_points(
    weight: Array, ties: Ties, s0: Array, d0: Array, s1: Array, d1: Array
) -> tuple[Array, Array, Array]:
    """Return times (2G,), weights (2G,) and means (2G, p) that stand for those of tied times."""
    (k, f), at, g = ties.one_by_one(), ties.at, len(ties.at)
    beta = f / (s0[at][k] - f * d0[k])
    middle = np.bincount(k, beta, g) / ties.places
    spread = np.sqrt(np.bincount(k, (beta - middle[k]) ** 2, g) / ties.places)
    start = s1[at] / s0[at, None]
    along = start * d0[:, None] - d1
    points = [start + (middle + side * spread)[:, None] * along for side in (-1, 1)]
    return np.tile(at, 2), np.tile(weight[at] / 2, 2), np.concatenate(points)


def drift(found: Means, centre: Array) -> Array:
    """Return Σ_t Σ_l (m_l − x̄)(m_l − x̄)ᵀ, (p, p), the second term of eq. (5), about x̄ (p,)."""
    away = found.mean - centre
    return (found.weight[:, None] * away).T @ away


class Extra(NamedTuple):
    """What records may have besides covariates, time and event; None where they have not.

    Attributes
    ----------
    entry : (n,) times after which they are at risk.
    weight : (n,) > 0, how much each counts.
    offset : (n,), added to xᵀβ.
    stratum : (n,), which baseline hazard is theirs, 0 … K − 1.
    """

    entry: Array | None = None
    weight: Array | None = None
    offset: Array | None = None
    stratum: Array | None = None


@dataclass(frozen=True)
class Placed:
    """Records on a grid, sorted by slot, without those never at risk.

    Attributes
    ----------
    x : (n, p).
    slot : (n,) ascending; dead : (m,) rows that die.
    sharing : (h,) rows that share a tied time: the dead, or all of an interval.
    starts : (s,) first row of each occupied slot; taken : (s,) those slots.
    n_times : T.
    late, before : (l,) rows that enter after the first slot, and the last slot without each.
    sizes : (K,) number of the T slots of each stratum; None for one stratum.
    weight : (m,) of the dead; base : (n,) offset + log weight; offset : (n,). None if all are 1, or
        0.
    """

    x: Array
    slot: Array
    dead: Array
    sharing: Array
    starts: Array
    taken: Array
    n_times: int
    late: Array
    before: Array
    sizes: Array | None
    weight: Array | None
    base: Array | None
    offset: Array | None

    @classmethod
    def on(
        cls,
        times: Array,
        x: Array,
        time: Array,
        event: Array,
        extra: Extra | None = None,
        sizes: Array | None = None,
        shared: Array | None = None,
    ) -> Placed:
        """Place records x (n, p), time (n,), event (n,) on the grid `times` (T,).

        For ends of intervals, `shared` (T,) marks those in which all leavers share their time, not
        the
        deaths alone. With strata, `sizes` (K,) is the number of times of each (`numerics.strata`).
        """
        extra = extra or Extra()
        sizes = np.array([len(times)]) if sizes is None else sizes
        there = laid(
            time, event, times, sizes, extra.entry, extra.stratum, together=shared is not None
        )
        dies, slot = there.dies, there.slot
        enter = np.zeros(0, np.int64) if there.enter is None else there.enter
        late = enter > 0
        if extra.stratum is not None:
            slot, enter = there.in_row(slot), enter + there.start if len(enter) else enter
        order = np.argsort(slot, kind="stable")
        order = order[np.searchsorted(slot[order], 0) :]
        dead = np.flatnonzero(dies[order])
        slot = slot[order]
        share = dies[order] if shared is None else dies[order] | shared[slot]
        starts = np.flatnonzero(np.diff(slot, prepend=-1))
        if len(enter):
            enter, late = enter[order], late[order]
        late = np.flatnonzero(late)
        weight, offset = (None if v is None else v[order] for v in (extra.weight, extra.offset))
        base = offset if weight is None else np.log(weight) + (0.0 if offset is None else offset)
        return cls(
            x[order], slot, dead, np.flatnonzero(share), starts, slot[starts], len(times),
            late, enter[late] - 1,
            None if extra.stratum is None else sizes,
            None if weight is None else weight[dead], base, offset,
        )  # fmt: skip

    @cached_property
    def deaths(self) -> Array:
        """How many die at each grid time, (T,)."""
        return np.bincount(self.slot[self.dead], minlength=self.n_times).astype(float)

    @cached_property
    def death_weight(self) -> Array:
        """The weight of those who die at each grid time, (T,)."""
        if self.weight is None:
            return self.deaths
        return np.bincount(self.slot[self.dead], self.weight, minlength=self.n_times)

    def over_deaths(self, values: Array) -> Array:
        """Return Σ values over the deaths, by weight; values are (n,) or (n, p)."""
        dead = values[self.dead]
        return dead.sum(axis=0) if self.weight is None else self.weight @ dead

    def risk(self, beta: Array) -> Array:
        """Return r (n,)."""
        log_risk = self.x @ beta
        if self.base is not None:
            log_risk += self.base
        return np.exp(np.clip(log_risk, -CEILING, CEILING))

    def leaving(self, weights: Array) -> Array:
        """Return Σ weights over the records that leave with each slot, (T,) or (T, p).

        Less that over those who enter at the next, so that `at_risk` gives sums over risk sets.
        """
        out = np.zeros((self.n_times, *weights.shape[1:]))
        out[self.taken] = np.add.reduceat(weights, self.starts, axis=0)
        if len(self.late):
            out -= count_at(self.before, self.n_times, weights[self.late])
        return out

    def sharing_sum(self, weights: Array, at: Array) -> Array:
        """Return Σ weights over those who share each of the times `at` (G,): (G,) or (G, p)."""
        group = np.full(self.n_times, -1)
        group[at] = np.arange(len(at))
        return count_at(group[self.slot[self.sharing]], len(at), weights[self.sharing])

    def expected(self, risk: Array, a: Array, b: Array) -> tuple[Array, Array]:
        """Return the moments of the covariates under w: Σ w x (p,) and Σ w x xᵀ (p, p)."""
        total = running(a, self.sizes)
        w = total[self.slot]
        w[self.sharing] -= b[self.slot[self.sharing]]
        w[self.late] -= total[self.before]
        w *= risk
        return w @ self.x, (w[:, None] * self.x).T @ self.x


def at_risk(leaving: Array, sizes: Array | None = None) -> Array:
    """Return the sums over risk sets, (T,) or (T, p), from those over the records of each slot.

    Of strata in a row, of `sizes` (K,), each ends where the stratum does.
    """
    return running(leaving[::-1], None if sizes is None else sizes[::-1])[::-1]


class Pooled(NamedTuple):
    """Eqs. (1), (2), (3) of one table: a float, (p,), (p, p)."""

    log_likelihood: float
    score: Array
    information: Array


def pooled(records: Placed, beta: Array, ties: str) -> Pooled:
    """Return the partial likelihood of one table, its gradient and its information at β (p,)."""
    risk = records.risk(beta)
    weighted = risk[:, None] * records.x
    weight, alike = records.death_weight, tied(records.deaths, ties)
    s0, d0 = at_risk(records.leaving(risk), records.sizes), records.sharing_sum(risk, alike.at)
    h = hazard(weight, s0, d0, alike)
    mean, second = centred(*records.expected(risk, h.a, h.b), weight.sum())
    s1 = at_risk(records.leaving(weighted), records.sizes)
    d1 = records.sharing_sum(weighted, alike.at)
    x_dead = records.over_deaths(records.x)
    fixed = 0.0 if records.offset is None else float(records.over_deaths(records.offset))
    return Pooled(
        float(x_dead @ beta) + fixed - h.log_phi,
        x_dead - weight.sum() * mean,
        second - drift(means(weight, alike, s0, d0, s1, d1), mean),
    )


def centred(first: Array, second: Array, deaths: float) -> tuple[Array, Array]:
    """Return x̄ (p,) and the first term of eq. (5), (p, p); zeros where nobody died.

    Parameters
    ----------
    first, second : Σ w x (p,) and Σ w x xᵀ (p, p).
    deaths : d, the sum of w; the weight of all deaths.
    """
    mean = first / deaths if deaths > 0 else np.zeros_like(first)
    return mean, second - deaths * np.outer(mean, mean)

"""Harrell's and Uno's C-index in O(n log n): higher risk should mean earlier death.

Harrell et al., Stat. Med. 15, 1996; Uno et al., Stat. Med. 30, 2011. A pair (i, j) is comparable if
i died, and j lived longer or was censored at the same time. Over comparable pairs,

    C = Σ w_i [1(f_j < f_i) + ½ 1(f_j = f_i)] / Σ w_i                                       (1)

with w_i = 1 (Harrell), or w_i = 1(t_i < τ) / G(t_i)², G the censoring distribution of the training
records (Uno), which does not depend on the test records' censoring. Two deaths at one time are not
comparable. Pairs cross sites, so (1) is no sum over sites: see `histogram`.

Standard error of Harrell's C (infinitesimal jackknife, as in R's survival; Therneau & Watson, The
concordance statistic and the Cox model, Mayo Clinic technical report 85, 2017). Let A be the
numerator and B the denominator of (1), a_i and b_i their parts with record i, as the one who died
or as the partner:

    ∂C/∂m_i = (a_i − C b_i)/B,     se² = Σ_i (∂C/∂m_i)²                                     (2)

(2) holds for Uno's C as well, with w_i in a_i and b_i, where G is taken as given.

With time 1 and an event for one class, time 2 and none for the other, (1) is the area under the ROC
curve, and (2) is DeLong's variance with m and n for his m − 1 and n − 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.survival.censoring import censoring_of
from fedcohort.protocol.errors import DataError

#: Risk scores that differ by at most this are tied, because of rounding.
TIED = 1e-8


class Pairs(NamedTuple):
    """For each death (m,): its comparable partners, those with lower risk, those tied in risk."""

    comparable: Array
    lower: Array
    tied: Array


class Influence(NamedTuple):
    """A C-index, and its derivative with respect to each record's weight ``slope`` (n,)."""

    value: float
    slope: Array

    @property
    def error(self) -> float:
        """The standard error, eq. (2); nan where C is."""
        return math.sqrt(float(self.slope @ self.slope))


def harrell(risk: Array, time: Array, event: Array) -> float:
    """Return Harrell's C, eq. (1) with w = 1.

    Parameters
    ----------
    risk : (n,), higher means an earlier death.
    time, event : (n,), event 0/1 or bool.

    Returns
    -------
    c : in [0, 1]; nan if no two records are comparable.
    """
    pairs = comparable_pairs(risk, time, np.asarray(event, bool))
    return _ratio(pairs, np.ones(len(pairs.comparable)))


def influence(risk: Array, time: Array, event: Array, weight: Array | None = None) -> Influence:
    """Return C and ∂C/∂m (n,), eqs. (1) and (2); other parameters as `harrell`.

    Parameters
    ----------
    weight : w (m,) of the deaths, in the order of the records; 1 by default (Harrell).
    """
    event = np.asarray(event, bool)
    risk, time = checked_risk(risk), np.asarray(time)
    died = comparable_pairs(risk, time, event)
    w = np.ones(len(died.comparable)) if weight is None else np.asarray(weight, float)
    total = float(w @ died.comparable)
    if not total:
        return Influence(math.nan, np.full(len(time), math.nan))
    first = np.argsort(time[event], kind="stable")
    deaths, theirs, w_sorted = time[event][first], risk[event][first], w[first]
    before = np.where(
        event, np.searchsorted(deaths, time), np.searchsorted(deaths, time, side="right")
    )
    ranked = np.argsort(theirs, kind="stable")
    rank = np.empty(len(ranked), np.int64)
    rank[ranked] = np.arange(len(ranked))
    above = np.searchsorted(theirs[ranked], risk + TIED, side="right")
    from_here = np.searchsorted(theirs[ranked], risk - TIED, side="left")
    higher, not_lower = np.split(
        sum_at_least(rank, w_sorted, np.r_[before, before], np.r_[above, from_here]), 2
    )
    part, whole = 0.5 * (higher + not_lower), np.r_[0.0, np.cumsum(w_sorted)][before]
    part[event] += w * (died.lower + 0.5 * died.tied)
    whole[event] += w * died.comparable
    value = float(w @ (died.lower + 0.5 * died.tied)) / total
    return Influence(value, (part - value * whole) / total)


def uno(
    train_time: Array,
    train_event: Array,
    time: Array,
    event: Array,
    risk: Array,
    tau: float | None = None,
) -> float:
    """Return Uno's C up to τ, eq. (1).

    Parameters
    ----------
    train_time, train_event : records from which G is estimated.
    time, event, risk : (n,), the records to judge.
    tau : only deaths before it count; by default, and at most, the end of the training records'
        follow-up.

    Returns
    -------
    c : in [0, 1]; nan if no two records are comparable before τ.

    Raises
    ------
    DataError : there are deaths before τ for which G is 0 or unknown.
    """
    event = np.asarray(event, bool)
    weight = death_weights(train_time, train_event, np.asarray(time)[event], tau)
    return _ratio(comparable_pairs(risk, time, event), weight)


def death_weights(
    train_time: Array, train_event: Array, died: Array, tau: float | None = None
) -> Array:
    """Return w = 1(t < τ)/G(t)² of deaths at the times `died` (m,); parameters, raises as `uno`."""
    end = float(np.max(train_time, initial=0.0))
    counts = died < (end if tau is None else tau)
    weight = counts * censoring_of(train_time, train_event).inverse_at(died)
    lost = int(np.sum(counts & ((died > end) | (weight == 0))))
    if lost:
        raise DataError(
            f"tau={tau:g} lies beyond the follow-up of the training records: {lost} of {len(died)} "
            f"deaths have no censoring weight. Choose a smaller tau, or leave it out."
        )
    return weight**2


def comparable_pairs(risk: Array, time: Array, event: Array) -> Pairs:
    """Count the comparable partners of each death, in the order of the records.

    Raises
    ------
    DataError : a risk is nan.
    """
    n, risk = len(time), checked_risk(risk)
    order, first = by_time(time, event)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    ranked = np.argsort(risk, kind="stable")
    scale = risk[ranked]
    below = np.searchsorted(scale, risk[event] - TIED, side="left")
    up_to = np.searchsorted(scale, risk[event] + TIED, side="right")
    lower, not_higher = np.split(
        count_at_least(place[ranked], np.r_[below, up_to], np.r_[first, first]), 2
    )
    return Pairs(n - first, lower, not_higher - lower)


def by_time(time: Array, event: Array) -> tuple[Array, Array]:
    """Order the records so that a death's comparable partners are all those from one position on.

    Returns
    -------
    order : (n,), record numbers by time, deaths before records censored at the same time.
    first : (m,), for each death, in the order of the records: the position after the deaths at its
        time.
    """
    time = np.asarray(time)
    order = np.lexsort((~event, time))
    _, group, size = np.unique(time[event], return_inverse=True, return_counts=True)
    return order, np.searchsorted(time[order], time[event], side="left") + size[group]


def count_at_least(values: Array, length: Array, least: Array) -> Array:
    """Return, for each query, how many of the first `length` values are ≥ `least`.

    Parameters
    ----------
    values : (n,) integers in [0, n).
    length, least : (m,) integers in [0, n].
    """
    return sum_at_least(values, np.ones(len(values), np.int64), length, least)


def sum_at_least(values: Array, weight: Array, length: Array, least: Array) -> Array:
    """Return, for each query, the weights of those of the first `length` values that are ≥ `least`.

    A wavelet matrix: values are sorted bit by bit from the highest, and each query follows its
    prefix, O((n + m) log n) in log n vectorised passes.

    Parameters
    ----------
    values, length, least : as in `count_at_least`.
    weight : (n,) of the values.
    """
    n = len(values)
    low, high = np.zeros_like(length), length
    total = np.zeros(len(length), weight.dtype)
    for bit in reversed(range(n.bit_length())):
        is_one = (values >> bit & 1).astype(bool)
        ones, sums = np.zeros(n + 1, np.int64), np.zeros(n + 1, weight.dtype)
        np.cumsum(is_one, out=ones[1:])
        np.cumsum(weight * is_one, out=sums[1:])
        zeros = n - ones[-1]
        go_up = (least >> bit & 1).astype(bool)
        total = total + np.where(go_up, 0, sums[high] - sums[low])
        low = np.where(go_up, zeros + ones[low], low - ones[low])
        high = np.where(go_up, zeros + ones[high], high - ones[high])
        values, weight = (np.concatenate((x[~is_one], x[is_one])) for x in (values, weight))
    sums = np.r_[np.zeros(1, weight.dtype), np.cumsum(weight)]
    return total + sums[high] - sums[low]


def checked_risk(risk: Array) -> Array:
    """Return risks as floats, and refuse nan, which has no rank."""
    risk = np.asarray(risk, float)
    missing = int(np.isnan(risk).sum())
    if missing:
        raise DataError(
            f"{missing} of {risk.size} risk scores are nan. The fit diverged, or covariates are "
            f"missing: lower the learning rate, or impute them."
        )
    return risk


def _ratio(pairs: Pairs, weight: Array) -> float:
    total = float(weight @ pairs.comparable)
    return float(weight @ (pairs.lower + 0.5 * pairs.tied)) / total if total else math.nan

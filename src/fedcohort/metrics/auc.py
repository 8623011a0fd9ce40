"""How well risk separates those who die by t from those who live on: cumulative/dynamic AUC.

Uno et al., JASA 102, 2007; Hung & Chiang, Can. J. Stat. 38, 2010. Cases at t died at t_i ≤ t and
weigh 1/G(t_i), G the censoring distribution of the training records; controls have t_j > t:

    AUC(t) = Σ_i Σ_j w_i [1(f_j < f_i) + ½ 1(f_j = f_i)] / (Σ_i w_i · Σ_j 1)                (1)
    mean   = Σ_k AUC(t_k) [S(t_{k−1}) − S(t_k)] / (1 − S(t_m)),  S Kaplan–Meier, t_0 = 0    (2)

Pairs cross sites; over sites the same comes from `histogram`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.censoring import Curve, censoring_of, survival_of
from fedcohort.metrics.concordance import TIED, checked_risk


class Auc(NamedTuple):
    """AUC at each time (m,), nan where there are no cases or no controls; and its mean."""

    values: Array
    mean: float


def dynamic_auc(
    train_time: Array, train_event: Array, time: Array, event: Array, risk: Array, times: Array
) -> Auc:
    """Return AUC(t) and its mean, eqs. (1) and (2).

    Parameters
    ----------
    train_time, train_event : records from which G is estimated.
    time, event : (n,), the records to judge.
    risk : (n,), or (n, m) for a risk that depends on time; higher means worse.
    times : (m,), strictly increasing, inside the follow-up of both sets of records.

    Raises
    ------
    DataError : a risk is nan.
    """
    time, event = np.asarray(time), np.asarray(event, bool)
    weight = event * censoring_of(train_time, train_event).inverse_at(time)
    columns = np.broadcast_to(checked_risk(risk).T, (len(times), len(time)))
    bins = [_tied_groups(f) for f in (columns[:1] if np.ndim(risk) == 1 else columns)]
    values = np.empty(len(times))
    for k, t in enumerate(times):
        group = bins[k % len(bins)]
        cases = np.bincount(group, np.where(time <= t, weight, 0.0))
        controls = np.bincount(group, time > t)
        values[k] = separation(cases, controls)
    return Auc(values, mean_auc(values, times, survival_of(time, event)))


def separation(cases: Array, controls: Array) -> float:
    """Return eq. (1) from weights by increasing risk: both (r,), tied within an entry."""
    pairs = float(cases.sum() * controls.sum())
    if not pairs:
        return math.nan
    lower = np.cumsum(controls) - 0.5 * controls
    return float(cases @ lower) / pairs


def mean_auc(values: Array, times: Array, alive: Curve) -> float:
    """Return eq. (2) for AUC values (m,) and the records' survival; nan if nobody dies by t_m."""
    drop = -np.diff(np.r_[1.0, alive.at(times)])
    on = drop > 0
    return float(values[on] @ drop[on] / drop.sum()) if on.any() else math.nan


def _tied_groups(risk: Array) -> Array:
    """Number the records (n,) by increasing risk; neighbours within `TIED` share a number."""
    order = np.argsort(risk)
    group = np.empty(len(risk), np.int64)
    group[order] = np.cumsum(np.diff(risk[order], prepend=-np.inf) > TIED) - 1
    return group

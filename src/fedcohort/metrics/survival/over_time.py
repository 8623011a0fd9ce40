"""Discrimination and error along the follow-up, with intervals from a bootstrap over patients.

The cumulative/dynamic AUC (Uno et al., JASA 102, 2007) and the Brier score of `brier` at common
times t_k. Draw b takes record i m_i times; fit and censoring distribution G stay as they are
(`resampled`). Cases at t died at t_i ≤ t and weigh w_i = 1/G(t_i), controls have t_j > t, and
c_i(t) is record i's own part of the Brier score:

    AUC_b(t) = Σ_i m_i w_i Σ_j m_j [1(f_j < f_i) + ½ 1(f_j = f_i)] / (Σ_i m_i w_i · Σ_j m_j)  (1)
    BS_b(t)  = Σ_i m_i c_i(t) / Σ_i m_i                                                     (2)

Every function takes `weights` (B, n), the m_i of B draws, and returns (B, m) for m times, nan where
a draw has no answer; a row of ones gives the metric itself. G is estimated from the records
`train_time`, `train_event`; `times` (m,) increase, inside the follow-up of both sets of records.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array, ratio
from fedcohort.metrics.survival.brier import brier_terms
from fedcohort.metrics.survival.censoring import censoring_of
from fedcohort.metrics.survival.concordance import TIED, checked_risk

#: Entries of a block's table.
TABLE = 2**22


def auc(
    weights: Array,
    train_time: Array,
    train_event: Array,
    time: Array,
    event: Array,
    risk: Array,
    times: Array,
) -> Array:
    """Return AUC(t) of each draw, eq. (1), for a risk (n,) that does not depend on time."""
    risk = checked_risk(risk)
    order = np.argsort(risk, kind="stable")
    w = np.asarray(event, bool) * censoring_of(train_time, train_event).inverse_at(time)
    w, when = w[order], np.asarray(time)[order]
    group = np.cumsum(np.diff(risk[order], prepend=-np.inf) > TIED) - 1
    below = np.searchsorted(group, group, side="left")
    up_to = np.searchsorted(group, group, side="right")
    found = np.empty((len(weights), len(times)))
    step = max(1, TABLE // max(1, len(order)))
    for rows in (slice(r, r + step) for r in range(0, len(weights), step)):
        drawn = weights[rows][:, order].astype(float)
        lower = np.zeros((len(drawn), len(order) + 1))
        for k, t in enumerate(times):
            cases = np.flatnonzero((when <= t) & (w > 0))
            heavy = drawn[:, cases] * w[cases]
            np.cumsum(np.where(when > t, drawn, 0.0), axis=1, out=lower[:, 1:])
            middle = 0.5 * (lower[:, below[cases]] + lower[:, up_to[cases]])
            pairs = heavy.sum(axis=1) * lower[:, -1]
            found[rows, k] = ratio(np.sum(heavy * middle, axis=1), pairs)
    return found


def brier(
    weights: Array,
    train_time: Array,
    train_event: Array,
    time: Array,
    event: Array,
    surv: Array,
    times: Array,
) -> Array:
    """Return BS(t) of each draw, eq. (2), for predicted survival (n, m)."""
    terms = brier_terms(time, event, surv, times, censoring_of(train_time, train_event))
    return ratio(weights @ terms, weights.sum(axis=1, dtype=float, keepdims=True))


def published_span(time: Array, event: Array, at_least: int) -> tuple[float, float]:
    """Return the time span in which at least `at_least` records have died and are still followed.

    Parameters
    ----------
    time, event : (n,).

    Returns
    -------
    low, high : nan if there is no such time.
    """
    died, every = np.sort(np.asarray(time)[np.asarray(event, bool)]), np.sort(time)
    least = max(1, at_least)
    if len(died) < least or len(every) < least:
        return math.nan, math.nan
    low, high = float(died[least - 1]), float(np.nextafter(every[len(every) - least], 0.0))
    return (low, high) if low <= high else (math.nan, math.nan)

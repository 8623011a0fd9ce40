"""Antolini's time-dependent C-index: who dies first should then have the lower predicted survival.

Antolini, Boracchi & Biganzoli, Stat. Med. 24, 2005. With predicted curves S_i(t), a pair (i, j) is
comparable as in `concordance`: i died, and j lived longer or was censored at the same time. Over
comparable pairs, both curves read at the time of the death,

    C_td = Σ m_i m_j [1(S_i(t_i) < S_j(t_i)) + ½ 1(S_i(t_i) = S_j(t_i))] / Σ m_i m_j          (1)

with m = 1, or in draw b of a bootstrap the m_i times that record i is drawn (`resampled`): copies
of a record are not compared. Curves that never cross give Harrell's C of a risk that orders them:
(1) differs from it only where hazards are not proportional. Nothing is weighted for censoring.

- Ties of S count half, as in Harrell's C; Antolini et al. count them as wrong.
- Curves are known at the times of the evaluation and straight between them, as in D-calibration,
  and from 1 at time 0 to the first time at which they have fallen: the first step of a step curve,
  whose grid protects records, would be a tie.
- Deaths beyond the last of these times compare the curves there, so that no unknown part is read.
- Late entry is ignored, as in all metrics.

Pairs cross sites: see `metrics.sums.curve_pairs`.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array, ratio
from fedcohort.metrics.survival.concordance import by_time
from fedcohort.protocol.errors import DataError

#: Survival that differs by no more than this is tied: it absorbs rounding, nothing else.
TIED = 1e-12
#: Entries of a block's table.
TABLE = 2**21


def antolini(
    surv: Array, times: Array, time: Array, event: Array, weights: Array | None = None
) -> Array:
    """Return C_td, eq. (1): (), or (B,) of weights (B, n); nan without a comparable pair.

    Parameters
    ----------
    surv : (n, m), predicted survival at `times` (m,), which are positive and increasing.
    time, event : (n,), event 0/1 or bool.

    Raises
    ------
    DataError : predicted survival is nan.
    """
    w = np.ones((1, len(time))) if weights is None else weights
    found = ratio(*pairs(surv, times, time, event, w))
    return found[0] if weights is None else found


def pairs(
    surv: Array, times: Array, time: Array, event: Array, weights: Array
) -> tuple[Array, Array]:
    """Return numerator and denominator of eq. (1), (B,) each; parameters, raises as `antolini`."""
    surv, time, event = np.asarray(surv, float), np.asarray(time, float), np.asarray(event, bool)
    right, whole = np.zeros((2, len(weights)))
    if not len(times):
        return right, whole
    if lost := int(np.isnan(surv).sum()):
        raise DataError(
            f"{lost} of {surv.size} values of predicted survival are nan. The fit diverged, or "
            f"covariates are missing: lower the learning rate, or impute them."
        )
    surv = fallen(surv, np.asarray(times, float))
    order, first = by_time(time, event)
    deaths = np.flatnonzero(event)
    # Single precision is exact here: it counts up to 8 million patients.
    drawn = np.ascontiguousarray(np.asarray(weights)[:, order].T, np.float32)
    after = np.zeros((len(drawn) + 1, drawn.shape[1]))
    after[:-1] = np.cumsum(drawn[::-1], axis=0, dtype=float)[::-1]
    by_first = np.argsort(first, kind="stable")
    step = max(1, TABLE // max(1, len(drawn)))
    for k in range(0, len(deaths), step):
        at = by_first[k : k + step]
        i, start = deaths[at], int(first[at[0]])
        read = between(surv, times, time[i])
        own, others = read[i, np.arange(len(i))], read[order[start:]]
        twice = np.add(others > own + TIED, others >= own - TIED, dtype=np.float32).T
        twice *= np.arange(start, len(order)) >= first[at, None]
        weight = np.asarray(weights, float)[:, i].T
        right += np.sum(weight * (0.5 * (twice @ drawn[start:])), axis=0)
        whole += np.sum(weight * after[first[at]], axis=0)
    return right, whole


def fallen(surv: Array, times: Array) -> Array:
    """Return curves (n, m) at `times` (m,), straight from 1 at 0 to their first value below 1."""
    below = surv < 1.0
    first = below.argmax(axis=1)
    slope = (1.0 - surv[np.arange(len(surv)), first]) / times[first]
    early = np.arange(len(times)) < np.where(below.any(axis=1), first, 0)[:, None]
    return np.where(early, 1.0 - slope[:, None] * times, surv)


def between(surv: Array, times: Array, at: Array) -> Array:
    """Return curves (n, m), known at `times` (m,), at the times `at` (b,): (n, b)."""
    knots = np.r_[0.0, times]
    curves = np.concatenate([np.ones((len(surv), 1)), surv], axis=1)
    until = np.minimum(at, knots[-1])
    k = np.clip(np.searchsorted(knots, until, side="left"), 1, len(times))
    along = (until - knots[k - 1]) / (knots[k] - knots[k - 1])
    return (1.0 - along) * curves[:, k - 1] + along * curves[:, k]

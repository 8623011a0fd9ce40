"""Graf's Brier score: squared error of predicted survival under censoring.

Graf et al., Stat. Med. 18, 1999. With predicted survival π_i(t) and G the censoring distribution
of the training records,

    BS(t)  = 1/n Σ_i [π_i(t)² 1(t_i ≤ t, died)/G(t_i) + (1 − π_i(t))² 1(t_i > t)/G(t)]      (1)
    IBS    = 1/(t_m − t_1) ∫ BS(t) dt,  by the trapezoid rule                               (2)

0 is perfect; π = ½ everywhere gives ¼ while nobody is censored.

Revealed: `BrierSums`, only as sums over sites.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.survival.censoring import Curve, censoring_of
from fedcohort.protocol.errors import DataError
from fedcohort.protocol.message import message

#: Smallest fraction of followed records at a time of evaluation: weights stay below 20.
LEAST_FOLLOWED = 0.05


@message
class BrierSums:
    """The sum in eq. (1): ``total`` (m,) over ``rows`` () records."""

    total: Array
    rows: Array


def brier_sums(time: Array, event: Array, surv: Array, times: Array, followed: Curve) -> BrierSums:
    """Sum the terms of eq. (1) over records; parameters as `brier_terms`."""
    total = brier_terms(time, event, surv, times, followed).sum(axis=0)
    return BrierSums(total, np.array(float(len(time))))


def brier_terms(time: Array, event: Array, surv: Array, times: Array, followed: Curve) -> Array:
    """Return each record's term of eq. (1) at each time: (n, m).

    Parameters
    ----------
    time, event : (n,).
    surv : (n, m), predicted P(T > t).
    times : (m,), strictly increasing.
    followed : G. A record whose G is 0 has no weight.

    Raises
    ------
    DataError : `surv` is not (n, m).
    """
    if surv.shape != (len(time), len(times)):
        raise DataError(
            f"predicted survival has shape {surv.shape}; {len(time)} records and {len(times)} "
            f"times need {(len(time), len(times))}. Predict at the times of the evaluation."
        )
    died = np.asarray(event, bool) * followed.inverse_at(time)
    later = np.asarray(time)[:, None] > times
    dead = np.where(later, 0.0, died[:, None])
    alive = later * followed.inverse_at(times)
    return surv**2 * dead + (1.0 - surv) ** 2 * alive


def brier(
    train_time: Array, train_event: Array, time: Array, event: Array, surv: Array, times: Array
) -> Array:
    """Return BS(t) at `times` (m,), eq. (1); parameters as `brier_terms`."""
    return mean_score(brier_sums(time, event, surv, times, censoring_of(train_time, train_event)))


def mean_score(sums: BrierSums) -> Array:
    """Return eq. (1) from pooled sums; nan if there are no records."""
    rows = float(sums.rows)
    return sums.total / rows if rows else np.full(len(sums.total), np.nan)


def integrated_brier(
    train_time: Array, train_event: Array, time: Array, event: Array, surv: Array, times: Array
) -> float:
    """Return IBS over `times` (m,), eqs. (1) and (2); nan for fewer than two times."""
    return integrate(brier(train_time, train_event, time, event, surv, times), times)


def integrate(scores: Array, times: Array) -> float:
    """Return the mean of scores (m,) over the time they span, eq. (2); nan if they span none."""
    if len(times) < 2:
        return math.nan
    return float(np.trapezoid(scores, times) / (times[-1] - times[0]))


def evaluation_times(
    train_time: Array, train_event: Array, test_time: Array, test_event: Array, m: int = 50
) -> Array:
    """Return times at which predictions can be judged, equally spaced.

    They run from the 5 % to the 90 % quantile of the test records' times of death. They stop before
    the end of test and training follow-up, and before less than 5 % of the training records are
    followed.

    Returns
    -------
    times : (m,), strictly increasing; empty if these limits leave no span.
    """
    died = np.asarray(test_time)[np.asarray(test_event, bool)]
    if not len(died):
        return np.empty(0)
    followed = censoring_of(train_time, train_event)
    thin = followed.times[followed.values < LEAST_FOLLOWED]
    low, high = np.quantile(died, [0.05, 0.9])
    end = min(np.max(test_time), np.max(train_time), *thin[:1])
    if high >= end:
        high = np.nextafter(end, 0.0)
    return np.linspace(low, high, m) if low < high else np.empty(0)

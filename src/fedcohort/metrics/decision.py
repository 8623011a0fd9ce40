"""Decision curves: net benefit of treating by a model, at each threshold of predicted risk.

Vickers & Elkin, Med. Decis. Making 26, 2006. Treating at a predicted risk of p or more implies that
treating a patient without the event costs w = p/(1 − p) of the gain of treating one with it. Net
benefit, in treated patients with the event per patient:

    NB(p) = TP/n − w FP/n,      treat all: π − w (1 − π),      treat none: 0                 (1)

where π is the share with the event. For survival (Vickers, Cronin, Elkin & Gonen, BMC Med. Inform.
Decis. Mak. 8:53, 2008), the n_p treated of n have the event by a horizon with probability
F_p = 1 − S_p, of Kaplan–Meier among them:

    NB(p) = q F_p − w q (1 − F_p),     q = n_p/n                                            (2)

The pointwise 95 % interval is NB ± 1.96 √v, of patients drawn independently; v is exact for (1),
and by the delta method, with Greenwood's variance g of S_p, for (2):

    v = (TP/n + w² FP/n − NB²)/n                                                            (3)
    v = q (1 − q) (F_p − w (1 − F_p))²/n + q² (1 + w)² g                                     (4)

Thresholds are the fixed grid `THRESHOLDS`. A threshold is shown only if no few people lie between
it and its neighbours: of (1), of either class; of (2), deaths by the horizon, survivors, all, and
all but the deaths. S_p is then the life table's, in cells of at least m deaths (`kaplan_meier`,
eq. 5).

Revealed: counts by class, or `GroupSums`, between neighbouring thresholds, only as sums over sites.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from fedcohort.arrays import Array
from fedcohort.metrics.calibration import GroupSums, enough_ends, group_sums, survival_at_end
from fedcohort.privacy.disclosure.steps import joined, step_sums

#: Thresholds of predicted risk.
THRESHOLDS = np.arange(1, 100) / 100
_Z = float(ndtri(0.975))


class Decision(NamedTuple):
    """Net benefit of treating by a model at ``threshold`` with its interval, and of treating all.

    All (t,), by increasing threshold from 0, where the two are the same.
    """

    threshold: Array
    net_benefit: Array
    low: Array
    high: Array
    all: Array


def of_classes(y: Array, p: Array, at_least: int = 1) -> Decision:
    """Return the decision curve of predicted probabilities, eqs. (1) and (3).

    Parameters
    ----------
    y, p : (n,), y 0 or 1.
    at_least : m.
    """
    cell = np.searchsorted(THRESHOLDS, p, side="right")
    y = np.asarray(y, float)
    size = len(THRESHOLDS) + 1
    return of_counts(
        np.stack([np.bincount(cell, y, size), np.bincount(cell, 1 - y, size)], axis=1), at_least
    )


def of_counts(cells: Array, at_least: int = 1) -> Decision:
    """Return the decision curve of counts between thresholds.

    Parameters
    ----------
    cells : (T+1, 2), with the event and without; those of the lowest risk first.
    """
    ends = joined(cells[::-1], at_least)
    treated = np.cumsum(step_sums(cells[::-1], ends), axis=0)[::-1]
    if not len(ends) or not treated[0].sum():
        return _nothing()
    p = _thresholds(ends)
    n = treated[0].sum()
    w = p / (1 - p)
    tp, fp = treated.T / n
    nb = tp - w * fp
    variance = (tp + w**2 * fp - nb**2) / n
    return _with_interval(p, nb, variance, tp[0] - w * fp[0])


def of_survival(
    survival: Array, time: Array, event: Array, horizon: float, at_least: int = 1
) -> Decision:
    """Return the decision curve of predicted survival at a horizon, eqs. (2) and (4).

    Parameters
    ----------
    survival : (n,), as predicted.
    time, event : (n,).
    at_least : m.
    """
    time = np.asarray(time, float)
    grid = np.unique(np.r_[time[time < horizon], horizon])
    return of_sums(group_sums(survival, time, event, survival_edges(), grid), at_least)


def survival_edges() -> Array:
    """Return edges of predicted survival (T,), increasing, between the cells of `of_sums`.

    A patient at a threshold is treated, and so is below the edge.
    """
    return np.nextafter(1.0 - THRESHOLDS[::-1], np.inf)


def of_sums(sums: GroupSums, at_least: int = 1) -> Decision:
    """Return the decision curve of sums between thresholds.

    Parameters
    ----------
    sums : of the cells of `survival_edges`, highest risk first, on a grid that ends at the horizon.
    """
    ends = enough_ends(sums, at_least)
    n = sums.deaths.sum() + sums.censored.sum()
    if not len(ends) or not n:
        return _nothing()
    deaths, censored = (
        np.cumsum(step_sums(s, ends), axis=0)[::-1] for s in (sums.deaths, sums.censored)
    )
    p = _thresholds(ends)
    q = (deaths.sum(axis=1) + censored.sum(axis=1)) / n
    alive, variance = (
        np.array(v)
        for v in zip(
            *(survival_at_end(d, c, at_least) for d, c in zip(deaths, censored, strict=True)),
            strict=True,
        )
    )
    w = p / (1 - p)
    each = 1 - alive - w * alive
    v = q * (1 - q) * each**2 / n + (q * (1 + w)) ** 2 * variance
    return _with_interval(p, q * each, v, 1 - alive[0] - w * alive[0])


def _thresholds(ends: Array) -> Array:
    """Return the thresholds (s,), increasing from 0, below steps of cells, highest risk first."""
    return np.r_[0.0, THRESHOLDS][::-1][ends][::-1]


def _with_interval(p: Array, nb: Array, variance: Array, all_: Array) -> Decision:
    half = _Z * np.sqrt(np.maximum(variance, 0.0))
    known = np.isfinite(nb) & np.isfinite(all_)
    return Decision(*(v[known] for v in (p, nb, nb - half, nb + half, all_)))


def _nothing() -> Decision:
    return Decision(*np.empty((5, 0)))

"""Scores of rows under a model.

A row's score is its log likelihood under the model, up to terms in the outcome alone; a model that
memorised rows gives higher scores to its training rows (Yeom et al., CSF 2018). With
H = −log S(t | x) for a survival time t with event δ, p the probability of class 1 (of several
classes p_k that of class k), ŷ the value or, for counts, the mean:

    survival   δ log H − H          class   y log p + (1−y) log(1−p), or log p_y
    value      −(y − ŷ)²            count   y log ŷ − ŷ                                    (1)

`metrics.membership` has the AUC. An attacker with similar rows trains shadow models with and
without each row (LiRA: Carlini et al., IEEE S&P 2022). With the means μ_in, μ_out of the row's
scores in them, and standard deviations σ_in, σ_out common to all rows,

    Λ = log N(s; μ_in, σ_in) − log N(s; μ_out, σ_out)                                      (2)
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import Count
from fedcohort.data.prepare import Design
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import DataError, Fitted, NotSupported

#: Hazards and probabilities are kept this far from 0.
TINY = 1e-12


def scores(model: Fitted, design: Design, frame: pd.DataFrame) -> Array:
    """Return each row's score (n,), eq. (1).

    Raises
    ------
    DataError : the model gives no prediction of an outcome.
    """
    table = design(frame)
    if isinstance(table, SurvivalTable):
        hazard = np.maximum(_hazards(model, table), TINY)
        return np.where(table.event, np.log(hazard), 0.0) - hazard
    if not isinstance(table, LabelledTable):
        raise DataError("this model predicts no outcome, so that no row has a likelihood.")
    y, said = np.asarray(table.y, float), model.predict(table.x)
    if isinstance(design.outcome, Count):
        mean = np.maximum(said, TINY)
        return y * np.log(mean) - mean
    if design.classes:
        p = np.clip(said, TINY, 1 - TINY)
        if p.ndim > 1:
            return np.log(np.take_along_axis(p, y.astype(np.int64)[:, None], axis=1)[:, 0])
        return y * np.log(p) + (1 - y) * np.log1p(-p)
    return -((y - said) ** 2)


def _hazards(model: Fitted, table: SurvivalTable) -> Array:
    """Return H(t_i | x_i) (n,); over Breslow's baseline of these very rows if the model has none.

    That one is the same for members and others, so that it favours neither.
    """
    try:
        survival = model.predict_survival(table.x, np.unique(table.time))
        at = np.searchsorted(np.unique(table.time), table.time)
        return -np.log(np.maximum(survival[np.arange(len(at)), at], 1e-300))
    except NotSupported:
        risk = np.exp(np.clip(model.predict(table.x), -50.0, 50.0))
        times, slot = np.unique(table.time, return_inverse=True)
        deaths = np.bincount(slot, np.asarray(table.event, float), len(times))
        at_risk = np.bincount(slot, risk, len(times))[::-1].cumsum()[::-1]
        baseline = Baseline.breslow(times, deaths, at_risk)
        return baseline.cumulative[slot] * risk


def likelihood_ratios(target: Array, shadows: Array, inside: Array) -> Array:
    """Return Λ of each row (n,), eq. (2).

    Parameters
    ----------
    target : scores (n,) under the model that is attacked.
    shadows : scores (K, n) under shadow models, trained with the rows where `inside` (K, n) holds.
        A row that is in all of them, or in none, has Λ = 0.
    """
    from scipy import stats  # slow to load

    seen = inside.sum(0), (~inside).sum(0)
    known = (seen[0] > 0) & (seen[1] > 0)
    total = np.zeros(len(target))
    for sign, held, count in ((1.0, inside, seen[0]), (-1.0, ~inside, seen[1])):
        mean = np.where(held, shadows, 0.0).sum(0) / np.maximum(count, 1)
        off = np.where(held, shadows - mean, 0.0)
        free = max(int(np.maximum(count - 1, 0).sum()), 1)
        sd = max(float(np.sqrt((off**2).sum() / free)), 1e-9)
        total += sign * stats.norm.logpdf(target, mean, sd)
    return np.where(known, total, 0.0)

"""Metrics of a fit under a bootstrap of its test patients, all draws at once.

Efron, Ann. Stat. 7, 1979. Draw b takes as many patients as there are, with replacement, patient i
m_i times. A draw's metric is that of the records repeated m_i times. Fit and censoring distribution
are fixed, so nothing is sorted or fitted again:

    C      Σ_i m_i w_i Σ_j m_j [1(f_j < f_i) + ½ 1(f_j = f_i)] / Σ_i m_i w_i Σ_j m_j         (1)
    IBS    Σ_i m_i c_i / Σ_i m_i,  c_i record i's own part of the score                      (2)
    bins   Σ_i m_i s_ik,  s_ik record i's share in bin k                                     (3)
    slope  U(b) = Σ_deaths m f − Σ_t d_t S_1/S_0,  S_r(t) = Σ_{j∈R(t)} m_j f_j^r e^{b f_j}   (4)

In (1), i runs over deaths and j over i's comparable partners; copies of i died when i did, so they
are not compared. (1) takes time ~ n² a draw. From `LINEAR` patients on, it is taken to first order
in m, C + Σ_i m_i ∂C/∂m_i (`concordance`, eq. 2), which leaves out some 2/√n of its deviation.

Every function takes `weights` (B, n), the m_i of B draws; its other parameters and exceptions are
those of the metric of the same name. It returns (B,), nan for a draw without an answer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedcohort.arrays import Array, ratio
from fedcohort.metrics import calibration
from fedcohort.metrics.calibration import bin_shares, pearson
from fedcohort.metrics.survival.brier import brier_terms
from fedcohort.metrics.survival.censoring import censoring_of
from fedcohort.metrics.survival.concordance import (
    TIED,
    by_time,
    checked_risk,
    death_weights,
    influence,
)
from fedcohort.numerics.survival import count_at, risk_set_sums, slots

#: Largest number of entries of a block's table.
TABLE = 2**21
#: Patients from which C of a draw is taken to first order.
LINEAR = 5000
#: Newton's error is about the square of its last step.
LAST_STEP = 1e-6


def multiplicities(n_rows: int, draws: int, rng: np.random.Generator) -> Array:
    """Return how often each of n patients occurs in each draw of n: (draws, n) integers."""
    if not n_rows:
        return np.zeros((draws, 0), np.int64)
    return rng.multinomial(n_rows, np.full(n_rows, 1.0 / n_rows), size=draws)


# C-index ----------------------------------------------------------------------------------


def harrell(weights: Array, risk: Array, time: Array, event: Array) -> Array:
    """Return Harrell's C of each draw (B,), eq. (1) with w = 1."""
    event = np.asarray(event, bool)
    return _concordance(weights, risk, time, event, np.ones(event.sum()))


def uno(
    weights: Array,
    train_time: Array,
    train_event: Array,
    time: Array,
    event: Array,
    risk: Array,
    tau: float | None = None,
) -> Array:
    """Return Uno's C up to τ of each draw (B,), eq. (1)."""
    event = np.asarray(event, bool)
    w = death_weights(train_time, train_event, np.asarray(time)[event], tau)
    return _concordance(weights, risk, time, event, w)


def _concordance(weights: Array, risk: Array, time: Array, event: Array, w: Array) -> Array:
    """Return eq. (1) with the weights `w` (m,) of the deaths, a block of deaths at a time."""
    risk = checked_risk(risk)
    if len(risk) >= LINEAR:
        found = influence(risk, time, event, w)
        return np.where(weights.any(axis=1), found.value + weights @ found.slope, np.nan)
    order, first = by_time(time, event)
    deaths, scale = np.flatnonzero(event), risk[order]
    # Single precision is exact here: it counts up to 8 million patients.
    drawn = np.ascontiguousarray(weights[:, order].T, np.float32)
    after = np.zeros((len(drawn) + 1, drawn.shape[1]))
    after[:-1] = np.cumsum(drawn[::-1], axis=0, dtype=float)[::-1]
    lower, whole = np.zeros((2, drawn.shape[1]))
    by_first = np.argsort(first, kind="stable")
    for block in _blocks(len(deaths), len(drawn)):
        i = by_first[block]
        start, own = int(first[i[0]]), risk[deaths[i], None]
        twice = np.add(scale[start:] < own - TIED, scale[start:] <= own + TIED, dtype=np.float32)
        twice *= np.arange(start, len(scale)) >= first[i, None]
        weight = w[i, None] * weights[:, deaths[i]].T
        lower += np.sum(weight * (0.5 * (twice @ drawn[start:])), axis=0)
        whole += np.sum(weight * after[first[i]], axis=0)
    return ratio(lower, whole)


# Brier score and D-calibration ------------------------------------------------------------


def integrated_brier(
    weights: Array,
    train_time: Array,
    train_event: Array,
    time: Array,
    event: Array,
    surv: Array,
    times: Array,
) -> Array:
    """Return IBS of each draw (B,), eq. (2)."""
    terms = brier_terms(time, event, surv, times, censoring_of(train_time, train_event))
    if len(times) < 2:
        return np.full(len(weights), np.nan)
    part = np.trapezoid(terms, times) / (times[-1] - times[0])
    return ratio(weights @ part, weights.sum(axis=1, dtype=float))


def d_calibration(weights: Array, own: Array, event: Array, bins: int = 10) -> Array:
    """Return the p-value of D-calibration of each draw (B,), eq. (3)."""
    return pearson(weights @ bin_shares(own, event, bins))[1]


# slope ------------------------------------------------------------------------------------


def calibration_slope(weights: Array, risk: Array, time: Array, event: Array) -> Array:
    """Return the calibration slope of each draw (B,), eq. (4), starting from the original slope.

    If the original slope is nan, all are: equal risks, or risks that order all deaths perfectly, do
    so in every draw.
    """
    risk, event = np.asarray(risk, float), np.asarray(event, bool)
    start = calibration.calibration_slope(risk, time, event).value
    if np.isnan(start):
        return np.full(len(weights), np.nan)
    spread = risk.std()
    standard = (risk - risk.mean()) / spread
    found = [
        _slopes(weights[block].T.astype(float), standard, time, event, start * spread)
        for block in _blocks(len(weights), len(risk))
    ]
    return np.concatenate(found) / spread


def _slopes(drawn: Array, risk: Array, time: Array, event: Array, start: float) -> Array:
    """Solve U(b) = 0 for each draw in `drawn` (n, B), as `calibration.fit_slope` does for one."""
    grid = np.unique(np.asarray(time)[event])
    slot = slots(time, event, grid)
    deaths = count_at(slot[event], len(grid), drawn[event])
    risk_of_dead = risk[event] @ drawn[event]
    x = risk[:, None]

    def derivatives(b: Array, of: Array) -> tuple[Array, Array]:
        """Return U and the information of the draws `of` at their slopes b."""
        weight = drawn[:, of] * np.exp(np.clip(b * x, -500.0, 500.0))
        s0, s1, s2 = (risk_set_sums(slot, len(grid), weight * x**r) for r in range(3))
        d = deaths[:, of]
        per_death = np.divide(1.0, s0, out=np.zeros_like(s0), where=d > 0)
        mean = s1 * per_death
        score = risk_of_dead[of] - np.sum(d * mean, axis=0)
        return score, np.sum(d * (s2 * per_death - mean**2), axis=0)

    n_draws = drawn.shape[1]
    found, b = np.full(n_draws, np.nan), np.full(n_draws, start)
    low, high = np.full(n_draws, -np.inf), np.full(n_draws, np.inf)
    todo = np.arange(n_draws)
    for _ in range(calibration.NEWTON_STEPS):
        score, information = derivatives(b[todo], todo)
        on = information > calibration.FLAT
        todo, step, up = todo[on], score[on] / information[on], score[on] > 0
        close = np.abs(step) < LAST_STEP
        found[todo[close]] = (b[todo] + step)[close]
        low[todo[up]], high[todo[~up]] = b[todo[up]], b[todo[~up]]
        todo, step = todo[~close], step[~close]
        b[todo] += np.clip(step, -2.0, 2.0)
        past = todo[(b[todo] <= low[todo]) | (b[todo] >= high[todo])]
        b[past] = (low[past] + high[past]) / 2.0
        if not len(todo):
            break
    return found


def _blocks(length: int, width: int) -> Iterator[slice]:
    """Cut `length` rows of a table of this width into blocks of at most `TABLE` entries."""
    step = max(1, TABLE // max(1, width))
    return (slice(k, k + step) for k in range(0, length, step))

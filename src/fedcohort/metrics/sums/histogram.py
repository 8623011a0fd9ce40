"""Metrics of pairs of records from counts by risk and time: C-index and AUC over sites.

Comparing two sites' records directly would show one site the other's record. A histogram can be
summed: risk bins (r−1 edges) × cells (t_{k−1}, t_k] of a time grid, deaths and censored records
apart. Pairs in different bins and cells are ordered as their records; the grid hides the others.
The estimate is the C-index of the records moved to the grid: one bin is a tie in risk, one cell a
tie in time. The bounds set every hidden pair to the worst, or best, case: the C-index of the
records lies between them.

Let, for a death in (bin a, cell k) and weight w_k, over all its partners:

    sure       partner in a later cell, other bin            concordant or discordant: known
    same bin   partner in a later cell, same bin             concordant, discordant or tied
    same cell  two deaths                                    either, or not comparable
    same cell  partner censored, other bin                   the known one, or not comparable

AUC, cumulative and dynamic (Uno et al., JASA 102, 2007; Hung & Chiang, Can. J. Stat. 38, 2010):
cases at t died at t_i ≤ t and weigh w_i = 1/G(t_i), G the censoring distribution of the training
records; controls have t_j > t:

    AUC(t) = Σ_i Σ_j w_i [1(f_j < f_i) + ½ 1(f_j = f_i)] / (Σ_i w_i · Σ_j 1)                (1)
    mean   = Σ_k AUC(t_k) [S(t_{k−1}) − S(t_k)] / (1 − S(t_m)),  S Kaplan–Meier, t_0 = 0    (2)

`spread_pairs` is for wide cells: records are spread evenly over their cell. Of two deaths in one
cell the one of higher risk came first in half of the pairs, and half of those censored there were
still followed when another died.

Revealed: `RiskTimeCounts`, only as a sum over sites; its smallest filled cell is reported.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.survival.censoring import Curve, Leavers, survival
from fedcohort.metrics.survival.concordance import checked_risk
from fedcohort.protocol.message import message


@message
class RiskTimeCounts:
    """Records by risk bin (rows, increasing) and time cell: ``deaths``, ``censored`` (r, T+1)."""

    deaths: Array
    censored: Array


class Concordance(NamedTuple):
    """C-index on a grid, the range that holds the C-index of the records, the smallest cell."""

    estimate: float
    low: float
    high: float
    smallest_cell: int


class Auc(NamedTuple):
    """AUC at each time (m,), nan where there are no cases or no controls; and its mean."""

    values: Array
    mean: float


def risk_time_counts(
    risk: Array, time: Array, event: Array, risk_edges: Array, grid: Array
) -> RiskTimeCounts:
    """Count records (n,) by bin of `risk_edges` (r−1,) and cell of `grid` (T,), both increasing.

    Raises
    ------
    DataError : a risk is nan.
    """
    shape = (len(risk_edges) + 1, len(grid) + 1)
    row = np.searchsorted(risk_edges, checked_risk(risk), side="right")
    cell = row * shape[1] + np.searchsorted(grid, time, side="left")
    died = np.asarray(event, bool)
    deaths, censored = (
        np.bincount(cell[chosen], minlength=shape[0] * shape[1]).reshape(shape)
        for chosen in (died, ~died)
    )
    return RiskTimeCounts(deaths, censored)


def uno_weights(grid: Array, followed: Curve, tau: float | None = None) -> Array:
    """Return w = 1(t < τ)/G(t)² of each cell (T+1,); t is the cell's end, ∞ for the last."""
    ends = np.r_[grid, np.inf]
    return followed.inverse_at(ends) ** 2 * (ends < (np.inf if tau is None else tau))


def concordance(counts: RiskTimeCounts, weight: Array | None = None) -> Concordance:
    """Return the C-index from pooled counts, and its bounds.

    Parameters
    ----------
    counts : (r, T+1).
    weight : of the deaths in each cell (T+1,): 1 for Harrell's C (the default), `uno_weights` for
        Uno's; then the bounds are for these weights.
    """
    deaths, censored = counts.deaths.astype(float), counts.censored.astype(float)
    everyone = deaths + censored
    later = np.flip(np.cumsum(np.flip(everyone, 1), axis=1), 1) - everyone
    w = np.ones(deaths.shape[1]) if weight is None else weight

    def pairs(partners: Array) -> float:
        """Sum weighted deaths times their partners, cell by cell."""
        return float(np.sum(w * deaths * partners))

    below, tied, above = pairs(_lower(later)), pairs(later), pairs(_higher(later))
    cell_below, cell_tied, cell_above = (
        pairs(_lower(censored)), pairs(censored), pairs(_higher(censored))
    )  # fmt: skip
    died = deaths.sum(axis=0)
    two_deaths = float(np.sum(w * died * (died - 1.0))) / 2.0

    concordant, half = below + cell_below, tied + cell_tied
    unknown = half + two_deaths
    return Concordance(
        _share(concordant + 0.5 * half, concordant + half + above + cell_above, math.nan),
        _share(below, below + above + cell_above + unknown, 0.0),
        _share(concordant + unknown, concordant + unknown + above, 1.0),
        smallest_cell(counts),
    )


def spread_pairs(counts: RiskTimeCounts, weight: Array) -> tuple[float, float]:
    """Return the pairs in the right order, and all, with records spread evenly over their cells.

    Parameters
    ----------
    counts : (r, T+1).
    weight : of the deaths in each cell (T+1,).
    """
    deaths, censored = counts.deaths.astype(float), counts.censored.astype(float)
    everyone = deaths + censored
    followed = np.flip(np.cumsum(np.flip(everyone, 1), axis=1), 1) - everyone + 0.5 * censored
    return pairs_of(deaths, followed, weight)


def pairs_of(deaths: Array, followed: Array, weight: Array) -> tuple[float, float]:
    """Return the pairs that are right, and all, of deaths and those followed behind their cells.

    Parameters
    ----------
    deaths, followed : by bin of risk (rows, increasing) and cell of time: (r, T+1).
    weight : of the deaths in each cell (T+1,).
    """
    weighted = weight * deaths
    right = float(np.sum(weighted * (_lower(followed) + 0.5 * followed)))
    died = deaths.sum(axis=0)
    together = float(np.sum(weight * died * (died - 1.0))) / 2.0
    whole = float(np.sum(weighted.sum(axis=0) * followed.sum(axis=0)))
    return right + 0.5 * together, whole + together


def smallest_cell(counts: RiskTimeCounts) -> int:
    """Return the smallest count that is not 0; 0 if there are no records."""
    cells = np.r_[counts.deaths.ravel(), counts.censored.ravel()]
    filled = cells[cells > 0]
    return int(filled.min()) if len(filled) else 0


def auc(counts: RiskTimeCounts, grid: Array, followed: Curve) -> Auc:
    """Return the cumulative/dynamic AUC at each time of the grid (T,); records of a bin tie in
    risk.
    """
    cases = np.cumsum(counts.deaths * followed.inverse_at(np.r_[grid, np.inf]), axis=1)[:, :-1]
    everyone = counts.deaths + counts.censored
    controls = (everyone.sum(axis=1, keepdims=True) - np.cumsum(everyone, axis=1))[:, :-1]
    values = np.array([_separation(*pair) for pair in zip(cases.T, controls.T, strict=True)])
    alive = survival(grid, Leavers(counts.deaths.sum(axis=0), counts.censored.sum(axis=0)))
    return Auc(values, _mean_auc(values, grid, alive))


def _separation(cases: Array, controls: Array) -> float:
    """Return eq. (1) from weights by increasing risk: both (r,), tied within an entry."""
    pairs = float(cases.sum() * controls.sum())
    if not pairs:
        return math.nan
    lower = np.cumsum(controls) - 0.5 * controls
    return float(cases @ lower) / pairs


def _mean_auc(values: Array, times: Array, alive: Curve) -> float:
    """Return eq. (2) for AUC values (m,) and the records' survival; nan if nobody dies by t_m."""
    drop = -np.diff(np.r_[1.0, alive.at(times)])
    on = drop > 0
    return float(values[on] @ drop[on] / drop.sum()) if on.any() else math.nan


def _lower(partners: Array) -> Array:
    """Return the partners in lower risk bins (r, T+1)."""
    return np.cumsum(partners, axis=0) - partners


def _higher(partners: Array) -> Array:
    """Return the partners in higher risk bins (r, T+1)."""
    return np.flip(np.cumsum(np.flip(partners, 0), axis=0), 0) - partners


def _share(part: float, whole: float, otherwise: float) -> float:
    return part / whole if whole else otherwise

"""Evaluation times and censoring distribution for the blind rows of all sites.

Sites count deaths and censorings in about 256 cells of time, training and blind rows separately,
without any covariate. Quantiles of the times of death, and Kaplan–Meier's G of the training rows'
censoring, follow from these counts, with events spread evenly over a cell:

    G(t_k) = Π_{l ≤ k} (1 − c_l / (n_l − d_l/2)),  falling by equal factors inside a cell      (1)

In a private study only blind rows are counted, and G is theirs: ε does not cover an exact sum over
training rows. For sums that also use risks, cells are joined to intervals with at least `min_cell`
deaths each.

Revealed: as sums over sites, what `data.timegrid` reveals of all rows, and `Leavers` of either
half; in a private study both of the blind rows only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.timegrid import time_grid
from fedcohort.metrics.sums import predictions as federated
from fedcohort.metrics.survival.brier import LEAST_FOLLOWED
from fedcohort.metrics.survival.censoring import Curve, Leavers, at_risk
from fedcohort.metrics.survival.kaplan_meier import round_time
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.study.at_site.judging import ALL, Seen

#: Number of equal cells of the follow-up, besides intervals of `min_cell` deaths; number of steps
#: of the censoring distribution over each.
CELLS, FALLS = 256, 4
#: Number of evaluation times of predicted curves.
TIMES = 50


@dataclass(frozen=True)
class TimeScale:
    """What all metrics of survival share, for any model; see `pooled.survival.Yardstick`.

    Attributes
    ----------
    followed : G of the training rows; of the blind ones in a private study.
    grid : (T,) ends of intervals of `min_cell` deaths of the blind rows; empty without deaths.
    weight : (T+1,) mean of 1(t < τ)/G(t)² over the deaths of each interval, for Uno's C.
    times : (m,) evaluation times of curves.
    tau, horizon : as in `Yardstick`, but the horizon is near the median death of all rows.
    """

    followed: Curve
    grid: Array
    weight: Array
    times: Array
    tau: float
    horizon: float


def time_scale_of(fed: Coordinator, min_cell: int, *, private: bool = False) -> TimeScale:
    """Derive the time scale from counts of deaths and censorings of training and blind rows.

    Parameters
    ----------
    private : use the blind rows only, also in place of the training rows.
    """
    every = "blind" if private else ALL
    cells = _cells(time_grid(fed.through(Seen(every)), "protected", min_cell))
    blind = fed.through(Seen("blind")).sum(federated.count_leavers, grid=cells)
    train = blind
    if not private:
        train = fed.through(Seen("train")).sum(federated.count_leavers, grid=cells)
    (tau,) = _quantiles(train.deaths, cells, (0.9,))
    followed = falling(cells, train)
    (middle,) = _quantiles(train.deaths + blind.deaths, cells, (0.5,))
    horizon = round_time(middle, float(cells[-1]))  # the same in all repeats
    if not blind.deaths.sum():
        return TimeScale(followed, np.empty(0), np.empty(0), np.empty(0), tau, horizon)
    low, high = _quantiles(blind.deaths, cells, (0.05, 0.9))
    thin = followed.times[followed.values < LEAST_FOLLOWED]
    ends = [_last(train, cells), _last(blind, cells), *thin[:1].tolist()]
    high = min(high, float(np.nextafter(min(ends), 0.0)))
    times = np.linspace(low, high, TIMES) if low < high else np.empty(0)
    joined = _joined(blind.deaths, min_cell)
    middles = np.r_[(np.r_[0.0, cells[:-1]] + cells) / 2.0, np.inf]
    each = followed.inverse_at(middles) ** 2 * np.r_[_before(tau, cells), 0.0]
    of = np.searchsorted(joined, np.arange(len(cells) + 1))
    died = np.bincount(of, blind.deaths, minlength=len(joined) + 1)
    weighed = np.bincount(of, blind.deaths * each, minlength=len(joined) + 1)
    weight = np.divide(weighed, died, out=np.zeros(len(died)), where=died > 0)
    return TimeScale(followed, cells[joined], weight, times, tau, horizon)


def _cells(ends: Array) -> Array:
    """Return ends of `CELLS` equal cells, divided further at `ends`: (c,)."""
    return np.unique(np.r_[np.linspace(0.0, float(ends[-1]), CELLS + 1)[1:], ends])


def _joined(deaths: Array, min_cell: int) -> Array:
    """Return the indices of cells at which intervals of `min_cell` deaths end: (T,)."""
    ends: list[int] = []
    held = 0
    for i, n in enumerate(deaths[:-1].tolist()):
        held += int(n)
        if held >= max(1, min_cell):
            ends.append(i)
            held = 0
    return np.array([*ends[:-1], len(deaths) - 2])


def _before(time: float, cells: Array) -> Array:
    """Return the share of each cell (c,) before a time."""
    starts = np.r_[0.0, cells[:-1]]
    return np.clip((time - starts) / (cells - starts), 0.0, 1.0)


def _quantiles(counts: Array, cells: Array, shares: tuple[float, ...]) -> list[float]:
    """Return quantiles of the times of death, spread evenly over their cells."""
    deaths = counts[:-1].astype(np.int64)
    starts = np.r_[0.0, cells[:-1]]
    place = np.arange(deaths.sum()) - np.repeat(np.cumsum(deaths) - deaths, deaths)
    share = (place + 0.5) / np.repeat(deaths, deaths)
    died = np.repeat(starts, deaths) + share * np.repeat(cells - starts, deaths)
    return np.quantile(died, shares).tolist()


def _last(counts: Leavers, cells: Array) -> float:
    """Return the last end of a cell after which somebody was still followed; 0 for none."""
    beyond = at_risk(counts)[1:] > 0
    return float(cells[beyond][-1]) if beyond.any() else 0.0


def falling(cells: Array, counts: Leavers) -> Curve:
    """Return the censoring distribution, eq. (1), in `FALLS` steps over each cell (c,)."""
    risk = at_risk(counts)[:-1] - 0.5 * counts.deaths[:-1]
    lost = np.divide(counts.censored[:-1], risk, out=np.zeros(len(risk)), where=risk > 0)
    hazard = -np.log1p(-np.minimum(lost, 1.0 - 1e-9))
    starts, before = np.r_[0.0, cells[:-1]], np.r_[0.0, np.cumsum(hazard)[:-1]]
    step = np.arange(FALLS) / FALLS
    times = starts[:, None] + (cells - starts)[:, None] * step
    gone = before[:, None] + hazard[:, None] * (step + 0.5 / FALLS)
    return Curve(
        np.r_[times.ravel(), cells[-1]], np.exp(-np.r_[gone.ravel(), before[-1] + hazard[-1]])
    )

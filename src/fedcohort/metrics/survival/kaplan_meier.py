"""Survival (Kaplan–Meier, Greenwood) and cumulative hazard (Nelson–Aalen) with intervals.

Kaplan & Meier, JASA 53, 1958; Greenwood, Rep. Public Health Med. Subj. 33, 1926; intervals on the
scale of log(−log S), Kalbfleisch & Prentice, 2nd ed. 2002, eq. 1.13. With d_k deaths and n_k
records at risk in cell k of a grid, and z the normal quantile of the level,

    S(t_k) = Π_{l ≤ k} (1 − d_l/n_l)                                                        (1)
    v(t_k) = Σ_{l ≤ k} d_l / (n_l (n_l − d_l))                                              (2)
    low, high = S^exp(±z √v / −log S)     on the scale "log-log"                            (3)
    low, high = S exp(∓z √v)  "log",      S ∓ z √v S  "plain",    both cut to [0, 1]        (4)

On the grid of all distinct times this is the estimate of the ungridded records. Groups are the rows
of the counts (g, T+1), so one sum over sites serves many curves.

A life table (Cutler & Ederer, J. Chronic Dis. 8, 1958) has fewer cells. With c_k censored in cell
k, counted late (fewer than m are moved to the following cells, `steps.late`), d_k deaths and
n_k = n − Σ_{l<k} (d_l + c_l),

    S(t_k) = Π_{l ≤ k} (1 − d_l/(n_l − c_l/2)),     v(t_k) with n_l − c_l/2 for n_l          (5)

Cumulative hazard: Nelson, Technometrics 14(4), 1972; Aalen, Ann. Stat. 6(4), 1978; variance and
interval as Klein, Scand. J. Stat. 18(4), 1991, recommends. With d_k deaths of n_k at risk in cell k
of a grid,

    H(t_k) = Σ_{l ≤ k} d_l/n_l                                                              (6)
    v(t_k) = Σ_{l ≤ k} d_l (n_l − d_l) / n_l³                                               (7)
    low, high = H exp(∓z √v / H)                                                            (8)

If cells are intervals whose deaths have different times, a cell's d deaths are d cells of one death
in (6) and (7), with n at risk for the first and n − d + 1 for the last: to a term of second order
in d/n, all have

    n − (d − 1)/2                                                                           (9)

Revealed: `Leavers` by group, only as sums over sites.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from fedcohort.arrays import Array
from fedcohort.metrics.survival.censoring import Leavers, at_risk, leavers, product_limit
from fedcohort.privacy.disclosure.steps import late


class Hazard(NamedTuple):
    """A cumulative hazard on a grid, with its interval: each (…, T)."""

    times: Array
    cumulative: Array
    low: Array
    high: Array


def nelson_aalen(
    times: Array, deaths: Array, risk: Array, level: float = 0.95, *, tied: bool = True
) -> Hazard:
    """Return H and its interval, eqs. (6) to (8), of ``deaths`` among ``risk`` (…, T).

    Parameters
    ----------
    tied : whether the deaths of a cell share their time; eq. (9) is used if not.
    """
    n = np.where(risk > 0, risk, 1.0)
    together = deaths if tied else np.minimum(deaths, 1)
    n = n - (deaths - together) / 2
    hazard = np.cumsum(deaths / n, axis=-1)
    spread = np.sqrt(np.cumsum(deaths * (n - together) / n**3, axis=-1))
    z = float(ndtri((1.0 + level) / 2.0))
    factor = np.exp(z * spread / np.where(hazard > 0, hazard, 1.0))
    return Hazard(np.asarray(times, float), hazard, hazard / factor, hazard * factor)


#: Scales on which an interval may be symmetric.
SCALES = ("log-log", "log", "plain")
#: A round step is one of these times a power of ten.
ROUND = (1.0, 2.0, 2.5, 5.0)
#: A time is rounded to a step that is about a tenth of it: it has at most so many, to twice itself.
NEAR = 20


class Survival(NamedTuple):
    """A survival curve on a grid: each (…, T), the interval nan where S is 0."""

    times: Array
    survival: Array
    low: Array
    high: Array


def group_leavers(group: Array, groups: int, time: Array, event: Array, grid: Array) -> Leavers:
    """Count the records (n,) that end in each cell of `grid` (T,), by group: (groups, T+1).

    Parameters
    ----------
    group : (n,) integers in [0, groups).
    """
    by_group = [leavers(time[group == g], event[group == g], grid) for g in range(groups)]
    return Leavers(np.stack([c.deaths for c in by_group]), np.stack([c.censored for c in by_group]))


def kaplan_meier(grid: Array, counts: Leavers, level: float = 0.95) -> Survival:
    """Return S and its interval on the grid (T,), eqs. (1) to (3), from pooled counts (…, T+1)."""
    return survival_curve(grid, counts.deaths[..., :-1], at_risk(counts)[..., :-1], level)


def survival_curve(
    times: Array, deaths: Array, risk: Array, level: float = 0.95, scale: str = "log-log"
) -> Survival:
    """Return S and its interval, eqs. (1) to (4).

    Parameters
    ----------
    times : (T,), at which ``deaths`` of ``risk`` (…, T) at risk die.
    scale : one of `SCALES`, that of the interval.
    """
    alive = product_limit(deaths, risk)
    left = risk * (risk - deaths)
    terms = np.divide(deaths, left, out=np.zeros(left.shape), where=(deaths > 0) & (left > 0))
    z = float(ndtri((1.0 + level) / 2.0))
    spread = z * np.sqrt(np.cumsum(terms, axis=-1))
    inside = (alive > 0) & (alive < 1)
    if scale == "log-log":
        log = np.log(alive, out=np.full(alive.shape, -1.0), where=inside)
        bounds = [np.exp(log * np.exp(s / -log)) for s in (spread, -spread)]
    elif scale == "log":
        bounds = [np.minimum(alive * np.exp(s), 1.0) for s in (-spread, spread)]
    else:
        bounds = [np.clip(alive + s * alive, 0.0, 1.0) for s in (-spread, spread)]
    edge = np.where(alive > 0, 1.0, math.nan)
    low, high = (np.where(inside, b, edge) for b in bounds)
    return Survival(np.asarray(times, float), alive, low, high)


def first_below(times: Array, values: Array, level: float, *, steps: bool = True) -> float:
    """Return the time at which a falling curve from 1 reaches `level`; nan if never.

    Parameters
    ----------
    times, values : (T,). A value within rounding of the level counts as on it; nan is not below.
    steps : the curve falls at the times alone; if not, along straight lines.
    """
    found = np.flatnonzero(values <= level + 1e-12)
    if not len(found):
        return math.nan
    i = int(found[0])
    if steps:
        return float(times[i])
    t0, s0 = (float(times[i - 1]), float(values[i - 1])) if i else (0.0, 1.0)
    return t0 + (float(times[i]) - t0) * min((s0 - level) / (s0 - float(values[i])), 1.0)


def followed(time: Array, at: Array) -> Array:
    """Return the numbers at risk: how many records (n,) have a time of at least each of `at`."""
    return len(time) - np.searchsorted(np.sort(time), at, side="left")


def round_times(low: float, high: float, most: int) -> Array:
    """Return the multiples of a round step in [low, high], by the finest step that gives ≤ `most`.

    Parameters
    ----------
    low, high : 0 ≤ low ≤ high, of any unit.

    Returns
    -------
    times : increasing; empty if no round number lies between or `high` is 0.
    """
    if not 0 <= low <= high or high == 0:
        return np.empty(0)
    power = math.floor(math.log10(max(high - low, high * 1e-6) / most))
    for scale in (10.0 ** (power + i) for i in range(3)):
        for step in (scale * r for r in ROUND):
            first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
            if last - first < most:
                times = np.round(step * np.arange(first, last + 1), 12 - power)
                return times[(times >= low) & (times <= high)]
    return np.empty(0)


def round_time(time: float, last: float) -> float:
    """Return a round time near one that may be a single record's own, up to `last` ≥ `time` > 0."""
    times = round_times(0.0, min(2.0 * time, last), NEAR)
    times = times[times > 0]
    return float(times[np.argmin(np.abs(times - time))]) if len(times) else time


def life_table(times: Array, deaths: Array, censored: Array, n: float, at_least: int) -> Survival:
    """Return S and its interval, eq. (5), of n records.

    Parameters
    ----------
    times : (k,), the ends of the cells that hold ``deaths``, ``censored`` (k,).
    """
    return survival_curve(times, deaths, life_table_risk(deaths, censored, n, at_least))


def life_table_risk(deaths: Array, censored: Array, n: float, at_least: int) -> Array:
    """Return the numbers at risk n_k − c_k/2 of eq. (5): (k,); parameters as `life_table`."""
    moved = late(censored, at_least, n - deaths.sum())
    return n - np.r_[0, np.cumsum(deaths + moved)[:-1]] - moved / 2.0

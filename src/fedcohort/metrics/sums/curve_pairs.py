"""Antolini's C over sites: pairs of one site exactly, pairs of two sites by bins.

A site compares its own records by `metrics.survival.antolini`. For two sites' records, each
interval of a time grid with enough deaths reads the curves at the evaluation time nearest its
middle, s_c; intervals of one such time form a group. With r_c the records that are still followed
at the start of group c,

    u_c   = log(−log S(s_c)), standardised over the r_c records of all sites                   (1)
    bins  quantiles of all u_c together, the same for all groups                               (2)

count deaths of each interval, and those still followed behind it (censored in it: half), by bin of
their group's u. Then, with H the pairs by these counts (`histogram.pairs_of`),

    pairs = H(all sites) + Σ_k [pairs of site k − H(site k)]                                   (3)

as for the C-index. Each interval holds deaths of `min_cell` records or more, so (1) is of as many,
and consecutive groups differ by as many.

Steps read `surv` (n, m) at the evaluation times (m,), `time` and `event`.

Revealed: the messages below, only as sums over sites.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.calibration import varies
from fedcohort.metrics.sums.histogram import pairs_of
from fedcohort.metrics.sums.within_sites import PairSums
from fedcohort.metrics.survival.antolini import fallen, pairs
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed

#: Survival is cut to so much above 0 and below 1 before its logarithms.
EDGE = 1e-12


@message
class CurveMoments:
    """Records still followed at the start of each group, Σ u and Σ (u − centre)²: (m,) each."""

    followed: Array
    total: Array
    squares: Array


@message
class CurveCounts:
    """Records still followed by bin of standardised u, over all groups: ``counts`` (r,)."""

    counts: Array


@message
class CurvePairs:
    """By interval and bin, ``deaths`` in it and those ``followed`` behind it: (T+1, r) each."""

    deaths: Array
    followed: Array


@summed
def sum_own_curve_pairs(site: Site[Any, None], *, times: Array) -> PairSums:
    """Sum the comparable pairs of the site's own records, and those in the right order by curve."""
    d = site.data
    right, whole = pairs(d.surv, times, d.time, d.event, np.ones((1, len(d.time))))
    return PairSums(*(np.array(float(v)) for v in (right[0], whole[0], 0.0, 0.0)))


@summed
def sum_curve_moments(
    site: Site[Any, None], *, times: Array, grid: Array, groups: Array, centre: Array
) -> CurveMoments:
    """Number of blind rows followed so far, sums of predicted survival, and of its squares.

    groups : (T+1,) the group of each interval of the grid, and of what lies behind.
    """
    u, here = _points(site.data, times), _followed(site.data, grid, groups)
    off = np.where(here, u - centre, 0.0)
    return CurveMoments(here.sum(axis=0), np.where(here, u, 0.0).sum(axis=0), (off**2).sum(axis=0))


@summed
def count_curves(
    site: Site[Any, None], *, times: Array, grid: Array, groups: Array, centre: Array,
    spread: Array, risk_edges: Array,
) -> CurveCounts:  # fmt: skip
    """Blind rows followed so far by predicted survival, over all groups of intervals."""
    z = (_points(site.data, times) - centre) / spread
    bins = np.searchsorted(risk_edges, z[_followed(site.data, grid, groups)], side="right")
    return CurveCounts(np.bincount(bins, minlength=len(risk_edges) + 1))


@summed
def count_curve_pairs(
    site: Site[Any, None], *, times: Array, grid: Array, groups: Array, centre: Array,
    spread: Array, risk_edges: Array,
) -> CurvePairs:  # fmt: skip
    """Deaths in each interval of time, and rows followed behind it, by predicted survival."""
    return CurvePairs(*_counts(site.data, times, grid, groups, centre, spread, risk_edges))


@summed
def sum_binned_curve_pairs(
    site: Site[Any, None], *, times: Array, grid: Array, groups: Array, centre: Array,
    spread: Array, risk_edges: Array,
) -> PairSums:  # fmt: skip
    """Sum the same pairs as the site's own counts by predicted survival tell them, eq. (3)."""
    deaths, followed = _counts(site.data, times, grid, groups, centre, spread, risk_edges)
    found = pairs_of(deaths.T, followed.T, np.ones(len(deaths)))
    return PairSums(*(np.array(float(v)) for v in (*found, 0.0, 0.0)))


STEPS = (
    sum_own_curve_pairs, sum_curve_moments, count_curves, count_curve_pairs, sum_binned_curve_pairs,
)  # fmt: skip


def groups_of(grid: Array, times: Array) -> Array:
    """Return the group of each interval of a grid (T,), and of what lies behind: (T+1,).

    It is the number of the nearest of `times` (m,), and never falls.
    """
    middle = (np.r_[0.0, grid[:-1]] + grid) / 2.0
    nearest = np.abs(middle[:, None] - times).argmin(axis=1)
    return np.r_[nearest, len(times) - 1]


def federated_antolini(
    fed: Federation, own: PairSums, *, grid: Array, times: Array, bins: int, fine: int
) -> float:
    """Return C_td of all pairs, eq. (3); nan without any.

    Parameters
    ----------
    fed : sites whose `surv` is at the `times` (m,).
    own : pairs of one site.
    grid : (T,), ends of intervals with enough deaths.
    bins, fine : number of bins, and cells for each of them in search of quantiles.
    """
    asked: dict[str, Array] = {"times": times, "grid": grid, "groups": groups_of(grid, times)}
    m = len(times)
    first = fed.sum(sum_curve_moments, centre=np.zeros(m), **asked)
    rows = np.maximum(first.followed, 1)
    centre = first.total / rows
    squares = fed.sum(sum_curve_moments, centre=centre, **asked).squares
    parts = zip(np.sqrt(squares / rows).tolist(), np.abs(centre).tolist(), strict=True)
    # where curves differ by rounding alone, all are near 0, in one bin
    spread = np.array([s if varies(s, c) else 1e6 * (1.0 + c) for s, c in parts])
    asked |= {"centre": centre, "spread": spread}
    cells = np.linspace(-6.0, 6.0, fine * bins + 1)
    up_to = np.cumsum(fed.sum(count_curves, risk_edges=cells, **asked).counts)
    wanted = up_to[-1] * np.arange(1, bins) / bins
    asked["risk_edges"] = np.unique(np.interp(wanted, up_to[:-1], cells))
    counts = fed.sum(count_curve_pairs, **asked)
    h = fed.sum(sum_binned_curve_pairs, **asked)
    right, whole = pairs_of(counts.deaths.T, counts.followed.T, np.ones(len(counts.deaths)))
    whole += float(own.pairs - h.pairs)
    return (right + float(own.right - h.right)) / whole if whole > 0 else math.nan


def _points(d: Any, times: Array) -> Array:
    """Return u (n, m), eq. (1), before it is standardised."""
    return np.log(-np.log(np.clip(fallen(np.asarray(d.surv, float), times), EDGE, 1.0 - EDGE)))


def _cell(d: Any, grid: Array) -> Array:
    return np.searchsorted(grid, d.time, side="left")


def _followed(d: Any, grid: Array, groups: Array) -> Array:
    """Return whether each record is followed at the start of each group: bool (n, m)."""
    return groups[_cell(d, grid)][:, None] >= np.arange(np.shape(d.surv)[1])


def _counts(
    d: Any,
    times: Array,
    grid: Array,
    groups: Array,
    centre: Array,
    spread: Array,
    risk_edges: Array,
) -> tuple[Array, Array]:
    """Return deaths, and records followed, by interval and bin: (T+1, r) each."""
    of = np.searchsorted(risk_edges, (_points(d, times) - centre) / spread, side="right")
    cell, died, r = _cell(d, grid), np.asarray(d.event, bool), len(risk_edges) + 1
    deaths, followed = np.zeros((2, len(groups), r))
    for k, group in enumerate(np.asarray(groups)):
        bins, here = of[:, group], cell == k
        deaths[k] = np.bincount(bins[here & died], minlength=r)
        followed[k] = np.bincount(bins[cell > k], minlength=r)
        followed[k] += 0.5 * np.bincount(bins[here & ~died], minlength=r)
    return deaths, followed

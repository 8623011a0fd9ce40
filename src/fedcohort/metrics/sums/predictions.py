"""Metrics of survival over sites: steps that sum, and programs of several sums.

A step does not know the model. The coordinator sends one as a view, a pure function of a site's
records: `fed.through(view)`, where `view(data)` returns `Scored` and `view.spec` is its JSON. The
metrics' own functions take the sums:

    followed = censoring(grid, train.sum(count_leavers, grid=grid))  # G of training records
    scores = federated_brier(test, times=times, followed=followed)   # BS(t) of test records
    integrate(scores, times)

With a grid of all distinct times, every result but the C-index and AUC equals that of the pooled
records to rounding. These two converge to it with finer risk bins, and the C-index has bounds.
Revealed: see each step; all are sums over sites.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.calibration import (
    BinCounts,
    DCalibration,
    GroupSums,
    SlopeSums,
    bin_counts,
    d_test,
    group_sums,
    own_survival,
    slope_sums,
    varies,
)
from fedcohort.metrics.sums.histogram import RiskTimeCounts, risk_time_counts
from fedcohort.metrics.survival.brier import BrierSums, brier_sums, mean_score
from fedcohort.metrics.survival.censoring import Curve, Leavers, leavers
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed


class Scored(NamedTuple):
    """Records with a model's predictions.

    ``risk`` (n,) log risk, higher is worse; ``surv`` (n, m) predicted survival at the times of the
    evaluation (m,); ``time`` (n,); ``event`` (n,) bool.
    """

    risk: Array
    surv: Array
    time: Array
    event: Array


# steps ------------------------------------------------------------------------------------


@message
class RiskMoments:
    """``rows`` (), ``total`` () = Σ f, ``squares`` () = Σ (f − centre)²."""

    rows: Array
    total: Array
    squares: Array


@message
class RiskCounts:
    """Records by risk bin: ``counts`` (r,)."""

    counts: Array


@summed
def count_leavers(site: Site[Scored, None], *, grid: Array) -> Leavers:
    """Count deaths and censored records by time."""
    return leavers(site.data.time, site.data.event, grid)


@summed
def score_moments(site: Site[Scored, None], *, centre: float) -> RiskMoments:
    """Return the number of blind records, and the sums of predicted risks and of their squares."""
    risk = np.asarray(site.data.risk, float)
    squares = np.sum((risk - centre) ** 2)
    return RiskMoments(np.array(float(len(risk))), np.array(risk.sum()), np.array(squares))


@summed
def count_risks(site: Site[Scored, None], *, risk_edges: Array) -> RiskCounts:
    """Count records by predicted risk."""
    bins = np.searchsorted(risk_edges, site.data.risk, side="right")
    return RiskCounts(np.bincount(bins, minlength=len(risk_edges) + 1))


@summed
def count_risk_by_time(
    site: Site[Scored, None], *, risk_edges: Array, grid: Array
) -> RiskTimeCounts:
    """Count deaths and censored records by predicted risk and time."""
    d = site.data
    return risk_time_counts(d.risk, d.time, d.event, risk_edges, grid)


@summed
def sum_brier(
    site: Site[Scored, None], *, times: Array, known: Array, followed: Array
) -> BrierSums:
    """Sum the squared errors of predicted survival at each time, weighted for censoring.

    G is `followed` from the times `known` on.
    """
    d = site.data
    return brier_sums(d.time, d.event, d.surv, times, Curve(known, followed))


@summed
def sum_groups(site: Site[Scored, None], *, column: int, edges: Array, grid: Array) -> GroupSums:
    """Sum predicted survival, deaths and censored records by group of predicted survival."""
    d = site.data
    return group_sums(d.surv[:, column], d.time, d.event, edges, grid)


@summed
def count_own_survival(site: Site[Scored, None], *, times: Array, bins: int) -> BinCounts:
    """Count records by predicted survival at their own time."""
    d = site.data
    return bin_counts(*own_survival(d.surv, times, d.time, d.event), bins)


@summed
def sum_slope(
    site: Site[Scored, None], *, grid: Array, centre: float, spread: float, b: float
) -> SlopeSums:
    """Return the risk-set sums of the Cox model on the standardised risk at slope b."""
    d = site.data
    return slope_sums((np.asarray(d.risk, float) - centre) / spread, d.time, d.event, grid, b)


STEPS = (
    count_leavers,
    score_moments,
    count_risks,
    count_risk_by_time,
    sum_brier,
    sum_groups,
    count_own_survival,
    sum_slope,
)


# programs ---------------------------------------------------------------------------------


def federated_risk_edges(fed: Federation, *, bins: int = 100, fine: int = 16) -> Array:
    """Return edges that split the pooled risks into bins of about equal size.

    Two sums give mean and standard deviation; a third gives a histogram of `fine` cells per bin,
    six deviations wide, for the quantiles.

    Returns
    -------
    edges : at most bins − 1, strictly increasing; empty if all risks are equal.
    """
    centre, spread = _location(fed)
    if spread == 0:
        return np.empty(0)
    cells = centre + spread * np.linspace(-6.0, 6.0, fine * bins + 1)
    counts = fed.sum(count_risks, risk_edges=cells).counts
    up_to = np.cumsum(counts)
    wanted = up_to[-1] * np.arange(1, bins) / bins
    return np.unique(np.interp(wanted, up_to[:-1], cells))


def federated_brier(fed: Federation, *, times: Array, followed: Curve) -> Array:
    """Return BS(t) at the times (m,) of the sites' `surv`; G from training records."""
    return mean_score(
        fed.sum(sum_brier, times=times, known=followed.times, followed=followed.values)
    )


def federated_d_calibration(fed: Federation, *, times: Array, bins: int = 10) -> DCalibration:
    """Test D-calibration of `surv`, known at `times` (m,), in `bins` bins."""
    return d_test(fed.sum(count_own_survival, times=times, bins=bins))


def _location(fed: Federation) -> tuple[float, float]:
    """Return mean and standard deviation of the pooled risks; 0 if they differ only by rounding."""
    first = fed.sum(score_moments, centre=0.0)
    rows = max(1.0, float(first.rows))
    centre = float(first.total) / rows
    spread = float(np.sqrt(fed.sum(score_moments, centre=centre).squares / rows))
    return centre, spread if varies(spread, abs(centre)) else 0.0

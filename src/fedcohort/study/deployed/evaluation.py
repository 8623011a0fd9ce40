"""Metrics of a fit on the blind rows of all sites, from sums over sites.

Against the metrics of the pooled blind rows, which no party sees:

    exact       accuracy, brier, log_loss, calibration_slope of classes; every metric of values
    on a grid   ibs, d_calibration_p, calibration_slope of survival: deaths and censorings are moved
                to the ends of intervals that each hold `min_cell` deaths (`data.timegrid`), and the
                times of the evaluation are found from these
    by bins     c_index, uno_c, auc: pairs in one of `BINS` bins of risk, or one interval of time,
                are not compared

`docs/deployed-metrics.md` has the errors, measured. There are no draws of a bootstrap: the seeds of
a study are public, so sums at B known weights of the rows would be B equations of n unknown rows.
Intervals are over repeats instead.

The lower bound is judged within sites, since each site has a model of its own: C-index, AUC and
slope of survival compare rows of one site alone, exactly; the others are the same sums.

Revealed: what `judging` lists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.outcome import Binary, Outcome, Survival
from fedcohort.data.timegrid import time_grid
from fedcohort.metrics import federated, federated_values, histogram, within_sites
from fedcohort.metrics.brier import LEAST_FOLLOWED, integrate
from fedcohort.metrics.calibration import groups_of, solve_slope, varies, with_enough
from fedcohort.metrics.censoring import Curve, at_risk
from fedcohort.metrics.kaplan_meier import round_time
from fedcohort.protocol import NothingToLearn, Row, SiteUnavailable
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.study.deployed.judging import Own, Said, Seen, tell_own
from fedcohort.study.judges.base import Metrics
from fedcohort.study.judges.survival import CURVES, GROUPS
from fedcohort.study.plan import Plan

#: Bins of predictions, of about equally many blind rows.
BINS = 100
#: Cells of the follow-up in which deaths are counted for their quantiles.
CELLS = 128
#: How many times predicted curves are judged at.
TIMES = 50

Centres = Mapping[str, tuple[float, float] | None]


@dataclass(frozen=True)
class Found:
    """What judging one fit gave.

    Attributes
    ----------
    metrics : over all sites; None where one is not defined.
    own : by site, the leading metric on its own blind rows and its standard error, where told.
    groups : predicted against observed, as `Judge.groups` has them.
    """

    metrics: Metrics
    own: Centres
    groups: list[Row]


def judge(fed: Coordinator, plan: Plan, outcome: Outcome, said: Said | Own) -> Found:
    """Judge one model on the blind rows of all sites that answer, or each site's own there.

    Raises
    ------
    SiteUnavailable : a site left between two calls.
    """
    fed.through(Seen("blind")).sum(federated.risk_moments, centre=0.0)
    fed = fed.only(fed.answered)
    if isinstance(outcome, Survival):
        metrics, groups = _survival(fed, plan, said)
    elif isinstance(outcome, Binary):
        metrics, groups = _classes(fed, plan, said)
    else:
        metrics, groups = federated_values.federated_regression(fed.through(said)), list[Row]()
    told = fed.through(said).gather(tell_own, min_cell=plan.min_cell)
    if late := sorted({s for call, s in fed.missing if call}):
        raise SiteUnavailable(
            f"{', '.join(late)} left while the blind rows were judged, and metrics are of the same "
            f"sites throughout. Bring them back and --resume, or start again without them."
        )
    own = {s: (float(t.value), float(t.error)) if t.told else None for s, t in told.items()}
    wanted = {m: metrics.get(m, math.nan) for m in plan.metrics}
    shown = {m: float(v) if np.isfinite(v) else None for m, v in wanted.items()}
    return Found(shown, own, groups)


# classes ------------------------------------------------------------------------------


def _classes(fed: Coordinator, plan: Plan, said: Said | Own) -> tuple[dict[str, float], list[Row]]:
    """Return the metrics of probabilities, and groups of similar ones."""
    scored = fed.through(said)
    found = federated_values.federated_labels(scored)
    if isinstance(said, Own):
        pairs = scored.sum(within_sites.sum_label_pairs)
        return found | {"auc": _share(pairs.right, pairs.pairs)}, []
    edges = federated.federated_risk_edges(scored, bins=BINS)
    found["auc"] = federated_values.federated_auc(scored, edges=edges)
    fifths = federated.federated_risk_edges(scored, bins=GROUPS)
    groups = federated_values.federated_label_groups(scored, edges=fifths, at_least=plan.min_cell)
    return found, [
        {"time": None, "group": i, "predicted": float(p), "observed": float(o), "n": int(n)}
        for i, (p, o, n) in enumerate(zip(*groups, strict=True))
    ]


# survival -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Yard:
    """What all metrics of survival share, whatever the model; see `judges.survival.Yardstick`.

    Attributes
    ----------
    followed : G of the training rows.
    grid : (T,) ends of the intervals of the blind rows' deaths; empty where nobody died.
    times : (m,) where curves are judged.
    tau, horizon : as in `Yardstick`.
    """

    followed: Curve
    grid: Array
    times: Array
    tau: float
    horizon: float


def yard(fed: Coordinator, min_cell: int) -> Yard:
    """Find the grid of the blind rows, the censoring of the training rows, and round times."""
    train, blind = fed.through(Seen("train")), fed.through(Seen("blind"))
    first = time_grid(train, "protected", min_cell)
    (tau, middle), last = _quantiles(train, first, (0.9, 0.5))
    followed = _followed(fed, train, first, min_cell)
    horizon = round_time(middle, float(first[-1]))
    try:
        grid = time_grid(blind, "protected", min_cell)
    except NothingToLearn:
        return Yard(followed, np.empty(0), np.empty(0), tau, horizon)
    (low, high), end = _quantiles(blind, grid, (0.05, 0.9))
    thin = followed.times[followed.values < LEAST_FOLLOWED]
    high = min(high, float(np.nextafter(min(end, last, *thin[:1].tolist()), 0.0)))
    times = np.linspace(low, high, TIMES) if low < high else np.empty(0)
    return Yard(followed, grid, times, tau, horizon)


def _quantiles(
    fed: Coordinator, grid: Array, shares: tuple[float, ...]
) -> tuple[list[float], float]:
    """Return times by which shares of the deaths were seen, and one until which some are followed.

    Both are read off counts in `CELLS` equal cells of the follow-up.
    """
    edges = np.linspace(0.0, float(grid[-1]), CELLS + 1)[1:]
    ends = fed.sum(federated.count_leavers, grid=edges)
    up_to = np.cumsum(ends.deaths)[:-1]
    found = [
        float(np.interp(share * up_to[-1], np.r_[0.0, up_to], np.r_[0.0, edges]))
        for share in shares
    ]
    beyond = at_risk(ends)[1:] > 0
    return found, float(edges[beyond][-1]) if beyond.any() else 0.0


def _followed(fed: Coordinator, train: Coordinator, grid: Array, min_cell: int) -> Curve:
    """Return G of the training rows on intervals of `min_cell` deaths, or censorings."""
    try:
        ends = time_grid(fed.through(Seen("train", flipped=True)), "protected", min_cell)
    except NothingToLearn:  # nobody was censored
        return Curve(grid, np.ones(len(grid)))
    return federated.federated_censoring(train, grid=np.unique(np.r_[grid, ends]))


def _survival(fed: Coordinator, plan: Plan, said: Said | Own) -> tuple[dict[str, float], list[Row]]:
    """Return the metrics of risks and curves, and groups of similar ones."""
    y = yard(fed, plan.min_cell)
    wanted = set(plan.metrics)
    if not len(y.grid):
        return {}, []
    times = tuple(y.times.tolist()) if wanted & CURVES else ()
    ranks = fed.through(said)
    curves = fed.through(replace(said, times=times)) if times else None
    found: dict[str, float] = {}
    if isinstance(said, Own):
        found |= _within(ranks, y)
    else:
        scored = curves or ranks
        edges = federated.federated_risk_edges(scored, bins=BINS)
        counts = scored.sum(federated.count_risk_by_time, risk_edges=edges, grid=y.grid)
        weight = histogram.uno_weights(y.grid, y.followed, y.tau)
        found["c_index"] = histogram.concordance(counts).estimate
        found["uno_c"] = histogram.concordance(counts, weight).estimate
        if "calibration_slope" in wanted:
            found["calibration_slope"] = federated.federated_slope(scored, grid=y.grid).value
    if curves is not None:
        scores = federated.federated_brier(curves, times=y.times, followed=y.followed)
        found["ibs"] = integrate(scores, y.times)
        found["d_calibration_p"] = federated.federated_d_calibration(curves, times=y.times).p
    groups = [] if isinstance(said, Own) else _groups(fed, plan, said, y)
    return found, groups


def _within(ranks: Coordinator, y: Yard) -> dict[str, float]:
    """Return the metrics of ranks where each site has a model of its own."""
    s = ranks.sum(
        within_sites.sum_pairs, known=y.followed.times, followed=y.followed.values, tau=y.tau
    )
    found = {"c_index": _share(s.right, s.pairs), "uno_c": _share(s.uno_right, s.uno_pairs)}
    first = ranks.sum(federated.risk_moments, centre=0.0)
    rows = max(1.0, float(first.rows))
    centre = float(first.total) / rows
    spread = math.sqrt(float(ranks.sum(federated.risk_moments, centre=centre).squares) / rows)
    if not varies(spread, abs(centre)):
        return found

    def score_at(b: float) -> tuple[float, float]:
        terms = ranks.sum(within_sites.sum_own_slope, centre=centre, spread=spread, b=b)
        return float(terms.score), float(terms.information)

    return found | {"calibration_slope": solve_slope(score_at, spread).value}


def _groups(fed: Coordinator, plan: Plan, said: Said, y: Yard) -> list[Row]:
    """Return predicted against observed survival at the horizon, by group of predictions."""
    scored = fed.through(replace(said, times=(y.horizon,), of="survival"))
    edges = federated.federated_risk_edges(scored, bins=GROUPS)
    grid = np.unique(np.r_[y.grid[y.grid < y.horizon], y.horizon])
    sums = scored.sum(federated.sum_groups, column=0, edges=edges, grid=grid)
    groups = groups_of(with_enough(sums, plan.min_cell))
    return [
        {"time": y.horizon, "group": i, "predicted": float(p), "n": int(n)}
        | {"observed": float(o) if np.isfinite(o) else None}
        for i, (p, o, n) in enumerate(zip(*groups, strict=True))
    ]


def _share(part: Any, whole: Any) -> float:
    return float(part) / float(whole) if float(whole) else math.nan

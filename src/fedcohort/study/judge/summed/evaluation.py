"""Metrics of a fit on the blind rows of all sites, from sums over sites.

Compared with the metrics of the pooled blind rows, which no party sees:

    exact       accuracy, balanced_accuracy, brier, log_loss, calibration_slope of classes; every
                metric of values
    by site     calibration_slope of survival: the Cox model is stratified by site, exactly
    by cells    ibs, d_calibration_p: each row exactly; times and censoring weights come from
                counts in cells of time (`time_scale`)
    by bins     c_index, uno_c, auc: pairs of one site exactly; those of two sites by bins of risk
                and intervals of time with at least `min_cell` rows, or deaths; antolini_c likewise,
                by bins of predicted survival at a time in each interval

`docs/deployed-metrics.md` has the measured errors; `study.kinds` has them in words. There are no
bootstrap draws: the seeds of a study are public, so sums at B known weights of the rows would be B
equations of n unknown rows. Intervals are over repeats instead.

The lower bound is evaluated within sites, since each site has its own model: C-index and AUC
compare rows of one site only, exactly; the others are the same sums.

Revealed: what `judging` lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.outcome import Category
from fedcohort.metrics import decision
from fedcohort.metrics.calibration import even, groups_of, solve_slope, varies, with_enough
from fedcohort.metrics.roc import points_of
from fedcohort.metrics.sums import classes as federated_classes
from fedcohort.metrics.sums import curve_pairs, histogram, within_sites
from fedcohort.metrics.sums import predictions as federated
from fedcohort.metrics.sums import values as federated_values
from fedcohort.metrics.sums.histogram import RiskTimeCounts
from fedcohort.metrics.sums.posterior import sum_posterior
from fedcohort.metrics.survival.brier import integrate
from fedcohort.metrics.survival.censoring import Leavers
from fedcohort.metrics.survival.log_rank import in_intervals
from fedcohort.metrics.survival.published_curves import published_counts
from fedcohort.privacy.disclosure.counts import published_parts
from fedcohort.protocol import Row, SiteUnavailable
from fedcohort.protocol.errors import ReplyRejected
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.study.at_site.judging import OF, Own, Said, Seen, tell_own
from fedcohort.study.file.plan import Plan
from fedcohort.study.judge.details import LABELS, TIMES
from fedcohort.study.judge.leading import Outcomes
from fedcohort.study.judge.pooled.base import Metrics, decision_rows, observed
from fedcohort.study.judge.pooled.classification import group_rows
from fedcohort.study.judge.pooled.survival import CURVES, GROUPS
from fedcohort.study.judge.shown.classes import reliability_rows, shown_rows
from fedcohort.study.judge.shown.posterior import row_of, told_of
from fedcohort.study.judge.summed.time_scale import TimeScale, time_scale_of
from fedcohort.study.kinds import CLASSIFICATION, REGRESSION, SURVIVAL
from fedcohort.study.results.rows import plain

#: Largest number of bins of predictions, of about equally many blind rows.
BINS = 100
#: Cells per bin for the counts that define the bins; fewer cells reveal less.
FINE = 4

Centres = Mapping[str, tuple[float, float] | None]


@dataclass(frozen=True)
class Found:
    """Evaluation of one fit.

    Attributes
    ----------
    metrics : over all sites; None if not defined.
    within : rank metrics from pairs within a site only, to compare with the lower bound.
    own : by site, the leading metric on its own blind rows and its standard error, if published.
    groups : predicted against observed, as `Judge.groups`.
    decision : decision curve, as `Judge.decision`.
    more : by key of results.json, further rows from the same sums (`shown_sums`).
    """

    metrics: Metrics
    within: Metrics
    own: Centres
    groups: list[Row]
    decision: list[Row] = field(default_factory=list[Row])
    more: Mapping[str, list[Row]] = field(default_factory=dict[str, list[Row]])


def judge(
    fed: Coordinator,
    plan: Plan,
    said: Said | Own,
    horizon: float | None = None,
    levels: Sequence[str] = (),
    *,
    posterior: bool = False,
) -> Found:
    """Evaluate one model, or each site's own, on the blind rows of all sites that answer.

    Parameters
    ----------
    horizon : the study's, in the unit of time; None without.
    levels : names of the classes, for what is shown of one model.
    posterior : whether to ask what its posterior tells, if it has one.

    Raises
    ------
    SiteUnavailable : a site left between two calls; `ReplyRejected`, a site changed its reply's
        form.
    """
    blind = fed.through(Seen("blind")).sum(federated.score_moments, centre=0.0)
    bins = max(2, min(BINS, int(blind.rows) // max(1, plan.min_cell)))
    fed = fed.only(fed.answered)
    if isinstance(plan.outcome, Category) and not plan.kind.aside:
        parts = _several(fed, plan, said, bins, levels)
    else:
        parts = PARTS[plan.task](fed, plan, said, bins, horizon)
    metrics, within, groups, decided, more = parts
    if posterior and isinstance(said, Said):
        more = {**more, **_of_posterior(fed, plan, said)}
    told = fed.through(said).gather(tell_own, min_cell=plan.min_cell)
    _check_all_stayed(fed)
    for site, t in told.items():
        if any(np.shape(part) for part in (t.value, t.error, t.told)):
            raise ReplyRejected(
                f"site {site!r} answered {tell_own.name} with arrays instead of single numbers. "
                f"Check that site and coordinator run the same version of fedcohort."
            )
    own = {s: (float(t.value), float(t.error)) if t.told else None for s, t in told.items()}
    wanted = {m: metrics.get(m, math.nan) for m in plan.metrics}
    inside = {m: within[m] for m in plan.metrics if m in within}
    return Found(shown(wanted), shown(inside), own, groups, decided, more)


def _of_posterior(fed: Coordinator, plan: Plan, said: Said) -> dict[str, list[Row]]:
    """Return the row of a posterior, from one sum; none unless the model has one."""
    _, model, design = said.restored
    nobody = Outcomes(np.zeros(0), np.zeros(0))
    if design.outcome is None:
        return {}
    names = list(told_of(model, np.zeros((0, len(design.features))), nobody, design.outcome))
    if not names:
        return {}
    sums = fed.through(replace(said, of=OF[2])).sum(sum_posterior)
    total = np.full(len(names), math.nan) if sums.lost else sums.total
    return row_of(dict(zip(names, total.tolist(), strict=True)), int(sums.rows), plan.min_cell)


def _check_all_stayed(fed: Coordinator) -> None:
    """Refuse a result if a site of the first call left later."""
    if late := sorted({s for call, s in fed.missing if call}):
        raise SiteUnavailable(
            f"{', '.join(late)} left during the evaluation of the blind rows; all metrics need the "
            f"same sites. Bring them back and --resume, or start again without them."
        )


def shown(found: Mapping[str, float]) -> Metrics:
    """Return metrics with None for those that are not defined."""
    return {m: float(v) if np.isfinite(v) else None for m, v in found.items()}


#: Metrics, those within sites, groups, decision curve, and further rows from the same sums
#: (`Found`).
Parts = tuple[
    dict[str, float], dict[str, float], list[Row], list[Row], Mapping[str, list[Row]]
]  # fmt: skip

# values and classes -------------------------------------------------------------------


def _values(
    fed: Coordinator, plan: Plan, said: Said | Own, bins: int, horizon: float | None
) -> Parts:
    return federated_values.federated_regression(fed.through(said)), {}, [], [], {}


def _classes(
    fed: Coordinator, plan: Plan, said: Said | Own, bins: int, horizon: float | None
) -> Parts:
    scored = fed.through(said)
    found = federated_values.federated_labels(scored)
    if isinstance(said, Own):
        pairs = scored.sum(within_sites.sum_label_pairs)
        within = {"auc": _share(pairs.right, pairs.pairs)}
        return found | within, within, [], [], {}
    edges = federated.federated_risk_edges(scored, bins=bins)
    found["auc"], inside = federated_values.federated_auc(scored, edges=edges)
    counts = scored.sum(federated_values.count_labels, edges=decision.THRESHOLDS)
    told = federated_values.label_groups(counts, GROUPS, plan.min_cell)
    cells = np.stack([counts.ones, counts.others], axis=1)
    decided = decision_rows(decision.of_counts(cells, plan.min_cell), None)
    points = points_of(cells[::-1, ::-1], plan.min_cell).tolist()
    more = {
        "roc": [{"points": points}] if points else [],
        "reliability": reliability_rows(told, found["brier"]),
    }
    return found, {"auc": inside}, group_rows(told), decided, more


def _several(
    fed: Coordinator, plan: Plan, said: Said | Own, bins: int, levels: Sequence[str]
) -> Parts:
    """Return the same of more than two classes: each against the rest, as of a yes/no outcome."""
    sums = fed.through(said).sum(federated_classes.sum_classes)
    found = federated_classes.metrics_of(sums)
    each = [fed.through(replace(said, one=k)) for k in range(len(sums.table))]
    if isinstance(said, Own):
        pairs = [scored.sum(within_sites.sum_label_pairs) for scored in each]
        within = {"auc": float(np.mean([_share(p.right, p.pairs) for p in pairs]))}
        return found | within, within, [], [], {}
    aucs, inside = [], []
    ranks: list[Row] = []
    groups: list[Row] = []
    decided: list[Row] = []
    roc: list[Row] = []
    parts: list[Row] = []
    for scored, level in zip(each, levels, strict=True):
        edges = federated.federated_risk_edges(scored, bins=bins)
        auc, own = federated_values.federated_auc(scored, edges=edges)
        one = federated_values.federated_labels(scored)
        slope = one["calibration_slope"]
        counts = scored.sum(federated_values.count_labels, edges=decision.THRESHOLDS)
        told = federated_values.label_groups(counts, GROUPS, plan.min_cell)
        cells = np.stack([counts.ones, counts.others], axis=1)
        decided += decision_rows(decision.of_counts(cells, plan.min_cell), None, level)
        points = points_of(cells[::-1, ::-1], plan.min_cell).tolist()
        aucs.append(auc)
        inside.append(own)
        ranks.append({"auc": auc, "low": math.nan, "high": math.nan, "slope": slope})
        groups += group_rows(told, level)
        parts += reliability_rows(told, one["brier"], level)
        roc += [{"class": level, "points": points}] if points else []
    more = shown_rows(sums.table, sums.predicted, ranks, levels, plan.min_cell)
    found["auc"] = float(np.mean(aucs))
    more |= {"roc": roc, "reliability": parts}
    return found, {"auc": float(np.mean(inside))}, groups, decided, more


# survival -----------------------------------------------------------------------------


def _survival(
    fed: Coordinator, plan: Plan, said: Said | Own, bins: int, horizon: float | None
) -> Parts:
    y = time_scale_of(fed, plan.min_cell, private=plan.privacy.dp is not None)
    y = y if horizon is None else replace(y, horizon=horizon)
    wanted = set(plan.metrics)
    if not len(y.grid):
        return {}, {}, [], [], {}
    times = tuple(y.times.tolist()) if wanted & CURVES else ()
    ranks = fed.through(said)
    curves = fed.through(replace(said, times=times)) if times else None
    scored = ranks if isinstance(said, Own) or curves is None else curves
    bins = 0 if isinstance(said, Own) else bins
    within, found, counts, pairs = _ranked(scored, y, bins)
    scores = np.empty(0)
    if "calibration_slope" in wanted:
        found["calibration_slope"] = _slope(scored)
    if curves is not None:
        scores = federated.federated_brier(curves, times=y.times, followed=y.followed)
        found["ibs"] = integrate(scores, y.times)
        found["d_calibration_p"] = federated.federated_d_calibration(curves, times=y.times).p
        if "antolini_c" in wanted:
            within["antolini_c"], found["antolini_c"] = _by_curves(curves, y, bins, pairs)
    if isinstance(said, Own):
        return found, within, [], [], {}
    more = shown_sums(y, counts, scores, plan.min_cell)
    return found, within, *_at_horizon(fed, plan, said, y), more


#: Evaluation by task.
PARTS: Mapping[str, Callable[[Coordinator, Plan, Said | Own, int, float | None], Parts]] = {
    SURVIVAL.name: _survival, CLASSIFICATION.name: _classes, REGRESSION.name: _values,
}  # fmt: skip


def _ranked(
    ranks: Coordinator, y: TimeScale, bins: int
) -> tuple[dict[str, float], dict[str, float], RiskTimeCounts | None, float]:
    """Return Harrell's and Uno's C within sites, and over all pairs; the same without bins.

    Also return, with bins, the counts by risk and time; and the number of pairs within sites.
    """
    s = ranks.sum(
        within_sites.sum_own_pairs, known=y.followed.times, followed=y.followed.values, tau=y.tau
    )
    within = {"c_index": _share(s.right, s.pairs), "uno_c": _share(s.uno_right, s.uno_pairs)}
    if not bins:
        return within, dict(within), None, float(s.pairs)
    edges = federated.federated_risk_edges(ranks, bins=bins, fine=FINE)
    counts = ranks.sum(federated.count_risk_by_time, risk_edges=edges, grid=y.grid)
    return within, across(ranks, y, s, edges, counts), counts, float(s.pairs)


def across(
    ranks: Coordinator, y: TimeScale, own: within_sites.PairSums, edges: Array,
    counts: RiskTimeCounts | None = None,
) -> dict[str, float]:  # fmt: skip
    """Return Harrell's and Uno's C of all pairs; `own` has the exact pairs within sites.

    Parameters
    ----------
    edges : of the bins of risk, for pairs of two sites.
    counts : by these and the grid, if already known.
    """
    asked = {"risk_edges": edges, "grid": y.grid}
    counts = counts or ranks.sum(federated.count_risk_by_time, **asked)
    h = ranks.sum(within_sites.sum_binned_pairs, **asked, weight=y.weight)
    right, pairs = histogram.spread_pairs(counts, np.ones(len(y.weight)))
    uno_right, uno_pairs = histogram.spread_pairs(counts, y.weight)
    return {
        "c_index": _share(own.right + right - h.right, own.pairs + pairs - h.pairs),
        "uno_c": _share(
            own.uno_right + uno_right - h.uno_right, own.uno_pairs + uno_pairs - h.uno_pairs
        ),
    }


def _by_curves(curves: Coordinator, y: TimeScale, bins: int, pairs: float) -> tuple[float, float]:
    """Return Antolini's C within sites, and over all pairs; the same without bins.

    Parameters
    ----------
    pairs : all pairs within sites; those without curves, at sites without a model, count as tied.
    """
    own = curves.sum(curve_pairs.sum_own_curve_pairs, times=y.times)
    within = _share(own.right + 0.5 * (pairs - own.pairs), pairs)
    if not bins:
        return within, within
    return within, curve_pairs.federated_antolini(
        curves, own, grid=y.grid, times=y.times, bins=bins, fine=FINE
    )


def shown_sums(
    y: TimeScale, counts: RiskTimeCounts | None, scores: Array, min_cell: int
) -> dict[str, list[Row]]:
    """Return AUC and Brier score over time, and curves of risk thirds, from known sums.

    Parameters
    ----------
    counts : blind rows by risk and time.
    scores : Brier scores at its times, or none.
    """
    found: dict[str, list[Row]] = {"over_time": [], "risk_groups": []}
    if counts is None:
        return found
    every = counts.deaths + counts.censored
    left = every.sum() - np.cumsum(every.sum(axis=0))[:-1]
    fine = np.flatnonzero(left >= max(min_cell, 1))
    values = histogram.auc(counts, y.grid, y.followed).values
    tables = {"auc": (y.grid[fine], values[fine]), "brier": (y.times[: len(scores)], scores)}
    for metric, (times, table) in tables.items():
        some = np.unique(np.linspace(0, len(times) - 1, min(TIMES, len(times))).round().astype(int))
        found["over_time"] += [
            plain({"metric": metric, "time": float(times[k]), "value": float(table[k])})
            | {"low": None, "high": None}
            for k in some
        ]
    up_to = np.cumsum(every.sum(axis=1))
    for k in sorted(LABELS, reverse=True):
        ends = np.abs(up_to[:, None] - up_to[-1] * np.arange(1, k) / k).argmin(axis=0)
        group = np.searchsorted(ends, np.arange(len(every)))
        n = np.bincount(group, every.sum(axis=1), k).astype(int)
        if n.min() >= max(min_cell, 1):
            found["risk_groups"] = [_thirds(y.grid, counts, group, n, min_cell)]
            break
    return found


def _thirds(grid: Array, counts: RiskTimeCounts, group: Array, n: Array, min_cell: int) -> Row:
    k = len(n)
    parts = [
        Leavers(counts.deaths[group == g].sum(axis=0), counts.censored[group == g].sum(axis=0))
        for g in range(k)
    ]
    whole = Leavers(
        *(np.stack(c) for c in zip(*((p.deaths, p.censored) for p in parts), strict=True))
    )
    events = published_parts([int(p.deaths.sum()) for p in parts], min_cell, n)
    curves = (np.stack(published_counts(grid, p, min_cell), axis=1).tolist() for p in parts)
    rows = [
        {"group": g, "label": LABELS[k][g], "n": int(n[g]), "events": events[g]}
        | {"curve": [[v if math.isfinite(v) else None for v in point] for point in curve]}
        | {"at_risk": [], "about": []}
        for g, curve in enumerate(curves)
    ]
    chi2, p, df = in_intervals(whole)
    return {"groups": rows, "log_rank": plain({"chi2": chi2, "df": df, "p": p})}


def _slope(ranks: Coordinator) -> float:
    """Return the calibration slope, stratified by site; nan if no slope is finite."""
    first = ranks.sum(federated.score_moments, centre=0.0)
    _check_all_stayed(ranks)  # the centre is pinned: a mean over fewer sites would differ
    rows = max(1.0, float(first.rows))
    centre = float(first.total) / rows
    spread = math.sqrt(float(ranks.sum(federated.score_moments, centre=centre).squares) / rows)
    if not varies(spread, abs(centre)):
        return math.nan

    def score_at(b: float) -> tuple[float, float]:
        terms = ranks.sum(within_sites.sum_own_slope, centre=centre, spread=spread, b=b)
        return float(terms.score), float(terms.information)

    return solve_slope(score_at, spread).value


def _at_horizon(
    fed: Coordinator, plan: Plan, said: Said, y: TimeScale
) -> tuple[list[Row], list[Row]]:
    """Return predicted against observed survival at the horizon by group, and decision curve."""
    scored = fed.through(replace(said, times=(y.horizon,), of="survival"))
    grid = np.unique(np.r_[y.grid[y.grid < y.horizon], y.horizon])
    cells = scored.sum(federated.sum_groups, column=0, edges=decision.survival_edges(), grid=grid)
    groups = groups_of(with_enough(even(cells, GROUPS), plan.min_cell), plan.min_cell)
    rows: list[Row] = [
        {"time": y.horizon, "group": i, "predicted": float(p), "n": int(n)} | observed(o, low, high)
        for i, (p, o, n, low, high) in enumerate(zip(*groups, strict=True))
    ]
    if all(row["observed"] is None for row in rows):  # no follow-up up to the horizon
        rows = []
    return rows, decision_rows(decision.of_sums(cells, plan.min_cell), y.horizon)


def _share(part: Any, whole: Any) -> float:
    return float(part) / float(whole) if float(whole) else math.nan

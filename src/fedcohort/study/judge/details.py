"""Published details of one fit, beyond its metrics, on the blind rows.

over_time      cumulative/dynamic AUC and Brier score at seven to fourteen round times; at least
               `min_cell` patients died before the first, and are at risk after the last
risk_groups    Kaplan–Meier of thirds by predicted risk, numbers at risk, log-rank test
by_centre      C-index, AUC or R² of each natural site's own rows; heterogeneity pools them
importance     loss of the C-index, AUC or R² when a column of the table is permuted; of more than
               `ALONE` columns, when groups of neighbouring columns are permuted together
roc            ROC curve of a binary outcome
residuals      observed minus predicted, of a value or a count: mean, sd and quartiles, by the
               rules of Table 1

A report leaves the coordinator: these rows hold no counts below `min_cell` and no curves that
follow single patients.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.describe.shown_number import ShownNumber
from fedcohort.data.outcome import Binary, Outcome, Survival
from fedcohort.metrics import permutation
from fedcohort.metrics.intervals import percentile_interval
from fedcohort.metrics.resampled import multiplicities
from fedcohort.metrics.roc import roc_points
from fedcohort.metrics.survival import over_time
from fedcohort.metrics.survival.brier import evaluation_times
from fedcohort.metrics.survival.concordance import Influence
from fedcohort.metrics.survival.kaplan_meier import group_leavers, round_times
from fedcohort.metrics.survival.log_rank import log_rank, risk_groups
from fedcohort.metrics.survival.published_curves import Groups, published_groups
from fedcohort.privacy.disclosure.counts import published_parts
from fedcohort.protocol import NotSupported, Row
from fedcohort.report.clock import Clock
from fedcohort.study.file.plan import Plan
from fedcohort.study.judge.leading import LEADING, R2, Leading, Outcomes
from fedcohort.study.results.rows import plain
from fedcohort.study.run.engine import Run
from fedcohort.study.sites.layout import Laid

KEYS = (
    "over_time", "risk_groups", "by_centre", "heterogeneity", "importance", "roc", "residuals",
)  # fmt: skip
#: Most times with metrics (at least half of them), with numbers at risk; most draws.
TIMES, AT_RISK, DRAWS = 14, 6, 200
#: Importance: rough number of predictions in all, hence 10 to 3 permutations of each column;
#: if that is too much, it uses a sample of the blind rows: smallest and largest size.
PREDICTIONS, ROWS = 200_000, (500, 2_000)
#: Most columns that are permuted one by one; with more, `PREDICTIONS` would not do.
ALONE = PREDICTIONS // (permutation.FEWEST * ROWS[0])
#: By number of groups.
LABELS = {3: ("low risk", "middle risk", "high risk"), 2: ("low risk", "high risk")}


@dataclass(frozen=True)
class Blind:
    """The blind rows and a fit's predictions.

    Attributes
    ----------
    said : (n,), predicted risk, probability or value; of several classes (n, K).
    """

    leading: Leading
    test: pd.DataFrame
    said: Array
    seen: Outcomes

    @classmethod
    def of(cls, run: Run, laid: Laid, outcome: Outcome) -> Blind:
        """Return the blind rows of one fit.

        Raises
        ------
        NotSupported : the method does not predict.
        """
        test = laid.test.reset_index(drop=True)
        seen = Outcomes.of(test, outcome, laid.problem.dictionary)
        said = seen.fits(run.model.predict(run.design.matrix(test)))
        return cls(LEADING[outcome.kind], test, said, seen)

    @property
    def time(self) -> Array:
        """Time of event or censoring of each row (n,), of survival."""
        return self.seen.time

    @property
    def event(self) -> Array:
        """Whether each row has the event, or is of class 1 (n,)."""
        return self.seen.y > 0

    def some(self, rows: Array) -> Blind:
        """Return the rows with numbers `rows` (m,)."""
        test = self.test.iloc[rows].reset_index(drop=True)
        return Blind(self.leading, test, self.said[rows], self.seen.at(rows))

    def influence(self, said: Array, rows: Array | slice = slice(None)) -> Influence:
        """Return the leading metric of predictions (n,) and its influence, on some of the rows."""
        return self.leading.influence(said[rows], self.seen.at(rows))


def details(
    run: Run, laid: Laid, plan: Plan, seed: int, horizon: float | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return lists of rows by key of results.json, without arm, scenario and repeat.

    Parameters
    ----------
    seed : seed of the bootstrap and the permutations.
    horizon : the study's, in the unit of time: it is added to `over_time`, and risk groups are by
        the risk until then, in place of the score.

    Returns
    -------
    details : every key of `KEYS`; empty if task, method or data do not give it.
    """
    found: dict[str, list[dict[str, Any]]] = {key: [] for key in KEYS}
    outcome = laid.problem.outcome
    if outcome is None:
        return found
    with contextlib.suppress(NotSupported):
        blind = Blind.of(run, laid, outcome)
        if isinstance(outcome, Survival):
            found["over_time"] = list(_over_time(run, laid, blind, outcome, plan, seed, horizon))
            clock = Clock.of(outcome.time_unit(laid.problem.dictionary), float(blind.time.max()))
            found["risk_groups"] = _risk_groups(
                blind, plan.min_cell, clock, _risk_by(run, blind, horizon)
            )
        elif isinstance(outcome, Binary):
            points = roc_points(blind.said, blind.event, plan.min_cell)
            found["roc"] = [{"points": points.tolist()}] if len(points) else []
        elif not np.isfinite(blind.said).all():
            return found
        elif outcome.is_number:
            found["residuals"] = _residuals(blind, plan.min_cell)
        found["by_centre"] = _by_centre(blind, laid.test_site, plan.min_cell)
        found["heterogeneity"] = blind.leading.heterogeneity(found["by_centre"])
        found["importance"] = list(_importance(run, blind, seed))
    return found


def details_at_home(runs: Mapping[str, Run], laid: Laid, plan: Plan) -> dict[str, list[Row]]:
    """Return `by_centre` and `heterogeneity` of each site's own model, of natural sites."""
    outcome, site = laid.problem.outcome, laid.test_site
    found: dict[str, list[Row]] = {key: [] for key in KEYS}
    if outcome is None or site is None:
        return found
    parts = {
        s: Blind.of(run, replace(laid, test=laid.test[np.asarray(site) == s]), outcome)
        for s, run in runs.items()
    }
    first = next(iter(parts.values()))
    sites = np.concatenate([np.full(len(part.test), s) for s, part in parts.items()])
    seen = Outcomes(
        np.concatenate([part.seen.time for part in parts.values()]),
        np.concatenate([part.seen.y for part in parts.values()]),
        first.seen.classes,
    )
    said = np.concatenate([part.said for part in parts.values()])
    test = pd.concat([part.test for part in parts.values()], ignore_index=True)
    blind = Blind(first.leading, test, said, seen)
    found["by_centre"] = _by_centre(blind, sites, plan.min_cell)
    found["heterogeneity"] = blind.leading.heterogeneity(found["by_centre"])
    return found


# along the follow-up ------------------------------------------------------------------


def _over_time(
    run: Run,
    laid: Laid,
    blind: Blind,
    outcome: Survival,
    plan: Plan,
    seed: int,
    horizon: float | None,
) -> Iterator[Row]:
    """Yield AUC and Brier score at common times; all arms of a repeat share times and draws."""
    train = (blind.time, blind.event)
    if laid.problem.dp is None:
        train = outcome.arrays(laid.problem.rows)
    span = evaluation_times(*train, blind.time, blind.event)
    low, high = over_time.published_span(blind.time, blind.event, plan.min_cell)
    if not len(span) or math.isnan(low):
        return
    first, last = max(low, span[0]), min(high, span[-1])
    times = round_times(first, last, TIMES)
    if horizon is not None and first <= horizon <= last:
        times = np.union1d(times, horizon)
    rng = np.random.default_rng((seed, 0x64726177))
    n = len(blind.time)
    drawn = multiplicities(n, min(plan.draws, DRAWS), rng)
    weights = np.concatenate([np.ones((1, n), np.int64), drawn])
    given = (weights, *train, blind.time, blind.event)
    tables = {"auc": over_time.auc(*given, blind.said, times)}
    with contextlib.suppress(NotSupported):
        surv = run.model.predict_survival(run.design.matrix(blind.test), times)
        tables["brier"] = over_time.brier(*given, surv, times)
    for metric, table in tables.items():
        for t, column in zip(times, table.T, strict=True):
            low, high = percentile_interval(column[1:])
            head = {"metric": metric, "time": float(t)}
            yield plain({**head, "value": column[0], "low": low, "high": high})


def _risk_by(run: Run, blind: Blind, horizon: float | None) -> Array:
    """Return the values (n,) that define risk groups: risk by the horizon, or else the score."""
    if horizon is None:
        return blind.said
    surv = run.model.predict_survival(run.design.matrix(blind.test), np.array([horizon]))[:, 0]
    return 1.0 - surv if np.isfinite(surv).all() else blind.said


def _risk_groups(blind: Blind, min_cell: int, clock: Clock, said: Array) -> list[Row]:
    """Return thirds by predicted risk, or halves; nothing if a group has too few patients."""
    for k in sorted(LABELS, reverse=True):
        group = risk_groups(said, k)
        names = np.unique(group)
        n = np.bincount(group, minlength=k)[names]
        if len(names) > 1 and n.min() >= min_cell:
            return [_groups(blind, np.searchsorted(names, group), k, names, min_cell, clock)]
    return []


def _groups(blind: Blind, group: Array, k: int, names: Array, min_cell: int, clock: Clock) -> Row:
    """Return one row for groups numbered from 0; `names` are their numbers among the k wanted."""
    n = np.bincount(group)
    events = published_parts(np.bincount(group, blind.event).astype(int), min_cell, n)
    found = published_groups(group, blind.time, blind.event, min_cell, AT_RISK, clock.factor)
    if None in events or not found.events_told:
        events = [None] * len(events)
    shown: list[Row] = []
    for g, name in enumerate(names):
        curve = np.stack(found.curves[g], axis=1).tolist()
        shown.append(
            {"group": int(name), "label": LABELS[k][name], "n": int(n[g]), "events": events[g]}
            | {"curve": [[v if math.isfinite(v) else None for v in point] for point in curve]}
            | at_risk(found, g)
        )
    grid = np.unique(blind.time)
    test = log_rank(group_leavers(group, len(names), blind.time, blind.event, grid))
    numbers = {"chi2": test.chi2, "df": test.df, "p": test.p}
    return {"groups": shown, "log_rank": plain(numbers)}


def at_risk(found: Groups, g: int) -> Row:
    """Return a group's numbers at risk: exact ones, and rounded ones at every round time."""
    exact = zip(found.at, found.numbers[:, g], strict=True)
    about = zip(found.times, found.about[:, g], strict=True)
    return {
        "at_risk": [[float(t), int(n)] for t, n in exact],
        "about": [[float(t), round(n)] for t, n in about if math.isfinite(n)],
    }


# values -------------------------------------------------------------------------------


def _residuals(blind: Blind, min_cell: int) -> list[Row]:
    """Return publishable statistics of observed minus predicted; nothing if rows are few."""
    shown = ShownNumber.of(blind.seen.y - blind.said, min_cell)
    if shown.quartiles is None:
        return []
    numbers = dict(zip(("q1", "median", "q3"), shown.quartiles, strict=True))
    return [plain({"n": len(blind.said), "mean": shown.mean, "sd": shown.sd, **numbers})]


# centres ------------------------------------------------------------------------------


def _by_centre(blind: Blind, site: Array | None, min_cell: int) -> list[Row]:
    """Return the metric on each natural site's own blind rows, with its interval."""
    if site is None:
        return []
    masks = {str(s): np.asarray(site) == s for s in np.unique(site)}
    n = [int(mask.sum()) for mask in masks.values()]
    events: list[int | None] = [None] * len(n)
    if blind.leading is not R2 and not blind.seen.several:
        counted = [int(blind.event[mask].sum()) for mask in masks.values()]
        events = published_parts(counted, min_cell, n)
    rows: list[Row] = []
    for (name, mask), m, e in zip(masks.items(), published_parts(n, min_cell), events, strict=True):
        found = None
        if blind.leading.may_be_shown(blind.seen.at(mask), min_cell):
            influence = blind.influence(blind.said, mask)
            found = influence.value, influence.error
        rows.append(blind.leading.row(name, found, min_cell, n=m, events=e))
    return rows


# columns ------------------------------------------------------------------------------


def _importance(run: Run, blind: Blind, seed: int) -> Iterator[Row]:
    """Yield the loss of the leading metric for each column, or group, that the model uses."""
    rng = np.random.default_rng((seed, 0x7065726D))
    groups = _together(list(dict.fromkeys(c.name for c in run.design.columns)))
    allowed = PREDICTIONS // (permutation.FEWEST * max(1, len(groups)))
    rows = np.arange(len(blind.said))
    if len(rows) > (most := min(max(allowed, ROWS[0]), ROWS[1])):
        rows = np.sort(rng.choice(rows, most, replace=False))
    some = blind.some(rows)
    swaps = permutation.permutations(len(rows), len(groups), PREDICTIONS, rng)
    whole = some.influence(some.said)
    for group, x in zip(groups, _permuted(run, some.test, swaps, groups), strict=True):
        each = run.model.predict(x).reshape(*swaps.shape, *some.said.shape[1:])
        lost = permutation.drop(whole, [some.influence(said) for said in each])
        name = group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}"
        head = {"metric": some.leading.metric, "feature": name}
        size = {"columns": len(group)} if len(groups[0]) > 1 else {}
        yield plain({**head, "drop": lost.value, "low": lost.low, "high": lost.high, **size})


def _together(columns: Sequence[str]) -> list[Sequence[str]]:
    """Return the columns one by one; more than `ALONE` in groups of neighbours, equally many."""
    size = max(1, -(-len(columns) // ALONE))
    return [columns[i : i + size] for i in range(0, len(columns), size)]


def _permuted(
    run: Run, test: pd.DataFrame, swaps: Array, groups: Sequence[Sequence[str]]
) -> Iterator[Array]:
    """Yield the model's input (R · n, p) for each group: its columns permuted by swaps (R, n)."""
    design, drawn = run.design, swaps.ravel()
    whole = np.tile(np.arange(len(test)), len(swaps))
    if (places := design.places) is not None:
        x = design.matrix(test)
        for group in groups:
            given, at = x[whole], np.array([j for name in group for j in places[name]])
            given[:, at] = x[drawn[:, None], at]
            yield given
        return
    copies = test.iloc[whole].reset_index(drop=True)
    for group in groups:
        table = copies.copy(deep=False)
        for name in group:
            table[name] = test[name].iloc[drawn].reset_index(drop=True)
        yield design.matrix(table)

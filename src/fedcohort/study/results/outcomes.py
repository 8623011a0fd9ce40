"""Results of a study's finished pieces, in its order: rows, means, differences of arms.

Rows are those of `rows`, with the names of arm, scenario and repeat. Metrics are summarised over
repeats, and compared between arms on their common repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics import intervals
from fedcohort.metrics.clusters import adjusted_rand, contingency
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.plan import Plan
from fedcohort.study.results.rows import ALL, BIASED, LABELS, NO_MODEL, UNDRAWN, mean_draws
from fedcohort.study.run.pieces import Cell, Shelf, cells_of, row_of_final

#: With fewer repeats, arms are compared by draws of patients: few repeats estimate their spread
#: poorly.
BY_REPEATS = 5


@dataclass(frozen=True)
class Found:
    """One arm's result in one scenario and repeat."""

    arm: Arm
    scenario: str
    repeat: int
    found: Mapping[str, Any]


def collect(fits: Shelf) -> list[Found]:
    """Return every arm's result, in order; the upper bound under each scenario of its rows."""
    plan = fits.plan
    found = {cell: fits.result(cell) or {"status": "failed: not run"} for cell in cells_of(plan)[1]}
    shown: list[Found] = []
    for s, scenario in enumerate(plan.scenarios):
        for a, arm in enumerate(plan.arms):
            source = plan.pooled_in(s) if arm.scope == "centralised" else s
            for repeat in range(plan.repeats):
                cell = Cell("fit", source, repeat, a)
                shown.append(Found(arm, scenario.name, repeat, found[cell]))
    return shown


def finals_of(fits: Shelf) -> list[dict[str, Any]]:
    """Return a row for each final fit, with facts of its model."""
    plan = fits.plan
    return [
        row_of_final(plan, plan.arms[cell.arm], fits.result(cell) or {"status": "failed: not run"})
        for cell in cells_of(plan)[2]
    ]


def rows_of(shown: Iterable[Found]) -> Iterator[dict[str, Any]]:
    """Yield every row, with the names of its arm, method, scenario and repeat, and its status."""
    for one in shown:
        head = {
            "arm": one.arm.name,
            "method": one.arm.method,
            "scenario": one.scenario,
            "repeat": one.repeat,
        }
        blank = {
            "site": None, "metrics": {}, "rounds": 0, "seconds": one.found.get("seconds", 0.0),
            "bytes_up": 0, "bytes_down": 0, "epsilon": None,
        }  # fmt: skip
        for row in one.found.get("rows") or [blank]:
            yield {**head, **blank, **row, "status": one.found["status"]}


def _values(
    shown: Iterable[Found], metric: str, key: str = "metrics"
) -> dict[tuple[str, str], dict[int, float]]:
    """Return a metric's value over all sites by (scenario, arm) and repeat.

    `key` is "within" for metrics of pairs within sites, which runs over a network have, and those
    with a model for each site.
    """
    out: dict[tuple[str, str], dict[int, float]] = {}
    for one in shown:
        for row in one.found.get("rows", ()):
            value = row.get(key, {}).get(metric)
            if row["site"] is None and value is not None:
                out.setdefault((one.scenario, one.arm.name), {})[one.repeat] = value
    return out


def summary_of(plan: Plan, shown: list[Found], by: str) -> list[dict[str, Any]]:
    """Return mean, sd and interval of each metric over repeats.

    The interval is of the bootstrap over patients, shifted to the mean for `BIASED` metrics; `by`
    "repeats", of the mean over repeats, corrected for patients that repeats share.
    """
    rows: list[dict[str, Any]] = []
    ratio = plan.test_fraction / (1 - plan.test_fraction)
    for metric in plan.metrics:
        for (scenario, arm), by_repeat in _values(shown, metric).items():
            s = intervals.summarise([by_repeat[r] for r in sorted(by_repeat)])
            mine = (o for o in shown if (o.scenario, o.arm.name) == (scenario, arm))
            draws = [o.found["draws"][metric] for o in mine if metric in o.found.get("draws", {})]
            table = np.array(draws, float)
            mean = table.mean(axis=0) if len(table) else np.empty(0)
            low, high = intervals.interval_of(mean, s.mean, biased=metric in BIASED)
            if by == "repeats" and metric not in UNDRAWN:
                values = [by_repeat[r] for r in sorted(by_repeat)]
                p = intervals.paired(values, np.zeros(len(values)), ratio)
                low, high = p.low, p.high
            numbers = {"mean": s.mean, "sd": s.sd, "low": low, "high": high}
            rows.append(
                {"arm": arm, "scenario": scenario, "metric": metric}
                | {k: _finite(v) for k, v in numbers.items()}
                | {"n": s.n}
            )
    return rows


def comparisons_of(plan: Plan, shown: list[Found]) -> list[dict[str, Any]]:
    """Return the difference of every pair of arms on their common repeats.

    If one arm is evaluated within sites only, so is the other, if possible. With fewer than
    `BY_REPEATS` repeats the draws of patients give the intervals, ``by`` "patients", if there are
    draws; an arm's row against the lower bound then has the interval of the share of the gap.
    """
    rows: list[dict[str, Any]] = []
    ratio = plan.test_fraction / (1 - plan.test_fraction)
    names = [arm.name for arm in plan.arms]
    alone = {arm.name for arm in plan.arms if arm.apart}
    for metric in plan.metrics:
        pooled, within = _values(shown, metric), _values(shown, metric, "within")
        draws = _draws(shown, metric)
        for scenario in plan.scenarios:
            for i, against in enumerate(names):
                for arm in names[i + 1 :]:
                    apart = bool(alone & {arm, against}) and (scenario.name, arm) in within
                    values = within if apart else pooled
                    a = values.get((scenario.name, arm), {})
                    b = values.get((scenario.name, against), {})
                    both = sorted(set(a) & set(b))
                    if not both:
                        continue
                    p = intervals.paired([a[r] for r in both], [b[r] for r in both], ratio)
                    more: dict[str, Any] = {"pairs": "within"} if apart else {}
                    by_arm = {n: draws.get((scenario.name, n), {}) for n in names}
                    drawn = set(both) <= by_arm[arm].keys() & by_arm[against].keys()
                    if drawn and not apart and plan.repeats < BY_REPEATS:
                        x, y = ([by_arm[n][r] for r in both] for n in (arm, against))
                        p = intervals.paired_draws(x, y, p.difference)
                        more = {"by": "patients", **_share(plan, by_arm, arm, against, both)}
                    numbers = {"difference": p.difference, "low": p.low, "high": p.high, "p": p.p}
                    rows.append(
                        {"scenario": scenario.name, "metric": metric, "arm": arm}
                        | {"against": against}
                        | {k: _finite(v) for k, v in numbers.items()}
                        | {"n": len(both)}
                        | more
                    )
    return rows


def _draws(shown: Iterable[Found], metric: str) -> dict[tuple[str, str], dict[int, Array]]:
    """Return a metric's draws (B,) by (scenario, arm) and repeat, for arms with draws."""
    out: dict[tuple[str, str], dict[int, Array]] = {}
    values = _values(shown, metric)
    for one in shown:
        drawn = np.array(one.found.get("draws", {}).get(metric, ()), float)
        if np.isfinite(drawn).any():
            value = values.get((one.scenario, one.arm.name), {}).get(one.repeat)
            if metric in BIASED and value is not None:
                drawn = intervals.centred(drawn, value)
            out.setdefault((one.scenario, one.arm.name), {})[one.repeat] = drawn
    return out


def _share(
    plan: Plan, draws: Mapping[str, Mapping[int, Array]], arm: str, against: str, both: list[int]
) -> dict[str, Any]:
    """Return the interval of the share of the gap that an arm closes; empty without bounds."""
    bounds = {a.scope: a.name for a in plan.arms if a.scope != "sites"}
    top = bounds.get("centralised", "")
    if (
        against != bounds.get("isolated")
        or arm == top
        or not set(both) <= draws.get(top, {}).keys()
    ):
        return {}
    low, mid, high = ([draws[name][r] for r in both] for name in (against, arm, top))
    either = [intervals.drawn_share(low, mid, high, sign) for sign in (1, -1)]  # of errors, -1
    found = either[int(np.isnan(either[0].low))]
    return {"share": {"low": _finite(found.low), "high": _finite(found.high)}}


def tagged(shown: Iterable[Found], key: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of one kind, with the names of arm, scenario and repeat."""
    for one in shown:
        for row in one.found.get(key, ()):
            yield {"arm": one.arm.name, "scenario": one.scenario, "repeat": one.repeat, **row}


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


#: Name of the metric.
METRIC = "agreement"


def with_agreement(shown: list[Found], drawn: Callable[[int], Array]) -> list[Found]:
    """Add the metric `agreement`: the adjusted Rand index of an arm's clusters and pooled data's.

    It is over the blind rows: 1 for equal clusters, about 0 for unrelated ones. Other metrics do
    not show whether hospitals together find the clusters of pooled data, since different
    clusterings may be equally tight. A hospital without its own clusters counts as one cluster.
    Draws repeat blind rows, with both clusterings fixed.

    drawn : repeat → count of each of its blind rows in each bootstrap draw, (B, n).
    """
    pooled = {
        (one.scenario, one.repeat): one.found[LABELS][ALL]
        for one in shown
        if one.arm.scope == "centralised" and LABELS in one.found
    }
    weights = {repeat: drawn(repeat) for repeat in {one.repeat for one in shown}}
    return [
        replace(
            one, found=_agreed(one, pooled.get((one.scenario, one.repeat)), weights[one.repeat])
        )
        for one in shown
    ]


def _agreed(one: Found, pooled: list[int] | None, weights: Array) -> Mapping[str, Any]:
    if pooled is None or one.arm.scope == "centralised" or LABELS not in one.found:
        return one.found
    whole = np.array(pooled)
    blank = [row["site"] for row in one.found["rows"] if row.get("note") == NO_MODEL]
    found = {site: np.zeros_like(whole) for site in blank}
    found |= {site: np.array(labels) for site, labels in one.found[LABELS].items()}
    tables = {site: contingency(labels, whole) for site, labels in found.items()}
    values = {site: float(adjusted_rand(table)) for site, table in tables.items()}
    mean = float(np.mean(list(values.values())))
    draws = [{METRIC: adjusted_rand(contingency(own, whole, weights))} for own in found.values()]
    rows: list[dict[str, Any]] = []
    for row in one.found["rows"]:
        value = mean if row["site"] is None else values.get(row["site"])
        known = row["site"] is None or one.arm.scope == "isolated"
        more = {METRIC: value} if known else {}
        rows.append({**row, "metrics": {**row["metrics"], **more}})
    return {**one.found, "rows": rows, "draws": {**one.found["draws"], **mean_draws(draws)}}

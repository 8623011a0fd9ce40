"""Centres: the same model at each hospital, and how much hospitals differ beyond chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h, join
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, leading_open, more
from fedcohort.report.words import number

#: Below so many hospitals, how much they differ is hardly known.
FEW = 5
#: Of more than twice as many hospitals, so many stand open: those of the worst values.
WORST = 15


def section(run: Run) -> Section | None:
    """Return a forest plot of each arm, where sites are natural."""
    drawn = [
        (a, f) for a in run.arms for c in run.scenarios if (f := _forest(run, a, c)) is not None
    ]
    if not drawn:
        return None
    return Section(
        "centres", "Centres", "Does it hold at every hospital?",
        "The same model judged on each hospital’s own blind patients. The diamond is their "
        "random-effects mean with its 95 % interval, the pale line behind it the range in which a "
        "further hospital is expected. I² is the share of the spread that is not chance.",
        h("div", leading_open(run, drawn)),
    )  # fmt: skip


def _forest(run: Run, arm: Arm, scenario: str) -> Markup | None:
    """Return one arm's forest plot."""
    mine = _of(run.rows("by_centre"), arm, scenario)
    if not mine:
        return None
    metric = words.metric(str(mine[0]["metric"]))
    pooled = next(iter(_of(run.rows("heterogeneity"), arm, scenario)), None)
    note = "first repeat"
    mean: list[charts.Row] = []
    if pooled is not None and number(pooled.get("pooled")) == number(pooled.get("pooled")):
        mean = [_pooled(pooled, arm)]
        few = "; so few hospitals tell little of others" * (number(pooled.get("df")) < FEW - 1)
        note = f"{note}; {_spread(pooled)}{few}"
    title = f"{arm.title}: {metric.label} by hospital" + _where(run, scenario)

    def figure(shown: Sequence[Mapping[str, Any]], part: str, what: str) -> Markup:
        rows = [*(_row(r, arm) for r in shown), *mean]
        # Of three hospitals the range of a further one may be all there is: it stops at the edge.
        ends = [v for r in rows for v in (r.value, r.low, r.high) if v == v]
        ends += [] if metric.chance is None else [metric.chance]
        chart = charts.interval_rows(
            rows, metric.label,
            reference=metric.chance,
            domain=charts.around(ends),
            heads=("Hospital", "value (95 % interval)"),
        )  # fmt: skip
        return charts.figure(
            f"centres-{arm.name}-{scenario}{part}",
            title + what, note, chart, _data(shown, pooled),
            f"{metric.label} of {arm.title} at {words.of(len(shown), 'hospital')}, and their mean.",
        )  # fmt: skip

    if len(mine) <= 2 * WORST:
        return figure(mine, "", "")
    sign = metric.sign or 1
    ordered = sorted(mine, key=lambda r: _or_last(sign * number(r.get("value"))))
    pages = [mine[i : i + charts.MOST_ROWS - 1] for i in range(0, len(mine), charts.MOST_ROWS - 1)]
    every = (
        figure(page, f"-{i + 1}", f", part {i + 1} of {len(pages)}") for i, page in enumerate(pages)
    )
    judged = sum(number(r.get("value")) == number(r.get("value")) for r in mine)
    few = f" with patients enough to judge, of {len(mine)} in all" if judged < len(mine) else ""
    least = f": the {min(WORST, judged)} worst of {words.of(judged, 'hospital')}{few}"
    return join(
        figure(ordered[: min(WORST, judged) or WORST], "", least if judged else ""),
        more(f"All {words.of(len(mine), 'hospital')}", *every),
    )


def _or_last(value: float) -> float:
    return value if value == value else math.inf


def _of(rows: Sequence[Mapping[str, Any]], arm: Arm, scenario: str) -> list[Mapping[str, Any]]:
    return [r for r in rows if r["arm"] == arm.name and r["scenario"] == scenario]


def _where(run: Run, scenario: str) -> str:
    """Return the setting's name, where there are several."""
    return f", {run.scenarios[scenario]}" if len(run.scenarios) > 1 else ""


def _row(r: Mapping[str, Any], arm: Arm) -> charts.Row:
    value, low, high = (number(r.get(k)) for k in ("value", "low", "high"))
    n, events = number(r.get("n")), number(r.get("events"))
    counted = [words.of(n, "patient")] if n == n else []
    counted += [words.of(events, "event")] if events == events else []
    return charts.Row(
        name=str(r["site"]),
        value=value, low=low, high=high,
        look=arm.look,
        text=words.estimate(value, low, high) if value == value else "too few patients",
        note=", ".join(counted),
    )  # fmt: skip


def _pooled(r: Mapping[str, Any], arm: Arm) -> charts.Row:
    value, low, high = (number(r.get(k)) for k in ("pooled", "low", "high"))
    span = (number(r.get("prediction_low")), number(r.get("prediction_high")))
    return charts.Row(
        name="All hospitals",
        value=value, low=low, high=high,
        look=arm.look,
        kind="pooled",
        text=words.estimate(value, low, high),
        note="random-effects mean",
        span=span if all(v == v for v in span) else None,
    )  # fmt: skip


def _spread(r: Mapping[str, Any]) -> str:
    """Return I², Q and its p-value."""
    i2, q, df = (number(r.get(k)) for k in ("i2", "q", "df"))
    ahead = words.between(r.get("prediction_low"), r.get("prediction_high"))
    further = f"; a further hospital: {ahead}" if ahead else ""
    return (
        f"I² {words.percent(i2)}, Q {words.fixed(q, 1)} on {words.count(df)} degrees of freedom, "
        f"p {words.p_value(r.get('p'))}{further}"
    )


def _data(
    mine: Sequence[Mapping[str, Any]], pooled: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    keys = ("site", "metric", "value", "low", "high", "n", "events")
    data = [{k: r.get(k) for k in keys} for r in mine]
    if pooled is not None:
        names = ("pooled", "low", "high", "prediction_low", "prediction_high", "tau2", "i2", "p")
        data.append({"site": "all hospitals"} | {k: pooled.get(k) for k in names})
    return data

"""Hospitals: each one's gain over training alone, and the same model's accuracy at each.

Files: results.json, `arms` and `summary` (gains), `by_centre` and `heterogeneity` (centres).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.charts import MOST_ROWS, Domain, Row, around, figure, interval_rows
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, join
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, leading_open, more
from fedcohort.report.verdict import leading
from fedcohort.report.words import fixed, number

#: Of more than twice as many hospitals, so many are unfolded: those that gain least.
LEAST = 15


@dataclass(frozen=True)
class Gain:
    """One hospital: the metric alone, and with each arm, by the arm's name."""

    site: str
    alone: float
    arms: dict[str, float]


def sites(run: Run) -> Section | None:
    """Return a figure for each scenario, or None where no hospital was judged alone."""
    first = leading(run)
    known = run.known(judged_by(run))
    if run.lower is None or first is None or known.is_p:
        return None
    arms = [first, *(a for a in run.together if a is not first)]
    found = {c: gains(run, arms, c) for c in run.scenarios}
    found = {c: g for c, g in found.items() if any(first.name in x.arms for x in g)}
    if not found:
        return None
    ends = [v for g in found.values() for x in g for v in (x.alone, *x.arms.values())]
    domain = around(ends)
    own = any(_own(run, c) for c in found)
    tested = (
        "each on the hospital's own held-back patients where hospitals are real, on all held-back "
        "patients otherwise"
        if own
        else "both on the same held-back patients of all hospitals"
    )
    each = " or, of an arm with a model for each hospital, its own one" * any(a.every for a in arms)
    intro = (
        f"Each line is one hospital: {known.label} of the model that it trains alone, and of the "
        f"shared model{each}, {tested}; means over repeats. Hospitals that gain most come first; "
        "how many patients train there stands in brackets."
    )
    shown, *others = [_setting(run, arms, c, g, domain) for c, g in found.items()]
    rest = more(f"{words.of(len(others), 'further setting')}", *others) if others else None
    return Section(
        "sites", "Each hospital", "What does each hospital gain?", intro, h("div", shown, rest)
    )


def judged_by(run: Run) -> str:
    """Return the metric of this section; for clusters, agreement with pooled data.

    A hospital alone may find groups as tight as those of all, but different ones.
    """
    return "agreement" if "agreement" in run.metrics else run.metric


def gains(run: Run, arms: list[Arm], scenario: str) -> list[Gain]:
    """Return the hospitals of a scenario, those that gain most from the first arm first."""
    lower = run.lower
    if lower is None:
        return []
    own = _own(run, scenario)
    name = own or judged_by(run)
    alone = run.by_site(lower.name, scenario, name)
    out: list[Gain] = []
    for site in sorted(alone, key=natural):
        with_: dict[str, float] = {}
        for arm in arms:
            value = (
                mean(run.by_site(arm.name, scenario, own).get(site, []))
                if own
                else mean(list(run.values(arm.name, scenario, judged_by(run)).values()))
            )
            if value == value:
                with_[arm.name] = value
        out.append(Gain(site, mean(alone[site]), with_))
    sign = words.metric(judged_by(run)).sign or 1
    return sorted(out, key=lambda g: -sign * (g.arms.get(arms[0].name, g.alone) - g.alone))


def _own(run: Run, scenario: str) -> str | None:
    """Return the name of the metric on a hospital's own patients; None if it was not computed."""
    name = f"{judged_by(run)}_own"
    arms = [a.name for a in run.together]
    found = run.lower is not None and run.by_site(run.lower.name, scenario, name)
    return name if found and any(run.by_site(a, scenario, name) for a in arms) else None


def _setting(run: Run, arms: list[Arm], scenario: str, found: list[Gain], domain: Domain) -> Markup:
    """Return the figure of a scenario; of many hospitals, those that gain least, and all folded."""
    if len(found) <= 2 * LEAST:
        return _figure(run, arms, scenario, found, domain)
    pages = [found[i : i + MOST_ROWS] for i in range(0, len(found), MOST_ROWS)]
    every = (
        _figure(run, arms, scenario, found, domain, page, f"-{i}", f", part {i} of {len(pages)}")
        for i, page in enumerate(pages, 1)
    )
    least = f": the {LEAST} that gain least of {words.of(len(found), 'hospital')}"
    return join(
        _figure(run, arms, scenario, found, domain, found[-LEAST:], "", least),
        more(f"All {words.of(len(found), 'hospital')}", *every),
    )


def _figure(
    run: Run,
    arms: list[Arm],
    scenario: str,
    found: list[Gain],
    domain: Domain,
    page: list[Gain] | None = None,
    part: str = "",
    named: str = "",
) -> Markup:
    """Return a figure of the hospitals of a scenario, or of a `page` of them."""
    page = found if page is None else page
    first = arms[0]
    sign = words.metric(judged_by(run)).sign or 1
    known = run.known(judged_by(run))
    better = sum(sign * _gained(g, first, known.digits) > 0 for g in found)
    others = len(run.sites(scenario)) - len(found)
    lower = [(run.lower.look, run.lower.title)] if run.lower else []
    said = "; ".join(f"{g.site}: {_change(g, first, known.digits)}" for g in page)
    return figure(
        f"sites-{scenario}{part}",
        run.scenarios[scenario] + named,
        f"{better} of {words.of(len(found), 'hospital')} better with {first.title}"
        + (f"; {words.of(others, 'other')} with too few patients to judge" if others > 0 else ""),
        interval_rows(
            [_sites_row(run, arms, scenario, g) for g in page],
            known.axis,
            domain=domain,
            legend=[*lower, *((a.look, a.title) for a in arms)],
        ),
        [_sites_data(run, scenario, g) for g in page],
        f"{known.axis} of each hospital alone → with {first.title}. {said}.",
    )


def _sites_row(run: Run, arms: list[Arm], scenario: str, gain: Gain) -> Row:
    """Return a hospital's row: marks of training alone and of each arm, a line to the first."""
    first = arms[0]
    people = words.number(run.sites(scenario).get(gain.site, {}).get("rows"))
    lower = run.lower.look if run.lower else "lower"
    return Row(
        name=gain.site + f" ({words.count(people)})" * (people == people),
        value=gain.arms.get(first.name, float("nan")),
        look=first.look,
        text=_change(gain, first, run.known(judged_by(run)).digits),
        others=((lower, gain.alone), *((a.look, gain.arms[a.name]) for a in reversed(arms[1:])
                                       if a.name in gain.arms)),
        link=True,
        small=True,
    )  # fmt: skip


def _gained(gain: Gain, first: Arm, digits: int) -> float:
    """Return the difference that a reader sees in the digits shown."""
    with_ = gain.arms.get(first.name, gain.alone)
    return round(with_, digits) - round(gain.alone, digits)


def _change(gain: Gain, first: Arm, digits: int) -> str:
    """Return the metric of training alone and of the first arm, as text."""
    with_, alone = gain.arms.get(first.name), fixed(gain.alone, digits)
    return alone if with_ is None else f"{alone} → {fixed(with_, digits)}"


def _sites_data(run: Run, scenario: str, gain: Gain) -> dict[str, object]:
    """Return a hospital's row of the figure's data."""
    people = run.sites(scenario).get(gain.site, {}).get("rows")
    head = {"scenario": scenario, "site": gain.site, "patients": people, "metric": judged_by(run)}
    return {**head, "alone": gain.alone, **gain.arms}


#: Number of hospitals below which their spread is poorly known.
FEW = 5
#: Of more than twice as many hospitals, so many are unfolded: those with the worst values.
WORST = 15


def centres(run: Run) -> Section | None:
    """Return a forest plot of each arm, where sites are natural."""
    drawn = [
        (a, f) for a in run.arms for c in run.scenarios if (f := _forest(run, a, c)) is not None
    ]
    if not drawn:
        return _none_judged(run)
    of_each = " (of an arm with a model for each hospital, that one)" * any(
        a.every for a, _ in drawn
    )
    return Section(
        "centres", "Centres", "Does it hold at every hospital?",
        f"The same model{of_each} judged on each hospital’s own blind patients. The diamond is "
        "their random-effects mean with its 95 % interval, the pale line behind it the range in "
        "which a further hospital is expected. I² is the share of the spread that is not chance.",
        h("div", leading_open(run, drawn)),
    )  # fmt: skip


def _forest(run: Run, arm: Arm, scenario: str) -> Markup | None:
    """Return one arm's forest plot; None if no hospital has enough patients to judge."""
    mine = _of(run.rows("by_centre"), arm, scenario)
    if not any(_is_judged(r) for r in mine):
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
        rows = [*(_centres_row(r, arm) for r in shown), *mean]
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
            title + what, note, chart, _centres_data(shown, pooled),
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
    judged = sum(map(_is_judged, mine))
    few = f" with enough patients to judge, of {len(mine)} in all" if judged < len(mine) else ""
    chosen = f"the {WORST} worst of " if judged > WORST else ""
    least = f": {chosen}{words.of(judged, 'hospital')}{few}"
    return join(
        figure(ordered[: min(WORST, judged)], "", least),
        more(f"All {words.of(len(mine), 'hospital')}", *every),
    )


def _none_judged(run: Run) -> Section | None:
    """Return why no hospital has a value; None if hospitals were not judged one by one."""
    rows = run.rows("by_centre")
    if not rows:
        return None
    hospitals = {str(r["site"]) for r in rows}
    label = words.metric(str(rows[0]["metric"])).label
    few = next((str(r["note"]) for r in rows if r.get("note")), "too few patients")
    return Section(
        "centres", "Centres", "Does it hold at every hospital?",
        f"This cannot be said. None of {words.of(len(hospitals), 'hospital')} has enough blind "
        f"patients for its own {label}: {few}. Raise test_fraction, or join small hospitals "
        "(data.sites: small: join).",
        h("div"),
    )  # fmt: skip


def _is_judged(row: Mapping[str, Any]) -> bool:
    return number(row.get("value")) == number(row.get("value"))


def _or_last(value: float) -> float:
    return value if value == value else math.inf


def _of(rows: Sequence[Mapping[str, Any]], arm: Arm, scenario: str) -> list[Mapping[str, Any]]:
    return [r for r in rows if r["arm"] == arm.name and r["scenario"] == scenario]


def _where(run: Run, scenario: str) -> str:
    """Return the end of a title: the scenario's name, or "" if the run has only one."""
    return f", {run.scenarios[scenario]}" if len(run.scenarios) > 1 else ""


def _centres_row(r: Mapping[str, Any], arm: Arm) -> charts.Row:
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


def _centres_data(
    mine: Sequence[Mapping[str, Any]], pooled: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    keys = ("site", "metric", "value", "low", "high", "n", "events")
    data = [{k: r.get(k) for k in keys} for r in mine]
    if pooled is not None:
        names = ("pooled", "low", "high", "prediction_low", "prediction_high", "tau2", "i2", "p")
        data.append({"site": "all hospitals"} | {k: pooled.get(k) for k in names})
    return data

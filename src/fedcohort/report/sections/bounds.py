"""The bounds picture: isolated, each arm, centralised, a panel for each scenario."""

from __future__ import annotations

import math

from fedcohort.report import plot, words
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run, Summary
from fedcohort.report.sections.base import Section, key, more, panel, row, rows
from fedcohort.report.words import estimate, fixed, percent


def section(run: Run) -> Section | None:
    """Return the picture, and the tables with every metric."""
    if not run.rows("summary"):
        return None
    known = words.metric(run.metric)
    scale = _scale(run)
    intro = (
        f"{known.label}, further {'right' if known.sign >= 0 else 'left'} is better. {known.plain} "
        "The shaded band runs from one hospital alone to all data in one place: the further "
        "through it an arm lies, the more of the gap it closes."
    )
    if any(words.number(s.get("low")) == words.number(s.get("low")) for s in run.rows("summary")):
        intro += " Bars are 95 % intervals."
    body = h("div", (_panel(run, c, scale) for c in run.scenarios), class_="stack")
    return Section(
        "bounds",
        "The gap",
        "How close does training together come?",
        intro,
        h("div", body, _every_metric(run), _comparisons(run)),
    )


def _scale(run: Run) -> plot.Scale:
    """Return one scale for all panels; it starts at chance where chance is near."""
    found = [s for a in run.arms for c in run.scenarios if (s := run.summary(a.name, c))]
    scale = plot.around([v for s in found for v in (s.mean, s.low, s.high)])
    chance = words.metric(run.metric).chance
    if chance is not None and found and 0 <= scale.low - chance < 0.5 * (scale.high - scale.low):
        return plot.Scale(chance, scale.high)
    return scale


def _panel(run: Run, scenario: str, scale: plot.Scale) -> Markup:
    """Return one scenario's rows above their axis."""
    marks = plot.ticks(scale.low, scale.high)
    sites = run.sites(scenario)
    lines = [_row(run, a, scenario, scale, marks) for a in run.arms]
    note = words.of(len(sites), "hospital") if sites else None
    axis = plot.axis(scale, marks, words.metric(run.metric).label)
    return panel(run.scenarios[scenario], note, rows(lines, axis))


def _row(run: Run, arm: Arm, scenario: str, scale: plot.Scale, marks: list[float]) -> Markup:
    """Return one arm: the band behind, its interval and mark, its numbers."""
    found = run.summary(arm.name, scenario)
    back = [plot.grid(scale, marks)]
    ends = [run.summary(b.name, scenario) for b in (run.lower, run.upper) if b]
    if len(ends) == 2 and ends[0] and ends[1]:
        back.insert(0, plot.band(scale, ends[0].mean, ends[1].mean, "gap"))
    chance = words.metric(run.metric).chance
    if chance is not None and scale.low < chance < scale.high:
        back.append(plot.rule(scale.pct(chance), "chance"))
    if found is None:
        reasons = "; ".join(run.failures(arm.name, scenario))
        why = f"failed: {reasons}" if reasons else "no value"
        return row(key(arm), plot.strip(*back), h("span", why, class_="failed"))
    said = f"{arm.title}: {estimate(found.mean, found.low, found.high)}"
    drawing = plot.strip(
        *back,
        plot.whisker(scale, found.low, found.high, arm.look),
        plot.dot(arm.look, scale.pct(found.mean)),
        title=said,
    )
    return row(key(arm), drawing, [_numbers(found), _share(run, arm, scenario)])


def _numbers(found: Summary) -> Markup:
    interval = words.between(found.low, found.high)
    return h("span", h("b", fixed(found.mean)), f" ({interval})" if interval else None)


def _share(run: Run, arm: Arm, scenario: str) -> Markup | None:
    """Return the share closed, below an arm's numbers, where there is a clear gap."""
    share = run.share(arm.name, scenario) if arm in run.together else None
    if share is None or math.isnan(share.value):
        return None
    if not math.isnan(share.gap.low) and share.gap.side < 1:
        return None
    how = "the whole" if share.value >= 0.995 else f"{percent(share.value)} of the"
    return h("small", f"closes {how} gap")


def _every_metric(run: Run) -> Markup:
    """Return a table for each metric: arms × scenarios."""
    tables: list[Markup] = []
    for m in run.metrics:
        known = words.metric(m)
        body = [
            [key(a), *(_cell(run.summary(a.name, c, m)) for c in run.scenarios)] for a in run.arms
        ]
        caption = f"{known.label}: mean (95 % interval). {known.plain}".strip()
        tables.append(
            table(
                ["", *run.scenarios.values()],
                body,
                numeric=range(1, len(run.scenarios) + 1),
                caption=caption,
            )
        )
    return more("All metrics as tables", *tables)


def _cell(found: Summary | None) -> str:
    return words.MISSING if found is None else estimate(found.mean, found.low, found.high)


def _comparisons(run: Run) -> Markup | None:
    """Return the study's paired comparisons, if it made some."""
    titles = {a.name: a.title for a in run.arms}
    body: list[list[str]] = []
    for c in run.rows("comparisons"):
        arm, against, scenario, name = (str(c[k]) for k in ("arm", "against", "scenario", "metric"))
        known = words.metric(name)
        found = run.difference(arm, against, scenario, name)
        sign = known.sign or 1
        low, high = sorted((sign * found.low, sign * found.high))
        body.append(
            [
                run.scenarios.get(scenario, scenario),
                f"{titles.get(arm, arm)} − {titles.get(against, against)}",
                known.label,
                estimate(c.get("difference"), low, high),
                words.p_value(c.get("p")),
            ]
        )
    if not body:
        return None
    head = ["Setting", "Difference", "Metric", "Estimate (95 % interval)", "p"]
    caption = (
        "Differences between arms, paired by repeat; intervals allow for repeats that share "
        "patients; p is not adjusted for the number of comparisons."
    )
    return more("Differences between arms", table(head, body, numeric=(3, 4), caption=caption))

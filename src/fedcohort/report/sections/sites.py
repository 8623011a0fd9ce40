"""Per-site results: what each hospital reaches alone, and what it reaches with the others."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.report import plot, words
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, legend, panel, panels, row, rows
from fedcohort.report.verdict import leading
from fedcohort.report.words import fixed


@dataclass(frozen=True)
class Gain:
    """One hospital: the metric alone, and with each arm, by the arm's name."""

    site: str
    alone: float
    arms: dict[str, float]


def section(run: Run) -> Section | None:
    """Return a panel for each scenario, or None where no hospital was judged alone."""
    first = leading(run)
    if run.lower is None or first is None:
        return None
    arms = [first, *(a for a in run.together if a is not first)]
    found = {c: gains(run, arms, c) for c in run.scenarios}
    found = {c: g for c, g in found.items() if any(first.name in x.arms for x in g)}
    if not found:
        return None
    ends = [v for g in found.values() for x in g for v in (x.alone, *x.arms.values())]
    scale = plot.around(ends)
    label = words.metric(run.metric).label
    own = any(_own(run, c) for c in found)
    tested = (
        "each on the hospital's own held-back patients where hospitals are real, on all held-back "
        "patients otherwise"
        if own
        else "both on the same held-back patients of all hospitals"
    )
    intro = (
        f"Each line is one hospital: {label} of the model that it trains alone, and of the shared "
        f"model, {tested}; means over repeats. Hospitals that gain most come first."
    )
    body = [_panel(run, arms, c, g, scale) for c, g in found.items()]
    keys = legend([run.lower, *arms])
    return Section(
        "sites",
        "Each hospital",
        "What does each hospital gain?",
        intro,
        h("div", keys, panels(body)),
    )


def gains(run: Run, arms: list[Arm], scenario: str) -> list[Gain]:
    """Return the hospitals of a scenario, those that gain most from the first arm first."""
    lower = run.lower
    if lower is None:
        return []
    own = _own(run, scenario)
    name = own or run.metric
    alone = run.by_site(lower.name, scenario, name)
    out: list[Gain] = []
    for site in sorted(alone, key=natural):
        with_: dict[str, float] = {}
        for arm in arms:
            value = (
                mean(run.by_site(arm.name, scenario, own).get(site, []))
                if own
                else mean(list(run.values(arm.name, scenario).values()))
            )
            if value == value:
                with_[arm.name] = value
        out.append(Gain(site, mean(alone[site]), with_))
    sign = words.metric(run.metric).sign or 1
    return sorted(out, key=lambda g: -sign * (g.arms.get(arms[0].name, g.alone) - g.alone))


def _own(run: Run, scenario: str) -> str | None:
    """Return the metric's name on a hospital's own patients, where that was measured."""
    name = f"{run.metric}_own"
    arms = [a.name for a in run.together]
    found = run.lower is not None and run.by_site(run.lower.name, scenario, name)
    return name if found and any(run.by_site(a, scenario, name) for a in arms) else None


def _panel(
    run: Run, arms: list[Arm], scenario: str, found: list[Gain], scale: plot.Scale
) -> Markup:
    """Return one scenario's hospitals above their axis."""
    marks = plot.ticks(scale.low, scale.high)
    first = arms[0]
    sign = words.metric(run.metric).sign or 1
    better = sum(sign * (g.arms.get(first.name, g.alone) - g.alone) > 0 for g in found)
    note = f"{better} of {words.of(len(found), 'hospital')} better with {first.title}"
    sizes = run.sites(scenario)
    lines = [_row(run, arms, g, scale, marks, sizes.get(g.site, {})) for g in found]
    axis = plot.axis(scale, marks, words.metric(run.metric).label)
    return panel(run.scenarios[scenario], note, rows(lines, axis))


def _row(
    run: Run,
    arms: list[Arm],
    gain: Gain,
    scale: plot.Scale,
    marks: list[float],
    size: object,
) -> Markup:
    """Return one hospital: a mark alone, a mark for each arm, a line to the first arm."""
    first = gain.arms.get(arms[0].name)
    parts: list[Markup | None] = [plot.grid(scale, marks)]
    if first is not None:
        parts.append(plot.span(scale, gain.alone, first, f"link {arms[0].look}"))
    for arm in reversed(arms):
        if arm.name in gain.arms:
            x = scale.pct(gain.arms[arm.name])
            parts.append(plot.dot(arm.look, x, small=arm is not arms[0]))
    if run.lower is not None:
        parts.append(plot.dot(run.lower.look, scale.pct(gain.alone), small=True))
    people = words.number(size.get("rows")) if isinstance(size, dict) else float("nan")
    note = h("small", f"{words.count(people)} patients") if people == people else None
    shown = f"{fixed(gain.alone)} → {fixed(first)}" if first is not None else fixed(gain.alone)
    return row(
        [h("span", gain.site, class_="site"), note],
        plot.strip(*parts, title=f"{gain.site}: {shown}"),
        shown,
        "row tight",
    )

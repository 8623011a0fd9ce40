"""Per-site results: what each hospital reaches alone, and what it reaches with the others."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.report import words
from fedcohort.report.charts import MOST_ROWS, Row, figure, interval_rows
from fedcohort.report.charts.scales import Domain, around
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, join
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, more
from fedcohort.report.verdict import leading
from fedcohort.report.words import fixed

#: Of more than twice as many hospitals, so many stand open: those that gain least.
LEAST = 15


@dataclass(frozen=True)
class Gain:
    """One hospital: the metric alone, and with each arm, by the arm's name."""

    site: str
    alone: float
    arms: dict[str, float]


def section(run: Run) -> Section | None:
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
    intro = (
        f"Each line is one hospital: {known.label} of the model that it trains alone, and of the "
        f"shared model, {tested}; means over repeats. Hospitals that gain most come first; how "
        "many patients train there stands in brackets."
    )
    shown, *others = [_setting(run, arms, c, g, domain) for c, g in found.items()]
    rest = more(f"{words.of(len(others), 'further setting')}", *others) if others else None
    return Section(
        "sites", "Each hospital", "What does each hospital gain?", intro, h("div", shown, rest)
    )


def judged_by(run: Run) -> str:
    """Return the metric of this section: of clusters, whether they are those of pooled data.

    A hospital alone may find groups as tight as those of all, and others.
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
    """Return the metric's name on a hospital's own patients, where that was measured."""
    name = f"{judged_by(run)}_own"
    arms = [a.name for a in run.together]
    found = run.lower is not None and run.by_site(run.lower.name, scenario, name)
    return name if found and any(run.by_site(a, scenario, name) for a in arms) else None


def _setting(run: Run, arms: list[Arm], scenario: str, found: list[Gain], domain: Domain) -> Markup:
    """Return one scenario's hospitals; of many, those that gain least, and the others folded."""
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
        + (f"; the other {others} have too few patients to judge" if others > 0 else ""),
        interval_rows(
            [_row(run, arms, scenario, g) for g in page],
            known.axis,
            domain=domain,
            legend=[*lower, *((a.look, a.title) for a in arms)],
        ),
        [_data(run, scenario, g) for g in page],
        f"{known.axis} of each hospital alone → with {first.title}. {said}.",
    )


def _row(run: Run, arms: list[Arm], scenario: str, gain: Gain) -> Row:
    """Return one hospital: a mark alone, a mark for each arm, a line to the first arm."""
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
    """Return the metric alone, and with the first arm."""
    with_, alone = gain.arms.get(first.name), fixed(gain.alone, digits)
    return alone if with_ is None else f"{alone} → {fixed(with_, digits)}"


def _data(run: Run, scenario: str, gain: Gain) -> dict[str, object]:
    """Return one hospital's line of the figure's data."""
    people = run.sites(scenario).get(gain.site, {}).get("rows")
    head = {"scenario": scenario, "site": gain.site, "patients": people, "metric": judged_by(run)}
    return {**head, "alone": gain.alone, **gain.arms}

"""Calibration: predicted against observed survival, probability or value, by group of patients."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from fedcohort.report import words
from fedcohort.report.charts import Series, figure, scatter_with_diagonal
from fedcohort.report.charts.scales import Domain, around
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, first_setting, more
from fedcohort.report.verdict import leading


class Group(NamedTuple):
    """One group of patients with similar predictions, over repeats.

    Attributes
    ----------
    predicted, observed : survival at the horizon, probability or value; mean over repeats.
    n : patients in a repeat, mean over repeats.
    low, high : 95 % interval of what was observed in a repeat, mean over repeats.
    """

    predicted: float
    observed: float
    n: float
    low: float
    high: float


def section(run: Run) -> Section | None:
    """Return a figure for each scenario that has calibration groups, the first one open."""
    found = groups(run)
    if not found:
        return None
    shares = run.task != "regression"
    values = [v for g in found.values() for x in g for v in x[:2]]
    ends = [v for g in found.values() for x in g for v in x[3:] if v == v]
    domain = _shares([*values, *ends]) if shares else around([*values, *ends])
    digits = 3 if shares else words.decimals(max(map(abs, values)))
    horizon = [t for r in run.rows("calibration") if (t := words.number(r.get("time"))) == t]
    shown = [a for a in run.arms if any((a.name, c) in found for c in run.scenarios)]
    names = [c for c in run.scenarios if any((a.name, c) in found for a in shown)]
    what = "survival" if horizon else "probability" if shares else _value(run)
    axes = _Axes(what, f" {what}" if shares else f", {run.unit}" * bool(run.unit), domain, digits)
    figures = first_setting(run, names, lambda c: _figure(run, shown, found, c, axes))
    numbers = more("The numbers", _table(run, shown, found, digits))
    return Section(
        "calibration",
        "Calibration",
        f"Can the predicted {'risks' if shares else 'values'} be taken at face value?",
        _survival(run, mean(horizon)) if horizon else _PROBABILITY if shares else _VALUE,
        h("div", figures, numbers),
    )


_PROBABILITY = (
    "Patients are put in groups by predicted probability. On the dotted diagonal, the share that "
    "really had the outcome is the share predicted; below it, the model predicted too much, above "
    "it, too little."
)

_VALUE = (
    "Patients are put in groups by predicted value, each of so many that means tell of none of "
    "them. On the dotted diagonal, the mean that was seen is the mean that was predicted; below "
    "it, the model predicted too much, above it, too little. A line flatter than the diagonal says "
    "that predictions are too extreme."
)


class _Axes(NamedTuple):
    """What both axes show, how their titles end, from where to where, and decimals of numbers."""

    what: str
    end: str
    domain: Domain
    digits: int


def _shares(values: Sequence[float]) -> Domain:
    """Return a domain of tenths between 0 and 1 that holds shares."""
    low = max(0.0, math.floor(10 * min(values)) / 10)
    high = min(1.0, math.ceil(10 * max(values)) / 10)
    return low, high if high > low else low + 0.1


def _value(run: Run) -> str:
    """Return the name of the outcome's column."""
    return next((words.spaced(str(c)) for c in run.mapping("outcome").get("columns") or ()), "")


def _survival(run: Run, horizon: float) -> str:
    asked = run.mapping("evaluate").get("horizon")
    when = asked or (
        run.clock.say(horizon)
        + ", in the unit of the data" * (not run.clock.unit)
        + " (near the middle of the event times)"
    )
    return (
        f"Patients are put in groups by predicted survival at {when}. On the dotted diagonal, the "
        "share that really survived is the share predicted; below it, the model was too hopeful, "
        "above it, too gloomy."
    )


def groups(run: Run) -> dict[tuple[str, str], list[Group]]:
    """Return the groups of each (arm, scenario), averaged over repeats, in order of prediction."""
    cells: dict[tuple[str, str], dict[int, list[Group]]] = defaultdict(lambda: defaultdict(list))
    for row in run.rows("calibration"):
        g = Group(
            *(words.number(row.get(k)) for k in ("predicted", "observed", "n", "low", "high"))
        )
        if g.predicted == g.predicted and g.observed == g.observed:
            cells[str(row["arm"]), str(row["scenario"])][int(row["group"])].append(g)
    return {
        k: [
            Group(*(mean(list(x)) for x in zip(*by_group[i], strict=True)))
            for i in sorted(by_group)
        ]
        for k, by_group in cells.items()
    }


def _figure(
    run: Run,
    arms: list[Arm],
    found: dict[tuple[str, str], list[Group]],
    scenario: str,
    axes: _Axes,
) -> Markup:
    """Return observed over predicted in a scenario, a line for each arm."""
    c = scenario
    cells = [(a, g) for a in arms if (g := found.get((a.name, c)))]
    banded = arms if len(arms) <= 2 else [a for a in arms if a == leading(run)]
    series = [
        Series(
            label=a.title,
            look=a.look,
            panel=run.scenarios[c] if len(run.scenarios) > 1 else "",
            points=[
                (x.predicted, x.observed, x.low, x.high)
                if a in banded
                else (x.predicted, x.observed)
                for x in g
            ],
        )
        for a, g in cells
    ]
    rows = [
        {"scenario": c, "arm": a.name, "title": a.title, "group": i + 1, **x._asdict()}
        for a, g in cells
        for i, x in enumerate(g)
    ]
    said = "; ".join(
        f"{run.scenarios[c]}, {a.title}: largest difference between observed and predicted "
        f"{words.fixed(max((x.observed - x.predicted for x in g), key=abs), axes.digits)}"
        for a, g in cells
    )
    what = axes.what
    return figure(
        f"calibration-{scenario}",
        f"Observed {what} by predicted {what}",
        "Mean over repeats, in groups of patients with similar predictions; " + _band(banded, arms),
        scatter_with_diagonal(
            series, f"predicted{axes.end}", f"observed{axes.end}", domain=axes.domain
        ),
        rows,
        f"{said}.",
    )


def _band(banded: Sequence[Arm], arms: Sequence[Arm]) -> str:
    """Return what the band is, and whose."""
    of = "" if len(banded) == len(arms) else f" of “{banded[0].title}”" if banded else ""
    where = "the CSV has" if not banded else f"the band{of} is"
    return f"{where} the pointwise 95 % interval of what was observed in one repeat's patients"


def _table(
    run: Run, arms: list[Arm], found: dict[tuple[str, str], list[Group]], digits: int
) -> Markup:
    body = [
        [
            title, arm.title, words.count(g.n),
            words.fixed(g.predicted, digits), words.fixed(g.observed, digits),
            words.between(g.low, g.high, digits) or words.MISSING,
            words.fixed(g.observed - g.predicted, digits),
        ]
        for c, title in run.scenarios.items()
        for arm in arms
        for g in found.get((arm.name, c), [])
    ]  # fmt: skip
    head = ["Setting", "Arm", "Patients", "Predicted", "Observed", "95 % interval", "Difference"]
    return table(head, body, numeric=(2, 3, 4, 5, 6), caption="Predicted and observed, by group")

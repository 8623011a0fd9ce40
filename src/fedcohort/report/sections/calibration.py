"""Calibration and decision curves: accuracy and usefulness of predictions.

Files: results.json, `calibration`, `reliability` and `decision`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedcohort.report import charts, words
from fedcohort.report.charts import Domain, Series, around, figure, scatter_with_diagonal
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, first_setting, more
from fedcohort.report.verdict import leading
from fedcohort.report.words import number


class Group(NamedTuple):
    """One group of patients with similar predictions; means over repeats.

    Attributes
    ----------
    predicted, observed : survival at the horizon, probability or value.
    n : patients in a repeat.
    low, high : 95 % interval of the observed value in a repeat.
    """

    predicted: float
    observed: float
    n: float
    low: float
    high: float


def calibration(run: Run) -> Section | None:
    """Return a figure for each scenario that has calibration groups, the first one open."""
    found = groups(run)
    if not found:
        return None
    shares = run.kind.shares
    values = [v for g in found.values() for x in g for v in x[:2]]
    ends = [v for g in found.values() for x in g for v in x[3:] if v == v]
    domain = _shares([*values, *ends]) if shares else around([*values, *ends])
    digits = 3 if shares else words.decimals(max(map(abs, values)))
    horizon = [t for r in run.rows("calibration") if (t := words.number(r.get("time"))) == t]
    shown = [a for a in run.arms if any(of[0] == a.name for of in found)]
    names = [c for c in run.scenarios if any(of[1] == c for of in found)]
    what = "survival" if horizon else "probability" if shares else _value(run)
    axes = _Axes(what, f" {what}" if shares else f", {run.unit}" * bool(run.unit), domain, digits)
    figures = first_setting(run, names, lambda c: _calibrated(run, shown, found, c, axes))
    parts = _parts(run, shown)
    numbers = more("The numbers", _table(run, shown, found, digits))
    return Section(
        "calibration",
        "Calibration",
        f"Can the predicted {'risks' if shares else 'values'} be taken at face value?",
        _survival(run, mean(horizon))
        if horizon
        else _PROBABILITY + _OF_CLASSES * bool(run.classes)
        if shares
        else _VALUE,
        h("div", figures, *parts, numbers),
    )


_PROBABILITY = (
    "Patients are in groups of similar predicted probability. On the dotted diagonal, the "
    "observed share equals the predicted share; below it, predictions are too high, above it, "
    "too low."
)

_OF_CLASSES = " Each class has its groups, by its own probability, against all other classes."

_VALUE = (
    "Patients are in groups of similar predicted value, each large enough that means reveal no "
    "single patient. On the dotted diagonal, the observed mean equals the predicted mean; below "
    "it, predictions are too high, above it, too low. A line flatter than the diagonal means "
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


def groups(run: Run) -> dict[tuple[str, str, str], list[Group]]:
    """Return the groups of each (arm, scenario, class), averaged over repeats, by prediction.

    The class is "" unless there are several.
    """
    cells: dict[tuple[str, str, str], dict[int, list[Group]]]
    cells = defaultdict(lambda: defaultdict(list))
    for row in run.rows("calibration"):
        g = Group(
            *(words.number(row.get(k)) for k in ("predicted", "observed", "n", "low", "high"))
        )
        if g.predicted == g.predicted and g.observed == g.observed:
            of = str(row["arm"]), str(row["scenario"]), str(row.get("class") or "")
            cells[of][int(row["group"])].append(g)
    return {
        k: [
            Group(*(mean(list(x)) for x in zip(*by_group[i], strict=True)))
            for i in sorted(by_group)
        ]
        for k, by_group in cells.items()
    }


def _calibrated(
    run: Run,
    arms: list[Arm],
    found: dict[tuple[str, str, str], list[Group]],
    scenario: str,
    axes: _Axes,
) -> Markup:
    """Return observed over predicted in a scenario, a line for each arm, a panel for each class."""
    c = scenario
    levels = run.classes or ("",)
    cells = [(a, v, g) for v in levels for a in arms if (g := found.get((a.name, c, v)))]
    banded = arms if len(arms) <= 2 else [a for a in arms if a == leading(run)]
    setting = run.scenarios[c] if len(run.scenarios) > 1 else ""
    series = [
        Series(
            label=a.title,
            look=a.look,
            panel=level or setting,
            points=[
                (x.predicted, x.observed, x.low, x.high)
                if a in banded
                else (x.predicted, x.observed)
                for x in g
            ],
        )
        for a, level, g in cells
    ]
    rows = [
        {"scenario": c, "arm": a.name, "title": a.title}
        | ({"class": level} if level else {})
        | {"group": i + 1, **x._asdict()}
        for a, level, g in cells
        for i, x in enumerate(g)
    ]
    said = "; ".join(
        f"{run.scenarios[c]}, {a.title}{f', {level}' * bool(level)}: largest difference between "
        f"observed and predicted "
        f"{words.fixed(max((x.observed - x.predicted for x in g), key=abs), axes.digits)}"
        for a, level, g in cells
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
    """Return the meaning of the band, and its arm."""
    of = "" if len(banded) == len(arms) else f" of “{banded[0].title}”" if banded else ""
    where = "the CSV has" if not banded else f"the band{of} is"
    return f"{where} the pointwise 95 % interval of what was observed in one repeat's patients"


def _table(
    run: Run, arms: list[Arm], found: dict[tuple[str, str, str], list[Group]], digits: int
) -> Markup:
    several = bool(run.classes)
    body = [
        [
            title, arm.title, *[level] * several, words.count(g.n),
            words.fixed(g.predicted, digits), words.fixed(g.observed, digits),
            words.between(g.low, g.high, digits) or words.MISSING,
            words.fixed(g.observed - g.predicted, digits),
        ]
        for c, title in run.scenarios.items()
        for arm in arms
        for level in run.classes or ("",)
        for g in found.get((arm.name, c, level), [])
    ]  # fmt: skip
    numbers = ["Patients", "Predicted", "Observed", "95 % interval", "Difference"]
    head = ["Setting", "Arm", *["Class"] * several, *numbers]
    numeric = range(len(head) - len(numbers), len(head))
    return table(head, body, numeric=numeric, caption="Predicted and observed, by group")


#: Fields of `reliability`, and titles of their columns.
_PARTS = {
    "ece": "Calibration error", "ece_by_chance": "By chance", "reliability": "Reliability",
    "resolution": "Resolution", "uncertainty": "Uncertainty", "within": "Within groups",
    "brier": "Brier score",
}  # fmt: skip


def _parts(run: Run, arms: list[Arm]) -> list[Markup]:
    """Return calibration error and parts of the Brier score, means over repeats; [] without."""
    found: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in run.rows("reliability"):
        found[str(row["scenario"]), str(row["arm"]), str(row.get("class") or "")].append(row)
    several = bool(run.classes)
    body = [
        [title, arm.title, *[level] * several]
        + [words.fixed(mean([number(r.get(k)) for r in rows]), 3) for k in _PARTS]
        for c, title in run.scenarios.items()
        for arm in arms
        for level in run.classes or ("",)
        if (rows := found.get((c, arm.name, level)))
    ]
    if not body:
        return []
    head = ["Setting", "Arm", *["Class"] * several, *_PARTS.values()]
    numeric = range(len(head) - len(_PARTS), len(head))
    said = (
        "Calibration error: mean difference between observed and predicted share over the groups, "
        "weighted by patients; few patients alone give about the one “by chance”, also if all "
        "probabilities are right. Brier score = reliability − resolution + uncertainty + within "
        "groups: what wrong shares cost, what groups of different shares gain, what the same "
        "share for everyone costs, and what is left of predictions that differ in a group."
    )
    return [
        table(head, body, numeric=numeric, caption="Calibration error, parts of the Brier score"),
        h("p", said),
    ]


Row = Mapping[str, Any]

#: Lower end of a figure, as a share of the highest net benefit; below is harm.
BELOW = 0.15


def decision(run: Run) -> Section | None:
    """Return the curves of every arm in the first setting, and the other settings folded."""
    needed = ("threshold", "net_benefit", "treat_all")
    found = [
        r for r in run.rows("decision") if all(number(r.get(k)) == number(r.get(k)) for k in needed)
    ]
    arms = [a for a in run.arms if any(r["arm"] == a.name for r in found)]
    shown = [c for c in run.scenarios if any(r["scenario"] == c for r in found)]
    if not shown:
        return None
    times = [t for r in found if (t := number(r.get("time"))) == t]
    risk = ""
    if times:
        of_data = ", in the unit of the data," * (not run.clock.unit)
        when = run.mapping("evaluate").get("horizon") or f"{run.clock.say(times[0])}{of_data}"
        risk = f"of the event by {when} "
    return Section(
        "decision", "Decision curves", "Would treating by the model do more good than harm?",
        f"A patient is treated where the predicted risk {risk}is at the threshold or above. A "
        "threshold of 20 % says that four patients may be treated in vain for one who needs it. "
        "Net benefit is the share of patients who are treated and have the event, less those "
        "treated in vain at that weight. A model is of use at thresholds where its line is above "
        "those of treating everybody and of treating nobody. Choose the threshold before you look."
        + _EACH * bool(run.classes),
        h("div", first_setting(run, shown, lambda c: _decided(run, arms, c, found))),
    )  # fmt: skip


#: What the event is where there are classes.
_EACH = (
    " Each class is taken alone: the event is that a patient is of the class, the risk its "
    "predicted probability."
)


def _decided(run: Run, arms: Sequence[Arm], scenario: str, found: Sequence[Row]) -> Markup | None:
    """Return one setting's curves, a panel for each class; the leading arm's has its band."""
    mine: dict[tuple[str, str], list[Row]] = {}
    for level in run.classes or ("",):
        for a in arms:
            of = a.name, scenario, level
            rows = [r for r in found if (r["arm"], r["scenario"], r.get("class") or "") == of]
            if len(rows) > 1:
                mine[a.name, level] = rows
    if not mine:
        return None
    lead, there = leading(run), {name for name, _ in mine}
    banded = [a.name for a in arms if len(there) <= 2 or (lead and a.name == lead.name)]
    values = [number(r["net_benefit"]) for rows in mine.values() for r in rows]
    top = max([*values, *(number(r["treat_all"]) for rows in mine.values() for r in rows)])
    domain = (-BELOW * top, 1.05 * top)
    series: list[Series] = []
    for level in dict.fromkeys(level for _, level in mine):
        series += [
            Series(
                label=a.title,
                look=a.look,
                points=_above([_point(r, a.name in banded) for r in rows], domain[0]),
                panel=level,
            )
            for a in arms
            if (rows := mine.get((a.name, level)))
        ]
        everybody = max((rows for of, rows in mine.items() if of[1] == level), key=len)
        all_ = [(number(r["threshold"]), number(r["treat_all"])) for r in everybody]
        points = _above(all_, domain[0])
        series.append(
            Series(label="everybody is treated", look="faint", points=points, panel=level)
        )
    last = max(number(r["threshold"]) for rows in mine.values() for r in rows)
    keys = ("threshold", "net_benefit", "low", "high", "treat_all")
    data = [
        {"arm": name} | ({"class": level} if level else {}) | {k: r.get(k) for k in keys}
        for (name, level), rows in mine.items()
        for r in rows
    ]
    of = [a.title for a in arms if a.name in there and a.name in banded]
    band = f"; the band of “{of[0]}” is" if len(of) == 1 else "; bands are" if of else ""
    band += " the pointwise 95 % interval of patients drawn independently" * bool(of)
    setting = f", {run.scenarios[scenario]}" if len(run.scenarios) > 1 else ""
    return charts.figure(
        f"decision-{scenario}",
        f"Net benefit by threshold{' of each class' * bool(run.classes)}{setting}",
        f"Blind patients of the first repeat{band}; the dotted line at 0 is that nobody is treated",
        charts.lines_with_bands(
            series, "threshold of predicted risk", "net benefit",
            x_domain=(0.0, last), y_domain=domain, reference=0.0,
        ),
        data,
        f"Net benefit of {words.of(len(there), 'arm')} by threshold, beside treating everybody.",
    )  # fmt: skip


def _point(r: Row, banded: bool) -> tuple[float, ...]:
    keys = ("threshold", "net_benefit", "low", "high") if banded else ("threshold", "net_benefit")
    return tuple(number(r.get(k)) for k in keys)


def _above(points: Sequence[tuple[float, ...]], low: float) -> list[tuple[float, ...]]:
    """Return a line's points from the left as far as it first falls to `low`, where it ends."""
    kept: list[tuple[float, ...]] = []
    for p in points:
        if p[1] < low:
            if kept:
                a = kept[-1]
                kept.append((a[0] + (p[0] - a[0]) * (a[1] - low) / (a[1] - p[1]), low))
            break
        kept.append(p)
    return kept

"""Calibration: predicted against observed survival at the horizon, by group of predicted risk."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

from fedcohort.report import plot, words
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, legend, more, panel, panels


class Group(NamedTuple):
    """One group of patients with similar predictions, over repeats.

    Attributes
    ----------
    predicted, observed : survival at the horizon, mean over repeats.
    n : patients in a repeat, mean over repeats.
    """

    predicted: float
    observed: float
    n: float


def section(run: Run) -> Section | None:
    """Return a panel for each scenario that has calibration groups."""
    found = groups(run)
    if not found:
        return None
    values = [v for g in found.values() for x in g for v in (x.predicted, x.observed)]
    low = max(0.0, math.floor(10 * min(values)) / 10)
    high = min(1.0, math.ceil(10 * max(values)) / 10)
    scale = plot.Scale(low, high if high > low else low + 0.1)
    horizon = mean([words.number(r.get("time")) for r in run.rows("calibration")])
    shown = [a for a in run.arms if any((a.name, c) in found for c in run.scenarios)]
    body = [
        _panel(run, scale, c, [(a, found[a.name, c]) for a in shown if (a.name, c) in found])
        for c in run.scenarios
        if any((a.name, c) in found for a in shown)
    ]
    intro = (
        f"Patients are put in groups by predicted survival at time {horizon:.4g} (in the units of "
        "the data, the middle of the event times). On the dotted diagonal, the share that really "
        "survived is the share predicted; below it, the model was too hopeful, above it, too "
        "gloomy."
    )
    numbers = more("The numbers", _table(run, shown, found))
    return Section(
        "calibration",
        "Calibration",
        "Can the predicted risks be taken at face value?",
        intro,
        h("div", legend(shown), panels(body, "panels small"), numbers),
    )


def groups(run: Run) -> dict[tuple[str, str], list[Group]]:
    """Return the groups of each (arm, scenario), averaged over repeats, in order of prediction."""
    cells: dict[tuple[str, str], dict[int, list[Group]]] = defaultdict(lambda: defaultdict(list))
    for row in run.rows("calibration"):
        g = Group(*(words.number(row.get(k)) for k in ("predicted", "observed", "n")))
        if g.predicted == g.predicted and g.observed == g.observed:
            cells[str(row["arm"]), str(row["scenario"])][int(row["group"])].append(g)
    return {
        k: [
            Group(*(mean(list(x)) for x in zip(*by_group[i], strict=True)))
            for i in sorted(by_group)
        ]
        for k, by_group in cells.items()
    }


def _panel(
    run: Run, scale: plot.Scale, scenario: str, arms: list[tuple[Arm, list[Group]]]
) -> Markup:
    """Return one scenario: observed over predicted, a line an arm, and the diagonal."""
    marks = plot.ticks(scale.low, scale.high)
    frame = plot.Frame(scale, scale, marks, marks, height=230)
    ends = (scale.low, scale.high)
    shapes = [frame.line([(v, v) for v in ends], "diagonal")]
    pins: list[Markup] = []
    for arm, found in arms:
        shapes.append(frame.line([(g.predicted, g.observed) for g in found], arm.look))
        pins += [frame.pin(g.predicted, g.observed, arm.look) for g in found]
    title = f"{run.scenarios[scenario]}: observed survival by predicted survival"
    picture = frame.draw(shapes, pins, title, "predicted survival")
    return panel(run.scenarios[scenario], "observed survival, by predicted", picture)


def _table(run: Run, arms: list[Arm], found: dict[tuple[str, str], list[Group]]) -> Markup:
    body = [
        [
            title, arm.title, words.count(g.n),
            words.fixed(g.predicted), words.fixed(g.observed),
            words.fixed(g.observed - g.predicted),
        ]
        for c, title in run.scenarios.items()
        for arm in arms
        for g in found.get((arm.name, c), [])
    ]  # fmt: skip
    head = ["Setting", "Arm", "Patients", "Predicted", "Observed", "Difference"]
    return table(head, body, numeric=(2, 3, 4, 5), caption="Survival at the horizon, by group")

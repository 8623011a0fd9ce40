"""Coefficients: hazard ratios as a forest plot, and the table a statistician asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import plot, words
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, panel, row, rows
from fedcohort.report.words import fixed, number, ratio

Row = Mapping[str, Any]

_UNITS = {
    "standard": "per standard deviation of the covariate",
    "minmax": "from the smallest to the largest value of the covariate",
    "none": "per unit of the covariate",
}


def section(run: Run) -> Section | None:
    """Return a forest plot and a table for each arm that has coefficients."""
    blocks = [b for arm in run.arms if (b := _block(run, arm)) is not None]
    if not blocks:
        return None
    intro = (
        "Hazard ratio: by how much the rate of the event is multiplied. Right of 1, the event "
        "comes sooner; left of 1, later. Bars are 95 % intervals; where a bar crosses 1, the data "
        "leave the direction open. An association is not yet a cause."
    )
    return Section(
        "coefficients", "Coefficients", "Which covariates go with the risk?", intro,
        h("div", blocks),
    )  # fmt: skip


def _block(run: Run, arm: Arm) -> Markup | None:
    """Return one arm's picture and table, of its first fit."""
    every = [c for c in run.rows("coefficients") if c["arm"] == arm.name]
    order = list(run.scenarios)
    fits = sorted(
        {(str(c["scenario"]), int(c.get("repeat") or 0)) for c in every},
        key=lambda k: (order.index(k[0]) if k[0] in order else len(order), k[1]),
    )
    if not fits:
        return None
    first = [c for c in every if (str(c["scenario"]), int(c.get("repeat") or 0)) == fits[0]]
    spread = _spread(every) if len(fits) > 1 else {}
    scale = _scale(first)
    marks = plot.log_ticks(scale.low, scale.high)
    unit = _UNITS.get(str(arm.settings.get("scale") or run.mapping("preprocess").get("scale")))
    lines = [_row(c, scale, marks, spread.get(str(c["covariate"]))) for c in first]
    axis = plot.axis(scale, marks, "Hazard ratio, log scale")
    note = [unit] if unit else []
    if len(fits) > 1:
        note.append(
            f"first of {len(fits)} fits ({run.scenarios.get(fits[0][0], fits[0][0])}); the pale "
            "line spans all fits"
        )
    picture = panel(arm.title, "; ".join(note) or None, rows(lines, axis))
    return h("div", picture, _table(first, spread), class_="forest")


def _spread(every: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Return the smallest and largest hazard ratio of each covariate over all fits."""
    out: dict[str, tuple[float, float]] = {}
    for c in every:
        x, name = _ratios(c)[0], str(c["covariate"])
        if x > 0:
            low, high = out.get(name, (x, x))
            out[name] = (min(low, x), max(high, x))
    return out


def _scale(first: Sequence[Row]) -> plot.Scale:
    """Return a log scale that holds the intervals, at most four decades each way."""
    found = [x for c in first for x in _ratios(c)]
    logs = [math.log(x) for x in found if x > 0] or [0.0]
    low, high = max(min(*logs, -0.2), -9.2), min(max(*logs, 0.2), 9.2)
    room = 0.04 * (high - low)
    return plot.Scale(math.exp(low - room), math.exp(high + room), log=True)


def _row(
    c: Row, scale: plot.Scale, marks: Sequence[float], spread: tuple[float, float] | None
) -> Markup:
    """Return one covariate's interval and mark."""
    value, low, high = _ratios(c)
    back = [plot.grid(scale, marks), plot.rule(scale.pct(1.0), "unity")]
    name = h("span", words.spaced(str(c["covariate"])), class_="site")
    if not value > 0:
        return row(name, plot.strip(*back), words.MISSING, "row tight")
    clear = low > 1 or high < 1
    look = "c0" if clear else "faint"
    parts: list[Markup | None] = list(back)
    if spread:
        parts.append(plot.span(scale, *spread, f"span {look}"))
    if low > 0:
        parts.append(plot.whisker(scale, low, high, look))
    parts.append(plot.dot(look, scale.pct(value), small=True))
    shown = _hazard(c)
    said = f"{c['covariate']}: hazard ratio {shown}"
    return row(name, plot.strip(*parts, title=said), shown, "row tight")


def _hazard(c: Row) -> str:
    """Return ``1.52 (1.20–1.93)``."""
    value, low, high = map(ratio, _ratios(c))
    interval = "" if words.MISSING in (low, high) else f" ({low}–{high})"
    return value + interval


def _ratios(c: Row) -> tuple[float, float, float]:
    """Return the hazard ratio and its interval; the run has the interval of the coefficient."""
    value, low, high = (
        math.exp(min(max(number(c.get(k)), -700.0), 700.0)) for k in ("coefficient", "low", "high")
    )
    return value, low, high


def _table(first: Sequence[Row], spread: Mapping[str, tuple[float, float]]) -> Markup:
    head = ["Covariate", "Coefficient", "SE", "HR (95 % CI)", "p"]
    head += ["HR over all fits"] if spread else []
    body: list[list[str]] = []
    for c in first:
        line = [
            words.spaced(str(c["covariate"])), fixed(c.get("coefficient")),
            fixed(c.get("standard_error")), _hazard(c), words.p_value(c.get("p")),
        ]  # fmt: skip
        ends = spread.get(str(c["covariate"]))
        line += ([f"{ratio(ends[0])}–{ratio(ends[1])}"] if ends else [words.MISSING]) * bool(spread)
        body.append(line)
    return table(head, body, numeric=range(1, len(head)), caption="Coefficients")

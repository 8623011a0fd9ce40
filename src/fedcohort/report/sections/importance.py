"""Importance: what a model loses when one column of the blind rows is shuffled."""

from __future__ import annotations

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, leading_open
from fedcohort.report.words import fixed, number

#: A figure shows so many columns; its CSV has all.
SHOWN = 15


def section(run: Run) -> Section | None:
    """Return a figure for each arm, of its first setting."""
    drawn = [(a, f) for a in run.arms if (f := _figure(run, a)) is not None]
    if not drawn:
        return None
    return Section(
        "importance", "Importance", "What does the model look at?",
        "Permutation importance: one column of the blind patients is shuffled, and the model "
        f"loses as much {_label(run)} as it owes to that column. Columns that "
        "tell the same share it, so that each may look dispensable. It says what the model uses, "
        "not what causes the outcome.",
        h("div", leading_open(run, drawn)),
    )  # fmt: skip


def _label(run: Run) -> str:
    """Return what is lost: of older runs, which do not say it, the metric that leads the page."""
    return next((run.known(r.get("metric")).label for r in run.rows("importance")), "")


def _figure(run: Run, arm: Arm) -> Markup | None:
    every = [r for r in run.rows("importance") if r["arm"] == arm.name]
    if not every:
        return None
    scenario = str(every[0]["scenario"])
    mine = sorted(
        (r for r in every if r["scenario"] == scenario), key=lambda r: -number(r.get("drop"))
    )
    rows = [
        charts.Row(
            name=words.spaced(str(r["feature"])),
            value=number(r.get("drop")), low=number(r.get("low")), high=number(r.get("high")),
            look=arm.look,
            text=words.estimate(r.get("drop"), r.get("low"), r.get("high")),
        )
        for r in mine[:SHOWN]
    ]  # fmt: skip
    some = f"; the first {SHOWN} of {len(mine)}" if len(mine) > SHOWN else ""
    label = _label(run)
    top = mine[0]
    return charts.figure(
        f"importance-{arm.name}",
        f"{arm.title}: loss of {label} without each column",
        f"first repeat, {run.scenarios.get(scenario, scenario)}{some}",
        charts.bars(rows, f"loss of {label}"),
        [{k: r.get(k) for k in ("feature", "drop", "low", "high")} for r in mine],
        f"{arm.title} relies most on {words.spaced(str(top['feature']))}: {fixed(top['drop'])}.",
    )

"""Errors: how far predicted values are from what was seen, and how residuals spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section, key, more

#: Metrics of this section, in order.
METRICS = ("r2", "rmse", "mae", "poisson_deviance")
_KEYS = ("mean", "sd", "q1", "median", "q3")


def section(run: Run) -> Section | None:
    """Return the errors of every arm and the quartiles of residuals, of a value or a count."""
    metrics = [m for m in METRICS if m in run.metrics]
    if run.task != "regression" or not metrics:
        return None
    return Section(
        "errors", "Errors", "How far are predictions from what happened?",
        "R² is the share of the variance among blind patients that predictions explain, RMSE the "
        "size of a typical error in the unit of the outcome, where large errors weigh more than in "
        "the mean absolute error. A residual is what was seen less what was predicted: half of the "
        "patients lie between its quartiles, and a median away from 0 says that the model is "
        "lopsided.",
        h(
            "div",
            [f for c in run.scenarios if (f := _figure(run, c)) is not None],
            more("The numbers", _numbers(run, metrics), _residuals(run)),
        ),
    )  # fmt: skip


def _figure(run: Run, scenario: str) -> Markup | None:
    """Return the quartiles of the residuals of every arm in one setting."""
    arms = {a.name: a for a in run.arms}
    found = [r for r in run.rows("residuals") if r["scenario"] == scenario and r["arm"] in arms]
    if not found:
        return None
    digits = _decimals(found)
    rows = [
        charts.Row(
            name=arms[str(r["arm"])].title,
            value=words.number(r["median"]), low=words.number(r["q1"]), high=words.number(r["q3"]),
            look=arms[str(r["arm"])].look,
            text=words.estimate(r["median"], r["q1"], r["q3"], digits),
        )
        for r in found
    ]  # fmt: skip
    return charts.figure(
        f"residuals-{scenario}",
        f"Residuals: {run.scenarios[scenario]}",
        "median and quartiles, blind patients of the first repeat",
        charts.interval_rows(
            rows, f"seen less predicted{f', {run.unit}' if run.unit else ''}",
            reference=0.0,
            domain=charts.around([0.0, *(v for r in rows for v in (r.low, r.high))]),
            heads=("Arm", "median (quartiles)"),
        ),
        [{k: r.get(k) for k in ("arm", "scenario", *_KEYS)} for r in found],
        "; ".join(f"{r.name}: {r.text}" for r in rows) + ".",
    )  # fmt: skip


def _numbers(run: Run, metrics: list[str]) -> Markup:
    """Return every arm's errors, over all repeats."""
    known = [run.known(m) for m in metrics]
    rows = [
        [key(a), run.scenarios[c], *(_cell(run, a.name, c, m) for m in metrics)]
        for c in run.scenarios
        for a in run.arms
    ]
    head = ["Arm", "Setting", *(k.axis for k in known)]
    caption = "Errors on blind patients, 95 % intervals"
    return table(head, rows, numeric=range(2, len(head)), caption=caption)


def _cell(run: Run, arm: str, scenario: str, metric: str) -> str:
    s = run.summary(arm, scenario, metric)
    digits = run.known(metric).digits
    return words.MISSING if s is None else words.estimate(s.mean, s.low, s.high, digits)


def _residuals(run: Run) -> Markup | None:
    """Return mean, spread and quartiles of the first repeat's residuals."""
    arms = {a.name: a for a in run.arms}
    found = [r for r in run.rows("residuals") if str(r["arm"]) in arms]
    if not found:
        return None
    digits = _decimals(found)
    rows = [
        [key(arms[str(r["arm"])]), run.scenarios.get(str(r["scenario"]), str(r["scenario"]))]
        + [words.fixed(r.get(k), digits) for k in _KEYS]
        for r in found
    ]
    unit = f", {run.unit}" if run.unit else ""
    return table(
        ["Arm", "Setting", "Mean", "SD", "Lower quartile", "Median", "Upper quartile"], rows,
        numeric=range(2, 7),
        caption=f"Residuals{unit}: blind patients of the first repeat, each quartile averaged over "
        f"several of them, and rounded so that none of them shows",
    )  # fmt: skip


def _decimals(found: Sequence[Mapping[str, Any]]) -> int:
    """Return the decimals of residuals, which were rounded as in Table 1."""
    return max(words.decimals(words.number(r["q3"]) - words.number(r["q1"]), 2) for r in found)

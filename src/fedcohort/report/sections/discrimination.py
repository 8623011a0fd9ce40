"""Discrimination: every concordance with its interval, the AUC over time, ROC curves."""

from __future__ import annotations

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import (
    Section,
    first_setting,
    follow_up,
    key,
    more,
    timed,
)  # fmt: skip

#: Metrics of this section, in order.
METRICS = ("c_index", "uno_c", "auc")


def section(run: Run) -> Section | None:
    """Return the concordances of every arm, the AUC over follow-up and the ROC curves."""
    metrics = [m for m in METRICS if m in run.metrics]
    if not metrics or run.task == "clustering":  # groups rank no risks
        return None
    survival = run.results.get("task") == "survival"
    intro = (
        "Harrell’s C counts the pairs of patients whose order the model got right; Uno’s corrects "
        "it for patients who left early."
        if survival
        else "The AUC is the chance that a patient with the outcome is given a higher probability "
        "than one without it."
    )
    if survival and run.rows("over_time"):
        intro += (
            " The time-dependent AUC asks the same at one time: those with the event by then "
            "against those without."
        )
    elif run.rows("roc"):
        intro += " The ROC curve shows what each threshold would give."
    return Section(
        "discrimination", "Discrimination", "Does the model know who is at higher risk?", intro,
        h("div", _over_time(run), _at_horizon(run), _roc(run), _numbers(run, metrics)),
    )  # fmt: skip


def _over_time(run: Run) -> Markup | None:
    return over_time(run, "auc", "Time-dependent AUC", reference=0.5)


def _at_horizon(run: Run) -> Markup | None:
    """Return the AUC at the study's horizon, where so much is followed; None without one."""
    text = str(run.mapping("evaluate").get("horizon") or "")
    times = {words.number(r.get("time")) for r in run.rows("calibration")}
    found = [
        r
        for r in run.rows("over_time")
        if r.get("metric") == "auc" and words.number(r.get("time")) in times
    ]
    if not (text and found):
        return None
    titles = {a.name: a.title for a in run.arms}
    several = len(run.scenarios) > 1
    said = [
        titles.get(str(r["arm"]), str(r["arm"]))
        + f", {run.scenarios.get(str(r['scenario']), '')}" * several
        + f": {words.estimate(r.get('value'), r.get('low'), r.get('high'))}"
        for r in found
    ]
    return p(f"AUC at {text}, blind patients of the first repeat: {'; '.join(said)}.")


def over_time(run: Run, metric: str, title: str, reference: float | None = None) -> Markup | None:
    """Return a figure of a metric over follow-up for each setting, with a line an arm.

    The bands of more than two arms would hide each other: then they are in the figure's CSV only.
    A network has none.
    """
    found = [r for r in run.rows("over_time") if r.get("metric") == metric]
    arms = [a for a in run.arms if any(r["arm"] == a.name for r in found)]
    if not arms:
        return None
    known = any(r.get("low") is not None for r in found)
    banded = known and len(arms) <= 2

    def points(arm: str, scenario: str) -> list[tuple[float, ...]]:
        keys = ("time", "value", "low", "high") if banded else ("time", "value")
        mine = [r for r in found if r["arm"] == arm and r["scenario"] == scenario]
        return timed(run, [tuple(words.number(r.get(k)) for k in keys) for r in mine])

    keys = ("time", "value", "low", "high")
    where = "bands" if banded else "in the CSV"
    shown = "blind patients of the first repeat"
    shown += f"; {where}: 95 % bootstrap intervals over patients" * known

    def figure(scenario: str) -> Markup:
        setting = run.scenarios[scenario] if len(run.scenarios) > 1 else ""
        mine = {a.name: points(a.name, scenario) for a in arms}
        series = [
            charts.Series(label=a.title, look=a.look, points=mine[a.name], panel=setting)
            for a in arms
            if mine[a.name]
        ]
        data = [
            {"setting": run.scenarios[scenario], "arm": a.title}
            | {k: words.number(r.get(k)) for k in keys}
            for a in arms
            for r in found
            if (r["arm"], r["scenario"]) == (a.name, scenario)
        ]
        chart = charts.lines_with_bands(series, follow_up(run), title, reference=reference)
        said = f"{title} of {words.of(len(series), 'arm')} along the follow-up."
        return charts.figure(
            f"over-time-{metric}-{scenario}", f"{title} over follow-up", shown, chart, data, said
        )

    return first_setting(
        run, [c for c in run.scenarios if any(r["scenario"] == c for r in found)], figure
    )


def _roc(run: Run) -> Markup | None:
    """Return the ROC curves of every arm, a panel a setting."""
    found = [r for r in run.rows("roc") if r.get("points")]
    arms = {a.name: a for a in run.arms}
    series = [
        charts.Series(
            label=arms[str(r["arm"])].title,
            look=arms[str(r["arm"])].look,
            points=[(words.number(x), words.number(y)) for x, y in r["points"]],
            panel=run.scenarios.get(str(r["scenario"]), ""),
        )
        for r in found
        if str(r["arm"]) in arms
    ]
    if not series:
        return None
    data = [
        {"setting": s.panel, "arm": s.label, "1 - specificity": x, "sensitivity": y}
        for s in series
        for x, y in s.points
    ]
    chart = charts.scatter_with_diagonal(series, "1 − specificity", "sensitivity", marks=False)
    return charts.figure(
        "roc", "ROC curves", "blind patients of the first repeat, in steps of several patients",
        chart, data, "Sensitivity against one minus specificity for every arm.",
    )  # fmt: skip


def _numbers(run: Run, metrics: list[str]) -> Markup:
    """Return every arm's concordances, over all repeats."""
    rows = [
        [key(a), run.scenarios[c], *(_cell(run, a.name, c, m) for m in metrics)]
        for c in run.scenarios
        for a in run.arms
    ]
    head = ["Arm", "Setting", *(words.metric(m).label for m in metrics)]
    return more(
        "The numbers",
        table(head, rows, numeric=range(2, len(head)), caption="Discrimination, 95 % intervals"),
    )


def _cell(run: Run, arm: str, scenario: str, metric: str) -> str:
    s = run.summary(arm, scenario, metric)
    return words.MISSING if s is None else words.estimate(s.mean, s.low, s.high)

"""Discrimination, accuracy over time, and errors of values.

Files: results.json, `summary`, `over_time`, `roc`, `residuals`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section, first_setting, follow_up, key, more, timed

#: Metrics of this section, in order.
DISCRIMINATION_METRICS = ("c_index", "uno_c", "antolini_c", "auc")


def discrimination(run: Run) -> Section | None:
    """Return the concordances of every arm, the AUC over follow-up and the ROC curves."""
    metrics = [m for m in DISCRIMINATION_METRICS if m in run.metrics]
    if not (metrics and run.kind.ranks):
        return None
    survival = run.results.get("task") == "survival"
    intro = (
        "Harrell’s C counts the pairs of patients whose order the model got right; Uno’s corrects "
        "it for patients who left early."
        + " The time-dependent C compares predicted survival at the time of each event."
        * ("antolini_c" in metrics)
        if survival
        else "The AUC is the chance that a patient with the outcome is given a higher probability "
        "than one without it."
    )
    if survival and run.rows("over_time"):
        intro += (
            " The time-dependent AUC asks the same at one time: those with the event by then "
            "against those without."
        )
    elif run.classes:
        intro = (
            "The AUC of a class is the chance that a patient of the class is given a higher "
            "probability of it than a patient of another one; the AUC is their mean."
        )
    if run.rows("roc"):
        intro += " The ROC curve shows what each threshold would give."
    return Section(
        "discrimination", "Discrimination",
        "Does the model know who is of which class?" if run.classes
        else "Does the model know who is at higher risk?",
        intro,
        h("div", _over_time(run), _at_horizon(run), _roc(run),
          more("The numbers", _numbers(run, metrics, "Discrimination"))),
    )  # fmt: skip


def _over_time(run: Run) -> Markup | None:
    return over_time(run, "auc", "Time-dependent AUC", reference=0.5)


def _at_horizon(run: Run) -> Markup | None:
    """Return the AUC at the study's horizon, if it is followed so far; else None."""
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
    """Return a figure of a metric over follow-up for each setting, with a line per arm.

    Bands of more than two arms would hide each other and are only in the figure's CSV. A network
    has
    none.
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
            panel=_panel(run, r),
        )
        for r in found
        if str(r["arm"]) in arms
    ]
    if not series:
        return None
    each = " of each class against the rest" * bool(run.classes)
    data = [
        {"setting": s.panel, "arm": s.label, "1 - specificity": x, "sensitivity": y}
        for s in series
        for x, y in s.points
    ]
    chart = charts.scatter_with_diagonal(series, "1 − specificity", "sensitivity", marks=False)
    return charts.figure(
        "roc", f"ROC curves{each}",
        "blind patients of the first repeat, in steps of several patients",
        chart, data, f"Sensitivity against one minus specificity for every arm{each}.",
    )  # fmt: skip


def _panel(run: Run, row: Mapping[str, Any]) -> str:
    """Return the panel of a ROC curve: its setting, and its class if there are several."""
    setting = run.scenarios.get(str(row["scenario"]), "")
    if not run.classes:
        return setting
    return f"{row['class']}, {setting}" if len(run.scenarios) > 1 else str(row["class"])


def accuracy(run: Run) -> Section | None:
    """Return the Brier score over follow-up, where the run has it."""
    drawn = over_time(run, "brier", "Brier score")
    if drawn is None:
        return None
    return Section(
        "accuracy", "Accuracy over time", "How far are predicted curves from what happened?",
        "The Brier score is the mean squared distance between the predicted probability of being "
        "free of the event and the observation, weighted for patients who left early: 0 is "
        "perfect, and a coin gives 0.25. It combines discrimination and calibration.",
        h("div", drawn),
    )  # fmt: skip


#: Metrics of this section, in order.
VALUES_METRICS = ("r2", "rmse", "nrmse", "mae", "pcc", "poisson_deviance")
_KEYS = ("mean", "sd", "q1", "median", "q3")


def values(run: Run) -> Section | None:
    """Return the errors of every arm and the quartiles of residuals, of a value or a count."""
    metrics = [m for m in VALUES_METRICS if m in run.metrics]
    if run.kind.shares or not metrics:
        return None
    return Section(
        "errors", "Errors", "How far are predictions from what happened?",
        "R² is the share of the variance among blind patients that predictions explain, RMSE the "
        "size of a typical error in the unit of the outcome, where large errors weigh more than in "
        "the mean absolute error. A residual is the observed value minus the predicted one: half "
        "of the patients lie between its quartiles, and a median far from 0 says that the model "
        "is biased.",
        h(
            "div",
            [f for c in run.scenarios if (f := _figure(run, c)) is not None],
            more(
                "The numbers",
                _numbers(run, metrics, "Errors on blind patients"),
                _residuals(run),
            ),
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
            rows, f"observed minus predicted{f', {run.unit}' if run.unit else ''}",
            reference=0.0,
            domain=charts.around([0.0, *(v for r in rows for v in (r.low, r.high))]),
            heads=("Arm", "median (quartiles)"),
        ),
        [{k: r.get(k) for k in ("arm", "scenario", *_KEYS)} for r in found],
        "; ".join(f"{r.name}: {r.text}" for r in rows) + ".",
    )  # fmt: skip


def _numbers(run: Run, metrics: Sequence[str], caption: str) -> Markup:
    """Return metrics of every arm, over all repeats."""
    rows = [
        [key(a), run.scenarios[c], *(_number(run, a.name, c, m) for m in metrics)]
        for c in run.scenarios
        for a in run.arms
    ]
    head = ["Arm", "Setting", *(run.known(m).axis for m in metrics)]
    return table(head, rows, numeric=range(2, len(head)), caption=f"{caption}, 95 % intervals")


def _number(run: Run, arm: str, scenario: str, metric: str) -> str:
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
    """Return the decimals of residuals, rounded as in Table 1."""
    return max(words.decimals(words.number(r["q3"]) - words.number(r["q1"]), 2) for r in found)

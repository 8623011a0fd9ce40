"""The model card: one page that goes with a saved model, in Markdown.

After Mitchell et al., "Model cards for model reporting", FAT* 2019. What the run knows stands
there; what only a person knows is asked for in italics, so that nobody takes silence for an answer.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import fedcohort
from fedcohort.protocol import registry
from fedcohort.study.arms import Arm
from fedcohort.study.plan import Plan

#: Metrics that are in the unit of the outcome.
IN_UNIT = ("rmse", "mae", "calibration_intercept")
_ASK = "*To be written by the people responsible for the model.*"
#: What pooled levels are: their names, and the rows below which a level is pooled.
POOLED = "other levels: {} (fewer than {} rows each, or the next rarest; pooled)"


def card(plan: Plan, arm: Arm, results: Mapping[str, Any]) -> str:
    """Return the model card of an arm: what the model is, what it learnt from, how good it is.

    Parameters
    ----------
    results : the content of results.json.
    """
    declared = next(d for d in results["declared"] if d["arm"] == arm.name)
    first = plan.scenarios[0].name
    parts = [
        f"# {arm.title}: {plan.study}",
        plan.question,
        _what(plan, arm, declared, results),
        "## Intended use\n\n" + _ASK,
        _inputs(results),
        _performance(results, arm, first),
        _centres(results, arm, first),
        _effects(results, arm, first),
        f"## What left the sites\n\n{declared['reveals']}",
        _use(arm, results),
        "## Settings\n\n" + "\n".join(f"- {k}: {v}" for k, v in declared["settings"].items()),
        "## Limits\n\n"
        "The model was evaluated on rows of the same source. Before it is used for patients of "
        "another hospital or period, evaluate it there. It is no medical device.\n\n"
        "Groups of patients for whom it must not be used, known biases: " + _ASK,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _what(plan: Plan, arm: Arm, declared: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """Return what the model is and what it was trained on."""
    method = registry.find(arm.method)
    data = results["data"]
    events = data.get("events")
    share = 100 * (1 - plan.test_fraction)
    held = f", {events} with the event" if events is not None else ""
    return "\n".join(
        [
            f"- Method: {method.title} (`{method.name}`). Source: {method.paper}",
            f"- Trained on: {data['source']}, scenario {plan.scenarios[0].name}, the training rows "
            f"of the first repeat ({share:.0f} % of {data['rows']} rows{held})",
            f"- Outcome: {', '.join(results['outcome']['columns']) or 'none'}"
            + (f" ({unit})" if (unit := results["outcome"].get("unit")) else ""),
            f"- Role in the study: {declared['role']}",
            f"- Seed: {plan.seed}; fedcohort {fedcohort.__version__}",
        ]
    )


def _inputs(results: Mapping[str, Any]) -> str:
    """Return the table of columns that the model reads."""
    features = set(results["data"]["features"])
    known = [
        v
        for v in (results.get("cohort") or {}).get("variables") or ()
        if v.get("site") is None and v["name"] in features
    ]
    if not known:
        return "## Inputs\n\n" + ", ".join(results["data"]["features"])
    rows = [
        (v["name"], v.get("type", ""), v.get("unit") or "", ", ".join(v.get("levels") or ()))
        for v in known
    ]
    return "## Inputs\n\n" + _table(("column", "type", "unit", "levels"), rows)


def _performance(results: Mapping[str, Any], arm: Arm, scenario: str) -> str:
    """Return every metric with its interval."""
    unit = results["outcome"].get("unit")
    rows = [
        (_in_unit(s["metric"], unit), _number(s["mean"]), _interval(s), str(s["n"]))
        for s in results["summary"]
        if s["arm"] == arm.name and s["scenario"] == scenario
    ]
    head = ("metric", "mean", "95 % interval", "repeats")
    return f"## Evaluation on blind test rows, scenario {scenario}\n\n{_table(head, rows)}"


def _in_unit(metric: str, unit: str | None) -> str:
    """Return a metric's name, with the outcome's unit where it is in that."""
    return f"{metric} ({unit})" if unit and metric in IN_UNIT else metric


def _centres(results: Mapping[str, Any], arm: Arm, scenario: str) -> str:
    """Return the first repeat's performance by centre, where centres are natural."""
    mine = [
        r
        for r in results.get("by_centre") or ()
        if r["arm"] == arm.name and r["scenario"] == scenario
    ]
    if not mine:
        return ""
    rows = [
        (r["site"], r["metric"], _number(r["value"]), _interval(r), _count(r["n"])) for r in mine
    ]
    head = ("centre", "metric", "value", "95 % interval", "rows")
    return f"## By centre\n\n{_table(head, rows)}"


def _effects(results: Mapping[str, Any], arm: Arm, scenario: str) -> str:
    """Return the coefficients of the saved model."""
    mine = [
        r
        for r in results.get("coefficients") or ()
        if (r["arm"], r["scenario"], r["repeat"]) == (arm.name, scenario, 0)
    ]
    if not mine:
        return ""
    ratio = next((k for k in mine[0] if k.endswith("_ratio")), None)
    if ratio is None:
        rows = [(r["covariate"], _number(r["coefficient"]), _interval(r)) for r in mine]
        head = ("covariate", "coefficient", "95 % interval")
    else:
        for_ratio = ({k: _exp(r.get(k)) for k in ("low", "high")} for r in mine)
        rows = [
            (r["covariate"], _number(r["coefficient"]), _number(r.get(ratio)), _interval(ends))
            for r, ends in zip(mine, for_ratio, strict=True)
        ]
        head = ("covariate", "coefficient", ratio.replace("_", " "), "95 % interval of the ratio")
    if any(r.get("grid_shift") is not None for r in mine):
        head = (*head, "grid shift, in standard errors")
        rows = [(*row, _number(r.get("grid_shift"))) for row, r in zip(rows, mine, strict=True)]
    pooled = [
        f"{_cell(r['column'])}, {POOLED.format(', '.join(map(_cell, r['levels'])), r['least'])}"
        for r in results.get("pooled") or ()
        if (r["arm"], r["scenario"], r["repeat"]) == (arm.name, scenario, 0)
    ]
    return "\n\n".join([f"## Effects\n\n{_table(head, rows)}", *pooled])


def _use(arm: Arm, results: Mapping[str, Any]) -> str:
    """Return how the model is applied."""
    what = {
        "survival": "risk score, median survival time and survival curve",
        "classification": "probability",
        "regression": "predicted value",
    }.get(str(results["task"]), "prediction")
    return (
        f"## Use\n\n    fedcohort predict models/{arm.name} PATIENTS.csv\n\n"
        f"checks the table against the dictionary in `model.json` and writes a {what} for each row."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    """Return a name as a cell that no reader of Markdown takes for a table's end or for HTML."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")


def _exp(value: Any) -> float | None:
    """Return exp of a bound of a coefficient, None beyond what a float holds."""
    return None if value is None or abs(value) > 700 else math.exp(value)


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.3f}"


def _count(value: int | None) -> str:
    return "–" if value is None else str(value)


def _interval(row: Mapping[str, Any]) -> str:
    low, high = row.get("low"), row.get("high")
    return "–" if low is None or high is None else f"{low:.3f} to {high:.3f}"

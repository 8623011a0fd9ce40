"""Errors of imputed values by column, each arm beside the best constant.

File: results.json, `imputation_errors` of the first repeat. Means over the repeats stand with the
other metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcohort.report import charts, words
from fedcohort.report.charts import around
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, more
from fedcohort.report.verdict import leading
from fedcohort.report.words import fixed, number

#: Ways of hiding, as a figure calls them.
WAYS: Mapping[str, str] = {
    "random": "Hidden at random", "value": "Hidden by value, the higher the likelier",
    "view": "The whole view hidden",
}  # fmt: skip
#: Columns in a figure, those with the largest error first.
MOST = 30
#: Look of the best constant.
CONSTANT = "lower"


def imputation_errors(run: Run) -> Section | None:
    """Return a figure and a table for each setting."""
    if not run.rows("imputation_errors"):
        return None
    return Section(
        "imputation-errors", "By column", "How far off is an imputed value?",
        "Known values of blind patients are hidden and imputed. Marks are errors of the columns: "
        "of numbers the root mean square in standard deviations of the column, of levels the "
        "share that is wrong. Further left is better. The grey mark is the best constant for "
        "everybody: the column’s mean, or its most frequent level. First repeat.",
        h("div", [_block(run, scenario) for scenario in run.scenarios]),
    )  # fmt: skip


def _block(run: Run, scenario: str) -> Markup | None:
    """Return one setting's figures by way of hiding, and its table."""
    rows = [r for r in run.rows("imputation_errors") if r["scenario"] == scenario]
    first = leading(run)
    names = {str(r["arm"]) for r in rows}
    arms = [a for a in run.arms if a.name in names]
    arms = sorted(arms, key=lambda a: a is not first)
    if not arms:
        return None
    parts = [
        _figure(run, scenario, way, arms, [r for r in rows if r["hidden"] == way]) for way in WAYS
    ]
    return h("div", parts, _table(run, scenario, arms, rows))


def _figure(
    run: Run, scenario: str, way: str, arms: Sequence[Arm], rows: Sequence[Mapping[str, object]]
) -> Markup | None:
    """Return the figure of one way of hiding."""
    if not rows:
        return None
    drawn: list[charts.Row] = []
    said: list[str] = []
    for measure, title in (("rmse", "Numbers"), ("wrong", "Levels")):
        own = [r for r in rows if r["measure"] == measure]
        found = _by_column(own)
        if not found:
            continue
        drawn.append(charts.Row(name=title, kind="heading"))
        for column in list(found)[:MOST]:
            errors = found[column]
            drawn.append(_row(column, arms, errors))
            told = [f"{a.title} {fixed(errors[a.name])}" for a in arms if a.name in errors]
            said.append(f"{column}: {', '.join(told)}")
    domain = around([v for r in drawn for v in r.ends])
    chart = charts.interval_rows(
        drawn,
        "error: standard deviations, or share wrong",
        domain=(max(domain[0], 0.0), domain[1]),
        legend=[*((a.look, a.title) for a in arms), (CONSTANT, "best constant")],
    )  # fmt: skip
    left = max(len({str(r["column"]) for r in rows}) - 2 * MOST, 0)
    note = f"{WAYS[way]}. Numbers are of {arms[0].title}"
    note += f"; {words.of(left, 'column')} more in the table" * (left > 0)
    return charts.figure(
        f"imputation-{scenario}-{way}", run.scenarios[scenario], note, chart, [*rows],
        f"{WAYS[way]}. {'. '.join(said)}.",
    )  # fmt: skip


def _by_column(rows: Sequence[Mapping[str, object]]) -> dict[str, dict[str, float]]:
    """Return the error of each arm, and of the constant (""), by column, the largest first."""
    found: dict[str, dict[str, float]] = {}
    for r in rows:
        errors = found.setdefault(str(r["column"]), {})
        errors[str(r["arm"])] = number(r["error"])
        errors[""] = number(r["constant"])
    return dict(sorted(found.items(), key=lambda item: -_lead(item[1])))


def _lead(errors: Mapping[str, float]) -> float:
    """Return the largest error of an arm."""
    return max((e for arm, e in errors.items() if arm and e == e), default=0.0)


def _row(column: str, arms: Sequence[Arm], errors: Mapping[str, float]) -> charts.Row:
    """Return a column: the first arm's mark and number, the others' marks, and the constant's."""
    first, *rest = arms
    others = [(a.look, errors[a.name]) for a in rest if errors.get(a.name, float("nan")) >= 0]
    others.append((CONSTANT, errors[""]))
    own = errors.get(first.name)
    if own is None or own != own:
        return charts.Row(name=column, look=first.look, text=words.MISSING, others=tuple(others))
    return charts.Row(
        name=column, value=own, look=first.look, text=fixed(own), others=tuple(others), small=True
    )


def _table(
    run: Run, scenario: str, arms: Sequence[Arm], rows: Sequence[Mapping[str, object]]
) -> Markup:
    """Return errors and coverages of all columns."""
    keys = list(dict.fromkeys((str(r["hidden"]), str(r["column"])) for r in rows))
    by = {(str(r["hidden"]), str(r["column"]), str(r["arm"])): r for r in rows}
    covered = any(r["coverage"] is not None for r in rows)
    body: list[list[str]] = []
    for way, column in keys:
        own = [by.get((way, column, a.name)) for a in arms]
        some = next(r for r in own if r is not None)
        cells = [fixed(None if r is None else r["error"]) for r in own]
        if covered:
            cells += [words.percent(number(r["coverage"])) if r and r["coverage"] is not None
                      else words.MISSING for r in own]  # fmt: skip
        measure = "RMSE, SD" if some["measure"] == "rmse" else "share wrong"
        body.append([way, column, measure, fixed(some["constant"]), *cells])
    head = ["Hidden", "Column", "Error", "Best constant", *(a.title for a in arms)]
    head += [f"{a.title}, coverage" for a in arms] if covered else []
    return more(
        f"All columns, {run.scenarios[scenario]}",
        table(
            head, body, numeric=range(3, len(head)),
            caption="Errors of hidden values, first repeat; coverage is of 95 % intervals from "
            "draws",
        ),
        p("Columns with few hidden values, or nearly one value, are not shown.", class_="quiet"),
    )  # fmt: skip

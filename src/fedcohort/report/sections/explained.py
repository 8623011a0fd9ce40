"""What trees make of each column: mean Shapley values, and curves of predictions.

Files: results.json, `explained`: means over training rows of all sites, no value of a patient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.charts import Series
from fedcohort.report.markup import Markup, h, p
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, leading_open
from fedcohort.report.words import number

Row = Mapping[str, Any]

#: Columns of the bars; of more, only the first are drawn.
SHOWN = 15
INTRO = (
    "A Shapley value is what one column adds to one patient’s prediction, beside the mean of all. "
    "The bars are the means of its absolute values: how much the model uses a column. The first "
    "curves are the mean Shapley values of patients by their own value of the column. The second "
    "are partial dependence: the mean prediction if all patients had that value of the column and "
    "kept their others. Shapley values tell what the model has learnt of patients as they are; "
    "where columns go together, partial dependence also asks about patients that do not exist. "
    "Both are of the training rows, and say what the model uses, not what causes the outcome. Each "
    "hospital sent only sums over its rows, after the last tree; a group of values has 10 "
    "(min_cell, if that is more) patients of all hospitals or more."
)
#: Of a level's own column.
LEVELS = "of a level, 1 is yes and 0 is no"


def section(run: Run) -> Section | None:
    """Return the figures of each arm with trees; None without any."""
    drawn = [(arm, figure) for arm in run.arms for figure in _figures(run, arm)]
    private = [a for a in run.arms if a.method == "boosting" and _noisy(run, a)]
    if not drawn and not private:
        return None
    silent = p(
        f"{words.listed([a.title for a in private])}: a private fit asks for no such sums, because "
        f"each would need noise of its own."
    )
    return Section(
        "explained", "Effects in trees", "What do the trees make of a column’s value?", INTRO,
        h("div", leading_open(run, drawn, kept=3) if drawn else None, silent if private else None),
    )  # fmt: skip


def _noisy(run: Run, arm: Arm) -> bool:
    """Return whether an arm has fits with noise."""
    return any(
        r["arm"] == arm.name and r.get("epsilon") is not None and r.get("status") == "done"
        for r in run.rows("arms")
    )


def _figures(run: Run, arm: Arm) -> Iterator[Markup]:
    """Yield an arm's bars, mean Shapley values by value, and partial dependence."""
    rows = run.model_rows("explained", arm.name)
    if not rows:
        return
    about = next(r for r in rows if r["kind"] == "about")
    classes = list(dict.fromkeys(r["class"] for r in rows if r["kind"] == "absolute"))
    looks = {c: arm.look if len(classes) < 2 else _look(i) for i, c in enumerate(classes)}
    fit = run.model_title(arm.name, "explained")
    of = words.of(int(about["rows"]), "training row")
    if about["rows"] < about["of"]:
        of = f"{of}, drawn from {words.count(about['of'])}"
    margin, mean = str(about["margin"]), str(about["mean"])
    yield _bars(arm, [r for r in rows if r["kind"] == "absolute"], margin, f"{fit}; {of}", classes)
    for kind, title, y_title, level in (
        ("shift", "mean Shapley value by a patient’s own value", f"Shapley value, {margin}", [0.0]),
        ("curve", "partial dependence", f"mean {mean}", []),
    ):
        mine = [r for r in rows if r["kind"] == kind]
        gaps = any(r["at"] is None for r in mine)
        note = [fit, of, LEVELS] if any("=" in str(r["covariate"]) for r in mine) else [fit, of]
        if gaps:
            note.append("a point apart on the right is of patients without a value")
        chart = charts.lines_with_bands(
            [*_series(mine, looks)], "value of the column", y_title, own=True, marks=True,
            y_domain=charts.around([*(number(r["value"]) for r in mine), *level]),
            reference=level[0] if level else None,
        )  # fmt: skip
        names = list(dict.fromkeys(words.spaced(str(r["covariate"])) for r in mine))
        yield charts.figure(
            f"explained-{kind}-{arm.name}", f"{arm.title}: {title}", "; ".join(note), chart,
            [{k: v for k, v in r.items() if k not in ("kind", "arm")} for r in mine],
            f"{arm.title}, {title}, of {words.listed(names)}.",
        )  # fmt: skip


def _bars(
    arm: Arm, rows: Sequence[Row], margin: str, note: str, classes: Sequence[str | None]
) -> Markup:
    """Return the mean absolute Shapley values, of several classes their mean."""
    means: dict[str, float] = {}
    for r in rows:
        name = str(r["covariate"])
        means[name] = means.get(name, 0.0) + number(r["value"]) / len(classes)
    shown = list(means.items())[:SHOWN]
    bars = [
        charts.Row(name=words.spaced(name), value=v, look=arm.look, text=words.fixed(v))
        for name, v in shown
    ]
    some = f"; the first {SHOWN} of {len(means)}" if len(means) > SHOWN else ""
    of = f", mean over {len(classes)} classes" if len(classes) > 1 else ""
    first, value = shown[0]
    return charts.figure(
        f"explained-{arm.name}",
        f"{arm.title}: mean absolute Shapley value",
        f"{note}{of}{some}",
        charts.bars(bars, f"mean |Shapley value|, {margin}"),
        [{k: r.get(k) for k in ("covariate", "class", "value")} for r in rows],
        f"{arm.title} uses {words.spaced(first)} most: {words.fixed(value)}.",
    )


def _series(rows: Sequence[Row], looks: Mapping[str | None, str]) -> Iterator[Series]:
    """Yield one line for each column and class, and a point apart for missing values."""
    by: dict[tuple[str, str | None], list[Row]] = {}
    for r in rows:
        by.setdefault((str(r["covariate"]), r["class"]), []).append(r)
    for (name, class_), own in by.items():
        label = "" if class_ is None else str(class_)
        points = [(number(r["at"]), number(r["value"])) for r in own if r["at"] is not None]
        panel = words.spaced(name)
        yield Series(label=label, look=looks[class_], points=points, panel=panel)
        for r in own:
            if r["at"] is None and points:
                apart = points[-1][0] + 0.15 * ((points[-1][0] - points[0][0]) or 1.0)
                at = [(apart, number(r["value"]))]
                yield Series(label="", look=looks[class_], points=at, panel=panel)


def _look(i: int) -> str:
    return charts.LOOKS[i % len(charts.LOOKS)]

"""Several classes: each against the rest, and the table of classes by likeliest class.

Files: results.json, `by_class`, `confusion`. Hidden values are None there; nothing is derived from
sums. Numbers by class, and the ends of their intervals, are means over the repeats that show them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, first_setting, key, leading_open, more
from fedcohort.report.words import number

Row = Mapping[str, Any]
#: What a hidden count is replaced by.
HIDDEN = "hidden"
_NUMBERS = ("observed", "predicted", "auc", "low", "high", "slope")


def section(run: Run) -> Section | None:
    """Return AUC, shares and calibration of each class, and the tables of classes."""
    found = run.rows("by_class")
    shown = [c for c in run.scenarios if any(r["scenario"] == c for r in found)]
    if not shown:
        return None
    order = ""
    if run.mapping("outcome").get("type") == "ordinal":
        order = f" Classes are in their order, {run.classes[0]} the lowest."
    return Section(
        "classes", "Classes", "Which classes does the model tell apart?",
        "Each class is judged against all others together. Its AUC is the chance that a patient "
        "of the class is given a higher probability of it than a patient of another one. Its "
        "observed share and its mean predicted probability should be equal, and its calibration "
        "slope 1." + order,
        h("div", first_setting(run, shown, lambda c: _aucs(run, c)), _tables(run),
          more("The numbers", _numbers(run))),
    )  # fmt: skip


def _of(run: Run, which: str, arm: str, scenario: str) -> list[Row]:
    return [r for r in run.rows(which) if (r["arm"], r["scenario"]) == (arm, scenario)]


def means(run: Run, arm: str, scenario: str) -> list[Row]:
    """Return the row of each class, means over repeats; a number is NaN where all hide it.

    ``n`` is None if a repeat hides it.
    """
    by_class: dict[str, list[Row]] = {level: [] for level in run.classes}
    for r in _of(run, "by_class", arm, scenario):
        by_class.setdefault(str(r["class"]), []).append(r)
    out: list[Row] = []
    for level, rows in by_class.items():
        if not rows:
            continue
        counts = [r.get("n") for r in rows]
        known = {k: [v for r in rows if (v := number(r.get(k))) == v] for k in _NUMBERS}
        n = None if None in counts else round(mean([number(v) for v in counts]))
        out.append({"class": level, "n": n, **{k: mean(v) for k, v in known.items()}})
    return out


def _repeats(run: Run) -> str:
    """Return over which repeats numbers by class are."""
    of = {int(r.get("repeat") or 0) for r in run.rows("by_class")}
    return f"mean of {words.of(len(of), 'repeat')}" if len(of) > 1 else "one repeat"


def _aucs(run: Run, scenario: str) -> Markup | None:
    """Return the AUC of each class, a line an arm under the name of the class."""
    rows: list[charts.Row] = []
    data: list[Row] = []
    for level in run.classes:
        rows.append(charts.Row(name=level, kind="heading"))
        for a in run.arms:
            for r in means(run, a.name, scenario):
                if r["class"] != level:
                    continue
                value, low, high = (number(r.get(k)) for k in ("auc", "low", "high"))
                text = words.estimate(value, low, high) if value == value else "too few patients"
                rows.append(
                    charts.Row(
                        name=a.title, value=value, low=low, high=high, look=a.look, text=text
                    )
                )
                data.append(
                    {"arm": a.title, "class": level, "auc": value, "low": low, "high": high}
                )
    if not any(r.ends for r in rows):
        return None
    setting = f", {run.scenarios[scenario]}" if len(run.scenarios) > 1 else ""
    said = "; ".join(f"{d['class']}, {d['arm']}: {words.fixed(d['auc'])}" for d in data)
    domain = charts.around([0.5, *(v for r in rows for v in r.ends)])
    brackets = "" if run.deployed else "; 95 % intervals over patients"
    return charts.figure(
        f"classes-{scenario}", f"AUC of each class against the rest{setting}",
        f"blind patients, {_repeats(run)}{brackets}",
        charts.interval_rows(
            rows, "AUC", reference=0.5, domain=domain, heads=("Class, arm", "AUC"),
        ),
        data, f"{said}.",
    )  # fmt: skip


def _tables(run: Run) -> Markup | None:
    """Return the table of classes by likeliest class of each arm and setting."""
    drawn: list[tuple[Arm, Markup]] = []
    for arm in run.arms:
        for scenario, title in run.scenarios.items():
            found = _of(run, "confusion", arm.name, scenario)
            if found:
                setting = f", {title}" if len(run.scenarios) > 1 else ""
                drawn.append((arm, _confusion(found, run.classes, f"{arm.title}{setting}")))
    return leading_open(run, drawn) if drawn else None


def _confusion(found: Sequence[Row], classes: Sequence[str], title: str) -> Markup:
    at = {(str(r["class"]), str(r["predicted"])): r.get("n") for r in found}
    body = [
        [level, *(HIDDEN if (n := at.get((level, other))) is None else words.count(n)
                  for other in classes)]
        for level in classes
    ]  # fmt: skip
    head = ["", *(f"predicted {level}" for level in classes)]
    caption = f"{title}: blind patients of the first repeat by class and by likeliest class"
    note = None
    if None in at.values():
        note = p(
            "Small counts are hidden, and counts from which one would follow: of a class of which "
            "few patients are right, or wrong, the whole row.",
            class_="quiet",
        )
    return h("div", table(head, body, numeric=range(1, len(head)), caption=caption), note)


def _numbers(run: Run) -> Markup:
    """Return shares, AUC and slope of each class."""
    rows = [
        [
            key(a), run.scenarios[c], str(r["class"]),
            words.count(r.get("n")) if r.get("n") is not None else HIDDEN,
            words.fixed(r.get("observed")), words.fixed(r.get("predicted")),
            words.estimate(r.get("auc"), r.get("low"), r.get("high")), words.fixed(r.get("slope")),
        ]
        for c in run.scenarios
        for a in run.arms
        for r in means(run, a.name, c)
    ]  # fmt: skip
    head = ["Arm", "Setting", "Class", "Patients", "Observed share", "Mean probability", "AUC",
            "Calibration slope"]  # fmt: skip
    return table(
        head, rows, numeric=range(3, len(head)),
        caption=f"Each class against the rest, blind patients, {_repeats(run)}",
    )  # fmt: skip

"""Errors of latent coordinates by view: of what comes back, and of what is filled in.

Rows are those of results.json, `latent_errors`, of the first repeat; all views together are the
summaries over the repeats, with their intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedcohort.report import charts, dimensions, words
from fedcohort.report.charts.scales import around
from fedcohort.report.latent_verdict import BACK, FILLED
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Arm, Run, Summary
from fedcohort.report.sections.base import Section, more
from fedcohort.report.verdict import leading
from fedcohort.report.words import fixed, number

#: The kinds of errors as rows have them, the metric over all views, and what a figure calls each.
KINDS: Mapping[str, tuple[str, str]] = {
    "reconstruction": (BACK, "Given back"),
    "imputation": (FILLED, "Filled in, the whole view hidden"),
}
#: A table has so many columns of the data, those that are filled in worst first.
MOST_COLUMNS = 60


def section(run: Run) -> Section | None:
    """Return a figure a setting, and a table by column."""
    if not run.rows("latent_errors"):
        return None
    body = [b for c in run.scenarios if (b := _block(run, c)) is not None]
    return Section(
        "latent-errors", "Errors by view",
        "What comes back, and what of a view that is missing?",
        "Blind patients are written down in a few latent numbers and read back; then each view in "
        "turn is hidden from those who have it and another one, and filled in from the rest. "
        "Marks are mean absolute errors in standard deviations of each column, further left is "
        "better: 0 is exact, and saying the mean of everybody is off by about 0.8. All views "
        "together are means over the repeats, the bar is the 95 % interval of the arm that the "
        "line's numbers are of; single views are of the first repeat.",
        h("div", body),
    )  # fmt: skip


def _block(run: Run, scenario: str) -> Markup | None:
    """Return one setting's figure and table."""
    first = leading(run)
    others = [a for a in dimensions.heads(run.arms) if a is not first]
    arms = [a for a in (*([first] if first else []), *others) if _known(run, a, scenario)]
    if not arms:
        return None
    rows: list[charts.Row] = []
    data: list[dict[str, object]] = []
    said: list[str] = []
    for kind, (metric, name) in KINDS.items():
        lines = [(view, _levels(run, arms, scenario, kind, metric, view))
                 for view in (None, *_views(run, scenario, kind))]  # fmt: skip
        lines = [(view, levels) for view, levels in lines if levels]
        if not lines:
            continue
        rows.append(charts.Row(name=name, kind="heading"))
        for view, levels in lines:
            title = "All views" if view is None else view or "columns without a view"
            rows.append(_row(title, arms, levels))
            head: dict[str, object] = {"scenario": scenario, "kind": kind, "view": view or "all"}
            data += [
                {**head, "arm": a, "mae": s.mean, "low": s.low, "high": s.high}
                for a, s in levels.items()
            ]
            told = [f"{a.title} {fixed(levels[a.name].mean)}" for a in arms if a.name in levels]
            said.append(f"{name}, {title}: {', '.join(told)}")
    domain = around([v for r in rows for v in r.ends])
    chart = charts.interval_rows(
        rows, "mean absolute error, standard deviations",
        domain=(max(domain[0], 0.0), domain[1]),
        legend=[(a.look, a.title) for a in arms],
    )  # fmt: skip
    by_column = _table(run, arms, scenario)
    return h(
        "div",
        charts.figure(
            f"latent-errors-{scenario}", run.scenarios[scenario],
            f"Numbers are of {arms[0].title}", chart, data, f"{'. '.join(said)}.",
        ),
        by_column,
    )  # fmt: skip


def _known(run: Run, arm: Arm, scenario: str) -> bool:
    """Return whether an arm has an error that is drawn in a setting."""
    return any(run.summary(arm.name, scenario, metric) for metric, _ in KINDS.values())


def _views(run: Run, scenario: str, kind: str) -> list[str]:
    """Return the views that have errors of a kind, in the order of the rows."""
    found = (r for r in run.rows("latent_errors") if r["scenario"] == scenario)
    return list(dict.fromkeys(str(r["view"]) for r in found if r["kind"] == kind))


def _levels(
    run: Run, arms: Sequence[Arm], scenario: str, kind: str, metric: str, view: str | None
) -> dict[str, Summary]:
    """Return each arm's error in a view, by its name; without a view, that of all together."""
    out: dict[str, Summary] = {}
    if view is None:
        found = {a.name: run.summary(a.name, scenario, metric) for a in arms}
        return {name: s for name, s in found.items() if s is not None}
    names = {a.name for a in arms}
    for r in run.rows("latent_errors"):
        here = r["scenario"] == scenario and r["kind"] == kind and r["view"] == view
        mae = number(r.get("mae"))
        if here and r.get("feature") is None and str(r["arm"]) in names and mae == mae:
            out[str(r["arm"])] = Summary(mae, math.nan, math.nan, math.nan, 1)
    return out


def _row(title: str, arms: Sequence[Arm], levels: Mapping[str, Summary]) -> charts.Row:
    """Return a view: the first arm's mark and numbers, the other arms' marks."""
    first, *rest = arms
    own = levels.get(first.name)
    others = tuple((a.look, levels[a.name].mean) for a in rest if a.name in levels)
    if own is None:
        return charts.Row(name=title, look=first.look, text=words.MISSING, others=others)
    low, high = own.low, own.high
    text = words.estimate(own.mean, low, high)
    return charts.Row(
        name=title, value=own.mean, low=low, high=high, look=first.look, text=text, others=others,
        small=True,
    )  # fmt: skip


def _table(run: Run, arms: Sequence[Arm], scenario: str) -> Markup | None:
    """Return the errors of each column that may be shown, those filled in worst first."""
    found: dict[str, dict[tuple[str, str], float]] = {}
    views: dict[str, str] = {}
    for r in run.rows("latent_errors"):
        if r["scenario"] == scenario and r.get("feature") is not None:
            name = str(r["feature"])
            found.setdefault(name, {})[str(r["arm"]), str(r["kind"])] = number(r.get("mae"))
            views[name] = str(r["view"])
    asked = [(a, k) for a in arms for k in KINDS
             if any((a.name, k) in cells for cells in found.values())]  # fmt: skip
    if not asked:
        return None
    several = any(views.values())
    lead = asked[0][0].name

    def worst(column: str) -> float:
        return max((e for (a, _), e in found[column].items() if a == lead and e == e), default=0.0)

    order = sorted(found, key=worst, reverse=True)
    short = {"reconstruction": "given back", "imputation": "filled in"}
    head = ["Column", *["View"] * several, *(f"{a.title}, {short[k]}" for a, k in asked)]
    rows = [
        [f, *[views[f]] * several, *(fixed(found[f].get((a.name, k))) for a, k in asked)]
        for f in order[:MOST_COLUMNS]
    ]
    whole = [
        [h("b", view or "no view"), *["whole"] * several,
         *(fixed(mae.mean if (mae := _levels(run, [a], scenario, k, KINDS[k][0], view).get(a.name))
                 else None) for a, k in asked)]
        for view in dict.fromkeys(views.values())
    ]  # fmt: skip
    rest = len(order) - MOST_COLUMNS
    left = f" The other {rest} are in results.json." * (rest > 0)
    return more(
        f"By view and column, {run.scenarios[scenario]}",
        table(
            head, [*whole, *rows], numeric=range(1 + several, len(head)),
            caption="Mean absolute error in standard deviations, first repeat: of views, then of "
            "columns, largest first",
        ),
        p("Columns with too few patients, or nearly one value, are not shown by themselves."
          + left, class_="quiet"),
    )  # fmt: skip

"""Errors of latent coordinates by view, and filled-in values beside measured ones.

Files: results.json, `latent_errors`, and `latent_filled` (small cells are joined already), of the
first repeat; errors of all views together are summaries over the repeats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from fedcohort.report import charts, latent_verdict, words
from fedcohort.report.charts import around
from fedcohort.report.latent_verdict import BACK, FILLED
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Arm, Run, Summary
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section, more
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.verdict import leading
from fedcohort.report.words import fixed, number

#: The kinds of errors as rows have them, the metric over all views, and what a figure calls each.
KINDS: Mapping[str, tuple[str, str]] = {
    "reconstruction": (BACK, "Given back"),
    "imputation": (FILLED, "Filled in, the whole view hidden"),
}
#: Columns of the data in a table, worst imputed first.
MOST_COLUMNS = 60


def latent_errors(run: Run) -> Section | None:
    """Return a figure a setting, and a table by column."""
    if not run.rows("latent_errors"):
        return None
    body = [b for c in run.scenarios if (b := _latent_errors_block(run, c)) is not None]
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


def _latent_errors_block(run: Run, scenario: str) -> Markup | None:
    """Return one setting's figure and table."""
    first = leading(run)
    others = [a for a in latent_verdict.heads(run.arms) if a is not first]
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
    by_column = _latent_errors_table(run, arms, scenario)
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
    """Return each arm's error in a view, by name; without a view, of all together."""
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


def _latent_errors_table(run: Run, arms: Sequence[Arm], scenario: str) -> Markup | None:
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


#: Columns that are drawn of a fit, those that differ most first.
MOST = 12
#: Looks of measured and of imputed values.
MEASURED, IMPUTED = "c0", "c1"


def latent_filled(run: Run) -> Section | None:
    """Return the columns of the leading arm's hardest setting, and a table of all fits."""
    kept = {a.name for a in latent_verdict.heads(run.arms)}
    fits = [fit for fit in clustered.fits(run, "latent_filled") if fit[0].name in kept]
    if not fits:
        return None
    lead = [fit for fit in fits if fit[0] is fits[0][0]]
    first = max(lead, key=lambda fit: _mean(clustered.rows(run, "latent_filled", fit)))
    return Section(
        "latent-filled", "Filled in", "Do imputed values have the spread of measured values?",
        "Each view is hidden from the blind patients who have it and another one, and imputed "
        "from the rest. Shaded: measured values; line: imputed values. An imputed value is an "
        "expectation given the rest, so its spread is smaller; the less the rest predicts, the "
        "smaller. The number above a panel is the distance of the two distributions: 0 if they "
        "are equal, 1 if they share nothing. Cells of few patients are joined with their "
        "neighbours, the outermost reach as far as there are patients, and shares are rounded. "
        "Equal spreads do not mean that each patient’s value is right: see the errors above. "
        "First repeat.",
        h("div", _latent_filled_block(run, first), _latent_filled_table(run, fits)),
    )  # fmt: skip


def _mean(rows: Sequence[Row]) -> float:
    """Return the mean distance of some columns; NaN of none."""
    found = [number(r["distance"]) for r in rows]
    return sum(found) / len(found) if found else math.nan


def _latent_filled_table(run: Run, fits: Sequence[Fit]) -> Markup:
    """Return the mean distance of each fit's columns by view."""
    views = list(dict.fromkeys(str(r["view"]) for r in run.rows("latent_filled")))
    body: list[list[str]] = []
    for fit in fits:
        rows = clustered.rows(run, "latent_filled", fit)
        own = [[r for r in rows if r["view"] == view] for view in views]
        body.append([clustered.title(run, fit), *(fixed(_mean(found), 2) for found in own)])
    return more(
        "Every arm and setting",
        table(
            ["", *(view or "no view" for view in views)], body, numeric=range(1, len(views) + 1),
            caption="Mean distance of the distributions of imputed and measured values, over "
                    "columns",
        ),
    )  # fmt: skip


def _latent_filled_block(run: Run, fit: Fit) -> Markup:
    """Return one fit's figures, and the number of columns without one."""
    rows = sorted(clustered.rows(run, "latent_filled", fit), key=lambda r: -number(r["distance"]))
    shown, more_of = rows[:MOST], len(rows) - MOST
    pages = [shown[i : i + charts.MOST_PANELS] for i in range(0, len(shown), charts.MOST_PANELS)]
    left = (
        f"{words.of(more_of, 'further column')} differ less, by "
        f"{fixed(rows[-1]['distance'], 2)} to {fixed(rows[MOST]['distance'], 2)}; they are in "
        "results.json."
        if more_of > 0
        else ""
    )
    figures = [_figure(run, fit, page, i, len(pages)) for i, page in enumerate(pages)]
    return h("div", figures, p(left, class_="quiet") if left else None)


def _figure(run: Run, fit: Fit, rows: Sequence[Row], part: int, parts: int) -> Markup:
    """Return a panel per column: shares by standard deviation, measured and filled in."""
    measured: list[charts.Series] = []
    imputed: list[charts.Series] = []
    data: list[dict[str, object]] = []
    said: list[str] = []
    for r in rows:
        panel = f"{r['feature']}: {fixed(r['distance'], 2)}"
        for kind, look, edges, shares, into in (
            ("measured", MEASURED, r["edges"], r["true"], measured),
            ("filled in", IMPUTED, r["imputed_edges"], r["imputed"], imputed),
        ):
            cells = list(zip(pairwise(edges), shares, strict=True))
            points = [(low, share / (high - low)) for (low, high), share in cells]
            points.append((edges[-1], 0.0))
            into.append(charts.Series(label=kind, look=look, points=points, panel=panel))
            head: dict[str, object] = {
                "arm": fit[0].name, "scenario": fit[1], "view": r["view"], "column": r["feature"],
                "mean": r.get("mean"), "sd": r.get("sd"), "values": kind,
            }  # fmt: skip
            data += [{**head, "from_sd": low, "to_sd": high, "share": share}
                     for (low, high), share in cells]  # fmt: skip
        said.append(
            f"{r['feature']} of {r['view'] or 'no view'}: distance {fixed(r['distance'], 2)}"
        )
    span = [e for r in rows for e in r["edges"]]
    which = f", part {part + 1} of {parts}" * (parts > 1)
    return charts.figure(
        f"latent-filled-{fit[0].name}-{fit[1]}-{part}",
        f"{clustered.title(run, fit)}: measured and filled in{which}",
        "The columns that differ most first",
        charts.histograms(
            measured, imputed, "SD from the mean", "share of patients per SD",
            x_domain=(min(span), max(span)),
        ),
        data, f"Columns by how much what is filled in differs from what was measured: "
        f"{'; '.join(said)}.",
    )  # fmt: skip

"""What is filled in beside what was measured: two histograms a column, of hidden views.

Rows are those of results.json, `latent_filled`, of the first repeat, in which small cells are
joined already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from fedcohort.report import charts, dimensions, words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section, more
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.words import fixed, number

#: Columns that are drawn of a fit, those that differ most first.
MOST = 12
#: Looks of what was measured, and of what was filled in.
MEASURED, IMPUTED = "c0", "c1"


def section(run: Run) -> Section | None:
    """Return the columns of the leading arm's hardest setting, and a table of all fits."""
    kept = {a.name for a in dimensions.heads(run.arms)}
    fits = [fit for fit in clustered.fits(run, "latent_filled") if fit[0].name in kept]
    if not fits:
        return None
    lead = [fit for fit in fits if fit[0] is fits[0][0]]
    first = max(lead, key=lambda fit: _mean(clustered.rows(run, "latent_filled", fit)))
    return Section(
        "latent-filled", "Filled in", "Is what is filled in spread as what was measured?",
        "Each view is hidden from the blind patients who have it and another one, and filled in "
        "from the rest. Shaded: what was measured of them; the line: what was filled in. What is "
        "filled in is the expectation given the rest, and so is less spread than what it stands "
        "for, the more so, the less the rest tells. The number above a panel is the distance of "
        "the two: 0 where they are the same, 1 where they share nothing. Cells of few patients are "
        "joined with their neighbours, the outermost reach as far as there are patients, and "
        "shares are rounded. That both are spread alike does not say that each patient’s value is "
        "right: the errors above do. First repeat.",
        h("div", _block(run, first), _table(run, fits)),
    )  # fmt: skip


def _mean(rows: Sequence[Row]) -> float:
    """Return the mean distance of some columns; NaN of none."""
    found = [number(r["distance"]) for r in rows]
    return sum(found) / len(found) if found else math.nan


def _table(run: Run, fits: Sequence[Fit]) -> Markup:
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
            caption="Mean distance of what was filled in from what was measured, over columns",
        ),
    )  # fmt: skip


def _block(run: Run, fit: Fit) -> Markup:
    """Return one fit's figures, and of how many columns they are not."""
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
    """Return a panel a column: shares by standard deviation, of what was measured and filled in."""
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

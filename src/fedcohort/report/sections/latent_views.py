"""The views: columns, sites, noise, variance explained, and differences of hospitals.

Rows are results.json, `latent_views`, of the first repeat; the rounds of the spreads are in
history.csv, of the chosen q (Balelli et al. 2022, figure 7). Arms are compared by the root mean
square over views, which private fits record; of arms that differ in q alone, one is shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedcohort.report import charts, history, latent_verdict, words
from fedcohort.report.charts import LOOKS
from fedcohort.report.history import Line
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.words import count, number, significant

#: What fits record of a view in each round, and its panel.
RECORDED: Mapping[str, str] = {
    "sd_mu": "Spread of μ between hospitals",
    "sd_w": "Spread of W between hospitals",
    "sigma": "Noise σ",
}
#: Views with lines in a figure: those with most columns.
MOST_LINES = len(LOOKS)
#: What is recorded without the number of a view is of all of them.
EVERY = 0
#: By (arm, scenario), then by quantity and number of the view from 1: its rounds.
Courses = Mapping[tuple[str, str], Mapping[tuple[str, int], Sequence[tuple[float, float]]]]


def section(run: Run) -> Section | None:
    """Return a table of views, and the course of their spreads, of each arm that has them."""
    kept = {a.name for a in latent_verdict.heads(run.arms)}
    found = [fit for fit in clustered.fits(run, "latent_views") if fit[0].name in kept]
    if not found:
        return None
    recorded = read(run)
    drawn = [(fit, _block(run, fit, recorded)) for fit in found]
    return Section(
        "latent-views", "Views", "What do the views share, and how much do hospitals differ?",
        "Each view is μ + W x + noise: x are the few latent numbers of a patient, σ is the size "
        "of the noise, and “explained” is the share of the view’s variance that x accounts for. "
        "Each hospital has a μ and a W of its own about common ones; their spread is the standard "
        "deviation between hospitals. All are in units of the columns as the model sees them, "
        "which are standard deviations unless the study says otherwise. First repeat.",
        h("div", clustered.led(drawn), _side_by_side(run, recorded)),
    )  # fmt: skip


def _side_by_side(run: Run, recorded: Courses) -> list[Markup]:
    """Return a figure per setting of arms' spreads, if at least two had rounds."""
    out: list[Markup] = []
    for scenario, setting in run.scenarios.items():
        series: list[charts.Series] = []
        data: list[dict[str, object]] = []
        said: list[str] = []
        for arm in latent_verdict.heads(run.together):
            own = recorded.get((arm.name, scenario), {})
            for name, panel in RECORDED.items():
                points = over_views(own, name)
                if len(points) < 2:
                    continue
                logs = [(x, math.log10(y)) for x, y in points]
                title = arm.title + _private(run, arm)
                series.append(charts.Series(label=title, look=arm.look, points=logs, panel=panel))
                head: dict[str, object] = {"arm": arm.name, "scenario": scenario, "name": name}
                data += [{**head, "round": int(x), "value": y} for x, y in points]
                said.append(
                    f"{panel}, {title}: from {significant(points[0][1], 2)} to "
                    f"{significant(points[-1][1], 2)} in {words.of(len(points), 'round')}"
                )
        if len({s.label for s in series}) < 2:
            continue
        out.append(
            charts.figure(
                f"latent-views-arms-{scenario}", f"{setting}: how spreads settled, by arm",
                "Root mean square over views, log scale; noise of a private fit is in its spreads",
                charts.lines_with_bands(
                    series, "round", "", whole=True, powers=True, y_domain=_decades(series)
                ),
                data, f"{'; '.join(said)}.",
            )
        )  # fmt: skip
    return out


def over_views(
    own: Mapping[tuple[str, int], Sequence[tuple[float, float]]], name: str
) -> list[tuple[float, float]]:
    """Return (round, root mean square over views) of a recorded quantity.

    A recorded root mean square is used as it is; rounds that lack a view are left out.
    """
    if whole := own.get((name, EVERY)):
        return list(whole)
    views = [dict(points) for (what, _), points in own.items() if what == name]
    shared = set[float].intersection(*(set(v) for v in views)) if views else set[float]()
    return [
        (x, math.sqrt(math.fsum(v[x] ** 2 for v in views) / len(views))) for x in sorted(shared)
    ]


def _private(run: Run, arm: Arm) -> str:
    """Return the suffix of a private arm's title."""
    found = {number(r.get("epsilon")) for r in run.rows("arms") if r["arm"] == arm.name}
    costs = [e for e in found if e == e]
    return f", ε {significant(max(costs), 2)}" if costs else ""


def _decades(series: Sequence[charts.Series]) -> tuple[float, float]:
    """Return the whole powers of ten around all heights, up to 1 or more."""
    heights = [y for s in series for _, y in s.points]
    return math.floor(min(heights)), max(math.ceil(max(heights)), 0)


def read(run: Run) -> Courses:
    """Return the first repeat's recorded values of views, of the chosen q.

    Rounds are from 1; values not above 0 have no place on a log axis and are left out.
    """
    taken = history.final_values(run)
    found: dict[tuple[str, str], dict[tuple[str, int], list[tuple[float, float]]]] = {}
    for line in history.lines(run.folder / "history.csv"):
        fit = line.arm, line.scenario
        what = _recorded(line)
        fits = line.q is None or line.q == taken.get(fit, line.q)
        if what is not None and fits and int(line.repeat) == 0 and not line.site:
            found.setdefault(fit, {}).setdefault(what, []).append((line.round + 1.0, line.value))
    return found


def _recorded(line: Line) -> tuple[str, int] | None:
    """Return a line's quantity and view number, or `EVERY`; None of anything else."""
    if line.value <= 0:
        return None
    if line.name in RECORDED:
        return line.name, EVERY
    name, _, view = line.name.rpartition("_")
    return (name, int(view)) if name in RECORDED and view.isdigit() and int(view) else None


def _block(run: Run, fit: Fit, recorded: Courses) -> Markup:
    """Return one fit's table and, where there were rounds, its figure."""
    rows = clustered.rows(run, "latent_views", fit)
    head = ["View", "Columns", "Hospitals", "Noise σ", "Explained", "Spread of μ", "Spread of W"]
    body = [
        [
            str(r["view"]), count(r.get("columns")), _hospitals(run, fit, r),
            significant(r.get("sigma"), 2), _share(r.get("explained")),
            *(words.MISSING if _alone(r) else significant(r.get(k), 2) for k in ("sd_mu", "sd_w")),
        ]
        for r in rows
    ]  # fmt: skip
    title = clustered.title(run, fit)
    lines = recorded.get((fit[0].name, fit[1]), {})
    return h(
        "div",
        table(head, body, numeric=range(1, len(head)), caption=f"{title}: the views"),
        _figure(run, fit, rows, lines),
        class_="forest",
    )


def _share(value: object) -> str:
    """Return a share with one decimal: most are near all."""
    x = number(value)
    return words.MISSING if x != x else f"{words.fixed(100 * x, 1)} %"


def _alone(r: Row) -> bool:
    """Return whether one place alone has the view, so that places cannot be compared."""
    return number(r.get("sites")) == 1


def _hospitals(run: Run, fit: Fit, r: Row) -> str:
    """Return how many hospitals have a view; no number for pooled data and private fits."""
    n = number(r.get("sites"))
    return words.MISSING if fit[0] is run.upper or n == 0 else count(n)


def _figure(
    run: Run, fit: Fit, rows: Sequence[Row],
    lines: Mapping[tuple[str, int], Sequence[tuple[float, float]]],
) -> Markup | None:  # fmt: skip
    """Return the course of the spreads, a panel each; None where there was one round."""
    wide = sorted(range(len(rows)), key=lambda k: -number(rows[k].get("columns")))[:MOST_LINES]
    series: list[charts.Series] = []
    data: list[dict[str, object]] = []
    said: list[str] = []
    for name, panel in RECORDED.items():
        for look, k in zip(LOOKS, sorted(wide), strict=False):
            points = lines.get((name, k + 1), ())
            if len(points) < 2:
                continue
            view = str(rows[k]["view"])
            logs = [(x, math.log10(y)) for x, y in points]
            series.append(charts.Series(label=view, look=look, points=logs, panel=panel))
            head: dict[str, object] = {"arm": fit[0].name, "scenario": fit[1], "name": name}
            data += [{**head, "view": view, "round": int(x), "value": y} for x, y in points]
            said.append(
                f"{panel}, {view}: from {significant(points[0][1], 2)} to "
                f"{significant(points[-1][1], 2)} in {words.of(len(points), 'round')}"
            )
    if not series:
        return None
    return charts.figure(
        f"latent-views-{fit[0].name}-{fit[1]}",
        f"{clustered.title(run, fit)}: how spreads and noise settled",
        "A line a view, log scale; a spread that keeps falling says that hospitals are alike",
        charts.lines_with_bands(
            series, "round", "", whole=True, powers=True, y_domain=_decades(series)
        ),
        data, f"{'; '.join(said)}.",
    )  # fmt: skip

"""Number of latent dimensions: WAIC of each q that was tried, and errors of arms by q.

WAIC is from `latent_numbers`, of the first repeat. Errors are summaries over the repeats of arms
that differ in q alone; one that chose its q stands at the first repeat's choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedcohort.report import charts, latent_verdict, words
from fedcohort.report.latent_verdict import BACK, FILLED, dimensions_of
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section, more, same_for
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.words import number

#: The rule's width, in standard errors of a difference.
ERRORS = 2.0
#: The looks of the numbers that were tried, and of the one that was taken.
TRIED, TAKEN = "c0", "c1"
#: Errors drawn by q: a line's name and look.
ERRORS_OF = {BACK: ("given back", "c0"), FILLED: ("filled in, the view hidden", "c1")}
#: How to read each figure.
WAIC = (
    "The widely applicable information criterion (WAIC) measures how well a model with q latent "
    "dimensions predicts patients of these hospitals, with a penalty for q: lower is better. The "
    "band is two standard errors of the difference to the lowest one. The smallest q whose WAIC "
    "is within two standard errors of the lowest is chosen. First repeat."
)
BY_NUMBER = (
    "Errors are mean absolute ones of blind patients, in standard deviations (SD), by arms that "
    "differ in q alone: what comes back of a patient "
    "gets better with each further dimension, whether or not it means anything; what is filled in "
    "gets better as long as it does."
)
#: By q, the arm that has it.
ByNumber = dict[int, Arm]


def section(run: Run) -> Section | None:
    """Return a figure and a table for each arm that tried several numbers, and errors by number."""
    tried = [fit for fit in clustered.fits(run, "latent_numbers") if len(_rows(run, fit)) > 1]
    errors = _errors(run)
    if not tried and not errors:
        return None
    arms = {fit[0].name: fit[0].title for fit in tried}
    drawn = [_block(run, [f for f in tried if f[0].name == name]) for name in arms]
    rest = same_for([*arms.values()][1:], drawn[1:])
    intro = [WAIC] * bool(tried) + [BY_NUMBER] * bool(errors)
    return Section(
        "latent-numbers", "Dimensions", "How many dimensions?", " ".join(intro),
        h("div", drawn[:1], rest, errors),
    )  # fmt: skip


def _errors(run: Run) -> list[Markup]:
    """Return a figure for each family of arms of several numbers."""
    out: list[Markup] = []
    seen: set[str] = set()
    for arm in run.together:
        kind = latent_verdict.family(arm)
        if kind not in seen and len(latent_verdict.relatives(run, arm)) > 1:
            out += _errors_of(run, latent_verdict.relatives(run, arm), f"{len(out) + 1}")
        seen.add(kind)
    return out


def _errors_of(run: Run, arms: Sequence[Arm], part: str) -> list[Markup]:
    """Return one family's errors by number, a panel a setting; nothing where one has one number."""
    chief = latent_verdict.heads(arms)[0]
    series: list[charts.Series] = []
    data: list[dict[str, object]] = []
    said: list[str] = []
    for scenario, title in run.scenarios.items():
        by_number = _by_number(run, arms, scenario)
        for metric, (label, look) in ERRORS_OF.items():
            found = {q: s for q, a in sorted(by_number.items())
                     if (s := run.summary(a.name, scenario, metric)) is not None}  # fmt: skip
            if len(found) < 2:
                continue
            points = [(float(q), s.mean, s.low, s.high) for q, s in found.items()]
            series.append(charts.Series(label=label, look=look, points=points, panel=title))
            head: dict[str, object] = {"scenario": scenario, "metric": metric}
            data += [
                {**head, "q": q, "arm": by_number[q].name, "mae": s.mean, "low": s.low,
                 "high": s.high} for q, s in found.items()
            ]  # fmt: skip
            told = ", ".join(f"{q}: {words.fixed(s.mean)}" for q, s in found.items())
            said.append(f"{title}, {label}, by q: {told}")
    if not series:
        return []
    panels = list(dict.fromkeys(s.panel for s in series))
    pages = [panels[i : i + charts.MOST_PANELS] for i in range(0, len(panels), charts.MOST_PANELS)]
    every = [q for s in series for q, *_ in s.points]
    note = "Means over the repeats, the band is the 95 % interval"
    return [
        charts.figure(
            f"latent-numbers-errors-{part}" + f"-{i + 1}" * (len(pages) > 1),
            f"{chief.title}: errors by latent dimensions", note,
            charts.lines_with_bands(
                [s for s in series if s.panel in page], "latent dimensions q",
                "error, SD",
                x_domain=(min(every) - 0.2, max(every) + 0.2), whole=True, marks=True,
            ),
            data, f"{'. '.join(said)}.",
        )
        for i, page in enumerate(pages)
    ]  # fmt: skip


def _by_number(run: Run, arms: Sequence[Arm], scenario: str) -> ByNumber:
    """Return one arm for each q, one that was given it rather than one that chose it."""
    known = [(q, a) for a in arms if (q := dimensions_of(run, a, scenario)) is not None]
    known.sort(key=lambda one: one[1].settings.get("q") != latent_verdict.AUTO)
    return dict(known)


def _rows(run: Run, fit: Fit) -> list[Row]:
    """Return the numbers that a fit tried, the smallest first."""
    found = clustered.rows(run, "latent_numbers", fit)
    return sorted((r for r in found if number(r.get("waic")) == number(r.get("waic"))),
                  key=lambda r: int(r["q"]))  # fmt: skip


def _block(run: Run, fits: Sequence[Fit]) -> Markup:
    """Return one arm's settings: a panel each, its choice in words, and the table."""
    arm = fits[0][0]
    series: list[charts.Series] = []
    data: list[dict[str, object]] = []
    said: dict[str, list[str]] = {}
    body: list[list[str]] = []
    for fit in fits:
        found = _rows(run, fit)
        title = _panel(run, fit)
        points: list[tuple[float, ...]] = []
        for r in found:
            q, waic, off = int(r["q"]), number(r["waic"]), ERRORS * error(r, found)
            points.append((q, waic, waic - off, waic + off) if off == off else (q, waic))
            data.append({"arm": arm.name, "scenario": fit[1], "q": q, "waic": waic,
                         "error": off / ERRORS, "taken": bool(r.get("taken"))})  # fmt: skip
            body.append([
                *[title] * (len(fits) > 1), f"{q}{', taken' * bool(r.get('taken'))}",
                words.fixed(waic, 0), words.fixed(waic - number(best(found)["waic"]), 0),
                words.fixed(error(r, found), 0), words.fixed(r.get("cost"), 0),
            ])  # fmt: skip
        chosen = [r for r in found if r.get("taken")]
        series.append(charts.Series(label="tried", look=TRIED, points=points, panel=title))
        for r in chosen:
            point = (int(r["q"]), number(r["waic"]))
            series.append(charts.Series(label="taken", look=TAKEN, points=[point], panel=title))
        said.setdefault(_said(found, chosen), []).append(title)
    told = " ".join(f"{words.listed(titles)}: {s}." for s, titles in said.items())
    pages = [fits[i : i + charts.MOST_PANELS] for i in range(0, len(fits), charts.MOST_PANELS)]
    figures = [
        charts.figure(
            f"latent-numbers-{arm.name}" + f"-{i + 1}" * (len(pages) > 1),
            f"{arm.title}: WAIC by latent dimensions", None,
            charts.lines_with_bands(
                [s for s in series if s.panel in {_panel(run, f) for f in page}],
                "latent dimensions q", "WAIC", x_domain=_around(fits, run), whole=True, own=True,
                marks=True,
            ),
            data, told,
        )
        for i, page in enumerate(pages)
    ]  # fmt: skip
    head = [*["Setting"] * (len(fits) > 1), "q", "WAIC", "above the lowest", "standard error",
            "cost"]  # fmt: skip
    caption = (
        "WAIC, its difference to the lowest one with the standard error over patients, and the "
        "effective number of parameters"
    )
    numeric = range(1, len(head)) if len(fits) == 1 else range(2, len(head))
    return h(
        "div",
        figures,
        p(told),
        more(f"All numbers of {arm.title}", table(head, body, numeric=numeric, caption=caption)),
    )


def _around(fits: Sequence[Fit], run: Run) -> tuple[float, float]:
    """Return the range of all q with a margin."""
    tried = [int(r["q"]) for fit in fits for r in _rows(run, fit)]
    return min(tried) - 0.2, max(tried) + 0.2


def _panel(run: Run, fit: Fit) -> str:
    """Return the title of a fit's panel: its setting, of pooled data the arm."""
    arm, scenario = fit
    return arm.title if arm is run.upper else run.scenarios[scenario]


def best(found: Sequence[Row]) -> Row:
    """Return the number with the lowest WAIC."""
    return min(found, key=lambda r: number(r["waic"]))


def error(row: Row, found: Sequence[Row]) -> float:
    """Return the standard error of a number's difference to the lowest one; 0 for that itself.

    It is stored with the larger of the two numbers, by the smaller.
    """
    lowest = best(found)
    if row is lowest:
        return 0.0
    first, later = sorted((row, lowest), key=lambda r: int(r["q"]))
    return number((later.get("errors") or {}).get(str(first["q"]), math.nan))


def _said(found: Sequence[Row], chosen: Sequence[Row]) -> str:
    """Return the chosen number, and why."""
    lowest = int(best(found)["q"])
    tried = f"{found[0]['q']} to {found[-1]['q']} were tried"
    if not chosen:
        return f"{tried}; WAIC is lowest with {lowest}"
    q = int(chosen[0]["q"])
    if q != lowest:
        return f"{q} dimensions are enough: {lowest} have the lowest WAIC, not clearly; {tried}"
    if q == int(found[0]["q"]):
        return f"{q} dimensions, the fewest that were tried, have the lowest WAIC; {tried}"
    edge = " The lowest is the largest that was tried: more may be better" * (
        q == int(found[-1]["q"])
    )
    return (
        f"{q} dimensions have the lowest WAIC, and fewer are clearly worse; "
        f"{tried}{'.' * bool(edge)}{edge}"
    )

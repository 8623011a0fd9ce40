"""Training curves: how the loss fell, round by round, in each arm and scenario."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedcohort.report import courses, words
from fedcohort.report.charts import MOST_PANELS, Series, figure, lines_with_bands
from fedcohort.report.charts.theme import LOOKS
from fedcohort.report.markup import Markup, h
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section
from fedcohort.report.words import significant

#: round → mean, standard deviation over repeats.
Curve = list[tuple[float, float, float]]

#: An arm, the name of what it recorded, and its curve in each scenario.
Panel = tuple[Arm, str, dict[str, Curve]]

#: Names under which methods record what they minimise, best first.
_LOSSES = ("loss", "objective", "log_likelihood", "negative_elbo")

#: What is recorded beside that, and is nothing that a training minimises.
_BESIDE = {"learning_rate", "R", "R_alarm"}

_MOST_POINTS = 120


def section(run: Run) -> Section | None:
    """Return a panel for each arm that recorded more than one round, a line for each scenario."""
    curves = read(run.folder / "history.csv", courses.taken(run))
    found: list[Panel] = []
    for arm in run.arms:
        if arm is run.lower:
            continue
        own = {k: v for k, v in curves.items() if k[0] == arm.name and k[1] in run.scenarios}
        name = _leading({k[2] for k in own} - _BESIDE)
        shown = {c: own[arm.name, c, name] for c in run.scenarios if (arm.name, c, name) in own}
        shown = {c: v for c, v in shown.items() if len(v) > 1}
        if shown:
            found.append((arm, name, shown))
    if not found:
        return None
    pages = [found[i : i + MOST_PANELS] for i in range(0, len(found), MOST_PANELS)]
    figures = [_figure(run, page, f"-{i + 1}" * (len(pages) > 1)) for i, page in enumerate(pages)]
    band = " The line is the mean over repeats, the band one standard deviation." * (
        run.repeats > 1
    )
    return Section(
        "curves",
        "Training curves",
        "Did training settle?",
        "A curve that has gone flat has settled: a loss falls to it, a log-likelihood rises. "
        f"Heights of different arms do not compare, each has a scale of its own.{band}",
        h("div", *figures),
    )


def read(
    path: Path, taken: Mapping[tuple[str, str], float] | None = None
) -> dict[tuple[str, str, str], Curve]:
    """Return each recorded value by (arm, scenario, name): mean and spread over repeats a round.

    Sites of one repeat are averaged first; a repeat that stopped early keeps its last value.
    Values that are not finite are left out.

    Parameters
    ----------
    taken : by (arm, scenario), the one q whose rounds count, of fits that tried several.
    """
    taken = taken or {}
    cells: dict[tuple[str, str, str], dict[str, dict[int, list[float]]]]
    cells = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for line in courses.lines(path):
        if line.q is None or line.q == taken.get((line.arm, line.scenario), line.q):
            cells[line.arm, line.scenario, line.name][line.repeat][line.round].append(line.value)
    return {k: _curve(v) for k, v in cells.items()}


def _curve(repeats: Mapping[str, Mapping[int, list[float]]]) -> Curve:
    """Return (round, mean, standard deviation) over repeats, for each round of any."""
    last: dict[str, float] = {}
    out: Curve = []
    for round_ in sorted({r for rounds in repeats.values() for r in rounds}):
        last |= {k: mean(rounds[round_]) for k, rounds in repeats.items() if round_ in rounds}
        values = np.array(list(last.values()))
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        out.append((float(round_), float(values.mean()), spread))
    return out


def _leading(names: set[str]) -> str:
    """Return the value that the arm's panels show."""
    return next((n for n in _LOSSES if n in names), min(names, default=""))


def _figure(run: Run, page: list[Panel], part: str) -> Markup:
    """Return a panel for each arm, on axes of its own."""
    looks = dict(zip(run.scenarios, (LOOKS[i % len(LOOKS)] for i in range(99)), strict=False))
    series: list[Series] = []
    rows: list[dict[str, object]] = []
    said: list[str] = []
    for arm, name, shown in page:
        title = f"{arm.title}: {words.spaced(name)}"
        seen: set[str] = set()
        for scenario, curve in shown.items():
            thin = _thinned([(r + 1, m, s) for r, m, s in curve])
            alike = " ".join(significant(v, 3) for _, *values in thin for v in values)
            banded = any(s for _, _, s in thin) and alike not in seen
            seen.add(alike)
            points = [(r, m, m - s, m + s) if banded else (r, m) for r, m, s in thin]
            setting = run.scenarios[scenario]
            series.append(Series(label=setting, look=looks[scenario], points=points, panel=title))
            head: dict[str, object] = {"arm": arm.name, "scenario": scenario, "name": name}
            rows += [{**head, "round": int(r), "mean": m, "sd": s} for r, m, s in thin]
            said.append(
                f"{arm.title}, {setting}: {words.spaced(name)} from {significant(thin[0][1])} to "
                f"{significant(thin[-1][1])} in {words.of(len(curve), 'round')}"
            )
    return figure(
        f"curves{part}",
        "What each arm minimises or maximises, round by round",
        "A line for each setting; where settings agree, one line hides the others",
        lines_with_bands(series, "round", "", whole=True, own=True),
        rows,
        "; ".join(said) + ".",
    )


def _thinned(curve: Curve) -> Curve:
    """Return at most so many points of a curve, its ends among them."""
    step = math.ceil(len(curve) / _MOST_POINTS)
    kept = curve[::step]
    return kept if kept[-1] == curve[-1] else [*kept, curve[-1]]

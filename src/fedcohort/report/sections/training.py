"""Training by round: each arm's objective, and R, which shows whether hospitals differ.

Files: history.csv. A look at the hospitals is two lines of it, R and R_alarm, of the round after it
(`training.heterogeneity`). The picture of R is of the first repeat; the table counts all alarms.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from fedcohort.report import history, words
from fedcohort.report.charts import LOOKS, MOST_PANELS, Series, figure, lines_with_bands
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section
from fedcohort.report.words import significant

#: round → mean, standard deviation over repeats.
Curve = list[tuple[float, float, float]]

#: An arm, the name of what it recorded, and its curve in each scenario.
Panel = tuple[Arm, str, dict[str, Curve]]

#: Recorded names of minimised objectives, best first.
_LOSSES = ("loss", "objective", "log_likelihood", "negative_elbo")

#: What is recorded beside that, and is nothing that a training minimises.
_BESIDE = {"learning_rate", "R", "R_alarm", "R_models", "R_models_level", "halted"}

_MOST_POINTS = 120
#: A log-likelihood that falls by more than this part of it is said to fall.
FALL = 1e-6


def curves(run: Run) -> Section | None:
    """Return a panel for each arm that recorded more than one round, a line for each scenario."""
    curves = read(run.folder / "history.csv", history.final_values(run))
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
    figures = [_courses(run, page, f"-{i + 1}" * (len(pages) > 1)) for i, page in enumerate(pages)]
    band = " The line is the mean over repeats, the band one standard deviation." * (
        run.repeats > 1
    )
    return Section(
        "curves",
        "Training curves",
        "Did training settle?",
        "A curve that has gone flat has settled: a loss falls to it, a log-likelihood rises. "
        f"Heights of different arms do not compare, each has a scale of its own.{band}"
        f"{_falling(found)}",
        h("div", *figures),
    )


def _falling(found: Sequence[Panel]) -> str:
    """Return why a log-likelihood falls, if one does; "" otherwise."""
    arms = [
        arm.title
        for arm, name, shown in found
        if name == "log_likelihood"
        and any(b[1] < a[1] - FALL * abs(a[1]) for v in shown.values() for a, b in pairwise(v))
    ]
    if not arms:
        return ""
    return (
        f" The log-likelihood of {words.listed(arms)} falls in some rounds. That is no error where "
        "noise is added, where sites take several steps of their own between rounds, or where the "
        "common prior moves: such rounds need not raise it."
    )


def read(
    path: Path, taken: Mapping[tuple[str, str], float] | None = None
) -> dict[tuple[str, str, str], Curve]:
    """Return each recorded value by (arm, scenario, name): mean and spread over repeats per round.

    Sites of one repeat are averaged first; a repeat that stopped early keeps its last value.
    Non-finite values are left out.

    Parameters
    ----------
    taken : by (arm, scenario), the q whose rounds count, for fits that tried several.
    """
    taken = taken or {}
    cells: dict[tuple[str, str, str], dict[str, dict[int, list[float]]]]
    cells = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for line in history.lines(path):
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


def _courses(run: Run, page: list[Panel], part: str) -> Markup:
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
        "A line for each setting; equal settings share one line",
        lines_with_bands(series, "round", "", whole=True, own=True),
        rows,
        "; ".join(said) + ".",
    )


def _thinned(curve: Curve) -> Curve:
    """Return at most n points of a curve, including its ends."""
    step = math.ceil(len(curve) / _MOST_POINTS)
    kept = curve[::step]
    return kept if kept[-1] == curve[-1] else [*kept, curve[-1]]


#: What a look is recorded as.
R, LEVEL = "R", "R_alarm"
#: Height of a panel over the highest R, or the lowest level.
ROOM = 1.25


class Look(NamedTuple):
    """R and the alarm's level after so many rounds."""

    round: int
    r: float
    level: float


#: An arm, a scenario, and its looks by repeat, in order.
Watched = tuple[Arm, str, dict[str, list[Look]]]


def mixing(run: Run) -> Section | None:
    """Return R of each monitored arm, in each scenario; None without any."""
    known = looks_of(run)
    found: list[Watched] = [
        (arm, scenario, known[arm.name, scenario])
        for arm in run.arms
        for scenario in run.scenarios
        if (arm.name, scenario) in known
    ]
    if not found:
        return None
    pages = [found[i : i + MOST_PANELS] for i in range(0, len(found), MOST_PANELS)]
    figures = [_watched(run, page, f"-{i + 1}" * (len(pages) > 1)) for i, page in enumerate(pages)]
    return Section(
        "mixing",
        "Do hospitals differ",
        "Do hospitals differ, as the training saw them?",
        "R compares the distance between the hospitals' paths through the training with the "
        "variation of each path: it is about 1 if their patients are alike. Above the grey level "
        "the study reports that they differ; of trainings over hospitals that are alike, at most "
        "5 % ever reach it. Gaps are where a lap begins, or too few hospitals could be tested.",
        h("div", *figures, _table(run, found)),
    )


def looks_of(run: Run) -> Mapping[tuple[str, str], dict[str, list[Look]]]:
    """Return the tests of each repeat, in the order of their rounds, by arm and scenario."""
    values: dict[tuple[str, str, str], dict[int, dict[str, float]]] = {}
    for line in history.lines(run.folder / "history.csv"):
        if line.name in (R, LEVEL) and not line.site:
            fit = values.setdefault((line.arm, line.scenario, line.repeat), {})
            fit.setdefault(line.round, {})[line.name] = line.value
    found: dict[tuple[str, str], dict[str, list[Look]]] = {}
    for (arm, scenario, repeat), rounds in values.items():
        looks = [Look(r, v[R], v[LEVEL]) for r, v in sorted(rounds.items()) if len(v) == 2]
        if looks:
            found.setdefault((arm, scenario), {})[repeat] = looks
    return found


def alarm(looks: list[Look]) -> Look | None:
    """Return the first test at which R was above the level."""
    return next((look for look in looks if look.r > look.level), None)


def laps(looks: list[Look]) -> list[list[Look]]:
    """Return tests by lap; the first round of a lap has none, which leaves a gap."""
    found: list[list[Look]] = []
    for look in looks:
        if not found or look.round != found[-1][-1].round + 1:
            found.append([])
        found[-1].append(look)
    return found


def _watched(run: Run, page: list[Watched], part: str) -> Markup:
    """Return a panel for each arm and scenario, of the first monitored repeat."""
    series: list[Series] = []
    rows: list[dict[str, object]] = []
    said: list[str] = []
    for arm, scenario, repeats in page:
        repeat, looks = next(iter(repeats.items()))
        title = f"{arm.title}: {run.scenarios[scenario]}"
        fired = alarm(looks)
        most = ROOM * max([min(k.level for k in looks), *(k.r for k in looks)])
        for lap in laps(looks):
            level = [(k.round, k.level) for k in lap if k.level <= most]
            course = [(k.round, k.r) for k in lap]
            series += [
                Series(label="alarm's level", look="faint", panel=title, points=level),
                Series(label="R", look="c0", panel=title, points=course),
            ]
        if fired is not None:
            series.append(
                Series(label="first alarm", look="c1", panel=title, points=[(fired.round, fired.r)])
            )
        head: dict[str, object] = {"arm": arm.name, "scenario": scenario, "repeat": repeat}
        rows += [{**head, "round": k.round, "R": k.r, "alarm": k.level} for k in looks]
        last = looks[-1]
        said.append(
            f"{title}: R {significant(last.r, 3)} after {words.of(last.round, 'round')}, "
            + (f"the first alarm after {fired.round}" if fired else "no alarm")
        )
    return figure(
        f"mixing{part}",
        "R round by round, of the first repeat",
        "The grey line is the alarm's level, where it is not above the picture: a few rounds tell "
        "little, and every ten, or five, a new lap begins",
        lines_with_bands(series, "rounds done", "R", whole=True, own=True),
        rows,
        "; ".join(said) + ".",
    )


def _table(run: Run, found: list[Watched]) -> Markup:
    """Return the number of trainings with an alarm by arm and scenario, and when."""
    body: list[list[str]] = []
    for arm, scenario, repeats in found:
        fired = [k for looks in repeats.values() if (k := alarm(looks)) is not None]
        after = words.count(median(k.round for k in fired)) if fired else words.MISSING
        most = max(k.r for looks in repeats.values() for k in looks)
        share = f"{len(fired)} of {len(repeats)}"
        body.append([arm.title, run.scenarios[scenario], share, after, significant(most, 3)])
    head = ["Arm", "Setting", "With an alarm", "Rounds until it", "Highest R"]
    return table(head, body, numeric=(2, 3, 4), caption="Alarms")

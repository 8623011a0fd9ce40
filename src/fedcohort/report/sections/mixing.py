"""Do hospitals differ: R of the fits that were watched, round by round, beside its alarm's level.

Files that it reads: history.csv, in which a look at the hospitals is two lines, R and R_alarm, of
the round before which it was (`training.heterogeneity`). The picture is of the first repeat; the
table counts the alarms of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from fedcohort.report import courses, words
from fedcohort.report.charts import MOST_PANELS, Series, figure, lines_with_bands
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section
from fedcohort.report.words import significant

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


def section(run: Run) -> Section | None:
    """Return R of each arm that was watched, in each scenario; None without any."""
    known = read(run)
    found: list[Watched] = [
        (arm, scenario, known[arm.name, scenario])
        for arm in run.arms
        for scenario in run.scenarios
        if (arm.name, scenario) in known
    ]
    if not found:
        return None
    pages = [found[i : i + MOST_PANELS] for i in range(0, len(found), MOST_PANELS)]
    figures = [_figure(run, page, f"-{i + 1}" * (len(pages) > 1)) for i, page in enumerate(pages)]
    return Section(
        "mixing",
        "Do hospitals differ",
        "Do hospitals differ, as the training saw them?",
        "R compares how far the hospitals' courses through the training lie apart with how far "
        "each one strays by itself: about 1 where their patients are alike. Above the grey level "
        "the study says that they differ; of trainings over hospitals that are alike, at most 5 % "
        "ever come there. Gaps are where a lap begins, or too few hospitals could be looked at.",
        h("div", *figures, _table(run, found)),
    )


def read(run: Run) -> Mapping[tuple[str, str], dict[str, list[Look]]]:
    """Return the looks of each repeat, in the order of their rounds, by arm and scenario."""
    values: dict[tuple[str, str, str], dict[int, dict[str, float]]] = {}
    for line in courses.lines(run.folder / "history.csv"):
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
    """Return the first look at which R was above the level."""
    return next((look for look in looks if look.r > look.level), None)


def laps(looks: list[Look]) -> list[list[Look]]:
    """Return looks by lap: the first round of one has none, so that there is a gap before it."""
    found: list[list[Look]] = []
    for look in looks:
        if not found or look.round != found[-1][-1].round + 1:
            found.append([])
        found[-1].append(look)
    return found


def _figure(run: Run, page: list[Watched], part: str) -> Markup:
    """Return a panel for each arm and scenario, of the first repeat that was watched."""
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
    """Return how many trainings of each arm and scenario had an alarm, and when."""
    body: list[list[str]] = []
    for arm, scenario, repeats in found:
        fired = [k for looks in repeats.values() if (k := alarm(looks)) is not None]
        after = words.count(median(k.round for k in fired)) if fired else words.MISSING
        most = max(k.r for looks in repeats.values() for k in looks)
        share = f"{len(fired)} of {len(repeats)}"
        body.append([arm.title, run.scenarios[scenario], share, after, significant(most, 3)])
    head = ["Arm", "Setting", "With an alarm", "Rounds until it", "Highest R"]
    return table(head, body, numeric=(2, 3, 4), caption="Alarms")

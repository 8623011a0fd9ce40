"""Training curves: how the loss fell, round by round, in each arm and scenario."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedcohort.report import plot, words
from fedcohort.report.markup import Markup, h
from fedcohort.report.run import Arm, Run, mean
from fedcohort.report.sections.base import Section, key, panel, panels
from fedcohort.report.words import significant

#: round → mean, standard deviation over repeats.
Curve = list[tuple[float, float, float]]

#: Names under which methods record what they minimise, best first.
_LOSSES = ("loss", "objective", "log_likelihood")

_MOST_POINTS = 200


def section(run: Run) -> Section | None:
    """Return a panel for each arm and scenario that recorded more than one round."""
    curves = read(run.folder / "history.csv")
    blocks: list[Markup] = []
    for arm in run.arms:
        if arm is run.lower:
            continue
        own = {k: v for k, v in curves.items() if k[0] == arm.name and k[1] in run.scenarios}
        name = _leading(names={k[2] for k in own})
        shown = {c: own[arm.name, c, name] for c in run.scenarios if (arm.name, c, name) in own}
        shown = {c: v for c, v in shown.items() if len(v) > 1}
        if shown:
            blocks.append(_block(run, arm, name, shown))
    if not blocks:
        return None
    band = " The line is the mean over repeats, the band one standard deviation." * (
        run.repeats > 1
    )
    return Section(
        "curves",
        "Training curves",
        "Did training settle?",
        "A curve that has gone flat has settled: a loss falls to it, a log-likelihood rises. "
        f"Heights of different arms do not compare, each has a loss of its own.{band}",
        h("div", blocks),
    )


def read(path: Path) -> dict[tuple[str, str, str], Curve]:
    """Return each recorded value by (arm, scenario, name): mean and spread over repeats a round.

    Sites of one repeat are averaged first; a repeat that stopped early keeps its last value.
    Values that are not finite are left out.
    """
    if not path.is_file():
        return {}
    cells: dict[tuple[str, str, str], dict[str, dict[int, list[float]]]]
    cells = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    with path.open(newline="", encoding="utf-8") as lines:
        reader = csv.reader(lines)
        head = {name: i for i, name in enumerate(next(reader, []))}
        columns = ("arm", "scenario", "name", "round", "repeat", "value")
        if not head.keys() >= set(columns):
            return {}
        where = [head[c] for c in columns]
        for line in reader:
            arm, scenario, name, round_, repeat, value = (line[i] for i in where)
            x = float(value or "nan")
            if math.isfinite(x):
                cells[arm, scenario, name][repeat][int(float(round_))].append(x)
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


def _block(run: Run, arm: Arm, name: str, shown: Mapping[str, Curve]) -> Markup:
    """Return one arm's panels, on common axes."""
    y = plot.around([v for c in shown.values() for _, m, s in c for v in (m - s, m + s)])
    last = max(c[-1][0] for c in shown.values())
    x = plot.Scale(1, max(last + 1, 2))
    whole = [t for t in plot.ticks(1, x.high, 4) if t == int(t)]
    frame = plot.Frame(
        x, y, sorted({1.0, *whole[(whole[:1] == [1.0]) :]}), plot.ticks(y.low, y.high, 4)
    )
    drawn: list[Markup] = []
    for scenario, curve in shown.items():
        thin = _thinned([(r + 1, m, s) for r, m, s in curve])
        shapes = [frame.line([(r, m) for r, m, _ in thin], arm.look)]
        if any(s for _, _, s in thin):
            shapes.insert(0, frame.ribbon([(r, m - s, m + s) for r, m, s in thin], arm.look))
        end = thin[-1]
        said = (
            f"{arm.title}, {run.scenarios[scenario]}: {words.spaced(name)} from "
            f"{significant(thin[0][1])} to {significant(end[1])} in {words.of(len(curve), 'round')}"
        )
        picture = frame.draw(shapes, [frame.pin(end[0], end[1], arm.look)], said)
        note = f"{words.of(len(curve), 'round')}, ends at {significant(end[1])}"
        drawn.append(panel(run.scenarios[scenario], note, picture))
    head = h("h3", key(arm), h("small", f"{words.spaced(name)} by round"), class_="block")
    return h("div", head, panels(drawn, "panels small"))


def _thinned(curve: Curve) -> Curve:
    """Return at most so many points of a curve, its ends among them."""
    step = math.ceil(len(curve) / _MOST_POINTS)
    kept = curve[::step]
    return kept if kept[-1] == curve[-1] else [*kept, curve[-1]]

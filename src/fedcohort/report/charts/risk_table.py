"""The numbers at risk below survival curves, in columns that stand at labelled ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from fedcohort.report.charts import parts, theme
from fedcohort.report.charts.parts import Mark, Place, Series, Text
from fedcohort.report.charts.theme import LINE

#: Room that a column of numbers takes, in pixels.
COLUMN = 42


def lines_below(series: Sequence[Series]) -> int:
    """Return how many lines of text stand below a panel's axis."""
    return len(series) + 1 if any(s.at_risk or s.about for s in series) else 0


def columns(series: Sequence[Series], place: Place) -> list[float]:
    """Return the times of the table, as many as have room."""
    low, high = place.x
    times = sorted({t for s in series for t, _ in (*s.at_risk, *s.about) if low <= t <= high})
    return times[:: math.ceil(len(times) * COLUMN / place.width) or 1]


def ticks_at(times: Sequence[float], place: Place) -> list[float]:
    """Return ticks that include all times: multiples of their step, or the times alone.

    None if there are fewer than two times.
    """
    if len(times) < 2:
        return []
    step = min(b - a for a, b in pairwise(times))
    counted = [round(t / step) for t in times]
    even = all(abs(t - k * step) <= 1e-9 * abs(t) for k, t in zip(counted, times, strict=True))
    first, last = (math.ceil(place.x[0] / step - 1e-9), math.floor(place.x[1] / step + 1e-9))
    if not even or (last - first + 1) * COLUMN > place.width + COLUMN:
        return list(times)
    return [round(k * step, 12) for k in range(first, last + 1)]


def layers(
    series: Sequence[Series], times: Sequence[float], place: Place, counted: str
) -> list[parts.Layer]:
    """Return the table's layers: a line for each curve, a column for each of `times`.

    A dash stands for a hidden number, or one after the curve's end.
    """
    if not times:
        return []
    top = place.height + 54.0
    exact = {(i, t) for i, s in enumerate(series) for t, _ in s.at_risk}
    if any((i, t) not in exact for i, s in enumerate(series) for t, _ in s.about if t in times):
        counted = f"{counted}, about"
    found = [Text(place.x[0], place.y_at(top), counted, colour=theme.QUIET)]
    keys: list[Mark] = []
    for i, s in enumerate(series):
        y = place.y_at(top + (i + 1) * (LINE + 2))
        counts = {**dict(s.about), **dict(s.at_risk)}
        keys.append(Mark(place.x_at(-28), y, s.look, small=True))
        for t in times:
            n = counts.get(t)
            found.append(Text(t, y, "–" if n is None else f"{n:,}", "center"))
    return parts.marks(keys) + parts.texts(found)

"""Patients as small pictures: a cell for each feature, the darker, the higher its value.

On a wide drawing a group's average stands left of its patients, on a narrow one above them. Cells
of one darkness that lie side by side are one rectangle, so that thousands of cells stay small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import altair as alt

from fedcohort.report.charts import parts, theme
from fedcohort.report.charts.parts import Mark, Place, Text
from fedcohort.report.charts.scales import wrapped
from fedcohort.report.charts.theme import LINE, NARROW, Draw

#: Steps of darkness between 0, which is blank, and 1.
STEPS = 10
#: Pictures are so many pixels wide: the average, a patient; and so far apart.
_AVERAGE, _PATIENT, _GAP = 96.0, 63.0, 8.0
#: Most patients beside each other; room of a group's name and below it; height of a printed page.
_EACH, _NAME, _BELOW, _PAGE = 6, LINE + 6, 18.0, 940.0
#: A hidden cell.
_HIDDEN = -1


@dataclass(frozen=True, kw_only=True)
class Group:
    """One line of pictures.

    Attributes
    ----------
    average : value of each feature on average, from 0 to 1; NaN is hidden; empty for none.
    patients : values of each feature of each patient, from 0 to 1.
    """

    name: str
    look: str
    average: Sequence[float] = ()
    patients: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class _Cell:
    """A rectangle in pixels from the top left, with its step of darkness."""

    x: float
    y: float
    width: float
    height: float
    look: str
    step: int


def pictures(groups: Sequence[Group], shape: tuple[int, int]) -> Draw:
    """Return the pictures of groups below each other.

    Parameters
    ----------
    shape : rows and columns of a picture; features fill it row by row.
    """

    def chart(width: int) -> alt.TopLevelMixin:
        cells: list[_Cell] = []
        frames: list[_Cell] = []
        texts: list[tuple[float, float, str]] = []
        keys: list[tuple[float, float, str]] = []
        top = 0.0
        for group in groups:
            keys.append((7.0, top + LINE / 2, group.look))
            texts.append((19.0, top + LINE / 2, wrapped(group.name, width - 32, 1)[0]))
            top += _NAME
            left, below = 0.0, top
            if group.average:
                cells += _picture(group.average, shape, (0.0, top), _AVERAGE, group.look)
                frames.append(_frame(shape, (0.0, top), _AVERAGE, group.look))
                high = _AVERAGE * shape[0] / shape[1]
                below = top + high
                if width <= NARROW:
                    top = below + _GAP
                else:
                    left = _AVERAGE + 3 * _GAP
            each = max(1, int((width - left + _GAP) // (_PATIENT + _GAP)))
            each = min(each, _EACH)
            high = _PATIENT * shape[0] / shape[1]
            for i, patient in enumerate(group.patients):
                at = left + i % each * (_PATIENT + _GAP), top + i // each * (high + _GAP)
                cells += _picture(patient, shape, at, _PATIENT, group.look)
                frames.append(_frame(shape, at, _PATIENT, group.look))
                below = max(below, at[1] + high)
            top = below + _BELOW
        height = max(top - 12, 20.0)
        place = Place((0.0, width - 2.0), (0.0, height), width - 2.0, height)
        layers = [
            *_rectangles(frames, place, framed=True),
            *_rectangles(cells, place),
            *parts.marks(Mark(x, place.y_at(y), look) for x, y, look in keys),
            *parts.texts(Text(x, place.y_at(y), text, bold=True) for x, y, text in texts),
        ]
        sides = {"left": 1, "right": 1, "top": 1, "bottom": 1}
        return parts.framed(layers, place).properties(autosize="none", padding=sides)

    return chart


def most_groups(shape: tuple[int, int], patients: int) -> int:
    """Return how many groups of so many patients fit a printed page, at least one."""
    ratio = shape[0] / shape[1]
    drawn = math.ceil(patients / _EACH) * (_PATIENT * ratio + _GAP) - _GAP
    return max(1, int(_PAGE // (_NAME + max(_AVERAGE * ratio, drawn) + _BELOW)))


def _frame(shape: tuple[int, int], at: tuple[float, float], width: float, look: str) -> _Cell:
    return _Cell(*at, width, width * shape[0] / shape[1], look, 0)


def _picture(
    values: Sequence[float],
    shape: tuple[int, int],
    at: tuple[float, float],
    width: float,
    look: str,
) -> Iterator[_Cell]:
    """Yield the cells that are not blank, neighbours of one darkness in a row as one."""
    high, wide = shape
    side = width / wide
    steps = [_step(v) for v in values[: high * wide]]
    for r in range(0, len(steps), wide):
        start = 0
        for step, run in groupby(steps[r : r + wide]):
            n = len(list(run))
            if step:
                x, y = at[0] + start * side, at[1] + r // wide * side
                yield _Cell(x, y, n * side, side, look, step)
            start += n


def _step(value: float) -> int:
    """Return how dark a value from 0 to 1 is: 0 is blank, `STEPS` full."""
    if not math.isfinite(value):
        return _HIDDEN
    return min(max(round(value * STEPS), 0), STEPS)


def _rectangles(cells: Sequence[_Cell], place: Place, *, framed: bool = False) -> list[parts.Layer]:
    """Return filled rectangles, those of one colour and darkness next to each other."""
    ordered = sorted(cells, key=lambda c: (c.look, c.step))
    rows = [
        {
            "x": c.x, "x2": c.x + c.width, "y": place.y_at(c.y), "y2": place.y_at(c.y + c.height),
            "c": theme.PAPER if framed else
                 theme.RULE if c.step == _HIDDEN else theme.colour(c.look),
            "o": 1.0 if framed or c.step == _HIDDEN else c.step / STEPS,
        }
        for c in ordered
    ]  # fmt: skip
    if not rows:
        return []
    stroke, width = (theme.QUIET, 1.0) if framed else (theme.PAPER, 0.0)
    return [
        parts.data(rows)
        .mark_rect(stroke=stroke, strokeWidth=width)
        .encode(
            x=alt.X("x:Q"),
            y=alt.Y("y:Q"),
            x2=alt.X2("x2"),
            y2=alt.Y2("y2"),
            fill=alt.Fill("c:N", scale=None),
            fillOpacity=alt.FillOpacity("o:Q", scale=None),
        )
    ]

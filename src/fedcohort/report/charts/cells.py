"""Patients as small pictures, and matrices of pairs as heat maps.

Darker cells have higher values. Adjacent cells of one darkness are one rectangle, which keeps
thousands of cells small. Rows of a matrix have names and numbers, columns numbers alone; `cut_off`
lists the names that are cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from fedcohort.report.charts import parts, theme
from fedcohort.report.charts.parts import Mark, Place, Text
from fedcohort.report.charts.scales import text_width, wrapped
from fedcohort.report.charts.theme import LINE, WIDE, Spec

#: Steps of darkness between 0, which is blank, and 1.
STEPS = 10
#: Pixels: width of the average's picture, of a patient's, and the gap.
_AVERAGE, _PATIENT, _APART = 96.0, 63.0, 8.0
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


def pictures(groups: Sequence[Group], shape: tuple[int, int]) -> Spec:
    """Return the pictures of groups below each other.

    Parameters
    ----------
    shape : rows and columns of a picture; features fill it row by row.
    """
    cells: list[_Cell] = []
    frames: list[_Cell] = []
    texts: list[tuple[float, float, str]] = []
    keys: list[tuple[float, float, str]] = []
    top = 0.0
    for group in groups:
        keys.append((7.0, top + LINE / 2, group.look))
        texts.append((19.0, top + LINE / 2, wrapped(group.name, WIDE - 32, 1)[0]))
        top += _NAME
        left, below = 0.0, top
        if group.average:
            cells += _picture(group.average, shape, (0.0, top), _AVERAGE, group.look)
            frames.append(_frame(shape, (0.0, top), _AVERAGE, group.look))
            below = top + _AVERAGE * shape[0] / shape[1]
            left = _AVERAGE + 3 * _APART
        high = _PATIENT * shape[0] / shape[1]
        for i, patient in enumerate(group.patients):
            at = left + i % _EACH * (_PATIENT + _APART), top + i // _EACH * (high + _APART)
            cells += _picture(patient, shape, at, _PATIENT, group.look)
            frames.append(_frame(shape, at, _PATIENT, group.look))
            below = max(below, at[1] + high)
        top = below + _BELOW
    height = max(top - 12, 20.0)
    place = Place((0.0, WIDE - 2.0), (0.0, height), WIDE - 2.0, height)
    layers = [
        *_rectangles(frames, place, framed=True),
        *_rectangles(cells, place),
        *parts.marks(Mark(x, place.y_at(y), look) for x, y, look in keys),
        *parts.texts(Text(x, place.y_at(y), text, bold=True) for x, y, text in texts),
    ]
    sides = {"left": 1, "right": 1, "top": 1, "bottom": 1}
    return parts.framed(layers, place) | {"autosize": "none", "padding": sides}


def most_groups(shape: tuple[int, int], patients: int) -> int:
    """Return how many groups of n patients fit a printed page, at least one."""
    ratio = shape[0] / shape[1]
    drawn = math.ceil(patients / _EACH) * (_PATIENT * ratio + _APART) - _APART
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
        parts.layer(
            rows,
            parts.mark("rect", stroke=stroke, strokeWidth=width),
            x="x:Q",
            y="y:Q",
            x2="x2",
            y2="y2",
            fill="c:N",
            fillOpacity="o:Q",
        )
    ]


#: Pixels: largest cell, cell with its value, gap between panels.
_SIDE, _TOLD, _GAP = 44.0, 31.0, 26.0
#: Largest width of names, and the opacity of half-dark cells.
_NAMES, _DARK = 132.0, 0.55


@dataclass(frozen=True, kw_only=True)
class Heat:
    """One matrix.

    Attributes
    ----------
    title : of its panel.
    names : of its S rows and columns.
    values : (S, S); nan is left blank. The diagonal is not drawn.
    shades : (S, S) from −1 to 1, the strength; below 0 in another colour.
    digits : decimals of the values.
    """

    title: str
    names: Sequence[str]
    values: Sequence[Sequence[float]]
    shades: Sequence[Sequence[float]]
    digits: int = 2


def heats(found: Sequence[Heat]) -> Spec:
    """Return the panels, two beside each other."""
    columns = 1 if len(found) == 1 else 2
    across = (WIDE - 4 - (columns - 1) * _GAP) / columns
    drawn = [_panel(one, across) for one in found]
    sides = {"left": 1, "right": 1, "top": 1, "bottom": 1}
    gaps = {"row": _GAP, "column": _GAP}
    return parts.beside(drawn, columns, padding=sides, spacing=gaps)


def _labels(names: Sequence[str]) -> tuple[list[str], float]:
    """Return rows' labels, and the room that they get."""
    labels = [f"{i + 1}  {name}" for i, name in enumerate(names)]
    return labels, min(max(text_width(t) for t in labels) + 10, _NAMES)


def cut_off(names: Sequence[str]) -> list[bool]:
    """Return the names that are cut."""
    labels, left = _labels(names)
    return [text_width(t) > left - 6 for t in labels]


def _panel(one: Heat, across: float) -> Spec:
    s = len(one.names)
    labels, left = _labels(one.names)
    side = min((across - left) / max(s, 1), _SIDE)
    head = wrapped(one.title, across, 2)
    top = LINE * len(head) + 8 + LINE
    height = top + side * s + 2
    place = Place((0.0, across), (0.0, height), across, height)

    def text(x: float, y: float, line: str, **more: str | bool) -> Text:
        return Text(x, place.y_at(y), line, **more)  # pyright: ignore[reportArgumentType]

    texts = [text(0, LINE * (i + 0.5), line, bold=True) for i, line in enumerate(head)]
    for i, label in enumerate(labels):
        at = top + side * (i + 0.5)
        texts.append(text(0, at, wrapped(label, left - 6, 1)[0]))
        x = left + side * (i + 0.5)
        texts.append(text(x, top - LINE / 2, str(i + 1), align="center", colour=theme.QUIET))
    told = side >= _TOLD
    for i, j, value, _ in _cells(one):
        if told:
            x, y = left + side * (j + 0.5), top + side * (i + 0.5)
            texts.append(text(x, y, f"{value:.{one.digits}f}".replace("-", "−"), align="center"))
    rows: list[dict[str, object]] = [
        {
            "x": left + side * j + 0.5,
            "x2": left + side * (j + 1) - 0.5,
            "y": place.y_at(top + side * i + 0.5),
            "y2": place.y_at(top + side * (i + 1) - 0.5),
            "c": theme.colour("c1" if shade < 0 else "c0"),
            "o": round(0.04 + _DARK * min(abs(shade), 1.0), 3),
        }
        for i, j, _, shade in _cells(one)
    ]
    layers = [*parts.shaded(rows), *parts.texts(texts)]
    return parts.framed(layers, place)


def _cells(one: Heat) -> Iterator[tuple[int, int, float, float]]:
    """Yield row, column, value and shade of the cells that are drawn."""
    s = len(one.names)
    for i in range(s):
        for j in range(s):
            if i != j and math.isfinite(one.values[i][j]):
                yield i, j, one.values[i][j], one.shades[i][j]

"""Matrices of pairs as heat maps, a panel for each: a cell's darkness is its strength.

Rows have names and numbers, columns the numbers alone. Of long names the beginning is shown; which
ones `cut_off` says, so that whoever shows the figure can tell their numbers.
Cells tell their value where there is room for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import altair as alt

from fedcohort.report.charts import parts, theme
from fedcohort.report.charts.parts import Place, Text
from fedcohort.report.charts.scales import text_width, wrapped
from fedcohort.report.charts.theme import LINE, NARROW, Draw

#: Pixels: a cell at most, what a cell with its value takes, the gap between panels.
_SIDE, _TOLD, _GAP = 44.0, 31.0, 26.0
#: Room of names, at most, and what half-dark cells have as opacity.
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


def heats(found: Sequence[Heat]) -> Draw:
    """Return the panels, two beside each other where they fit."""

    def chart(width: int) -> alt.TopLevelMixin:
        columns = 1 if width <= NARROW or len(found) == 1 else 2
        across = (width - 4 - (columns - 1) * _GAP) / columns
        drawn = [_panel(one, across) for one in found]
        sides = {"left": 1, "right": 1, "top": 1, "bottom": 1}
        return alt.concat(
            *drawn, columns=columns, bounds="flush", spacing={"row": _GAP, "column": _GAP},
            padding=sides,
        )  # fmt: skip

    return chart


def _labels(names: Sequence[str]) -> tuple[list[str], float]:
    """Return rows' labels, and the room that they get."""
    labels = [f"{i + 1}  {name}" for i, name in enumerate(names)]
    return labels, min(max(text_width(t) for t in labels) + 10, _NAMES)


def cut_off(names: Sequence[str]) -> list[bool]:
    """Return which names are not shown to their end."""
    labels, left = _labels(names)
    return [text_width(t) > left - 6 for t in labels]


def _panel(one: Heat, across: float) -> alt.LayerChart:
    """Return one matrix so many pixels wide."""
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
    layers = [*_rectangles(rows), *parts.texts(texts)]
    return parts.framed(layers, place)


def _cells(one: Heat) -> Iterator[tuple[int, int, float, float]]:
    """Yield row, column, value and shade of the cells that are drawn."""
    s = len(one.names)
    for i in range(s):
        for j in range(s):
            if i != j and math.isfinite(one.values[i][j]):
                yield i, j, one.values[i][j], one.shades[i][j]


def _rectangles(rows: Sequence[dict[str, object]]) -> list[parts.Layer]:
    if not rows:
        return []
    return [
        parts.data([*rows])
        .mark_rect()
        .encode(
            x=alt.X("x:Q"),
            y=alt.Y("y:Q"),
            x2=alt.X2("x2"),
            y2=alt.Y2("y2"),
            fill=alt.Fill("c:N", scale=None),
            opacity=alt.Opacity("o:Q", scale=None),
        )
    ]

"""Grids: rows by columns, each cell as dark as its value, with a short text where it fits.

Names of columns stand above them if they fit; names that are numbers are thinned. Otherwise columns
have numbers, and their names stand below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedcohort.report.charts import parts, theme
from fedcohort.report.charts.parts import Place, Text
from fedcohort.report.charts.scales import text_width, wrapped
from fedcohort.report.charts.theme import LINE, WIDE, Spec

#: Pixels: largest width and height of a cell, widest name of a row, gap between columns of text.
_WIDEST, _HIGH, _NAMES, _ROOM = 96.0, 20.0, 132.0, 4.0
#: Lines that the name of a column may have; opacity of the darkest and of an empty cell.
_LINES, _DARK, _EMPTY = 3, 0.6, 0.04


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One matrix.

    Attributes
    ----------
    rows, columns : names.
    shades : (rows, columns) from 0 to 1; NaN is left blank.
    texts : (rows, columns), written where they fit; empty for none.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    shades: Sequence[Sequence[float]]
    texts: Sequence[Sequence[str]] = field(default=())


def grid(one: Grid) -> Spec:
    """Return the chart."""
    left, side = _side(one)
    heads = _heads(one, side)
    below = [] if heads else [f"{i} {name}" for i, name in enumerate(one.columns, 1)]
    heads = heads or [[str(i + 1)] for i in range(len(one.columns))]
    top = LINE * max(map(len, heads)) + 4
    bottom = top + _HIGH * len(one.rows) + 2
    height = bottom + LINE * len(below) + 6 * bool(below)
    place = Place((0.0, WIDE - 4.0), (0.0, height), WIDE - 4.0, height)
    texts = [
        Text(0, place.y_at(top + _HIGH * (i + 0.5)), wrapped(name, left - 6, 1)[0])
        for i, name in enumerate(one.rows)
    ]
    for k, name in enumerate(below):
        y = place.y_at(bottom + 6 + LINE * (k + 0.5))
        texts.append(Text(left, y, wrapped(name, WIDE - left - 8, 1)[0], colour=theme.QUIET))
    for j, lines in enumerate(heads):
        x = left + side * (j + 0.5)
        for k, line in enumerate(lines):
            y = place.y_at(top - LINE * (len(lines) - k - 0.5) - 2)
            texts.append(Text(x, y, line, align="center", colour=theme.QUIET))
    cells: list[dict[str, object]] = []
    for i, row in enumerate(one.shades):
        for j, shade in enumerate(row):
            if not math.isfinite(shade):
                continue
            x, y = left + side * j, top + _HIGH * i
            cells.append(
                {
                    "x": x + 0.5, "x2": x + side - 0.5,
                    "y": place.y_at(y + 0.5), "y2": place.y_at(y + _HIGH - 0.5),
                    "c": theme.colour("c0"),
                    "o": round(_EMPTY + (_DARK - _EMPTY) * min(max(shade, 0.0), 1.0), 3),
                }
            )  # fmt: skip
    for i, row in enumerate(one.texts):
        for j, text in enumerate(row):
            if text and text_width(text) <= side - _ROOM:
                x, y = left + side * (j + 0.5), place.y_at(top + _HIGH * (i + 0.5))
                texts.append(Text(x, y, text, align="center"))
    layers = [*parts.shaded(cells), *parts.texts(texts)]
    sides = {"left": 1, "right": 1, "top": 1, "bottom": 1}
    return parts.framed(layers, place) | {"autosize": "none", "padding": sides}


def _side(one: Grid) -> tuple[float, float]:
    """Return the room of the rows' names, and the width of a cell."""
    left = min(max(text_width(name) for name in one.rows) + 10, _NAMES)
    return left, min((WIDE - 4 - left) / max(len(one.columns), 1), _WIDEST)


def _heads(one: Grid, side: float) -> list[list[str]] | None:
    """Return the lines above each column; None if names do not fit."""
    if all(name.isdigit() for name in one.columns):
        widest = max(map(text_width, one.columns), default=0.0)
        step = max(1, math.ceil((widest + _ROOM) / side))
        step = next(s for s in (1, 2, 5, 10, 20, 50, 10**9) if s >= step)
        return [[name if step == 1 or not int(name) % step else ""] for name in one.columns]
    heads = [wrapped(name, side - _ROOM, _LINES) for name in one.columns]
    whole = all(" ".join(h) == " ".join(n.split()) for h, n in zip(heads, one.columns, strict=True))
    return heads if whole else None

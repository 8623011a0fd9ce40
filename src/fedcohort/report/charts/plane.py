"""Ellipses and points in the plane, with the same unit on both axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedcohort.report.charts import parts, theme
from fedcohort.report.charts.parts import Mark, Place, Text
from fedcohort.report.charts.scales import around, several_ticks, tick_format
from fedcohort.report.charts.theme import LINE, WIDE, Spec

_ELLIPSES_AXIS, _GAP, _ELLIPSES_EDGE = 44, 20, 10
#: Corners of the polygon that stands for a whole ellipse, and for a pale one.
_CORNERS, _FEWER = 48, 24


@dataclass(frozen=True, kw_only=True)
class Ellipse:
    """An ellipse with a mark in its middle.

    Attributes
    ----------
    x, y : the middle.
    long, short : half axes; ``angle`` of the long one against the x-axis, in degrees.
    label : its name in the legend.
    text : beside the mark.
    panel : title of its panel.
    pale : drawn thin and without a filling.
    """

    x: float
    y: float
    long: float
    short: float
    angle: float
    look: str
    label: str
    text: str = ""
    panel: str = ""
    pale: bool = False

    def outline(self, corners: int) -> list[tuple[float, float]]:
        """Return n points of the ellipse, in order."""
        turn = math.radians(self.angle)
        steps = (2 * math.pi * i / corners for i in range(corners))
        return [
            (
                self.x + self.long * math.cos(t) * math.cos(turn)
                - self.short * math.sin(t) * math.sin(turn),
                self.y + self.long * math.cos(t) * math.sin(turn)
                + self.short * math.sin(t) * math.cos(turn),
            )
            for t in steps
        ]  # fmt: skip


def ellipses(found: Sequence[Ellipse], x_title: str, y_title: str) -> Spec:
    """Return the panels under one legend; a unit is as long upwards as it is sideways."""
    panels: dict[str, list[Ellipse]] = {}
    for e in found:
        panels.setdefault(e.panel, []).append(e)
    outlines = [p for e in found for p in e.outline(_CORNERS)]
    x, y = (around([p[i] for p in outlines]) for i in (0, 1))
    items = sorted(dict.fromkeys((e.look, e.label) for e in found), key=lambda item: item[1])

    columns = min(len(panels), 2)
    across = (WIDE - _ELLIPSES_EDGE - columns * (_ELLIPSES_AXIS + _GAP) + _GAP) / columns
    across = min(across, 420.0)
    place = parts.even(x, y, across)
    drawn = [_panel(title, own, place, x_title, y_title) for title, own in panels.items()]
    above = 2 * LINE + 12
    gaps = {"row": above + 44 + _GAP, "column": _ELLIPSES_AXIS + _GAP}
    body = parts.beside(drawn, columns, spacing=gaps)
    rows, high = parts.flow(items, WIDE)
    room = Place((0, WIDE - _ELLIPSES_AXIS), (0, high), WIDE - _ELLIPSES_AXIS, high)
    legend = parts.framed(parts.legend(rows, room, -_ELLIPSES_AXIS, 0), room)
    sides = {"left": 0, "right": 2, "top": 2, "bottom": 5}
    return parts.above(legend, body, above + 8, sides)


def _panel(title: str, found: Sequence[Ellipse], place: Place, x_title: str, y_title: str) -> Spec:
    """Return one panel: outlines, then marks and their texts."""
    marks = [Mark(e.x, e.y, e.look, small=True) for e in found]
    unit = (place.x[1] - place.x[0]) / place.width
    named = [Text(e.x + 8 * unit, e.y, e.text) for e in found if e.text]
    heads = [Text(place.x[0], place.y_at(-12 - LINE), title, bold=True)] if title else []
    heads.append(Text(place.x[0], place.y_at(-12), y_title, colour=theme.QUIET))
    layers = [*_outlines(found), *parts.marks(marks), *parts.texts([*named, *heads])]
    x_at = several_ticks(*place.x, max(3, int(place.width / 75)))
    y_at = several_ticks(*place.y, max(2, int(place.height / 45)))
    x = parts.axis(x_at, x_title, format=tick_format(x_at))
    y = parts.axis(y_at, None, grid=True, format=tick_format(y_at))
    return parts.framed(layers, place, x=x, y=y)


def _outlines(found: Sequence[Ellipse]) -> list[parts.Layer]:
    """Return the outlines: pale ones first and thin, the others filled a little."""
    layers: list[parts.Layer] = []
    for pale in (True, False):
        rows = [
            {"x": x, "y": y, "c": theme.colour(e.look), "i": i, "o": o}
            for i, e in enumerate(found)
            if e.pale == pale
            for o, (x, y) in enumerate(e.outline(_FEWER if pale else _CORNERS))
        ]
        if not rows:
            continue
        line = parts.mark(
            "line",
            interpolate="linear-closed",
            strokeWidth=1.0 if pale else 1.8,
            strokeOpacity=0.6 if pale else 1.0,
            fillOpacity=0.0 if pale else 0.12,
        )
        fields = {"x": "x:Q", "y": "y:Q", "stroke": "c:N", "fill": "c:N"}
        layers.append(parts.layer(rows, line, **fields, detail="i:O", order="o:Q"))
    return layers


_DOTS_AXIS, _DOTS_EDGE, _BELOW = 16, 10, 10
#: The width of the plane, and the area of a mark, in pixels.
_PLANE, _AREA = 560.0, 34


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A point: its place, and its group's look and name in the legend."""

    x: float
    y: float
    look: str
    label: str


def dots(found: Sequence[Dot], x_title: str, y_title: str, *, area: float = _AREA) -> Spec:
    """Return the points under one legend; a unit is as long upwards as it is sideways.

    Parameters
    ----------
    area : of a mark in pixels, where points are few.
    """
    x, y = around([d.x for d in found]), around([d.y for d in found])
    items = list(dict.fromkeys((d.look, d.label) for d in found))

    place = parts.even(x, y, _PLANE)
    marks = parts.marks((Mark(d.x, d.y, d.look) for d in found), area=area)
    head = parts.texts([Text(place.x[0], place.y_at(-12), y_title, colour=theme.QUIET)])
    plane = parts.framed([*marks, *head], place, x=_axis(x_title), y=_axis(None))
    rows, high = parts.flow(items, WIDE - _DOTS_EDGE)
    room = Place((0, WIDE - _DOTS_AXIS), (0, high), WIDE - _DOTS_AXIS, high)
    legend = parts.framed(parts.legend(rows, room, -_DOTS_AXIS, 0), room)
    sides = {"left": 0, "right": 2, "top": 2, "bottom": 5}
    return parts.above(legend, plane, LINE + _BELOW, sides)


def _axis(title: str | None) -> Spec:
    """Return an axis without numbers."""
    return parts.axis([], title, domain=True)

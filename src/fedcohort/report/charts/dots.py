"""Points in a plane that has no unit, each with the mark of its group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from fedcohort.report.charts import parts, theme
from fedcohort.report.charts.parts import Mark, Place, Text
from fedcohort.report.charts.render import clean
from fedcohort.report.charts.scales import around
from fedcohort.report.charts.theme import LINE, NARROW, Draw

_AXIS, _EDGE, _BELOW = 16, 10, 10
#: The widest plane, and the area of a mark, in pixels; on narrow drawings marks are smaller.
_WIDEST, _AREA, _NARROW_AREA = 560.0, 34, 18


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A point: its place, and its group's look and name in the legend."""

    x: float
    y: float
    look: str
    label: str


def dots(found: Sequence[Dot], x_title: str, y_title: str, *, area: float | None = None) -> Draw:
    """Return the points under one legend; a unit is as long upwards as it is sideways.

    Parameters
    ----------
    area : of a mark in pixels, where points are few.
    """
    x, y = around([d.x for d in found]), around([d.y for d in found])
    items = list(dict.fromkeys((d.look, d.label) for d in found))

    def chart(width: int) -> alt.TopLevelMixin:
        place = parts.even(x, y, min(width - _EDGE - _AXIS, _WIDEST))
        size = area or (_NARROW_AREA if width <= NARROW else _AREA)
        marks = parts.marks((Mark(d.x, d.y, d.look) for d in found), area=size)
        head = parts.texts([Text(place.x[0], place.y_at(-12), y_title, colour=theme.QUIET)])
        plane = parts.framed([*marks, *head], place, x=_axis(x_title), y=_axis(None))
        rows, high = parts.flow(items, width - _EDGE)
        room = Place((0, width - _AXIS), (0, high), width - _AXIS, high)
        legend = parts.framed(parts.legend(rows, room, -_AXIS, 0), room)
        sides = {"left": 0, "right": 2, "top": 2, "bottom": 5}
        return alt.vconcat(legend, plane, bounds="flush", spacing=LINE + _BELOW, padding=sides)

    return chart


def _axis(title: str | None) -> alt.Axis:
    """Return an axis without numbers."""
    return alt.Axis(values=[], title=title and clean(title), domain=True)

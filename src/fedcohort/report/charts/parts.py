"""Layers of charts: texts, marks, lines, bands, a legend.

Texts and marks beside the axes are placed in pixels; `Place` maps pixels to values, because all
layers of a chart share its scales.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedcohort.report.charts import render, theme
from fedcohort.report.charts.scales import Domain, text_width, wrapped
from fedcohort.report.charts.theme import Spec

Layer = Spec


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a panel.

    Attributes
    ----------
    points : (x, y), or (x, y, low, high), in order of x; non-finite ones are left out, one without
        a
        finite band stays as a point.
    label : its name in the legend, grey ones last; empty for none.
    panel : title of its panel.
    at_risk : (x, count) below a Kaplan-Meier curve; None: suppressed.
    about : the same, estimated; `at_risk` takes precedence.
    """

    label: str
    look: str
    points: Sequence[tuple[float, ...]]
    panel: str = ""
    at_risk: Sequence[tuple[float, int | None]] = field(default=())
    about: Sequence[tuple[float, int]] = field(default=())


#: Vega-Lite's names of types, and channels whose values need no scale.
_TYPES = {"Q": "quantitative", "N": "nominal", "O": "ordinal"}
_AS_THEY_ARE = frozenset(
    ("fill", "stroke", "shape", "size", "opacity", "fillOpacity", "strokeWidth", "strokeDash")
)

#: An item of a legend: a look and its name.
Item = tuple[str, str]


@dataclass(frozen=True)
class Place:
    """Where values lie in a drawing: the inverse of its scales.

    Attributes
    ----------
    x, y : domains; y grows upwards.
    width, height : of the area between the axes, in pixels.
    """

    x: Domain
    y: Domain
    width: float
    height: float
    log: bool = False

    def x_at(self, pixel: float) -> float:
        """Return the value at a distance from the left edge."""
        low, high = map(math.log, self.x) if self.log else self.x
        value = low + pixel / self.width * (high - low)
        return math.exp(value) if self.log else value

    def y_at(self, pixel: float) -> float:
        """Return the value at a distance from the top edge."""
        low, high = self.y
        return high - pixel / self.height * (high - low)


def even(x: Domain, y: Domain, across: float) -> Place:
    """Return a place so many pixels wide with equal units on both axes.

    Its height is at least half its width and not much more; domains are widened if needed.
    """
    height = min(max(across * (y[1] - y[0]) / (x[1] - x[0]), 0.5 * across), 1.15 * across)
    unit = max((x[1] - x[0]) / across, (y[1] - y[0]) / height)
    wide, high = (
        (sum(d) / 2 - unit * pixels / 2, sum(d) / 2 + unit * pixels / 2)
        for d, pixels in ((x, across), (y, height))
    )
    return Place(wide, high, across, round(height))


@dataclass(frozen=True)
class Text:
    """A line of text at a place, in values."""

    x: float
    y: float
    text: str
    align: str = "left"
    colour: str = theme.INK
    bold: bool = False


@dataclass(frozen=True)
class Mark:
    """A look's mark at a place, in values."""

    x: float
    y: float
    look: str
    small: bool = False


@dataclass(frozen=True)
class Rule:
    """A straight line between two places, in values.

    Attributes
    ----------
    dash : lengths of strokes and gaps, in pixels.
    """

    x: float
    y: float
    x2: float
    y2: float
    colour: str
    width: float = 1.8
    opacity: float = 1.0
    dash: Sequence[float] = ()


def layer(rows: Sequence[dict[str, Any]], mark: Spec, **channels: str) -> Layer:
    """Return rows as marks: one layer of a Vega-Lite specification.

    Parameters
    ----------
    mark : as `mark` returns it.
    channels : a field of the rows for each, with its type: ``x="x:Q"``; ``Q`` is a number, ``N`` a
        name, ``O`` a place in an order. Colours, shapes and sizes are drawn as the rows have them.
    """
    clean = [
        {k: render.clean(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows
    ]
    text = json.dumps(clean, allow_nan=False)
    encoding = {name: _channel(name, channels[name]) for name in sorted(channels)}
    return {
        "data": {"values": text, "format": {"type": "json"}},
        "mark": mark,
        "encoding": encoding,
    }


def mark(kind: str, **looks: Any) -> Spec:
    """Return a kind of mark, with what all marks of its layer share."""
    return {"type": kind, **looks}


def _channel(name: str, told: str) -> Spec:
    """Return one channel of an encoding."""
    field, _, kind = told.partition(":")
    typed = {"field": field, "type": _TYPES[kind]} if kind else {"field": field}
    return {**typed, "scale": None} if name in _AS_THEY_ARE else typed


def texts(found: Iterable[Text]) -> list[Layer]:
    """Return a layer of texts."""
    rows = [
        {"x": t.x, "y": t.y, "t": t.text, "align": t.align, "c": t.colour,
         "weight": "bold" if t.bold else "normal"}
        for t in found if t.text
    ]  # fmt: skip
    if not rows:
        return []
    return [
        layer(
            rows,
            mark(
                "text",
                align={"expr": "datum.align"},
                fontWeight={"expr": "datum.weight"},
                baseline="alphabetic",
                dy=4,
                fontSize=theme.TEXT,
            ),
            x="x:Q",
            y="y:Q",
            text="t:N",
            fill="c:N",
        )
    ]


def marks(found: Iterable[Mark], area: float = 110) -> list[Layer]:
    """Return the marks, each with the shape and the colours of its look.

    Parameters
    ----------
    area : in pixels, of a mark that is not small; thin edges go with one below 50.
    """
    rows = [
        {
            "x": m.x,
            "y": m.y,
            "shape": theme.shape(m.look),
            "fill": theme.fill(m.look),
            "edge": theme.colour(m.look) if m.look == "lower" else theme.PAPER,
            "size": 50 if m.small else area,
        }
        for m in found
    ]
    if not rows:
        return []
    return [
        layer(
            rows,
            mark("point", strokeWidth=1.2 if area >= 50 else 0.6, opacity=1),
            x="x:Q",
            y="y:Q",
            shape="shape:N",
            fill="fill:N",
            stroke="edge:N",
            size="size:Q",
        )
    ]


def rules(found: Iterable[Rule]) -> list[Layer]:
    """Return a layer of straight lines, the first at the bottom."""
    rows = [vars(r) for r in found]
    if not rows:
        return []
    return [
        layer(
            rows,
            mark("rule", strokeDash={"expr": "datum.dash"}),
            x="x:Q",
            y="y:Q",
            x2="x2",
            y2="y2",
            stroke="colour:N",
            strokeWidth="width:Q",
            opacity="opacity:Q",
        )
    ]


def box(x: float, y: float, x2: float, y2: float, colour: str) -> Layer:
    """Return a filled rectangle."""
    corners = {"x": x, "y": y, "x2": x2, "y2": y2}
    return layer(
        [corners], mark("rect", fill=colour, opacity=1), x="x:Q", y="y:Q", x2="x2", y2="y2"
    )


def shaded(rows: Sequence[dict[str, object]]) -> list[Layer]:
    """Return rectangles from x, y to x2, y2, each with a colour c and an opacity o."""
    if not rows:
        return []
    return [
        layer([*rows], mark("rect"), x="x:Q", y="y:Q", x2="x2", y2="y2", fill="c:N", opacity="o:Q")
    ]


def flow(items: Sequence[Item], width: float) -> tuple[list[tuple[float, float, Item]], float]:
    """Return where the items of a legend stand, line by line, and how high it is, in pixels."""
    left, top = 0.0, 0.0
    found: list[tuple[float, float, Item]] = []
    for look, name in items:
        shown = wrapped(name, width - 24, 1)[0]
        room = 20 + text_width(shown)
        if left and left + room > width:
            left, top = 0.0, top + 20
        found.append((left, top + 9, (look, shown)))
        left += room + 16
    return found, top + 18


def legend(
    found: Sequence[tuple[float, float, Item]], place: Place, left: float, top: float
) -> list[Layer]:
    """Return a legend's layers, from a place in pixels that is relative to the frame."""
    return [
        *marks(Mark(place.x_at(left + x + 7), place.y_at(top + y), i[0]) for x, y, i in found),
        *texts(Text(place.x_at(left + x + 19), place.y_at(top + y), i[1]) for x, y, i in found),
    ]


def framed(
    layers: Sequence[Layer], place: Place, *, x: Spec | None = None, y: Spec | None = None
) -> Spec:
    """Return layers in one frame, with the axes that are given."""
    kind = "log" if place.log else "linear"
    scale = {"domain": list(place.x), "nice": False, "zero": False, "type": kind}
    upright = {"domain": list(place.y), "nice": False, "zero": False}
    corner = [{"x": place.x[0], "y": place.y[0]}]
    first = layer(corner, mark("point", opacity=0), x="x:Q", y="y:Q")
    first["encoding"]["x"] |= {"scale": scale, "axis": x}
    first["encoding"]["y"] |= {"scale": upright, "axis": y}
    return {"layer": [first, *layers], "width": place.width, "height": place.height}


def axis(values: Sequence[float], title: str | None, **more: Any) -> Spec:
    """Return an axis with numbers at some values."""
    return {"values": list(values), "title": title and render.clean(title), **more}


def beside(panels: Sequence[Spec], columns: int, **more: Any) -> Spec:
    """Return panels side by side, in so many columns."""
    return {"concat": list(panels), "columns": columns, "bounds": "flush", **more}


def above(legend: Spec, body: Spec, spacing: float, padding: Mapping[str, float]) -> Spec:
    """Return a legend above panels."""
    return {
        "vconcat": [legend, body], "bounds": "flush", "spacing": spacing, "padding": padding,
    }  # fmt: skip

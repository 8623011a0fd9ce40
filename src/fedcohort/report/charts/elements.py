"""The elements of a chart: the marks and axes of the part of Vega-Lite that `parts` writes.

Source: the Vega-Lite 6 specification (vega.github.io/vega-lite/docs). `tests/report/test_drawn.py`
compares all marks, axes and texts with those that Vega draws. With the area of a frame w × h pixels
and domains (a, b) of x and (c, d) of y, a value lies at

    x: w (x − a)/(b − a), or w ln(x/a)/ln(b/a) on a log axis;    y: h (d − y)/(d − c)

from the frame's corner. Ticks and grid lines stand on whole pixels plus ½; a frame's order is grid,
horizontal axis, vertical axis, layers. Symbols of area A are their outline times √A / 2.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fedcohort.report.charts import theme
from fedcohort.report.charts.scales import labelled, text_width
from fedcohort.report.charts.theme import Spec

Style = tuple[tuple[str, str], ...]
Row = Mapping[str, Any]
#: Left, top, right and bottom, in pixels.
Box = tuple[float, float, float, float]

#: Attributes in their order, with their default values, which are left out.
_STYLES = {
    "fill": "", "stroke": "none", "stroke-width": "1", "stroke-dasharray": "", "fill-opacity": "1",
    "stroke-opacity": "1", "opacity": "1", "font-size": "", "font-weight": "normal",
    "text-anchor": "start",
}  # fmt: skip
_ANCHORS = {"left": "start", "center": "middle", "right": "end"}
#: Pixels: tick; from the axis to the base of its numbers and of its title; the title's if there are
#: no numbers; from the left axis to its numbers; from their middle to their base.
_TICK, _NUMBERS, _TITLE, _TITLE_ALONE, _LEFT, _BASE = 4, 17, 35, 16, 4, 4
#: Parts of the text's size above and below its base.
_ASCENT, _DESCENT = 0.8, 0.22
_TOKEN = re.compile(r"[A-Za-z]|-?(?:\d+\.?\d*|\.\d+)")


@dataclass(frozen=True)
class Element:
    """One visible element: its style, its tag with its place, and the room that it takes."""

    style: Style
    body: str
    box: Box


def short(value: float) -> str:
    """Return a length in pixels to a tenth."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def short2(value: float) -> str:
    """Return a coordinate to a hundredth of a pixel, for outlines of marks."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    text = text.replace("-0.", "-.", 1) if text.startswith("-0.") else text
    text = text[1:] if text.startswith("0.") else text
    return "0" if text in ("-0", "-", "") else text


def numbers(*values: float) -> str:
    """Return coordinates one after another, as a path has them."""
    return " ".join(map(short2, values)).replace(" -", "-")


def frame(spec: Spec, left: float, top: float) -> Iterator[Element]:
    """Yield the elements of layers in one frame, whose corner lies at a place in pixels.

    Raises
    ------
    ValueError : a mark that is not drawn here, or a number that is not finite.
    """
    area = _Area.of(spec, left, top)
    shared = spec["layer"][0]["encoding"]
    x, y = shared["x"].get("axis"), shared["y"].get("axis")
    if y is not None:
        yield from area.grid(y)
    if x is not None:
        yield from area.bottom(x)
    if y is not None:
        yield from area.side(y)
    for layer in spec["layer"]:
        look = layer["mark"]
        if look.get("opacity") != 0:
            make = _MARKS.get(look["type"])
            if make is None:
                raise ValueError(f"a chart holds {look['type']!r}, which the report does not draw.")
            yield from make(area, layer["data"]["values"], look, layer["encoding"])


@dataclass(frozen=True)
class _Area:
    """The area between the axes: its corner and size in pixels, and its scales."""

    left: float
    top: float
    width: float
    height: float
    x_of: Callable[[float], float]
    y_of: Callable[[float], float]

    @classmethod
    def of(cls, spec: Spec, left: float, top: float) -> _Area:
        """Return the area of a frame."""
        shared = spec["layer"][0]["encoding"]
        width, height = spec["width"], spec["height"]
        (a, b), (c, d) = (shared[k]["scale"]["domain"] for k in ("x", "y"))
        log = shared["x"]["scale"]["type"] == "log"

        def x_of(value: float) -> float:
            share = math.log(value / a) / math.log(b / a) if log else (value - a) / (b - a)
            return left + _finite(share * width)

        def y_of(value: float) -> float:
            return top + _finite((d - value) / (d - c) * height)

        return cls(left, top, width, height, x_of, y_of)

    def at(self, row: Row, encoding: Spec, second: str = "") -> tuple[float, float]:
        """Return the place of a row, or its second place if channels have one."""
        x, y = (encoding.get(f"{k}{second}", encoding[k])["field"] for k in "xy")
        return self.x_of(row[x]), self.y_of(row[y])

    def grid(self, axis: Spec) -> Iterator[Element]:
        """Yield the horizontal lines at the values of the vertical axis."""
        for value in axis["values"] if axis.get("grid") else ():
            y = self._whole(self.y_of(value), self.top)
            yield self._line(self.left + 0.5, y, self.left + 0.5 + self.width, y, theme.RULE)

    def bottom(self, axis: Spec) -> Iterator[Element]:
        """Yield the horizontal axis: ticks, numbers, line, title."""
        y = self.top + self.height + 0.5
        places = [self.x_of(v) for v in axis["values"]]
        for at in places:
            x = self._whole(at, self.left)
            yield self._line(x, y, x, y + _TICK, theme.QUIET)
        for at, text in zip(places, labelled(axis), strict=True):
            yield _text(at + 0.5, y + _NUMBERS, text, theme.QUIET, "middle")
        yield self._line(self.left + 0.5, y, self.left + 0.5 + self.width, y, theme.QUIET)
        if axis["title"]:
            below = _TITLE if places else _TITLE_ALONE
            middle = self.left + 0.5 + self.width / 2
            yield _text(middle, y + below, axis["title"], theme.QUIET, "middle")

    def side(self, axis: Spec) -> Iterator[Element]:
        """Yield the vertical axis: numbers, and its line if it is asked for."""
        x = self.left + 0.5
        for value, text in zip(axis["values"], labelled(axis), strict=True):
            yield _text(x - _LEFT, self.y_of(value) + 0.5 + _BASE, text, theme.QUIET, "end")
        if axis.get("domain"):
            yield self._line(x, self.top + 0.5 + self.height, x, self.top + 0.5, theme.QUIET)

    @staticmethod
    def _whole(at: float, start: float) -> float:
        return start + math.floor(at - start + 0.5) + 0.5

    @staticmethod
    def _line(x: float, y: float, x2: float, y2: float, colour: str) -> Element:
        return _straight(x, y, x2, y2, {"stroke": colour})


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a chart holds a number that is not finite.")
    return value


def _straight(x: float, y: float, x2: float, y2: float, style: Mapping[str, str]) -> Element:
    body = f'<path d="M{short(x)} {short(y)}L{short(x2)} {short(y2)}"/>'
    return Element(_style(style), body, _around([(x, y), (x2, y2)]))


def _text(
    x: float, y: float, text: str, colour: str, anchor: str = "start", weight: str = "normal"
) -> Element:
    style = {"fill": colour, "font-weight": weight, "text-anchor": anchor}
    body = f'<text x="{short(x)}" y="{short(y)}">{html.escape(text, quote=False)}</text>'
    width = text_width(text)
    left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * width
    box = (left, y - _ASCENT * theme.TEXT, left + width, y + _DESCENT * theme.TEXT)
    return Element(_style({**style, "font-size": short(theme.TEXT)}), body, box)


def _style(found: Mapping[str, str]) -> Style:
    """Return styles other than SVG's defaults, always in one order."""
    return tuple((k, found[k]) for k, usual in _STYLES.items() if found.get(k, usual) != usual)


def _around(points: Sequence[tuple[float, float]], room: float = 0.5) -> Box:
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    return min(xs) - room, min(ys) - room, max(xs) + room, max(ys) + room


def _number(value: float) -> str:
    return f"{value:.6g}"


def _channels(row: Row, look: Spec, encoding: Spec) -> dict[str, str]:
    """Return the style of a mark: what its layer shares, then what its row has."""
    found: dict[str, str] = {}
    for name in ("fill", "stroke", "strokeWidth", "fillOpacity", "strokeOpacity", "opacity"):
        value = row[encoding[name]["field"]] if name in encoding else look.get(name)
        if value is not None:
            key = re.sub("[A-Z]", lambda m: "-" + m[0].lower(), name)
            found[key] = value if isinstance(value, str) else _number(value)
    dashes = row[encoding["strokeDash"]["field"]] if "strokeDash" in encoding else ()
    if "strokeDash" in look:
        dashes = row["dash"]
    dashed = tuple(dashes) != theme.dash("")
    return found | {"stroke-dasharray": ",".join(map(_number, dashes)) if dashed else ""}


def _points(area: _Area, rows: Sequence[Row], look: Spec, encoding: Spec) -> Iterator[Element]:
    shape, size = (encoding[k]["field"] for k in ("shape", "size"))
    for row in rows:
        x, y = area.at(row, encoding)
        d = outline(row[shape], row[size])
        body = f'<path transform="translate({short2(x)} {short2(y)})" d="{d}"/>'
        room = 0.6 * math.sqrt(row[size]) + look["strokeWidth"]
        yield Element(_style(_channels(row, look, encoding)), body, _around([(x, y)], room))


@lru_cache(maxsize=256)
def outline(shape: str, size: float) -> str:
    """Return an outline in [−1, 1]² as one of a mark with an area in pixels."""
    scale, out, kind, place = math.sqrt(size) / 2, "", "", 0
    for token in _TOKEN.findall(shape):
        if token.isalpha():
            kind, place = token, 0
            out += token
            continue
        # of an arc's numbers rx ry angle large sweep x y, three are no lengths
        length = kind not in "Aa" or place % 7 not in (2, 3, 4)
        text = short2(float(token) * scale) if length else token
        out += f" {text}" if place and not text.startswith("-") else text
        place += 1
    return out


def _rects(area: _Area, rows: Sequence[Row], look: Spec, encoding: Spec) -> Iterator[Element]:
    for row in rows:
        (x, y), (x2, y2) = area.at(row, encoding), area.at(row, encoding, "2")
        (x, x2), (y, y2) = sorted((x, x2)), sorted((y, y2))
        if x2 > x and y2 > y:
            d = f"M{numbers(x, y)}h{short2(x2 - x)}v{short2(y2 - y)}h{short2(x - x2)}Z"
            style = _channels(row, look, encoding)
            if style.get("stroke-width") == "0":
                style.pop("stroke-width")
                style.pop("stroke", None)
            yield Element(_style(style), f'<path d="{d}"/>', _around([(x, y), (x2, y2)]))


def _rules(area: _Area, rows: Sequence[Row], look: Spec, encoding: Spec) -> Iterator[Element]:
    for row in rows:
        ends = (*area.at(row, encoding), *area.at(row, encoding, "2"))
        yield _straight(*ends, _channels(row, look, encoding))


def _texts(area: _Area, rows: Sequence[Row], look: Spec, encoding: Spec) -> Iterator[Element]:
    for row in rows:
        x, y = area.at(row, encoding)
        yield _text(
            x, y + look["dy"], row[encoding["text"]["field"]], row[encoding["fill"]["field"]],
            _ANCHORS[row["align"]], row["weight"],
        )  # fmt: skip


def _lines(area: _Area, rows: Sequence[Row], look: Spec, encoding: Spec) -> Iterator[Element]:
    order = encoding["order"]["field"]
    for own in _by_group(rows, encoding):
        found = [area.at(row, encoding) for row in sorted(own, key=lambda row: row[order])]
        end = "Z" if look.get("interpolate") == "linear-closed" else ""
        if len(found) > 1:
            style = _channels(own[0], look, encoding)
            body = f'<path d="{_polygon(found)}{end}"/>'
            yield Element(_style({"fill": "none", **style}), body, _around(found))


def _areas(area: _Area, rows: Sequence[Row], look: Spec, encoding: Spec) -> Iterator[Element]:
    x, low, high = (encoding[k]["field"] for k in ("x", "y", "y2"))
    for own in _by_group(rows, encoding):
        ordered = sorted(own, key=lambda row: row[x])
        found = [(area.x_of(row[x]), area.y_of(row[low])) for row in ordered]
        found += [(area.x_of(row[x]), area.y_of(row[high])) for row in reversed(ordered)]
        style = _channels(own[0], look, encoding)
        yield Element(_style(style), f'<path d="{_polygon(found)}Z"/>', _around(found))


def _by_group(rows: Sequence[Row], encoding: Spec) -> list[list[Row]]:
    """Return the rows of each line or band, in the order of their first rows."""
    if "detail" not in encoding:
        return [list(rows)]
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[encoding["detail"]["field"]], []).append(row)
    return list(found.values())


def _polygon(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(numbers(*p) for p in points)


_MARKS = {
    "point": _points, "rect": _rects, "rule": _rules, "text": _texts, "line": _lines,
    "area": _areas,
}  # fmt: skip

"""A chart as compact SVG: panels at their places, and neighbours of one style in one group.

Equal charts give equal bytes. Panels stand beside and below each other by the sizes of their
frames; a chart without `autosize: none` is as large as everything in it needs.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from fedcohort.report.charts import elements, theme
from fedcohort.report.charts.elements import Element, short
from fedcohort.report.charts.theme import Spec
from fedcohort.report.markup import Markup, filled

_CONTROL = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF], " ")


@dataclass(frozen=True)
class Drawing:
    """The inside of an SVG element, and its size in pixels."""

    body: Markup
    width: float
    height: float

    @property
    def size(self) -> str:
        """Width and height as a viewBox has them."""
        return f"{short(self.width)} {short(self.height)}"


def draw(chart: Spec) -> Drawing:
    """Return a chart's drawing.

    Raises
    ------
    ValueError : the chart has a mark that a report does not draw, or a number that is not finite.
    """
    room = chart["padding"]
    left, top = room["left"], room["top"]
    if chart.get("autosize") == "none":
        width, height = chart["width"], chart["height"]
    else:
        boxes = [(0.0, 0.0, *_size(chart)), *(e.box for e in _placed(chart, 0.0, 0.0))]
        left += math.ceil(-min(b[0] for b in boxes))
        top += math.ceil(-min(b[1] for b in boxes))
        width, height = (math.ceil(max(b[k] for b in boxes)) for k in (2, 3))
    body = "".join(_grouped(_placed(chart, left, top)))
    return Drawing(Markup(body), left + width + room["right"], top + height + room["bottom"])


def standalone(drawing: Drawing, title: str, description: str) -> str:
    """Return a drawing as a file of its own: light colours, on white."""
    colours = theme.light()
    body = re.sub(r"var\(--([\w-]+)\)", lambda m: colours.get(m[1], m[0]), drawing.body)
    return filled(
        "drawing.svg", width=short(drawing.width), height=short(drawing.height),
        title=clean(title), told=clean(description), body=Markup(body),
    )  # fmt: skip


def stacked(drawings: Sequence[Drawing], gap: float = 12.0) -> Drawing:
    """Return drawings below each other, with a gap in pixels."""
    found: list[str] = []
    top = 0.0
    for d in drawings:
        found.append(f'<g transform="translate(0 {short(top)})">{d.body}</g>' if top else d.body)
        top += d.height + gap
    return Drawing(Markup("".join(found)), max(d.width for d in drawings), top - gap)


def clean(text: str) -> str:
    """Return a text that can stand in XML."""
    return text.translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")


def _placed(spec: Spec, left: float, top: float) -> Iterator[Element]:
    """Yield the elements of a chart whose first frame's corner lies at a place in pixels."""
    if "layer" in spec:
        yield from elements.frame(spec, left, top)
        return
    below = 0.0
    for row in _rows(spec):
        across = 0.0
        for part, width in row:
            yield from _placed(part, left + across, top + below)
            across += width + _gap(spec, "column")
        below += _height(row) + _gap(spec, "row")


def _rows(spec: Spec) -> list[list[tuple[Spec, float]]]:
    """Return the panels by rows, each with the width of its column."""
    panels, n = spec.get("vconcat") or spec["concat"], spec.get("columns", 1)
    widths = [max(_size(part)[0] for part in panels[j::n]) for j in range(min(n, len(panels)))]
    return [list(zip(panels[i : i + n], widths, strict=False)) for i in range(0, len(panels), n)]


def _size(spec: Spec) -> tuple[float, float]:
    """Return the width and the height of a frame, or of panels with the gaps between them."""
    if "layer" in spec:
        return spec["width"], spec["height"]
    rows = _rows(spec)
    width = sum(w + _gap(spec, "column") for _, w in rows[0]) - _gap(spec, "column")
    height = sum(_height(row) + _gap(spec, "row") for row in rows) - _gap(spec, "row")
    return width, height


def _height(row: list[tuple[Spec, float]]) -> float:
    return max(_size(part)[1] for part, _ in row)


def _gap(spec: Spec, side: str) -> float:
    gap = spec["spacing"]
    return gap[side] if isinstance(gap, dict) else gap


def _grouped(found: Iterable[Element]) -> Iterator[str]:
    """Yield the elements, neighbours of one style in one group; open lines in one path."""
    for style, same in groupby(found, key=lambda element: element.style):
        bodies = _joined([element.body for element in same])
        attributes = "".join(f' {k}="{html.escape(v)}"' for k, v in style)
        if len(bodies) == 1:
            yield bodies[0].replace(" ", f"{attributes} ", 1)
        else:
            yield f"<g{attributes}>{''.join(bodies)}</g>"


def _joined(bodies: list[str]) -> list[str]:
    """Return the bodies, neighbouring open lines as one path."""
    out: list[str] = []
    for body in bodies:
        is_open = body.startswith('<path d="M') and not body.endswith('Z"/>')
        if out and is_open and out[-1].startswith('<path d="M') and not out[-1].endswith('Z"/>'):
            out[-1] = out[-1][:-3] + body[9:]
        else:
            out.append(body)
    return out

"""A chart as compact SVG: Vega's output flattened and rounded, without its roles.

Vega nests a group for each mark and repeats every style on every element. Here each element has its
final place, neighbours of the same style share one group, and invisible ones are left out. Equal
charts give equal bytes; the `LATEST` charts are cached, so rewriting a report is fast.
"""

from __future__ import annotations

import html
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from fedcohort.report import vega
from fedcohort.report.charts import theme
from fedcohort.report.helper import VEGA_LITE
from fedcohort.report.markup import Markup, filled

Style = tuple[tuple[str, str], ...]

#: Drawings that are kept; a page has some tens of them.
LATEST = 256

_KEPT = (
    "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin",
    "fill-opacity", "stroke-opacity", "opacity", "font-size", "font-weight", "font-style",
    "text-anchor",
)  # fmt: skip
_DEFAULTS = {
    "opacity": "1", "stroke-width": "1", "fill-opacity": "1", "stroke-opacity": "1",
    "font-weight": "normal", "text-anchor": "start", "font-style": "normal",
    "stroke-dasharray": "", "stroke": "none",
}  # fmt: skip
_TEXT = ("font-size", "font-weight", "font-style", "text-anchor")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")
_MOVE = re.compile(r"translate\(([^,)]+),([^)]+)\)")
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


#: The latest drawings, by specification, the oldest first.
_kept: dict[str, Drawing] = {}


@dataclass(frozen=True)
class _Leaf:
    """One visible element at its place in the drawing."""

    style: Style
    body: str


def draw(chart: theme.Spec) -> Drawing:
    """Return a chart's drawing.

    Raises
    ------
    ValueError : the chart has what a report does not draw: clips, gradients, images.
    """
    return drawn(specified(chart))


def specified(chart: theme.Spec) -> str:
    """Return a chart's whole specification, as text."""
    return json.dumps({"config": theme.config(), **chart})


def drawn(spec: str) -> Drawing:
    """Return the drawing of a specification."""
    found = _kept.get(spec)
    return keep(spec, vega.svg(spec, VEGA_LITE)) if found is None else found


def is_kept(spec: str) -> bool:
    """Return whether the drawing of a specification is kept."""
    return spec in _kept


def keep(spec: str, text: str) -> Drawing:
    """Return the drawing that Vega's SVG of a specification gives, and keep it."""
    root = ET.fromstring(text)
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]
    body = "".join(_grouped(_leaves(root, (0.0, 0.0), {})))
    size = (float(root.get(k, "0")) for k in ("width", "height"))
    found = _kept[spec] = Drawing(Markup(body), *size)
    if len(_kept) > LATEST:
        _kept.pop(next(iter(_kept)), None)
    return found


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


def short(value: float) -> str:
    """Return a length in pixels to a tenth."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _leaves(node: ET.Element, at: tuple[float, float], above: Mapping[str, str]) -> Iterator[_Leaf]:
    """Yield the visible elements below a node, with the styles that they inherit."""
    if node.get("display") == "none" or node.get("opacity") == "0":
        return
    own = {k: v for k in _KEPT if (v := node.get(k)) is not None}
    style = {**above, **own}
    transform = node.get("transform", "")
    move = _MOVE.search(transform)
    x, y = (float(move[1]), float(move[2])) if move else (0.0, 0.0)
    at = at[0] + x, at[1] + y
    if node.tag in ("svg", "g"):
        for child in node:
            yield from _leaves(child, at, style)
        return
    rest = _MOVE.sub("", transform).strip()
    body = _body(node, at, rest)
    visible = node.tag == "text" or style.get("stroke", "none") != "none" or _filled(style)
    if body and visible:
        if node.tag != "text":
            style = {k: v for k, v in style.items() if k not in _TEXT}
            if style.get("stroke", "none") == "none":
                style.pop("stroke-width", None)
        yield _Leaf(_ordered(style), body)


def _filled(style: Mapping[str, str]) -> bool:
    return style.get("fill", "none") not in ("none", "transparent")


def _ordered(style: Mapping[str, str]) -> Style:
    """Return styles other than SVG's defaults, always in one order."""
    return tuple(
        (k, style[k].removesuffix("px"))
        for k in _KEPT
        if k in style and style[k] != _DEFAULTS.get(k)
    )


def _body(node: ET.Element, at: tuple[float, float], rest: str) -> str:
    """Return an element without its styles, or nothing where it has no extent."""
    x, y = at
    if node.tag == "text":
        words = "".join(_spans(node, x))
        if not words:
            return ""
        if rest:
            return f'<text transform="translate({short(x)} {short(y)}) {rest}">{words}</text>'
        return f'<text x="{short(x)}" y="{short(y)}">{words}</text>'
    if node.tag == "line":
        dx, dy = (float(node.get(k, 0)) for k in ("x2", "y2"))
        return f'<path d="M{short(x)} {short(y)}L{short(x + dx)} {short(y + dy)}"/>'
    if node.tag == "path":
        d = _NUMBER.sub(lambda m: short2(float(m[0])), node.get("d", "")).replace(",", " ")
        if not d or re.fullmatch(r"M0 0h0v0h0Z", d):
            return ""
        d = re.sub(r" ?([A-Za-z]) ?", r"\1", d).replace(" -", "-")
        move = f' transform="translate({short2(x)} {short2(y)}){rest}"' if (x or y or rest) else ""
        return f'<path{move} d="{d}"/>'
    if node.tag == "rect":
        w, h = (short(float(node.get(k, 0))) for k in ("width", "height"))
        return f'<rect x="{short(x)}" y="{short(y)}" width="{w}" height="{h}"/>'
    raise ValueError(f"a chart holds <{node.tag}>, which the report does not draw.")


def short2(value: float) -> str:
    """Return a coordinate to a hundredth of a pixel, for outlines of marks."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    text = text.replace("-0.", "-.", 1) if text.startswith("-0.") else text
    text = text[1:] if text.startswith("0.") else text
    return "0" if text in ("-0", "-", "") else text


def _spans(node: ET.Element, x: float) -> Iterator[str]:
    """Yield a text, and its further lines below each other."""
    if node.text:
        yield html.escape(node.text, quote=False)
    for i, span in enumerate(node.iter("tspan")):
        dy = f' dy="{short(float(span.get("dy", 0)))}"' if i else ""
        yield f'<tspan x="{short(x)}"{dy}>{html.escape(span.text or "", quote=False)}</tspan>'


def _grouped(leaves: Iterable[_Leaf]) -> Iterator[str]:
    """Yield the elements, neighbours of one style in one group; straight lines in one path."""
    for style, found in groupby(leaves, key=lambda leaf: leaf.style):
        bodies = _joined([leaf.body for leaf in found])
        attributes = "".join(f' {k}="{html.escape(v)}"' for k, v in style)
        if len(bodies) == 1:
            yield bodies[0].replace(" ", f"{attributes} ", 1)
        else:
            yield f"<g{attributes}>{''.join(bodies)}</g>"


def _joined(bodies: list[str]) -> list[str]:
    """Return the bodies, neighbouring straight lines as one path."""
    out: list[str] = []
    for body in bodies:
        if out and body.startswith('<path d="M') and out[-1].startswith('<path d="M'):
            out[-1] = out[-1][:-3] + body[9:]
        else:
            out.append(body)
    return out

"""Our drawings of charts against Vega's: the same marks, axes and texts at the same places."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import vl_convert

from fedcohort.report import charts
from fedcohort.report.charts import render, scales, theme
from report import test_charts, test_cluster_charts

MATRIX = [[0.1, 0.5, math.nan], [0.9, 0.2, 1.0], [0.3, -0.4, 0.6]]
LINE = charts.Series(label="a", look="upper", points=[(1, -2), (30, -6), (100, -5)])
MAKERS = {
    **test_charts.MAKERS,
    **test_cluster_charts.MAKERS,
    "powers": charts.lines_with_bands([LINE], "x", "y", powers=True),
    "log": charts.lines_with_bands([LINE], "x", "y", log=True, reference=-4, upright=9),
    "faint": charts.lines_with_bands(
        [LINE, charts.Series(label="b", look="faint", points=[(1, -9e4), (9, 9e4)])], "x", "y"
    ),
    "large": charts.lines_with_bands(
        [charts.Series(label="a", look="c1", points=[(0, 0), (9e6, 2e6)])], "x", "y"
    ),
    "tiny": charts.lines_with_bands(
        [charts.Series(label="a", look="c1", points=[(0, -2e-7), (3e-5, 2e-7)])], "x", "y"
    ),
    "heats": charts.heats(
        [charts.Heat(title="t", names=["a", "b", "c"], values=MATRIX, shades=MATRIX)]
    ),
    "grid": charts.grid(charts.Grid(rows=["a", "b", "c"], columns=["1", "2", "3"], shades=MATRIX)),
}
#: Attributes that are compared, with the values that SVG gives those which are not there.
STYLES = {
    "fill": "none", "stroke": "none", "stroke-width": "1", "stroke-dasharray": "",
    "fill-opacity": "1", "stroke-opacity": "1", "opacity": "1", "font-weight": "normal",
    "text-anchor": "start",
}  # fmt: skip
NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?")
#: (x, y, a mark's outline or a text, styles) of an element.
Found = tuple[float, float, str, Mapping[str, str]]


def config() -> dict[str, Any]:
    """Return the settings of Vega-Lite with which its charts look like ours."""
    text = {
        "labelFontSize": theme.TEXT,
        "titleFontSize": theme.TEXT,
        "labelColor": theme.QUIET,
        "titleColor": theme.QUIET,
    }
    return {
        "background": None,
        "aria": False,
        "mark": {"invalid": "show"},
        "view": {"stroke": None},
        "axis": {
            **text,
            "aria": False,
            "titleFontWeight": "normal",
            "gridColor": theme.RULE,
            "domainColor": theme.QUIET,
            "tickColor": theme.QUIET,
            "tickSize": 4,
            "labelPadding": 4,
            "titlePadding": 7,
            "labelOverlap": False,
            "labelFlush": False,
        },
        "axisY": {"domain": False, "ticks": False},
        "axisX": {"grid": False},
        "text": {"fontSize": theme.TEXT, "fill": theme.INK},
    }  # fmt: skip


def by_vega(chart: theme.Spec) -> list[Found]:
    spec = json.dumps({"config": config(), **chart})
    root = ET.fromstring(vl_convert.vegalite_to_svg(spec, vl_version="6.4"))
    return list(leaves(root, 0.0, 0.0, {}))


def leaves(node: ET.Element, x: float, y: float, above: Mapping[str, str]) -> Iterator[Found]:
    """Yield the visible elements below one, at their places in the drawing."""
    style = {**above, **{k: node.attrib[k] for k in STYLES if k in node.attrib}}
    if node.get("display") == "none" or style.get("opacity") == "0":
        return
    dx, dy = (
        map(
            float,
            re.findall(r"translate\(([^,]+),([^)]+)\)", node.get("transform", ""))[0] or (0, 0),
        )
        if "translate" in node.get("transform", "")
        else (0.0, 0.0)
    )
    x, y, kind = x + dx, y + dy, node.tag.rpartition("}")[2]
    if kind in ("svg", "g"):
        for child in node:
            yield from leaves(child, x, y, style)
    elif kind == "text":
        yield x, y, "".join(node.itertext()), told(style, text=True)
    elif told(style)["fill"] != "none" or told(style)["stroke"] != "none":
        d = node.get("d", "") or f"M0,0L{node.get('x2', 0)},{node.get('y2', 0)}"
        if d != "M0,0h0v0h0Z":
            yield x, y, d, told(style)


def told(style: Mapping[str, str], text: bool = False) -> dict[str, str]:
    """Return what is seen of a style."""
    found = {k: style.get(k, usual) for k, usual in STYLES.items()}
    if found["stroke"] == "none" or found["stroke-width"] == "0":
        found |= {"stroke": "none", "stroke-width": "1"}
    if found["stroke-dasharray"] == "1,0":
        found["stroke-dasharray"] = ""
    return found if text else found | {"font-weight": "", "text-anchor": ""}


def by_us(chart: theme.Spec) -> list[Found]:
    left = top = 0.0
    body = ET.fromstring(f"<g>{render.draw(chart).body}</g>")
    found = []
    for style, one in placed(body, {}):
        if one.tag == "text":
            found.append(
                (float(one.get("x", 0)), float(one.get("y", 0)), one.text, told(style, True))
            )
            continue
        x, y = (
            map(float, re.findall(r"translate\((\S+) (\S+)\)", one.get("transform", ""))[0])
            if one.get("transform")
            else (left, top)
        )
        for d in re.findall(r"M[^M]*", one.get("d", "")):
            found.append((x, y, d, told(style)))
    return found


def placed(
    node: ET.Element, above: Mapping[str, str]
) -> Iterator[tuple[Mapping[str, str], ET.Element]]:
    style = {**above, **{k: node.attrib[k] for k in STYLES if k in node.attrib}}
    if node.tag == "g":
        for child in node:
            yield from placed(child, style)
    else:
        yield style, node


def box(one: Found) -> list[float]:
    """Return the corners of what an outline encloses, all numbers of which are places."""
    x, y, d, _ = one
    if not re.match(r"M[-\d. ,]", d):
        return [x, y]
    at, points, place = [x, y], [], [0.0, 0.0]
    for kind, given in re.findall(r"([A-Za-z])([^A-Za-z]*)", d):
        values = [float(v) for v in NUMBER.findall(given)]
        if kind == "A":  # of a circle around the mark's place
            points += [[0.0, values[0]], [0.0, -values[0]]]
            values = [v for i in range(0, len(values), 7) for v in values[i + 5 : i + 7]]
        if kind in "Hh":
            place = [values[0] + (place[0] if kind == "h" else 0), place[1]]
        elif kind in "Vv":
            place = [place[0], values[0] + (place[1] if kind == "v" else 0)]
        elif kind != "Z":
            points += [[values[i], values[i + 1]] for i in range(0, len(values) - 2, 2)]
            place = values[-2:]
        points.append(place)
    return [f(at[k] + p[k] for p in points) for f in (min, max) for k in (0, 1)]


@pytest.mark.parametrize("width", [theme.WIDE, theme.NARROW])
@pytest.mark.parametrize("name", MAKERS)
def test_a_chart_has_the_elements_texts_styles_and_places_of_vega(name, width):
    chart = MAKERS[name](width)
    ours, theirs = by_us(chart), by_vega(chart)
    theirs = [
        f for f in theirs if "L" in f[2] or not re.fullmatch(r"M[-\d.,]+Z", f[2])
    ]  # one point
    assert [f[3] for f in ours] == [f[3] for f in theirs]
    places = [(box(a), box(b)) for a, b in zip(ours, theirs, strict=True)]
    # a whole drawing may lie some whole pixels beside Vega's, which has other widths of letters
    dx, dy = (round(places[0][0][k] - places[0][1][k]) for k in (0, 1))
    for (a, b), one, other in zip(places, ours, theirs, strict=True):
        if not one[2].startswith("M"):
            assert one[2] == other[2]
        # tenths of a pixel, at both ends of a line, and the control points of Vega's circles
        moved = [v + (dy if i % 2 else dx) for i, v in enumerate(b)]
        assert a == pytest.approx(moved, abs=0.16)


@pytest.mark.parametrize(
    ("form", "values"),
    [(".2f", [-0.001, 0.5, -3, 1e3]), (",.0f", [1e4, -25000.0, 0]), (".6~f", [0.5, 1.25, -2.0])],
)  # fmt: skip
def test_numbers_of_axes_are_those_of_vega(form, values):
    frame = {"width": 2000, "height": 10, "padding": 0, "config": {"axis": {"labelOverlap": False}}}
    axis = {"values": values, "format": form}
    scale = {"domain": [-30000, 2e6]}
    encoding = {"x": {"field": "x", "type": "quantitative", "scale": scale, "axis": axis}}
    spec = {**frame, "mark": "point", "data": {"values": [{"x": 1}]}, "encoding": encoding}
    drawn = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version="6.4")
    root = ET.fromstring(drawn)
    found = {t.text for t in root.iter("{http://www.w3.org/2000/svg}text")}
    inside = {scales.formatted(v, form) for v in values if -30000 <= v <= 2e6}
    assert inside <= found


def test_what_is_not_drawn_here_and_numbers_that_are_not_finite_are_refused():
    chart = charts.bars([charts.Row(name="a", value=1.0)], "x")(720)
    with pytest.raises(ValueError, match="holds 'arc'"):
        render.draw(
            {
                **chart,
                "layer": [
                    *chart["layer"],
                    {"mark": {"type": "arc"}, "data": {"values": []}, "encoding": {}},
                ],
            }
        )
    chart["layer"][1]["data"]["values"][0]["x"] = math.nan
    with pytest.raises(ValueError, match="not finite"):
        render.draw(chart)

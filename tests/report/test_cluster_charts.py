import math
import re
import xml.etree.ElementTree as ET

import altair as alt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedcohort.report import charts
from fedcohort.report.charts import render, theme

EVIL = "<script>alert(1)</script>\"'&]]>"
ELLIPSES = [
    charts.Ellipse(x=0, y=0, long=2, short=1, angle=0, look="c0", label="a", text="0", panel="all"),
    charts.Ellipse(x=5, y=3, long=1, short=1, angle=9, look="c1", label=EVIL, panel="all"),
    charts.Ellipse(
        x=0, y=1, long=1, short=0.5, angle=90, look="c0", label="a", panel="x", pale=True
    ),
]
DOTS = [
    charts.Dot(x=0, y=0, look="c0", label="a"),
    charts.Dot(x=4, y=1, look="c0", label="a"),
    charts.Dot(x=2, y=-3, look="c3", label=EVIL),
]
GROUPS = [
    charts.Group(name="one", look="c0", average=[1, 0, 0.5, math.nan], patients=[[1, 1, 0, 0]] * 5),
    charts.Group(name=EVIL, look="c1", patients=[[0, 0, 0, 0]]),
]
CHARTS = {
    "ellipses": charts.ellipses(ELLIPSES, "first", "second"),
    "dots": charts.dots(DOTS, "first", "second"),
    "pictures": charts.pictures(GROUPS, (2, 2)),
}


def drawn(chart):
    body = render.draw(chart)
    return ET.fromstring(f"<svg>{body.body}</svg>"), body


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_plain_svg_of_the_width_of_a_page(name):
    root, body = drawn(CHARTS[name])
    assert {e.tag for e in root.iter()} <= {"svg", "g", "path", "rect", "text", "tspan"}
    found = set(re.findall(r'(?:fill|stroke)="([^"]+)"', body.body)) - {"none"}
    assert {f.removeprefix("var(--").removesuffix(")") for f in found} <= theme.light().keys()
    assert 0.8 * theme.WIDE <= body.width <= 1.03 * theme.WIDE
    assert "alert(1)" in "".join(root.itertext())


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_a_valid_specification(name):
    alt.Chart.from_dict(CHARTS[name])  # altair holds each chart against the schema


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.1, 9), st.floats(0.1, 9), st.floats(0, 180))
def test_every_corner_lies_on_the_ellipse(x, y, long, short, angle):
    e = charts.Ellipse(x=x, y=y, long=long, short=short, angle=angle, look="c0", label="a")
    turn = math.radians(angle)
    # in the ellipse's own axes, (u/long)² + (v/short)² = 1
    at = np.array(e.outline(12)) - [x, y]
    u = at @ [math.cos(turn), math.sin(turn)]
    v = at @ [-math.sin(turn), math.cos(turn)]
    assert_allclose((u / long) ** 2 + (v / short) ** 2, 1, rtol=1e-9)


def test_a_circle_is_drawn_round():
    circle = [charts.Ellipse(x=50, y=-2, long=3, short=3, angle=30, look="c3", label="a")]
    wide = charts.Ellipse(x=40, y=0, long=30, short=1, angle=0, look="c0", label="b")
    root, _ = drawn(charts.ellipses([*circle, wide], "", ""))
    outline = next(
        e for e in root.iter("path")
        if e.get("stroke") == "var(--c3)" and e.get("fill") == "var(--c3)"
    )  # fmt: skip
    # all corners are absolute: M x y L x y …
    points = np.array([float(v) for v in re.findall(r"-?\d*\.?\d+", outline.get("d"))])
    x, y = points[0::2], points[1::2]
    assert_allclose(np.ptp(x), np.ptp(y), rtol=0.05)


def test_a_unit_between_dots_is_as_long_upwards_as_sideways_and_has_no_number():
    corners = [(0, 0), (1, 0), (0, 1), (30, 2)]
    found = [charts.Dot(x=x, y=y, look="c1", label="a") for x, y in corners]
    root, _ = drawn(charts.dots(found, "first", "second"))
    marks = next(g for g in root.iter("g") if g.get("fill") == "var(--c1)")
    at = np.array([re.findall(r"-?[\d.]+", m.get("transform"))[:2] for m in marks], float)
    across, upwards = at[1] - at[0], at[2] - at[0]
    assert_allclose(across, [-upwards[1], 0], atol=0.6)
    assert across[0] > 5
    assert [t for t in "".join(root.itertext()).split() if any(c.isdigit() for c in t)] == []


def test_neighbouring_cells_of_one_darkness_are_one_rectangle():
    # rows of two cells: (1, 1) is one rectangle, (0.5, 1) two, (0, 0) none
    def rectangles(values):
        group = [charts.Group(name="g", look="c2", patients=[values])]
        root, _ = drawn(charts.pictures(group, (1, 2)))
        cells = [e for g in (root, *root.iter("g")) for e in g.findall("path")
                 if "var(--c2)" in (e.get("fill") or g.get("fill") or "")]  # fmt: skip
        return len(cells) - 1  # the mark beside the name

    assert [rectangles(v) for v in ([1, 1], [0.5, 1], [0, 0], [0, 1])] == [1, 2, 0, 1]


def test_a_hidden_average_is_a_grey_cell():
    group = [charts.Group(name="g", look="c2", average=[math.nan, 0.0])]
    _, body = drawn(charts.pictures(group, (1, 2)))
    assert 'fill="var(--line)"' in body.body


def test_darkness_grows_with_the_value():
    found = []
    for value in (0.2, 0.6, 0.9):
        group = [charts.Group(name="g", look="c2", patients=[[value]])]
        _, body = drawn(charts.pictures(group, (1, 1)))
        found.append(float(re.search(r'fill-opacity="([\d.]+)"', body.body)[1]))
    assert found == [0.2, 0.6, 0.9]

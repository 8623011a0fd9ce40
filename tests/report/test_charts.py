import base64
import csv
import io
import math
import re
import xml.etree.ElementTree as ET

import altair as alt
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.report import charts
from fedcohort.report.charts import figures, render, rows, scales, theme
from fedcohort.report.page import thinned

EVIL = "<script>alert(1)</script>\"'&]]>{{1+1}} var(--x)"
CONTROL = "a\x00\x07\ud800\uffffb"
ROWS = [
    charts.Row(name="north", value=0.7, low=0.6, high=0.8, look="c0", text="0.70 (0.60–0.80)"),
    charts.Row(
        name="south", value=0.5, look="lower", text="0.50", others=(("c1", 0.55),), link=True
    ),
    charts.Row(name="both", value=0.65, low=0.6, high=0.7, look="upper", kind="pooled"),
]
SERIES = [
    charts.Series(
        label=f"group {g}",
        look=f"c{g}",
        panel=panel,
        points=[(t / 5, math.exp(-g * t / 9), math.exp(-g * t / 9) - 0.1, 1.0) for t in range(6)],
        at_risk=[(0, 1200 - g), (0.4, 60), (0.8, None)],
    )
    for panel in ("one", "two")
    for g in (1, 2)
]
CHARTS = {
    "interval_rows": charts.interval_rows(ROWS, "C-index", reference=0.5, band=(0.5, 0.65)),
    "forest": charts.interval_rows(ROWS, "ratio", log=True, reference=1, heads=("who", "what")),
    "bars": charts.bars(ROWS[:2], "drop"),
    "lines": charts.lines_with_bands(SERIES, "round", "loss", whole=True, own=True),
    "histograms": charts.histograms(SERIES[:2], SERIES[2:], "SD", "share"),
    "survival": charts.curves_with_risk_table(SERIES, "days"),
    "scatter": charts.scatter_with_diagonal(SERIES, "predicted", "observed"),
}


def drawn(chart):
    body = render.draw(chart)
    return ET.fromstring(f"<svg>{body.body}</svg>"), body


def texts(root):
    return ["".join(t.itertext()) for t in root.iter("text")]


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_plain_small_svg_of_the_width_of_a_page(name):
    root, body = drawn(CHARTS[name])
    assert {e.tag for e in root.iter()} <= {"svg", "g", "path", "rect", "text", "tspan"}
    kept = set(render._KEPT) | {"d", "x", "y", "dy", "width", "height", "transform"}
    assert {k for e in root.iter() for k in e.attrib} <= kept
    assert not re.search(r"url\(|aria-|class=|\d\.\d{3}", body.body)
    assert {t.get("font-size", "12") for t in root.iter("text")} == {"12"}
    assert len(body.body) < 9000
    assert 0.85 * theme.WIDE <= body.width <= 1.03 * theme.WIDE


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_a_valid_specification(name):
    alt.Chart.from_dict(CHARTS[name])  # altair holds each chart against the schema


def test_every_colour_is_a_variable_of_the_style_sheet():
    found = set()
    for chart in CHARTS.values():
        found |= set(re.findall(r'(?:fill|stroke)="([^"]+)"', drawn(chart)[1].body))
    names = {f.removeprefix("var(--").removesuffix(")") for f in found - {"none"}}
    assert names <= theme.light().keys()
    assert {"ink", "quiet", "line", "gap", "c0", "c1", "lower"} <= names


def test_every_look_has_a_shape_and_a_colour_of_its_own():
    looks = theme.LOOKS
    assert len({theme.shape(k) for k in looks}) == len({theme.light()[k] for k in looks}) == 8


def test_marks_lie_where_the_axis_says():
    # a row at 0.7 on an axis with ticks at 0.6 and 0.8: the mark is halfway between them
    root, _ = drawn(charts.interval_rows([charts.Row(name="a", value=0.7)], "", domain=(0.5, 0.9)))
    at = {t.text: float(t.get("x")) for t in root.iter("text")}
    mark = next(e for e in root.iter("path") if e.get("fill") == "var(--c0)")
    x = float(re.match(r"translate\(([\d.]+)", mark.get("transform"))[1])
    assert x == pytest.approx((at["0.6"] + at["0.8"]) / 2, abs=0.6)


def test_intervals_stop_at_the_edge_of_the_domain_without_a_cap():
    row = charts.Row(name="a", value=1.0, low=1e-9, high=1e9, look="c1")
    root, body = drawn(charts.interval_rows([row], "", log=True, domain=(0.5, 2)))
    lines = [e for e in root.iter("path") if e.get("stroke") == "var(--c1)"]
    assert [e.get("d").count("M") for e in lines] == [1]
    ends = [float(v) for v in re.findall(r"[ML]([\d.]+)", lines[0].get("d"))]
    assert 0 < ends[0] < ends[1] < body.width


def test_numbers_at_risk_stand_below_and_suppressed_ones_are_a_dash():
    found = texts(drawn(CHARTS["survival"])[0])
    assert found.count("Number at risk") == 2
    assert found.count("1,199") == 2
    assert found.count("–") == 4


def test_numbers_at_risk_share_their_times_with_the_axis_which_goes_on_in_their_steps():
    at_risk = [(0, 90), (250, 60), (500, 30)]
    series = charts.Series(label="a", look="c0", points=[(0, 1), (1300, 0.4)], at_risk=at_risk)
    found = texts(drawn(charts.curves_with_risk_table([series], "days"))[0])
    assert found[:6] == ["0", "250", "500", "750", "1000", "1250"]
    uneven = charts.Series(
        label="a", look="c0", points=[(0, 1), (9, 0.4)], at_risk=[(0, 9), (3, 7), (7, 5)]
    )
    found = texts(drawn(charts.curves_with_risk_table([uneven], "days"))[0])
    assert found[:3] == ["0", "3", "7"]


def test_ratios_that_are_close_have_more_than_one_label():
    row = charts.Row(name="a", value=1.04, low=1.01, high=1.08)
    found = texts(drawn(charts.interval_rows([row], "ratio", log=True, domain=(0.98, 1.12)))[0])
    assert found[:3] == ["1.00", "1.05", "1.10"]


def test_what_is_not_finite_is_left_out():
    nan = math.nan
    rows = [charts.Row(name="a", value=nan, low=nan, high=nan, text="–"), charts.Row(name="b")]
    series = [
        charts.Series(label="a", look="c0", points=[(0, nan), (1, 2), (nan, 3), (math.inf, 1)])
    ]
    for draw in (
        charts.interval_rows(rows, "x"),
        charts.interval_rows([], "x"),
        charts.bars(rows, "x"),
        charts.lines_with_bands(series, "x", "y"),
        charts.lines_with_bands([], "x", "y"),
        charts.curves_with_risk_table(series, "x"),
        charts.scatter_with_diagonal(series, "x", "y"),
    ):
        assert "nan" not in drawn(draw)[1].body.lower()


def test_a_point_whose_band_is_unknown_stays_on_its_line():
    nan = math.nan
    points = [(0, 1, 0.9, 1), (1, 0.8, 0.7, 0.9), (2, 0.5, nan, nan)]
    draw = charts.lines_with_bands([charts.Series(label="a", look="c0", points=points)], "x", "y")
    lines = [e for e in drawn(draw)[0].iter("path") if e.get("stroke") == "var(--c0)"]
    assert [e.get("d").count("L") for e in lines] == [2]


def test_texts_of_a_user_stay_texts():
    row = charts.Row(name=EVIL, value=1.0, text=EVIL, note=EVIL)
    series = [charts.Series(label=EVIL + n, look="c0", panel=EVIL, points=[(0, 1)]) for n in "ab"]
    for draw in (
        charts.interval_rows([row], EVIL, heads=(EVIL, EVIL), legend=[("c0", EVIL)]),
        charts.lines_with_bands(series, EVIL, EVIL),
    ):
        made = charts.figure(EVIL, EVIL, EVIL, draw, [{EVIL: EVIL}], EVIL)
        root = ET.fromstring(made)
        assert not {e.tag for e in root.iter()} & {"script", "img", "foreignObject"}
        assert any("<script" in t for t in texts(root))


def test_control_characters_do_not_break_the_file():
    chart = charts.interval_rows([charts.Row(name=CONTROL, value=1.0)], CONTROL)
    svg = render.standalone(render.draw(chart), CONTROL, CONTROL)
    assert texts(ET.fromstring(svg.replace("xmlns", "x")))[-1].startswith("a")


def test_what_lies_beyond_the_axes_is_cut():
    far = charts.Series(label="a", look="c0", points=[(0, 0, -9, 9), (1, 1, -9, 9), (7, 7, 0, 9)])
    for draw in (
        charts.lines_with_bands([far], "x", "y", x_domain=(0, 1), y_domain=(0, 1)),
        charts.scatter_with_diagonal([far], "x", "y"),
    ):
        body = drawn(draw)[1]
        assert body.width <= 740
        assert body.height <= 400


def test_a_single_square_panel_is_not_enlarged_to_the_width_of_the_page():
    draw = charts.scatter_with_diagonal([SERIES[0]], "1 − specificity", "sensitivity")
    made = ET.fromstring(charts.figure("roc", "ROC", "", draw, [{"x": 1}], "one panel"))
    boxes = [[float(v) for v in e.get("viewBox").split()] for e in made.iter("svg")]
    assert boxes[0][2] == theme.WIDE
    assert boxes[0][3] < 0.6 * theme.WIDE


def test_a_figure_offers_its_picture_and_its_data():
    data = [
        {"site": "nörd", "value": 1 / 3, "n": 5},
        {"site": "=1+1", "value": -2.5, "extra": None},
    ]
    made = charts.figure("gain iid", "Gain", "a note", CHARTS["bars"], data, "north gains most")
    root = ET.fromstring(made)
    picture, table = root.iter("a")
    svg = ET.fromstring(opened(picture))
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert b"var(" not in opened(picture)
    assert svg.find("{*}rect").get("fill") == "#fff"
    assert svg.find("{*}desc").text == "north gains most"
    assert picture.get("download").endswith(".svg")
    found = list(csv.reader(io.StringIO(opened(table).decode("utf-8-sig"))))
    assert found == [
        ["site", "value", "n", "extra"],
        ["nörd", "0.333333", "5", ""],
        ["'=1+1", "-2.5", "", ""],
    ]
    assert [e.find("title").text for e in root.iter("svg")] == ["Gain"]
    assert {e.get("role") for e in root.iter("svg")} == {"img"}


def opened(link):
    return base64.b64decode(link.get("href").partition("base64,")[2], validate=True)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", " =", "\n@"])
def test_no_cell_begins_as_a_formula(start):
    (row,) = list(csv.reader(io.StringIO(figures.table_csv([{"a": start + "cmd"}]))))[1:]
    assert row[0].startswith("'")


def test_data_may_be_a_frame():
    frame = pd.DataFrame({"a": [1.5, math.nan], "b": ["x", None]})
    assert figures.table_csv(frame) == "a,b\r\n1.5,x\r\n,\r\n"


def test_the_same_chart_gives_the_same_bytes():
    drawn = set()
    for _ in range(2):
        render._kept.clear()
        drawn.add(render.draw(CHARTS["survival"]))
    assert len(drawn) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=20), min_size=2, max_size=5, unique=True))
def test_different_keys_give_different_plain_names(keys):
    names = [figures.slug(k) for k in keys]
    assert len(set(names)) == len(keys)
    assert all(re.fullmatch(r"[a-z0-9-]{1,70}", n) for n in names)


def test_files_leave_a_page_that_is_too_large_pictures_first_the_largest_before_others():
    def link(kind, size):
        href = f"data:x;base64,{'A' * size}"
        return f'<a class="get" download="f" href="{href}" title="t">{kind}</a>'

    page = f"x{link('SVG', 500)}{link('CSV', 900)}{link('SVG', 300)}y"
    assert thinned(page, 5000) == (page, 0)
    once, n = thinned(page, len(page) - 1)
    assert (once, n) == (f"x{link('CSV', 900)}{link('SVG', 300)}y", 1)
    assert thinned(page, 10) == ("xy", 3)


# scales -------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6), about=st.integers(2, 8))
def test_ticks_are_few_round_and_inside(low, width, about):
    found = scales.ticks(low, low + width, about)
    slack = 1e-6 * max(abs(low), width, 1)
    assert all(low - slack <= t <= low + width + slack for t in found)
    assert about / 2.6 - 1 <= len(found) <= about + 2


@settings(max_examples=60, deadline=None)
@given(low=st.floats(1e-4, 0.9), high=st.floats(1.1, 1e4))
def test_log_ticks_hold_one_and_lie_inside(low, high):
    found = scales.log_ticks(low, high)
    assert 1.0 in found
    assert all(low <= t <= high for t in found)


def test_labels_of_even_ticks_have_equally_many_decimals():
    assert scales.tick_format([0.5, 0.55, 0.6]) == ".2f"
    assert scales.tick_format([-1600, -1550]) == ".0f"
    assert scales.tick_format([0, 5000, 10_000]) == ",.0f"
    assert scales.tick_format([0.5, 1, 2]) == ".6~f"


@pytest.mark.parametrize("values", [[], [3.0, 3.0], [0.0], [math.nan, 1.0]])
def test_a_domain_around_anything_is_finite_and_has_width(values):
    low, high = scales.around(values)
    assert math.isfinite(low)
    assert high > low


@settings(max_examples=60, deadline=None)
@given(st.text("abc W.", max_size=60), st.floats(30, 200), st.integers(1, 3))
def test_wrapped_texts_keep_to_their_room(text, room, lines):
    found = scales.wrapped(text, room, lines)
    assert 1 <= len(found) <= lines
    assert all(scales.text_width(line) <= room for line in found)


def test_marks_at_one_place_make_room_for_each_other():
    others = (("c1", 0.5), ("upper", 0.5), ("c2", 0.8))
    row = charts.Row(name="a", value=0.5, others=others, small=True)
    layout = rows._layout([row], (0.0, 1.0), False, None)
    heights = [m.y for m in rows._marks(layout, (0.0, 1.0))]
    assert len({heights[0], heights[1], heights[3]}) == 3  # two others, and the row's own
    assert heights[2] == heights[3]  # far from all


@given(st.floats(-1e4, 1e4), st.floats(0.01, 1e5), st.integers(1, 6))
def test_an_axis_has_two_numbers_or_more(low, wide, about):
    found = scales.several_ticks(low, low + wide, about)
    assert len(found) > 1
    assert all(low - 1e-6 * wide <= t <= low + wide * (1 + 1e-6) for t in found)


def test_an_axis_of_nine_rounds_has_two_whole_numbers():
    assert scales.several_ticks(1, 9, 3, whole=True) == [2, 4, 6, 8]
    assert scales.several_ticks(1, 1.5, 3, whole=True) == [1]

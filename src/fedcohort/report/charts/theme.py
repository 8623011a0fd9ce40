"""One look for every chart: sizes, lines, the colours of `report.css` and a shape for each arm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

#: A Vega-Lite specification, or a part of one.
Spec = dict[str, Any]

#: The width of a chart, in pixels.
WIDE = 720

#: What fits a printed page: rows of 22 px, panels of a chart with two axes.
MOST_ROWS, MOST_PANELS = 36, 6

#: Size of all text, in pixels of a drawing at its own width.
TEXT = 12.0
LINE = 15.0

INK, QUIET, RULE, PAPER, GAP = (f"var(--{n})" for n in ("ink", "quiet", "line", "paper", "gap"))

#: Outlines in the square [−1, 1]²; every look has its own, so that colour is never needed.
SHAPES: Mapping[str, str] = {
    "c0": "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z",
    "c1": "M0-1.15L1.1.85H-1.1Z",
    "c2": "M-.85-.85H.85V.85H-.85Z",
    "c3": "M0 1.15L1.1-.85H-1.1Z",
    "c4": "M0-1.2L1.2 0 0 1.2-1.2 0Z",
    "c5": "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    "c6": "M-1.2 0L-.5-1H.5L1.2 0 .5 1H-.5Z",
    "c7": "M-1.1-1.1L0-.45 1.1-1.1 .45 0 1.1 1.1 0 .45-1.1 1.1-.45 0Z",
    "lower": "M-.85-.85H.85V.85H-.85Z",
    "upper": "M0-1.2L1.2 0 0 1.2-1.2 0Z",
}
LOOKS = tuple(f"c{i}" for i in range(8))


def shape(look: str) -> str:
    """Return the outline of a look's mark."""
    return SHAPES.get(look, SHAPES["c0"])


def colour(look: str) -> str:
    """Return the colour of a look's lines, as a variable of the style sheet."""
    return "var(--lower)" if look == "faint" else f"var(--{look})"


def fill(look: str) -> str:
    """Return the colour inside a look's mark; the lower bound's is hollow."""
    return PAPER if look == "lower" else colour(look)


def dash(look: str) -> tuple[int, ...]:
    """Return strokes and gaps of a look's lines, in pixels."""
    return (5, 3) if look == "upper" else (1, 0)


def config() -> dict[str, Any]:
    """Return Vega-Lite's configuration.

    Roles, which the page leaves out, and the search for missing values, which no chart has, would
    take a fifth of the time.
    """
    text = {"labelFontSize": TEXT, "titleFontSize": TEXT, "labelColor": QUIET, "titleColor": QUIET}
    return {
        "background": None,
        "aria": False,
        "mark": {"invalid": "show"},
        "view": {"stroke": None},
        "axis": {
            **text,
            "aria": False,
            "titleFontWeight": "normal",
            "gridColor": RULE,
            "domainColor": QUIET,
            "tickColor": QUIET,
            "tickSize": 4,
            "labelPadding": 4,
            "titlePadding": 7,
            "labelOverlap": False,
            "labelFlush": False,
        },
        "axisY": {"domain": False, "ticks": False},
        "axisX": {"grid": False},
        "text": {"fontSize": TEXT, "fill": INK},
    }  # fmt: skip


def light() -> Mapping[str, str]:
    """Return the light colours of the style sheet by the name of their variable."""
    css = resources.files("fedcohort.report").joinpath("report.css").read_text("utf-8")
    root = css.partition(":root {")[2].partition("}")[0]
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-fA-F]{3,8})\s*;", root))

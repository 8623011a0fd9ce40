"""Pictures as SVG that stretches with the page: positions in percent, text and marks in pixels.

Colours are classes (see `report.css`), so that light, dark and print need one drawing only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedcohort.report.markup import Markup, h, join


@dataclass(frozen=True)
class Scale:
    """Maps values in [low, high] to percent of the width.

    Attributes
    ----------
    log : whether equal ratios take equal room.
    """

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the position in [0, 100]; values outside stop at the edge."""
        a, b, x = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return 100 * min(1.0, max(0.0, (x - a) / (b - a)))

    def pct(self, value: float) -> str:
        """Return the position as SVG takes it."""
        return f"{self.at(value):.2f}%"

    def holds(self, value: float) -> bool:
        """Return whether a value lies in the scale's range."""
        return self.low <= value <= self.high


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers in [low, high], about so many."""
    raw = (high - low) / max(about, 1)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


#: What a decade of a log axis may be divided into, the coarsest first.
_DECADES = (
    (1,),
    (1, 3),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
)


def log_ticks(low: float, high: float, least: int = 4) -> list[float]:
    """Return round numbers in [low, high] of the coarsest division that gives at least so many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for parts in _DECADES:
        marks = (float(f"{m}e{k}") for k in decades for m in parts)
        found = [t for t in marks if low <= t <= high]
        if len(found) >= least:
            break
    return found


def labels(marks: Sequence[float]) -> list[str]:
    """Return the ticks' texts: with equally many decimals where the ticks are evenly spaced."""
    short = [f"{t:g}" for t in marks]
    steps = {round(b - a, 9) for a, b in pairwise(marks)}
    if len(steps) == 1 and not any("e" in s for s in short):
        digits = max(len(s.partition(".")[2]) for s in short)
        short = [f"{t:.{digits}f}" for t in marks]
    return [s.replace("-", "−") for s in short]


def around(values: Iterable[float], margin: float = 0.06) -> Scale:
    """Return a scale that holds all values, with a margin; finite whatever the values are."""
    finite = [v for v in values if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    room = margin * (high - low) or max(abs(low) * margin, 1e-6)
    return Scale(low - room, high + room)


def strip(*marks: Markup | None, height: int | None = None, title: str | None = None) -> Markup:
    """Return a drawing of full width into which marks are put.

    Parameters
    ----------
    height : in pixels; as high as the row that it lies in by default.
    title : what a screen reader says, and what shows under the pointer.
    """
    return h(
        "svg",
        h("title", title) if title else None,
        *marks,
        class_="strip",
        width="100%",
        height="100%" if height is None else str(height),
        role="img",
        aria_label=title,
        aria_hidden=None if title else "true",
    )


def rule(x: str, look: str) -> Markup:
    """Return a vertical line."""
    return h("line", x1=x, x2=x, y1="0", y2="100%", class_=look)


def span(scale: Scale, start: float, end: float, look: str) -> Markup:
    """Return a horizontal line at half height."""
    return h("line", x1=scale.pct(start), x2=scale.pct(end), y1="50%", y2="50%", class_=look)


def band(scale: Scale, low: float, high: float, look: str) -> Markup:
    """Return a vertical band between two values."""
    a, b = sorted((scale.at(low), scale.at(high)))
    return h("rect", x=f"{a:.2f}%", width=f"{b - a:.2f}%", y="0", height="100%", class_=look)


def whisker(scale: Scale, low: float, high: float, look: str) -> Markup | None:
    """Return an interval at half height as a line with caps, or None where there is none."""
    if math.isnan(low) or math.isnan(high):
        return None
    a, b = scale.pct(low), scale.pct(high)
    caps = [
        h("line", x1=x, x2=x, y1="-4", y2="4") for x, v in ((a, low), (b, high)) if scale.holds(v)
    ]
    lines = h("g", h("line", x1=a, x2=b, y1="0", y2="0"), *caps, class_=f"whisker {look}")
    return h("svg", lines, y="50%", width="100%", height="1", overflow="visible")


_SHAPES = {
    "lower": "M-5-5H5V5H-5Z",
    "upper": "M0-7 7 0 0 7-7 0Z",
    "c1": "M0-7 6.5 5H-6.5Z",
    "c2": "M-5-5H5V5H-5Z",
    "c3": "M0 7 6.5-5H-6.5Z",
    "c4": "M0-7 7 0 0 7-7 0Z",
}


def dot(look: str, x: str = "0", y: str = "50%", *, small: bool = False) -> Markup:
    """Return an arm's mark: each has a shape besides its colour."""
    shape = _SHAPES.get(look)
    mark = h("circle", r="6") if shape is None else h("path", d=shape)
    scale = "scale(.62)" if small else None
    return h(
        "svg",
        h("g", mark, transform=scale, class_=f"dot {look}"),
        x=x, y=y, width="1", height="1", overflow="visible",
    )  # fmt: skip


def axis(scale: Scale, marks: Sequence[float], title: str = "") -> Markup:
    """Return a horizontal axis: ticks, their numbers, a title below."""
    parts: list[Markup] = [h("line", x1="0", x2="100%", y1="0.5", y2="0.5", class_="axis")]
    for t, text in zip(marks, labels(marks), strict=True):
        where = scale.at(t)
        anchor = "start" if where < 3 else "end" if where > 97 else "middle"
        x = scale.pct(t)
        parts.append(h("line", x1=x, x2=x, y1="0", y2="5", class_="axis"))
        parts.append(h("text", text, x=x, y="18", text_anchor=anchor, class_="tick"))
    if title:
        parts.append(h("text", title, x="50%", y="36", text_anchor="middle", class_="axis-title"))
    return strip(*parts, height=42 if title else 22)


def grid(scale: Scale, marks: Sequence[float]) -> Markup:
    """Return faint vertical lines at the ticks."""
    return join(rule(scale.pct(t), "grid") for t in marks)


@dataclass(frozen=True)
class Frame:
    """A chart with two axes, of full width and fixed height.

    Attributes
    ----------
    x, y : the scales; y grows upwards.
    x_ticks, y_ticks : where numbers stand.
    """

    x: Scale
    y: Scale
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]
    height: int = 150

    def line(self, points: Sequence[tuple[float, float]], look: str) -> Markup:
        """Return a line through points."""
        d = "M" + "L".join(f"{self._x(a)} {self._y(b)}" for a, b in points)
        return h("path", d=d, class_=f"line {look}", vector_effect="non-scaling-stroke")

    def ribbon(self, points: Sequence[tuple[float, float, float]], look: str) -> Markup:
        """Return a filled band: x, low, high."""
        there = [f"{self._x(a)} {self._y(lo)}" for a, lo, _ in points]
        back = [f"{self._x(a)} {self._y(hi)}" for a, _, hi in reversed(points)]
        return h("path", d="M" + "L".join((*there, *back)) + "Z", class_=f"ribbon {look}")

    def draw(
        self, shapes: Iterable[Markup], marks: Iterable[Markup], title: str, x_title: str = ""
    ) -> Markup:
        """Return the chart.

        Parameters
        ----------
        shapes : lines and ribbons.
        marks : what keeps its size, placed by `pin`.
        """
        rows: list[Markup] = []
        for t, text in zip(self.y_ticks, labels(self.y_ticks), strict=True):
            y = f"{100 - self.y.at(t):.2f}%"
            rows.append(h("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
            at = {"x": "-6", "y": y, "dy": ".32em"}
            rows.append(h("text", text, class_="tick", text_anchor="end", **at))
        stretched = h(
            "svg", *shapes,
            viewBox="0 0 1000 1000", preserveAspectRatio="none", width="100%", height="100%",
        )  # fmt: skip
        body = strip(*rows, stretched, *marks, height=self.height, title=title)
        return h("div", body, axis(self.x, self.x_ticks, x_title), class_="frame")

    def pin(self, a: float, b: float, look: str, small: bool = True) -> Markup:
        """Return an arm's mark at a point."""
        return h(
            "svg", dot(look, y="0", small=small),
            x=self.x.pct(a), y=f"{100 - self.y.at(b):.2f}%", overflow="visible",
            width="1", height="1",
        )  # fmt: skip

    def _x(self, value: float) -> str:
        return f"{10 * self.x.at(value):.1f}"

    def _y(self, value: float) -> str:
        return f"{1000 - 10 * self.y.at(value):.1f}"

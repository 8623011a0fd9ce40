"""Charts with two axes, a panel for each setting: curves, survival, calibration, ROC."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from fedcohort.report.charts import parts, theme
from fedcohort.report.charts.parts import Mark, Place, Rule, Series, Text
from fedcohort.report.charts.scales import (
    Domain,
    around,
    log_ticks,
    several_ticks,
    tick_format,
    wrapped,
)
from fedcohort.report.charts.theme import LINE, WIDE, Spec

#: Room for the numbers of an axis, between panels, and for half of the last number at the edge.
_AXIS, _GAP, _EDGE = 44, 20, 10

#: How much wider bold letters are; the room that the last line's descenders take.
_BOLD = 1.1
_PADDING = {"left": 0, "right": 2, "top": 2, "bottom": 5}

#: Room that a column of numbers at risk takes, in pixels.
_COLUMN = 42

#: The most that a square panel takes.
_SQUARE = 270


@dataclass(frozen=True)
class _Axes:
    """How a panel is drawn."""

    x: Domain
    y: Domain
    x_title: str
    y_title: str
    whole: bool = False
    square: bool = False
    diagonal: bool = False
    marks: str = "none"
    reference: float | None = None
    upright: float | None = None
    powers: bool = False
    log: bool = False
    counted: str = "Number at risk"


def lines_with_bands(
    series: Sequence[Series],
    x_title: str,
    y_title: str,
    *,
    x_domain: Domain | None = None,
    y_domain: Domain | None = None,
    reference: float | None = None,
    whole: bool = False,
    own: bool = False,
    powers: bool = False,
    upright: float | None = None,
    log: bool = False,
    marks: bool = False,
    width: int = WIDE,
) -> Spec:
    """Return a chart of lines with their bands, which end in a mark.

    Parameters
    ----------
    x_domain, y_domain : of the axes; by default, all points and the reference with a margin.
    reference : place of a horizontal line.
    whole : x is a count: only whole numbers on its axis.
    own : each panel has its own axes, around its own points.
    powers : y is a power of ten, and labelled so.
    upright : place of a vertical line, in every panel.
    log : log scale of x.
    marks : every point has a mark.
    width : in pixels, of a picture that is not for a page.
    """
    also = [] if reference is None else [reference]

    def axes(shown: Sequence[Series]) -> _Axes:
        x = x_domain or _span([p[0] for s in shown for p in s.points])
        y = y_domain or around([v for s in shown for p in s.points for v in p[1:]] + also)
        return _Axes(
            x, y, x_title, y_title,
            whole=whole, marks="every" if marks else "end", reference=reference, powers=powers,
            upright=upright, log=log,
        )  # fmt: skip

    kept = _finite(series)
    return _drawn(kept, axes if own else lambda _: axes(kept), width)


def histograms(
    shaded: Sequence[Series],
    outlined: Sequence[Series],
    x_title: str,
    y_title: str,
    *,
    x_domain: Domain | None = None,
) -> Spec:
    """Return panels of histograms on common axes, from 0: some shaded, others as outlines on them.

    A series' points are (left edge, height) of each cell, and then (right edge of the last, 0).
    """
    found = [replace(s, points=_steps(s.points, shade=True)) for s in _finite(shaded)]
    found += [replace(s, points=_steps(s.points, shade=False)) for s in _finite(outlined)]
    every = [p for s in found for p in s.points]
    x = x_domain or _span([p[0] for p in every])
    top = max((p[1] for p in every), default=0.0) or 1.0
    axes = _Axes(x, (0.0, 1.06 * top), x_title, y_title)
    return _drawn(found, lambda _: axes)


def _steps(points: Sequence[tuple[float, ...]], *, shade: bool) -> list[tuple[float, ...]]:
    """Return the outline of cells, with a band from 0 where it is shaded."""
    corners = [(x, y) for a, b in pairwise(points) for x, y in ((a[0], a[1]), (b[0], a[1]))]
    whole = [(points[0][0], 0.0), *corners, (points[-1][0], 0.0)] if corners else []
    return [(x, y, 0.0, y) if shade else (x, y) for x, y in whole]


def curves_with_risk_table(
    series: Sequence[Series],
    x_title: str,
    y_title: str = "survival",
    *,
    x_domain: Domain | None = None,
    y_domain: Domain = (0.0, 1.0),
    counted: str = "Number at risk",
) -> Spec:
    """Return Kaplan-Meier curves with their bands, and the numbers at risk below.

    A curve keeps its height until its next point, where it steps; so does its band.

    Parameters
    ----------
    counted : what the numbers below are called.
    """
    kept = [replace(s, points=_stepped(s.points)) for s in _finite(series)]
    x = x_domain or _span([0.0, *(p[0] for s in kept for p in s.points)])
    axes = _Axes(x, y_domain, x_title, y_title, counted=counted)
    return _drawn(kept, lambda _: axes)


def _stepped(points: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Return points with one before each step, at the height that the curve had until then."""
    corners = [((b[0], *a[1:]), b) for a, b in pairwise(points)]
    return [*points[:1], *(p for pair in corners for p in pair)]


def scatter_with_diagonal(
    series: Sequence[Series],
    x_title: str,
    y_title: str,
    *,
    domain: Domain = (0.0, 1.0),
    marks: bool = True,
) -> Spec:
    """Return square panels of lines about the diagonal, with a mark at each point."""
    every = "every" if marks else "none"
    axes = _Axes(domain, domain, x_title, y_title, square=True, diagonal=True, marks=every)
    return _drawn(_finite(series), lambda _: axes)


def _finite(series: Sequence[Series]) -> list[Series]:
    """Return the series' finite points and bands."""

    def kept(points: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
        placed = [p for p in points if all(map(math.isfinite, p[:2]))]
        return [p if all(map(math.isfinite, p)) else p[:2] for p in placed]

    return [replace(s, points=kept(s.points)) for s in series]


def _inside(series: Sequence[Series], axes: _Axes) -> list[Series]:
    """Return the series cut to the axes."""
    (left, right), (low, high) = axes.x, axes.y
    return [
        replace(
            s,
            points=[
                (p[0], *(min(max(v, low), high) for v in p[1:]))
                for p in s.points
                if left <= p[0] <= right
            ],
        )
        for s in series
    ]


def _span(values: Sequence[float]) -> Domain:
    """Return the range of values, never empty."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    return (low, high) if high > low else (low, low + 1.0)


def _drawn(
    series: Sequence[Series], axes_of: Callable[[Sequence[Series]], _Axes], width: int = WIDE
) -> Spec:
    """Return the panels under one legend."""
    items = [item for item in dict.fromkeys((s.look, s.label) for s in series) if item[1]]
    items.sort(key=lambda item: item[0] == "faint")
    panels: dict[str, list[Series]] = {}
    for s in series:
        panels.setdefault(s.panel, []).append(s)
    panels = panels or {"": []}
    axes = {t: axes_of(own) for t, own in panels.items()}
    square = any(a.square for a in axes.values())

    columns = _columns(len(panels), square)
    across = (width - _EDGE - columns * (_AXIS + _GAP) + _GAP) / columns
    across = round(min(across, _SQUARE) if square else across)
    height = across if square else round(min(max(0.62 * across, 140.0), 230.0))
    names = {t: wrapped(t, across / _BOLD) if t else [] for t in panels}
    lines = max(map(len, names.values()), default=0)
    above = LINE * (lines + any(a.y_title for a in axes.values())) + 12
    below = 44 + (LINE + 2) * max((_lines_at_risk(own) for own in panels.values()), default=0)
    drawn: list[Spec] = []
    for title, own in panels.items():
        a = axes[title]
        place = Place(a.x, a.y, across, height, a.log)
        drawn.append(_panel(_inside(own, a), a, place, names[title]))
    gaps = {"row": above + below + _GAP, "column": _AXIS + _GAP}
    body = parts.beside(drawn, columns, spacing=gaps)
    if len(items) < 2:
        return body | {"padding": _PADDING}
    found, high = parts.flow(items, width)
    place = Place((0, width - _AXIS), (0, high), width - _AXIS, high)
    legend = parts.framed(parts.legend(found, place, -_AXIS, 0), place)
    return parts.above(legend, body, above + 8, _PADDING)


def _columns(n: int, square: bool) -> int:
    """Return how many panels stand side by side."""
    return 2 if n in (2, 4) or (square and n == 1) else min(n, 3)


def _panel(series: Sequence[Series], axes: _Axes, place: Place, names: Sequence[str]) -> Spec:
    """Return one panel."""
    layers: list[parts.Layer] = []
    (left, right), (bottom, top) = axes.x, axes.y
    guides: list[Rule] = []
    if axes.diagonal:
        guides.append(Rule(left, bottom, right, top, theme.QUIET, 1.2, dash=(2, 4)))
    if axes.reference is not None:
        level = axes.reference
        guides.append(Rule(left, level, right, level, theme.QUIET, 1.2, dash=(2, 4)))
    if axes.upright is not None:
        guides.append(Rule(axes.upright, bottom, axes.upright, top, theme.QUIET, 1.2, dash=(2, 4)))
    layers += parts.rules(guides)
    layers += _bands(series) + _lines(series)
    marked = {"none": slice(0), "end": slice(-1, None), "every": slice(None)}[axes.marks]
    layers += parts.marks(
        Mark(p[0], p[1], s.look, small=True) for s in series for p in s.points[marked]
    )
    times = _at_risk_times(series, place)
    ticks = _ticks_at(times, place)
    layers += _numbers_at_risk(series, ticks or times, place, axes.counted)
    layers += parts.texts(_headings(names, axes.y_title, place))
    x_values = ticks or _x_ticks(axes, place)
    y_values = several_ticks(*axes.y, max(2, int(place.height / 45)))
    x = parts.axis(x_values, axes.x_title, format=tick_format(x_values))
    y = parts.axis(y_values, None, grid=True, format=tick_format(y_values))
    if axes.powers:
        apart = math.ceil((axes.y[1] - axes.y[0]) * 32 / place.height)
        first = math.ceil(axes.y[0] / apart)
        y_values = [apart * i for i in range(first, math.floor(axes.y[1] / apart) + 1)]
        y = parts.axis(y_values, None, grid=True, labelExpr="'1e' + datum.value")
    return parts.framed(layers, place, x=x, y=y)


def _x_ticks(axes: _Axes, place: Place) -> list[float]:
    """Return where numbers stand on the horizontal axis."""
    if axes.log:
        return log_ticks(*axes.x, 3)
    about = max(3, int(place.width / (45 if axes.powers else 75)))
    return several_ticks(*axes.x, about, whole=axes.whole)


def _headings(names: Sequence[str], y_title: str, place: Place) -> list[Text]:
    """Return a panel's heading: its name, and the meaning of its height."""
    lines = [(n, theme.INK, True) for n in names] + [(y_title, theme.QUIET, False)] * bool(y_title)
    top = -12 - LINE * (len(lines) - 1)
    return [
        Text(place.x[0], place.y_at(top + i * LINE), text, colour=colour, bold=bold)
        for i, (text, colour, bold) in enumerate(lines)
    ]


def _bands(series: Sequence[Series]) -> list[parts.Layer]:
    """Return the bands of all series that have one."""
    rows = [
        {"x": p[0], "low": p[2], "high": p[3], "c": theme.colour(s.look), "i": i}
        for i, s in enumerate(series)
        for p in s.points
        if len(p) == 4
    ]
    if not rows:
        return []
    return [
        parts.layer(
            rows,
            parts.mark("area", opacity=0.16),
            x="x:Q",
            y="low:Q",
            y2="high",
            fill="c:N",
            detail="i:O",
        )
    ]


def _lines(series: Sequence[Series]) -> list[parts.Layer]:
    """Return the lines of all series; the upper bound is dashed, so that it hides no other."""
    rows = [
        {"x": p[0], "y": p[1], "c": theme.colour(s.look), "i": i, "d": theme.dash(s.look)}
        for i, s in enumerate(series)
        for p in s.points
    ]
    if not rows:
        return []
    return [
        parts.layer(
            rows,
            parts.mark("line", strokeWidth=1.8),
            x="x:Q",
            y="y:Q",
            stroke="c:N",
            strokeDash="d:N",
            detail="i:O",
            order="x:Q",
        )
    ]


def _lines_at_risk(series: Sequence[Series]) -> int:
    """Return how many lines of text stand below a panel's axis."""
    return len(series) + 1 if any(s.at_risk or s.about for s in series) else 0


def _at_risk_times(series: Sequence[Series], place: Place) -> list[float]:
    """Return the times of the table, as many as have room."""
    low, high = place.x
    times = sorted({t for s in series for t, _ in (*s.at_risk, *s.about) if low <= t <= high})
    return times[:: math.ceil(len(times) * _COLUMN / place.width) or 1]


def _ticks_at(times: Sequence[float], place: Place) -> list[float]:
    """Return ticks that include all times: multiples of their step, or the times alone.

    None if there are fewer than two times.
    """
    if len(times) < 2:
        return []
    step = min(b - a for a, b in pairwise(times))
    counted = [round(t / step) for t in times]
    even = all(abs(t - k * step) <= 1e-9 * abs(t) for k, t in zip(counted, times, strict=True))
    first, last = (math.ceil(place.x[0] / step - 1e-9), math.floor(place.x[1] / step + 1e-9))
    if not even or (last - first + 1) * _COLUMN > place.width + _COLUMN:
        return list(times)
    return [round(k * step, 12) for k in range(first, last + 1)]


def _numbers_at_risk(
    series: Sequence[Series], times: Sequence[float], place: Place, counted: str
) -> list[parts.Layer]:
    """Return the table's layers: a line for each curve, a column for each of `times`.

    A dash stands for a hidden number, or one after the curve's end.
    """
    if not times:
        return []
    top = place.height + 54.0
    exact = {(i, t) for i, s in enumerate(series) for t, _ in s.at_risk}
    if any((i, t) not in exact for i, s in enumerate(series) for t, _ in s.about if t in times):
        counted = f"{counted}, about"
    found = [Text(place.x[0], place.y_at(top), counted, colour=theme.QUIET)]
    keys: list[Mark] = []
    for i, s in enumerate(series):
        y = place.y_at(top + (i + 1) * (LINE + 2))
        counts = {**dict(s.about), **dict(s.at_risk)}
        keys.append(Mark(place.x_at(-28), y, s.look, small=True))
        for t in times:
            n = counts.get(t)
            found.append(Text(t, y, "–" if n is None else f"{n:,}", "center"))
    return parts.marks(keys) + parts.texts(found)

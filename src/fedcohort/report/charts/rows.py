"""Charts of one line per item: intervals (bounds, forest plots) and bars.

Names stand left and numbers right of the marks. All places are in pixels, so a drawing is exactly
as wide as a page, whatever a machine's fonts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedcohort.report.charts import parts, theme
from fedcohort.report.charts.parts import Mark, Place, Rule, Text
from fedcohort.report.charts.scales import (
    Domain,
    around,
    log_ticks,
    text_width,
    tick_format,
    ticks,
    wrapped,
)
from fedcohort.report.charts.theme import LINE, WIDE, Spec

#: So near to each other marks overlap, in pixels; and by how much one may stand lower.
_SIDE, _OFF = 7.0, (0.0, 6.5, -6.5)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a chart.

    Attributes
    ----------
    value, low, high : NaN if absent.
    text : the numbers as shown; line breaks separate lines.
    note : a second line below the name.
    others : further small marks, each a look and a value.
    link : a line runs from the first of `others` to the value.
    span : a pale line behind, from and to (range over fits, prediction interval).
    small : the mark is drawn small.
    kind : ``point``, ``pooled`` (a diamond from low to high), or ``heading`` (text only).
    """

    name: str
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    look: str = "c0"
    text: str = ""
    note: str = ""
    others: tuple[tuple[str, float], ...] = ()
    link: bool = False
    span: tuple[float, float] | None = None
    small: bool = False
    kind: str = "point"

    @property
    def ends(self) -> list[float]:
        """All values of the row."""
        span = self.span or ()
        every = (self.value, self.low, self.high, *span, *(v for _, v in self.others))
        return [v for v in every if math.isfinite(v)]


@dataclass(frozen=True)
class _Line:
    """A row's texts, cut to their room, and where its middle lies, in pixels."""

    row: Row
    name: Sequence[str]
    text: Sequence[str]
    middle: float


@dataclass(frozen=True)
class _Layout:
    """Where everything stands."""

    lines: Sequence[_Line]
    place: Place
    left: float
    right: float


def interval_rows(
    rows: Sequence[Row],
    x_title: str,
    *,
    log: bool = False,
    reference: float | None = None,
    band: Domain | None = None,
    domain: Domain | None = None,
    heads: tuple[str, str] | None = None,
    legend: Sequence[parts.Item] = (),
) -> Spec:
    """Return a chart of marks with intervals, cut at the domain's edges.

    Parameters
    ----------
    log : log scale.
    reference : place of a vertical line: no effect, or chance.
    band : a shaded range behind all rows.
    domain : of the axis; by default, all values and the reference with a margin.
    heads : above names and numbers.
    legend : looks and their names, above all rows.
    """
    spread = domain or _domain(rows, log, reference)

    layout = _layout(rows, spread, log, heads)
    layers: list[parts.Layer] = []
    if band is not None:
        low, high = (_inside(v, spread) for v in sorted(band))
        layers.append(parts.box(low, layout.place.y_at(0), high, 0, theme.GAP))
    lines = [*_grid(layout)]
    if reference is not None and spread[0] < reference < spread[1]:
        dash = () if log else (2, 3)
        lines.append(_upright(layout, reference, theme.QUIET, 1.2, dash))
    lines += [*_spans(layout, spread), *_whiskers(layout, spread)]
    layers += parts.rules(lines)
    layers += _diamonds(layout, spread)
    layers += parts.marks(_marks(layout, spread))
    layers += parts.texts(_texts(layout, heads))
    return _whole(layers, layout, x_title, heads, legend)


def bars(rows: Sequence[Row], x_title: str, *, domain: Domain | None = None) -> Spec:
    """Return a chart of bars from zero, with whiskers where a row has an interval."""
    ends = [v for r in rows for v in r.ends]
    low, high = min([*ends, 0.0]), max([*ends, 0.0])
    room = 0.04 * (high - low) or 1.0
    spread = domain or (low - room * (low < 0), high + room * (high > 0 or low == high))

    layout = _layout(rows, spread, False, None)
    layers = parts.rules(_grid(layout))
    for line in layout.lines:
        if math.isfinite(line.row.value):
            y = (layout.place.y_at(line.middle + d) for d in (-6, 6))
            value = _inside(line.row.value, spread)
            zero = _inside(0.0, spread)
            layers.append(parts.box(zero, next(y), value, next(y), theme.colour(line.row.look)))
    layers += parts.rules(_whiskers(layout, spread, theme.INK))
    layers += parts.texts(_texts(layout, None))
    return _whole(layers, layout, x_title)


def _domain(rows: Sequence[Row], log: bool, reference: float | None) -> Domain:
    """Return the range of all values and the reference."""
    ends = [v for r in rows for v in r.ends] + ([] if reference is None else [reference])
    if not log:
        return around(ends)
    low, high = around([math.log(v) for v in ends if v > 0] or [0.0], 0.04)
    return math.exp(low), math.exp(high)


def _inside(value: float, domain: Domain) -> float:
    return min(max(value, domain[0]), domain[1])


def _layout(
    rows: Sequence[Row], domain: Domain, log: bool, heads: tuple[str, str] | None
) -> _Layout:
    """Return where names, marks and numbers stand."""
    shown = [r for r in rows if r.kind != "heading"]
    numbers = [t for r in shown for t in r.text.split("\n")] + ([heads[1]] if heads else [])
    right = min(max([text_width(t) for t in numbers], default=0.0), 230.0)
    names = [max(text_width(r.name), text_width(r.note)) for r in shown]
    head = text_width(heads[0]) if heads else 0.0
    room = min(max([*names, head], default=0.0), 215.0)
    left, right = room + 16, right + 16
    plot = WIDE - left - right
    lines: list[_Line] = []
    top = 0.0
    for r in rows:
        heading = r.kind == "heading"
        name = wrapped(r.name, WIDE if heading else room) + ([r.note] if r.note else [])
        text = r.text.split("\n") if r.text else []
        n = max(len(name), len(text))
        height = max(n * LINE + 7 + (8 if heading and lines else 0), 22.0)
        lines.append(_Line(r, name, text, top + height / 2))
        top += height
    height = max(top + 4, 20.0)
    return _Layout(lines, Place(domain, (0.0, height), plot, height, log), left, right)


def _whole(
    layers: Sequence[parts.Layer],
    layout: _Layout,
    x_title: str,
    heads: tuple[str, str] | None = None,
    legend: Sequence[parts.Item] = (),
) -> Spec:
    """Return the layers above their axis, with room for the texts around them."""
    place, left, right = layout.place, layout.left, layout.right
    values = _ticks(layout)
    axis = parts.axis(values, x_title, format=tick_format(values))
    top = 22.0 if heads else 4.0
    if legend:
        items, height = parts.flow(legend, left + place.width + right)
        top += height + 10
        layers = [*layers, *parts.legend(items, place, -left, -top)]
    sides = {"left": left, "right": right, "top": top, "bottom": 46}
    return parts.framed(layers, place, x=axis) | {"autosize": "none", "padding": sides}


def _ticks(layout: _Layout) -> list[float]:
    low, high = layout.place.x
    if layout.place.log:
        return log_ticks(low, high)
    return ticks(low, high)


def _upright(
    layout: _Layout, x: float, colour: str, width: float, dash: tuple[float, ...] = ()
) -> Rule:
    """Return a vertical line through all rows."""
    return Rule(x, 0.0, x, layout.place.height, colour, width, dash=dash)


def _grid(layout: _Layout) -> Iterable[Rule]:
    """Return faint vertical lines at the ticks."""
    return [_upright(layout, t, theme.RULE, 1.0) for t in _ticks(layout)]


def _spans(layout: _Layout, domain: Domain) -> Iterable[Rule]:
    """Yield the layers behind the marks: ranges over fits, and links to the first other mark."""
    for line in layout.lines:
        r, y = line.row, layout.place.y_at(line.middle)
        colour = theme.colour(r.look)
        if r.span is not None and all(map(math.isfinite, r.span)):
            low, high = (_inside(v, domain) for v in r.span)
            yield Rule(low, y, high, y, colour, 9.0, 0.2)
        if r.link and r.others and math.isfinite(r.value):
            start, end = (_inside(v, domain) for v in (r.others[0][1], r.value))
            yield Rule(start, y, end, y, colour, opacity=0.5)


def _whiskers(layout: _Layout, domain: Domain, colour: str | None = None) -> Iterable[Rule]:
    """Yield intervals as lines with caps; an end outside the domain has no cap."""
    for line in layout.lines:
        r = line.row
        if r.kind != "point" or not (math.isfinite(r.low) and math.isfinite(r.high)):
            continue
        y = layout.place.y_at(line.middle)
        c = colour or theme.colour(r.look)
        low, high = (_inside(v, domain) for v in (r.low, r.high))
        yield Rule(low, y, high, y, c)
        for end, asked in ((low, r.low), (high, r.high)):
            if end == asked:
                yield Rule(end, y - 4, end, y + 4, c)


def _diamonds(layout: _Layout, domain: Domain) -> list[parts.Layer]:
    """Return pooled estimates as diamonds from low to high."""
    layers: list[parts.Layer] = []
    for line in layout.lines:
        r = line.row
        if r.kind != "pooled" or not all(map(math.isfinite, (r.value, r.low, r.high))):
            continue
        y = layout.place.y_at(line.middle)
        corners = [(_inside(v, domain), d) for v, d in ((r.low, 0), (r.value, 7), (r.high, 0))]
        layers.append(
            parts.layer(
                [{"x": x, "y": y - d, "y2": y + d} for x, d in corners],
                parts.mark("area", fill=theme.colour(r.look), opacity=1),
                x="x:Q",
                y="y:Q",
                y2="y2",
            )
        )
    return layers


def _marks(layout: _Layout, domain: Domain) -> Iterable[Mark]:
    """Yield the marks, a row's own above its others; others move so that none is hidden."""
    for line in layout.lines:
        r = line.row
        y = layout.place.y_at(line.middle)
        known = [(look, _inside(v, domain)) for look, v in r.others if math.isfinite(v)]
        own = [_inside(r.value, domain)] if r.kind == "point" and math.isfinite(r.value) else []
        off = [0.0] * len(known) if r.link else _apart(layout, [*own, *(v for _, v in known)])
        for (look, value), lower in zip(known, off[-len(known) :], strict=False):
            yield Mark(value, layout.place.y_at(line.middle + lower), look, small=True)
        if r.kind == "point" and math.isfinite(r.value):
            yield Mark(_inside(r.value, domain), y, r.look, small=r.small)


def _apart(layout: _Layout, values: Sequence[float]) -> list[float]:
    """Return by how many pixels each mark of a line is lowered, so that none hides an earlier one.

    The first stays; so does a mark without room above or below.
    """
    place = layout.place
    low, high = map(math.log, place.x) if place.log else place.x
    placed: list[tuple[float, float]] = []
    for v in values:
        at = ((math.log(v) if place.log else v) - low) / (high - low) * place.width
        taken = {off for x, off in placed if abs(x - at) < _SIDE}
        placed.append((at, next((off for off in _OFF if off not in taken), 0.0)))
    return [off for _, off in placed]


def _texts(layout: _Layout, heads: tuple[str, str] | None) -> Iterable[Text]:
    """Yield names and numbers."""
    place = layout.place
    names = place.x_at(-layout.left)
    numbers = place.x_at(place.width + 16)
    if heads:
        y = place.y_at(-12)
        yield Text(names, y, heads[0], colour=theme.QUIET)
        yield Text(numbers, y, heads[1], colour=theme.QUIET)
    for line in layout.lines:
        r = line.row
        for found, x in ((line.name, names), (line.text, numbers)):
            for i, text in enumerate(found):
                y = place.y_at(line.middle + (i - (len(found) - 1) / 2) * LINE)
                first = found is line.text or not r.note or i < len(found) - 1
                bold = r.kind != "point" and found is line.name and first
                colour = theme.INK if first and (found is line.name or i == 0) else theme.QUIET
                yield Text(x, y, text, colour=colour, bold=bold)

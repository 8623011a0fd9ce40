"""Images that networks make of the table's columns: which column lies where.

Files: results.json, `maps`: of columns and their correlations, without a value of a patient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, leading_open, more
from fedcohort.report.words import number

Row = Mapping[str, Any]
#: Largest side that is drawn on one page, and that has names in its cells.
DRAWN, TABLED = 45, 12
INTRO = (
    "The network sees the columns as an image. Each cell is one column, placed so that columns "
    "that are correlated are neighbours; an empty cell is white. The darker a cell, the higher the "
    "mean correlation of its column with those around it: a pale one has found no neighbours that "
    "are like it. Up and down, left and right mean nothing. The map was made once, before the "
    "training, and is the same at all hospitals. No patient is drawn."
)


def section(run: Run) -> Section | None:
    """Return the maps of each arm whose model has some; None without any."""
    drawn = [
        (arm, found)
        for arm in run.arms
        for k, row in enumerate(run.model_rows("maps", arm.name))
        if (found := _figure(run, arm, row, k)) is not None
    ]
    if not drawn:
        return None
    body = h("div", leading_open(run, drawn, kept=len(drawn)))
    return Section("feature-map", "Map of columns", "Which columns lie side by side?", INTRO, body)


def _figure(run: Run, arm: Arm, row: Row, k: int) -> Markup | None:
    """Return one image's figure, with a table of a small one."""
    side, names = int(row["side"]), list(row["features"])
    if len(names) != side**2 or not any(names):
        return None
    near = [number(r) for r in row["likeness"]]
    known = [r for r in near if r == r]
    mean = ""
    if known:
        mean = f"; neighbours' mean correlation is {words.fixed(sum(known) / len(known), 2)}"
    count = words.of(sum(n is not None for n in names), "column")
    view = f"view {row['view']!s}" if row.get("view") else "all columns"
    title = f"{arm.title}: map of {view}"
    note = f"{run.model_title(arm.name, 'maps')}; {count} on {side} × {side} pixels{mean}"
    if side > DRAWN:
        return h("div", h("h3", title), p(f"{note}. Too large to draw; results.json has it."))
    numbers = [str(i + 1) for i in range(side)]
    drawing = charts.Grid(
        rows=numbers,
        columns=numbers,
        shades=[[_shade(names[i], near[i]) for i in line] for line in _lines(side)],
        texts=[[words.spaced(names[i] or "") for i in line] for line in _lines(side)]
        if side <= TABLED
        else (),
    )
    data = [
        {"row": i // side + 1, "column": i % side + 1, "feature": name, "neighbours_correlation": r}
        for i, (name, r) in enumerate(zip(names, row["likeness"], strict=True))
        if name is not None
    ]
    told = sorted((d for d in data if d["neighbours_correlation"] is not None),
                  key=lambda d: -d["neighbours_correlation"])[:3]  # fmt: skip
    most = words.listed([words.spaced(str(d["feature"])) for d in told])
    alt = f"Image of {count} by place; most like their neighbours are {most}." if told else title
    key = f"feature-map-{arm.name}-{k}"
    picture = charts.figure(key, title, note, charts.grid(drawing), data, alt)
    return h("div", picture, _table(names, side))


def _lines(side: int) -> list[range]:
    return [range(r * side, (r + 1) * side) for r in range(side)]


def _shade(name: str | None, near: float) -> float:
    """Return a cell's darkness: NaN of an empty one, 0 without or below no correlation."""
    if name is None:
        return float("nan")
    return min(max(near, 0.0), 1.0) if near == near else 0.0


def _table(names: list[str | None], side: int) -> Markup:
    """Return the column of each pixel: in cells of a small image, by row of a larger one."""
    if side > TABLED:
        body = [
            [
                str(r + 1),
                ", ".join(
                    f"{k}: {words.spaced(str(names[i]))}"
                    for k, i in enumerate(line, 1)
                    if names[i] is not None
                ),
            ]
            for r, line in enumerate(_lines(side))
        ]
        head = ["Row", "Number from the left, and column"]
        return more("Which cell is which column", table(head, body, caption="Columns by row"))
    head = ["", *(f"Column {i + 1}" for i in range(side))]
    body = [
        [f"Row {r + 1}", *(words.spaced(names[i] or "") for i in line)]
        for r, line in enumerate(_lines(side))
    ]
    return more("Which cell is which column", table(head, body, caption="Columns by their pixel"))

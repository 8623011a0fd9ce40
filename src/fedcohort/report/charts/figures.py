"""A figure of the page: caption, drawing, and two files to take away.

The files are ``data:`` links, because the page loads nothing. Cells that a spreadsheet would run as
a formula are written as text (OWASP, CSV injection).
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fedcohort.data.read.csvcells import harmless
from fedcohort.report.charts import render
from fedcohort.report.charts.page_figures import current
from fedcohort.report.charts.theme import WIDE, Spec
from fedcohort.report.markup import Child, Markup, filled

#: Rows of a table as a figure takes them: a pandas frame, or mappings.
Data = Any


def figure(key: str, title: str, note: Child, chart: Spec, data: Data, alt_text: str) -> Markup:
    """Return a chart as a figure of the page.

    Parameters
    ----------
    key : anchor of the figure and name of its files; invalid characters are replaced.
    title : of the figure.
    note : how to read it, below the title.
    chart : its drawing; on a narrow screen the figure scrolls sideways, as tables do.
    data : the drawn data, a frame or rows, for the CSV file.
    alt_text : for readers who do not see the figure.
    """

    def made() -> Markup:
        drawing = _at_its_size(render.draw(chart))
        picture = _link("image/svg+xml", render.standalone(drawing, title, alt_text))
        table = _link("text/csv;charset=utf-8", table_csv(data))
        return filled(
            "figure.html", name=slug(key), title=title, note=note, shown=render.clean(title),
            told=render.clean(alt_text), drawing=drawing,
            files=[("SVG", picture, "the figure"), ("CSV", table, "its data")],
        )  # fmt: skip

    page = current()
    return page.place([render.specified(chart)], made) if page else made()


def _at_its_size(drawing: render.Drawing) -> render.Drawing:
    """Add free room to a drawing much narrower than the page, so that no page enlarges it."""
    return replace(drawing, width=WIDE) if drawing.width < 0.9 * WIDE else drawing


def slug(key: str) -> str:
    """Return a key as file names and anchors may hold it; different keys stay different."""
    plain = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")[:60]
    if plain and plain == key:
        return plain
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{plain}-{digest}" if plain else digest


def table_csv(data: Data) -> str:
    """Return rows as CSV: six significant digits, empty for missing values."""
    rows = list(_rows(data))
    names = list(dict.fromkeys(k for row in rows for k in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([_cell(n) for n in names])
    writer.writerows([_cell(row.get(n)) for n in names] for row in rows)
    return out.getvalue()


def _rows(data: Data) -> Iterable[Mapping[str, Any]]:
    """Return the rows of a frame or of an iterable of mappings."""
    return data.to_dict("records") if hasattr(data, "to_dict") else data


def _cell(value: Any) -> str:
    """Return a value as a cell that no spreadsheet runs."""
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(harmless(value))


def _link(kind: str, content: str) -> str:
    mark = "\ufeff" if kind.startswith("text/csv") and not content.isascii() else ""
    coded = base64.b64encode((mark + content).encode("utf-8", "replace")).decode("ascii")
    return f"data:{kind};base64,{coded}"

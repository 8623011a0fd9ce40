"""A description of tables as one page: Table 1, histograms, correlations, hidden parts.

The page holds no script and loads nothing; its small pictures are drawn here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import table_one, words
from fedcohort.report.markup import Markup, filled, h, join, p, table
from fedcohort.report.page import document
from fedcohort.report.sections.base import Section, more

#: Width and height of a histogram, and the room below for its axis.
WIDTH, HEIGHT, FOOT = 220, 70, 16


def page(found: Mapping[str, Any], title: str, version: str = "") -> str:
    """Return the page of a description.

    Parameters
    ----------
    found : what `fedcohort data describe --out x.json` writes.
    title : what was described.
    """
    m = int(found["min_cell"])
    noise = [table_one.noisy(found["dp"])] if "dp" in found else []
    sections = [
        Section(
            "by-site", "By site", "Who is in the tables?",
            " ".join([*table_one.legend(m), *noise]), _table(table_one.by_site(found["table"])),
        )
    ]  # fmt: skip
    if by := str(found["by"]):
        rows = table_one.by_group(found["table"], by, found["groups"])
        intro = " ".join(table_one.legend(m, by)[-1:])
        sections.append(Section("by-group", "By group", f"By {by}", intro, _table(rows)))
    if bars := found["histograms"]:
        intro = (
            "Counts between round edges over all sites. Values beyond the edges are counted in "
            "the outer bars, and each site has merged cells of few patients into the next ones."
        )
        if noise:
            intro = (
                "Noisy counts between the dictionary's limits over all sites. Values beyond them "
                "are counted in the outer bars, and cells of few patients are merged into the "
                "next ones."
            )
        cells = h("div", (_figure(b) for b in bars), style="display:flex;flex-wrap:wrap;gap:24px")
        sections.append(
            Section("histograms", "Histograms", "How are numbers spread?", intro, cells)
        )
    if correlation := found["correlation"]:
        intro = "Pearson's r over all sites, of the rows that know both; rounded."
        body = _correlations(correlation["names"], correlation["r"])
        sections.append(Section("correlation", "Correlations", "What goes together?", intro, body))
    if refused := found["refusals"]:
        intro = f"{words.of(len(refused), 'thing')} not shown, by rule."
        body = join(
            h("ul", (h("li", line) for line in table_one.refused(refused))),
            more("each of them", _table(_listed(refused))),
        )
        sections.append(Section("hidden", "Not shown", "What is not shown, and why?", intro, body))
    top = join(h("h1", title), p("Described by fedcohort; no row has left a site."))
    return document(title, top, sections, (), version)


def _table(rows: Sequence[Sequence[str]]) -> Markup:
    head, *body = rows
    marked = [[_broken(cell, i) for i, cell in enumerate(row)] for row in body]
    return table(head, marked, numeric=range(1, len(head)), class_="table-one", spoken="Table 1")


def _broken(cell: str, column: int) -> str | Markup:
    """Return a cell with its lines below each other, and levels set in."""
    if column == 0 and cell.startswith("  "):
        return h("span", cell.strip(), class_="level")
    first, *rest = cell.split("\n")
    return join(first, *((h("br"), h("small", line)) for line in rest)) if rest else first


def _listed(refused: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    head = ["variable", "site", "group", "what", "rule"]
    return [head, *([str(r[k] or "all") for k in head] for r in refused)]


def _figure(bars: Mapping[str, Any]) -> Markup:
    """Return a histogram as a small drawing with its name and limits."""
    counts, edges = [int(n) for n in bars["counts"]], [float(e) for e in bars["edges"]]
    step, most = WIDTH / len(counts), max(counts)
    every = max(1, math.ceil(len(edges) / 4))
    return filled(
        "histogram.html",
        name=f"{bars['name']}{', ' + bars['unit'] if bars['unit'] else ''}",
        width=WIDTH, height=HEIGHT, foot=FOOT, wide=round(step - 1, 2),
        bars=[
            (round(i * step + 0.5, 2), round(HEIGHT * (1 - n / most), 2),
             round(HEIGHT * n / most, 2), f"{_cell(edges, i)}: {n}")
            for i, n in enumerate(counts)
        ],
        ticks=[(round((i + 1) * step, 2), f"{e:g}") for i, e in enumerate(edges) if i % every == 0],
    )  # fmt: skip


def _cell(edges: Sequence[float], i: int) -> str:
    if i == 0:
        return f"up to {edges[0]:g}"
    if i == len(edges):
        return f"above {edges[-1]:g}"
    return f"above {edges[i - 1]:g}, up to {edges[i]:g}"


def _correlations(names: Sequence[str], r: Sequence[Sequence[float | None]]) -> Markup:
    """Return the lower half of the matrix."""
    rows = [
        [name, *(_r(r[i][j]) if j < i else "" for j in range(len(names) - 1))]
        for i, name in enumerate(names)
    ]
    head = ["", *names[:-1]]
    return table(head, rows[1:], numeric=range(1, len(head)), spoken="correlations")


def _r(value: float | None) -> str:
    return table_one.HIDDEN if value is None else f"{value:.2f}"

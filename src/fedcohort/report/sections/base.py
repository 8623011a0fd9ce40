"""What sections share: their type, and the few blocks that several of them draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedcohort.report import plot
from fedcohort.report.markup import Child, Markup, h
from fedcohort.report.run import Arm


@dataclass(frozen=True)
class Section:
    """One part of the page.

    Attributes
    ----------
    key : its anchor.
    title : a question or a claim, as the reader would put it.
    intro : how to read what follows, in one or two sentences.
    body : the pictures and tables.
    short : its name in the list of contents.
    """

    key: str
    short: str
    title: str
    intro: Child
    body: Markup


def panel(title: str, note: str | None, *body: Child) -> Markup:
    """Return one picture with its heading."""
    heading = h("h3", title, h("small", note) if note else None)
    return h("figure", h("figcaption", heading), *body, class_="panel")


def panels(items: Sequence[Markup], class_: str = "panels") -> Markup:
    """Return pictures side by side, as many as the page is wide."""
    return h("div", items, class_=class_ if len(items) > 1 else f"{class_} one")


def row(name: Child, drawing: Child, value: Child, class_: str = "row") -> Markup:
    """Return a line of a picture: what, where it lies, the number itself."""
    cells = ((name, "name"), (drawing, "draw"), (value, "val"))
    return h("div", (h("div", c, class_=k) for c, k in cells), class_=class_)


def rows(lines: Iterable[Markup], axis: Markup) -> Markup:
    """Return the lines of a picture above their common axis."""
    return h("div", lines, row(None, axis, None, "row axis-row"), class_="rows")


def key(arm: Arm) -> Markup:
    """Return an arm's mark and title, for text and legends."""
    mark = h(
        "svg", plot.dot(arm.look, "8"), class_="key", width="16", height="16", aria_hidden="true"
    )
    return h("span", mark, h("span", arm.title), class_="arm")


def legend(arms: Iterable[Arm]) -> Markup:
    """Return a legend of arms."""
    return h("p", (key(a) for a in arms), class_="legend")


def more(summary: str, *body: Child) -> Markup:
    """Return details that open on a click, without a script."""
    return h("details", h("summary", summary), *body)

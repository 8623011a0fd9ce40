"""HTML from templates and Python values; every string except `Markup` is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from markupsafe import Markup as Markup
from markupsafe import escape

#: What an element may hold: text (escaped), elements, or nothing.
Child = str | Markup | None | Iterable["str | Markup | None"]

_VOID = frozenset({"meta", "br", "path", "input"})


@cache
def _templates() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("fedcohort.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["joined"] = join
    return made


def filled(template: str, /, **values: Any) -> Markup:
    """Return a template of `report/templates` with its values."""
    return Markup(_templates().get_template(template).render(values))


def h(tag: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """Return one element.

    Attribute names lose a trailing underscore (``class_``); other underscores become hyphens
    (``stroke_width``). None and False omit the attribute, True leaves it bare.
    """
    told = ""
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        key = name.rstrip("_").replace("_", "-")
        told += f" {key}" if value is True else f' {key}="{escape(value)}"'
    body = join(*children)
    return Markup(
        f"<{tag}{told}/>" if tag in _VOID and not body else f"<{tag}{told}>{body}</{tag}>"
    )


def join(*children: Child) -> Markup:
    """Return the children one after another, escaped where they are plain text."""
    return Markup("").join(
        escape(child) if isinstance(child, str) else join(*child)
        for child in children
        if child is not None
    )


def table(
    head: Iterable[str | Markup],
    rows: Iterable[Iterable[str | Markup]],
    *,
    numeric: Iterable[int] = (),
    caption: str | None = None,
    spoken: str | None = None,
    class_: str | None = None,
) -> Markup:
    """Return a table in a box that scrolls sideways on a narrow screen.

    Parameters
    ----------
    numeric : positions of the columns of numbers, set flush right.
    spoken : name of the table for screen readers, if it has no caption.
    """
    return filled(
        "table.html", head=head, rows=rows, right=frozenset(numeric), caption=caption,
        spoken=spoken, class_=class_,
    )  # fmt: skip


def p(*children: Child, class_: str | None = None) -> Markup:
    """Return a paragraph."""
    return h("p", *children, class_=class_)


def styles() -> Markup:
    """Return the style sheet of all pages."""
    return Markup(resources.files("fedcohort.report").joinpath("report.css").read_text("utf-8"))

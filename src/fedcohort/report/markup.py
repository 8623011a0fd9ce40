"""HTML and SVG elements from Python values; every string is escaped unless it is `Markup`."""

from __future__ import annotations

import html
from collections.abc import Iterable
from importlib import resources


class Markup(str):
    """Text that is HTML already; only this module's functions make it."""

    __slots__ = ()


#: What an element may hold: text (escaped), elements, or nothing.
Child = str | Markup | None | Iterable["str | Markup | None"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_VOID = frozenset({"meta", "br", "rect", "line", "circle", "path", "col", "input"})


def h(tag: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """Return one element.

    A trailing underscore of an attribute's name is dropped (``class_``), the others become
    hyphens (``stroke_width``); None and False leave the attribute out, True leaves it bare.
    """
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        key = name.rstrip("_").replace("_", "-")
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        parts.append(f" {key}" if value is True else f' {key}="{html.escape(text)}"')
    body = join(*children)
    close = "/>" if tag in _VOID and not body else f">{body}</{tag}>"
    return Markup("".join(parts) + close)


def join(*children: Child) -> Markup:
    """Return the children one after another, escaped where they are plain text."""
    out: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            out.append(child)
        elif isinstance(child, str):
            out.append(html.escape(child))
        else:
            out.append(join(*child))
    return Markup("".join(out))


def table(
    head: Iterable[str | Markup],
    rows: Iterable[Iterable[str | Markup]],
    *,
    numeric: Iterable[int] = (),
    caption: str | None = None,
    spoken: str | None = None,
    class_: str | None = None,
) -> Markup:
    """Return a table inside a box that scrolls sideways on a narrow screen.

    Parameters
    ----------
    numeric : positions of the columns that hold numbers, set flush right.
    spoken : what a screen reader calls the table, where there is no caption.
    """
    right = frozenset(numeric)

    def cells(row: Iterable[str | Markup], tag: str) -> Markup:
        return h(
            "tr",
            (
                h(
                    "th" if i == 0 else tag,
                    cell,
                    class_="n" if i in right else None,
                    scope="col" if tag == "th" else "row" if i == 0 else None,
                )
                for i, cell in enumerate(row)
            ),
        )

    return h(
        "div",
        h(
            "table",
            h("caption", caption) if caption else None,
            h("thead", cells(head, "th")),
            h("tbody", (cells(r, "td") for r in rows)),
            class_=class_,
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption or spoken or "table",
    )


def p(*children: Child, class_: str | None = None) -> Markup:
    """Return a paragraph."""
    return h("p", *children, class_=class_)


def page_head(title: str, css: str) -> Markup:
    """Return the head of a page that loads nothing and runs nothing, and says so to the browser.

    css : styles that come after those of all pages.
    """
    style = resources.files("fedcohort.report").joinpath("report.css").read_text("utf-8")
    return h(
        "head",
        h("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>'),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("meta", name="generator", content="fedcohort"),
        h("title", title),
        h("style", Markup(style + css)),
    )

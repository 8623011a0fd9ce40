"""The page: its head, its sections in order, its styles; one file that needs no other.

The page declares to the browser that nothing may be loaded (Content-Security-Policy) and holds no
script, so that it cannot change after it was written, and nobody learns that it was opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from fedcohort.report.markup import Markup, h, join, p
from fedcohort.report.run import Run, read
from fedcohort.report.sections import (
    bounds,
    calibration,
    coefficients,
    cost,
    curves,
    headline,
    left,
    settings,
    sites,
)
from fedcohort.report.sections.base import Section

#: In the order of the page; one that has nothing to show returns None.
SECTIONS: Sequence[Callable[[Run], Section | None]] = (
    bounds.section,
    sites.section,
    calibration.section,
    coefficients.section,
    curves.section,
    left.section,
    cost.section,
    settings.settings,
    settings.reproduce,
)

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write(dir: Path, out: Path | None = None) -> Path:
    """Write the report of a run's folder; the same folder gives the same bytes.

    Parameters
    ----------
    out : the file to write, ``report.html`` in the folder by default.

    Returns
    -------
    path : the file written.

    Raises
    ------
    DataError : the folder holds no results, or its ledger is damaged.
    """
    path = out or Path(dir) / "report.html"
    path.write_bytes(render(read(Path(dir))).encode("utf-8", "replace"))
    return path


def render(run: Run) -> str:
    """Return the page's HTML."""
    sections = [s for make in SECTIONS if (s := make(run)) is not None]
    study = str(run.results.get("study", "study"))
    css = resources.files("fedcohort.report").joinpath("report.css").read_text("utf-8")
    head = h(
        "head",
        h("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>'),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("meta", name="generator", content="fedcohort"),
        h("title", f"{study} – fedcohort report"),
        h("style", Markup(css)),
    )
    contents = h(
        "nav",
        (h("a", s.short, href=f"#{s.key}") for s in sections),
        aria_label="Contents",
    )
    body = h(
        "body",
        h(
            "main",
            headline.top(run),
            contents,
            (_section(s) for s in sections),
            _foot(run),
        ),
    )
    return f"<!DOCTYPE html>\n{h('html', head, body, lang='en')}\n"


def _section(s: Section) -> Markup:
    title = h("h2", s.title)
    return h("section", title, p(s.intro, class_="intro"), s.body, id=s.key)


def _foot(run: Run) -> Markup:
    version = run.mapping("versions").get("fedcohort")
    made = join("Written by fedcohort", f" {version}" if version else None)
    note = (
        ". This page holds no script and loads nothing; it can be kept, sent and printed as it is."
    )
    return h(
        "footer", h("h2", "Words used here", class_="minor"), headline.glossary(run), p(made, note)
    )

"""docs/tutorial.md is what happens: files, commands, outputs, and what it quotes of the report."""

from __future__ import annotations

import html
import re

import pytest

from doc_pages import DOCS, agree, follow
from fedcohort.report import write
from report import grouped, latents
from slow_list import drawn_where_looked_at

PAGE = (DOCS / "tutorial.md").read_text(encoding="utf-8")
REPORT = (DOCS / "report.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """Follow the page; return what its commands printed beside what it shows, and the folder."""
    folder = tmp_path_factory.mktemp("tutorial")
    met = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "80")
        follow(PAGE, lambda *step: met.append(step))
    return met, folder


@pytest.fixture(scope="module")
def report(followed):
    """Return the report's page."""
    return (followed[1] / "runs" / "heart-failure" / "report.html").read_text(encoding="utf-8")


def test_every_command_prints_what_the_page_shows(followed):
    met, _ = followed
    assert [command.split()[:2] for command, *_ in met if command.startswith("fedcohort")] == [
        ["fedcohort", name]
        for name in ("init", "data", "data", "data", "run", "ledger", "predict", "predict")
    ]
    for command, shown, found in met:
        assert agree(shown, found), f"$ {command}\n{found}"


def test_what_is_quoted_stands_in_the_report(report):
    quotes = re.findall(r"^> (.*(?:\n> .*)*)", PAGE, re.MULTILINE)
    words = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", report)).split())
    assert len(quotes) == 2
    for quote in quotes:
        assert " ".join(quote.replace("\n> ", " ").split()) in words


def sections_of(report):
    """Return the titles of a report's sections, as its contents list them."""
    contents = re.search(r"<nav.*?</nav>", report, re.DOTALL)
    assert contents is not None
    return [html.unescape(name) for name in re.findall(r"<a [^>]*>([^<]+)</a>", contents[0])]


def test_the_guide_explains_every_section_of_the_report(report, tmp_path):
    """In the order of the page: of studies that predict, look for groups, and for few numbers."""
    guide = re.findall(r"^## (.+)$", REPORT, re.MULTILINE)[1:]
    # no study here has noise, asks for feedback or differences, is watched, for one hospital, of
    # ordered classes, with changed rows, local tests or rows of the coordinator, a second consent,
    # or over a network, of columns as images, with trees, or posteriors
    explained = {"Privacy budget", "Feedback", "Differences", "Do hospitals differ", "Who helps"}
    explained |= {"Not computed", "Proportional odds", "What hospitals were given"}
    explained |= {"Own and all test patients", "Coordinator's own patients", "Own models"}
    explained |= {"Consent after the ranking", "Map of columns", "Uncertainty"}
    explained |= {"Splits of trees", "Effects in trees"}
    with drawn_where_looked_at():
        groups = [
            sections_of(write(grouped.make(tmp_path / outcome, outcome=outcome)).read_text("utf-8"))
            for outcome in ("survival", "classification")
        ]
        few = sections_of(write(latents.make(tmp_path / "latents")).read_text("utf-8"))
    for sections in (sections_of(report), *groups, few):
        assert len(sections) > 10
        assert [name for name in guide if name in sections] == sections
        explained.update(sections)
    assert explained == set(guide)

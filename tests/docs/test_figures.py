"""Figures that a page cites from a benchmark's result file are those of the file.

A citation stands right behind its figure and cannot be seen on the page:

    1.22 <!-- benchmarks/speed/results.json w1_wall local/flat -->

The file holds {group: {name: number}}. A cited figure is the number rounded to the digits shown.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from doc_pages import DOCS

ROOT = DOCS.parent
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
CITED = re.compile(r"([^\s|]*) ?<!-- (benchmarks/\S+\.json) (\S+) (\S+) -->")
#: The scorecard writes its own table, and its test compares page and file.
FILES = {
    str(path.relative_to(ROOT))
    for path in (ROOT / "benchmarks").glob("*/results.json")
    if path.parent.name != "scorecard"
}


def cited() -> list[tuple[str, ...]]:
    """Return (page, figure as shown, file, group, name) of each citation."""
    return [
        (str(page.relative_to(ROOT)), *found)
        for page in PAGES
        for found in CITED.findall(page.read_text("utf-8"))
    ]


@cache
def figures(file: str) -> dict[str, Any]:
    """Return a result file's groups."""
    return json.loads((ROOT / file).read_text("utf-8"))


def agrees(shown: str, value: float) -> bool:
    """Return whether a figure is a number, rounded to the digits that are shown."""
    number = re.search(r"([-−]?)(\d[\d,]*(?:\.(\d+))?)", shown)
    if number is None:
        return False
    sign, digits, decimals = number.groups(default="")
    half = 0.5 * 10.0 ** -len(decimals)
    told = float(digits.replace(",", "")) * (-1 if sign else 1)
    return abs(told - value) <= half * (1 + 1e-9)


@pytest.mark.parametrize(("page", "shown", "file", "group", "name"), cited())
def test_a_cited_figure_is_that_of_the_result_file(page, shown, file, group, name):
    value = figures(file)[group][name]
    assert agrees(shown, value), f"{page} says {shown}, {file} has {value}"


def test_every_result_file_is_cited_and_says_how_it_was_measured():
    assert {file for _, _, file, _, _ in cited()} == FILES
    for file in FILES:
        for group in figures(file).values():
            script = group["about"]["command"].split()[1]
            assert script.startswith(str(Path(file).parent)), file
            assert (ROOT / script).is_file()
            assert {"commit", "date", "load", "on"} <= set(group["about"])


@pytest.mark.parametrize(
    ("shown", "value", "same"),
    [
        ("1.22", 1.2249, True),
        ("1.22", 1.226, False),
        ("6,733", 6733, True),
        ("0.9×", 0.88, True),
        ("(−0.02", -0.0249, True),
        ("0.02", -0.0249, False),
        ("+0.02", 0.0249, True),
    ],
)
def test_a_figure_agrees_where_its_own_digits_do(shown, value, same):
    assert agrees(shown, value) == same


def test_no_line_begins_with_a_citation():
    """Markdown would take such a line for HTML."""
    assert [
        p.name for p in PAGES if re.search(r"^\s*<!-- benchmarks", p.read_text("utf-8"), re.M)
    ] == []


def test_a_mention_of_these_figures_has_its_citation():
    """The two that pages once told differently: W1's ratio, and exact Cox beside lifelines."""
    for page in PAGES:
        for line in re.split(r"\n\n|\n\|", page.read_text("utf-8")):
            told = re.search(r"\d\.\d+[^|]{0,25}(a bare loop|lifelines' pooled fit)", line)
            if told and page.name != "CHANGELOG.md" and "methods" not in page.parts:
                assert "<!-- benchmarks/" in line or "at most" in line, f"{page.name}: {told[0]}"


@pytest.mark.parametrize(
    ("page", "first", "measured"),
    [
        ("mv-ppca-private.md", "| data, sites | means |", "mv_ppca/private.md"),
        ("mv-ppca-evidence.md", "| scenario | sites | MAE test", "mv_ppca/table6.md"),
        ("mv-ppca-evidence.md", "| six sites | breast cancer, G |", "mv_ppca/real_tables.md"),
        ("d62_survival.md", "| cohort | hospitals | alone |", "d62_survival/results.md"),
        ("masked-sums.md", "| sites | parameters | gone | encode ms |", "secure_cost/measured.md"),
    ],
)
def test_an_extract_has_only_numbers_of_the_full_table(page, first, measured):
    text = (DOCS / page).read_text("utf-8")
    table = text[text.index(first) :].split("\n\n")[0]
    cells = set(re.findall(r"\d[\d,]*\.\d+", table))
    found = set(re.findall(r"\d[\d,]*\.\d+", (ROOT / "benchmarks" / measured).read_text("utf-8")))
    assert len(cells) > 20
    assert cells <= found

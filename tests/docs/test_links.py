"""Every page of docs stands in the index, every relative link resolves, the README's code runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from doc_pages import DOCS, blocks

ROOT = DOCS.parent
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])


def prose(path: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found = set()
    for title in re.findall(r"^#+ (.+?) *$", prose(path), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def links(path: Path) -> list[str]:
    """Return the relative links of a page."""
    text = re.sub(r"`[^`\n]*`", "", prose(path))
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'<img src="([^"]+)"', text)
    return [link for link in found if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_page_and_a_heading_there(path):
    for link in links(path):
        name, _, anchor = link.partition("#")
        page = (path.parent / name).resolve() if name else path
        assert page.exists(), link
        if anchor:
            assert anchor in anchors(page), link


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_rows_of_a_table_have_as_many_cells_as_its_head(path):
    text = re.sub(r"`[^`\n]*`", "", prose(path))
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()]
        assert len(set(rows)) == 1, table.splitlines()[0]


def test_the_index_lists_every_page_once():
    listed = [(DOCS / link).resolve() for link in links(DOCS / "index.md")]
    pages = [page for page in DOCS.rglob("*.md") if page.name not in ("index.md", "features.md")]
    assert {page for page in listed if DOCS in page.parents} - {DOCS / "features.md"} == set(pages)
    assert len(listed) == len(set(listed))


def test_the_readmes_code_runs(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    n, risk = 300, rng.normal(size=300)
    days = np.ceil(rng.exponential(900 * np.exp(-risk)))
    cohort = pd.DataFrame({"hospital": rng.choice(["a", "b", "c"], n), "marker": risk})
    cohort.assign(days=np.minimum(days, 1200), died=(days <= 1200) * 1).to_csv(
        tmp_path / "cohort.csv", index=False
    )
    monkeypatch.chdir(tmp_path)
    (code,) = [
        b.body for b in blocks((ROOT / "README.md").read_text("utf-8")) if b.kind == "python"
    ]
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert list(names["fit"].summary.covariate) == ["marker"]

"""docs/data-describe.md does what it says: its run is repeated, and its keys are those written."""

from __future__ import annotations

import json
from pathlib import Path

from doc_pages import DOCS, agree, follow
from in_process import command

PAGE = (DOCS / "data-describe.md").read_text(encoding="utf-8")


def test_the_run_prints_what_the_page_shows_and_its_files_have_the_keys(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    met = []
    follow(PAGE, lambda *step: met.append(step))
    assert len(met) == 4
    for said, shown, found in met:
        assert agree(shown, found), f"$ {said}\n{found}"
    assert "<script" not in Path("table1.html").read_text(encoding="utf-8")
    asked = ("{site}_2024.csv", "--dictionary", "dictionary.yaml", "--quantiles", "0.05")
    assert command("data", "describe", *asked, "--out", "t.json")[0] == 0
    found = json.loads(Path("t.json").read_text(encoding="utf-8"))
    lines, bars, refused = found["table"][0], found["histograms"][0], found["refusals"][0]
    for key in {**found, **lines, **bars, **refused}:
        assert f"`{key}`" in PAGE, key

"""Pages of finished runs say what they said: structure, words, numbers, figures and their data."""

from __future__ import annotations

import difflib

import pytest

from report.golden import HERE, PAGES, lines


@pytest.mark.parametrize("name", PAGES)
def test_page_of_a_finished_run_says_what_it_said(name, tmp_path):
    expected = (HERE / f"{name}.txt").read_text("utf-8").splitlines()
    changed = difflib.unified_diff(expected, lines(PAGES[name](tmp_path)), "kept", "now", "", "", 0)
    told = "\n".join(changed)
    assert not told, f"{told}\n\nIf these words are meant: python tests/report/golden.py {name}"

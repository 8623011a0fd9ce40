"""Pages of finished runs say what they said: structure, words, numbers, figures and their data."""

from __future__ import annotations

import pytest

from report.golden import HERE, PAGES, lines


@pytest.mark.parametrize("name", PAGES)
def test_page_of_a_finished_run_says_what_it_said(name, tmp_path):
    expected = (HERE / f"{name}.txt").read_text("utf-8").splitlines()
    assert lines(PAGES[name](tmp_path)) == expected

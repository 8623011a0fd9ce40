"""The page on the mathematics: its example prints what it shows, its table is what is computed."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from fedcohort.privacy.accounting import epsilon, gaussian_sigma
from fedcohort.protocol.private import Release

PAGE = Path(__file__).parents[2] / "docs" / "privacy-mathematics.md"


def test_the_example_prints_what_the_page_shows():
    failed, run = doctest.testfile(str(PAGE), module_relative=False)
    assert run >= 4
    assert failed == 0


def test_the_table_of_sigma_is_what_the_rules_give():
    rows = re.findall(
        r"^\| ([\d.]+), ([\de.-]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+)", PAGE.read_text(), re.M
    )
    assert len(rows) == 4
    for row in rows:
        eps, delta, *expected = map(float, row)
        rules = ("analytic", "zhao", "classic_beyond_proof")
        found = [gaussian_sigma(eps, delta, rule) for rule in rules]
        assert found == pytest.approx(expected, abs=1e-6)


def test_the_settings_of_the_tutorial_cost_what_the_page_says():
    for z, steps, rdp, pld in (
        (1.3, 3516, 0.954, 0.864),
        (1.1, 14063, 2.597, 2.382),
        (0.7, 10547, 6.320, 5.640),
    ):
        made = [Release(step="s", noise=z, count=steps, sampling=256 / 60000)]
        assert epsilon(made, 1e-5, "rdp") == pytest.approx(rdp, abs=1e-3)
        assert epsilon(made, 1e-5) == pytest.approx(pld, abs=1e-3)
        for number in (rdp, pld):
            assert f"{number:.3f}" in PAGE.read_text()

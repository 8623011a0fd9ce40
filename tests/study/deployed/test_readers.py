"""What readers of a deployed run are told is true of a network."""

from __future__ import annotations

import html
import re

import pytest

from deployed_cases import frames_of, results_of, run_local, tables_of, terms_of
from fedcohort.report import write
from fedcohort.report.disclosure import plain_ledger


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readers")
    terms = terms_of(folder, "gbsg2", "[{method: cox}]", repeats=3)
    run_local(terms, tables_of(terms, frames_of("gbsg2")), folder / "out")
    page = write(folder / "out").read_text(encoding="utf-8")
    text = html.unescape(
        re.sub(r"<[^>]+>", " ", re.sub(r"<style.*?</style>", "", page, flags=re.S))
    )
    return folder / "out", results_of(folder / "out"), re.sub(r"\s+", " ", text)


def test_the_report_says_why_there_is_no_upper_bound_and_what_the_lower_one_is(run):
    _, _, text = run
    assert "There is no upper bound" in text
    assert "shaded band" not in text
    assert "judged on the hospital's own blind patients" in text
    assert "the mean over hospitals" not in text


def test_the_report_speaks_of_nothing_that_a_network_cannot_have(run):
    _, found, text = run
    assert found["left_out"] and not found.get("importance")
    assert "without a network" not in text
    assert "Whoever runs the coordinator could read each hospital's part" in text
    assert "Metrics were formed from sums over hospitals" in text
    assert "calibration slope is stratified by hospital" in text


def test_each_metric_says_how_exact_it_is(run):
    _, found, text = run
    how = found["evaluate"]["exactness"]
    assert list(how) == found["evaluate"]["metrics"]
    assert all(f"Computed over the network: {said}." in text for said in how.values())


def test_differences_from_the_lower_bound_are_of_the_same_pairs(run):
    _, found, _ = run
    rows = {(a["arm"], a["repeat"]): a for a in found["arms"] if a["site"] is None}
    for c in found["comparisons"]:
        inside = c["metric"] in ("c_index", "uno_c")
        assert (c.get("pairs") == "within") == inside
        key = "within" if inside else "metrics"
        apart = [
            rows["cox", r][key][c["metric"]] - rows["isolated", r][key][c["metric"]]
            for r in range(3)
        ]
        assert c["difference"] == pytest.approx(sum(apart) / 3, abs=1e-12)


def test_calibration_is_shown_at_one_horizon_in_all_repeats(run):
    _, found, _ = run
    assert len({row["time"] for row in found["calibration"]}) == 1
    assert {row["repeat"] for row in found["calibration"]} == {0, 1, 2}


def test_the_ledger_says_which_replies_of_sums_reach_the_coordinator(run):
    folder, _, _ = run
    lines = plain_ledger(folder)
    said = " ".join(" ".join(lines).split())
    assert "not masked reaches the coordinator as every site's own reply" in said
    assert not any("followed" in line and "`" in line for line in lines)


def test_the_card_names_the_hospitals(run):
    folder, _, _ = run
    card = (folder / "models" / "cox" / "card.md").read_text(encoding="utf-8")
    assert "the rows of bergen, oslo, tromsø, at these hospitals" in card

"""Clocks of two parties, and what the coordinator knows of each site."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcohort
from fedcohort.network import clocks
from fedcohort.network.clocks import Offset
from fedcohort.network.kits.parties import Parties, as_line


@given(
    ahead=st.floats(-1e8, 1e8), there=st.floats(0, 5), back=st.floats(0, 5),
)  # fmt: skip
def test_the_true_offset_lies_within_the_bound_however_unequal_the_ways_are(ahead, there, back):
    true, passed = 1.7e9, [0.0]

    def ask():
        passed[0] += there
        at = true + passed[0]
        passed[0] += back
        return at

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks.time, "monotonic", lambda: passed[0])
        found = clocks.measured(ask, wall=lambda: true + passed[0] + ahead)
    assert found is not None
    assert found.bound == pytest.approx((there + back) / 2)
    assert abs(found.seconds - ahead) <= found.bound + 1e-6


@pytest.mark.parametrize("answer", [None, "now", True, float("nan"), float("inf"), 1e300, [1.0]])
def test_what_is_no_clock_gives_no_offset(answer):
    assert clocks.measured(lambda: answer) is None


@pytest.mark.parametrize("value", [None, 3.0, [1.0], [1, 2, 3], ["a", 1.0], [1.0, -1.0], {}])
def test_an_offset_that_a_peer_makes_up_is_none(value):
    assert clocks.received(value) is None


@pytest.mark.parametrize(
    ("offset", "wrong"),
    [((61.0, 0.5), True), ((-61.0, 0.5), True), ((61.0, 2.0), False), ((59.0, 0.0), False)],
)
def test_clocks_are_called_wrong_only_where_the_way_cannot_explain_it(offset, wrong):
    assert Offset(*offset).wrong is wrong


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0123, "0.012 s"), (41.2, "41 s"), (90, "2 min"), (10_800, "3 h 0 min"),
     (2 * 365 * 86_400, "730 days")],
)  # fmt: skip
def test_spans_are_spelt_for_people(seconds, words):
    assert clocks.spell(seconds) == words


def test_the_coordinator_says_once_that_a_sites_clock_or_disk_is_wrong(tmp_path):
    said = []
    parties = Parties({"north": fedcohort.__version__}, said.append, tmp_path / "sites.json")
    parties.heard("north", {})
    for i in range(3):
        parties.heard("north", {"offset": [10_800.0 + i, 0.01]})
    assert said == ["north: its clock is 3 h 0 min ahead of the coordinator's. IT of north has to "
                    "mend it"]  # fmt: skip
    parties.heard("north", {"offset": [0.0, 0.01], "fault": "No space left on device"})
    assert "it cannot write its state (No space left on device)" in said[1]
    parties.heard("north", {"offset": [0.0, 0.01], "fault": ""})
    assert len(said) == 2


@pytest.mark.parametrize(
    ("version", "who"), [("0.0.9", "north"), ("0.2.0", "the coordinator"), ("12.0", "the coord")]
)
def test_of_two_versions_that_do_not_fit_the_older_ones_it_is_named(version, who):
    line = as_line("north", {"version": version}, connected=False)
    assert f"REFUSED, as the coordinator runs {fedcohort.__version__}" in line
    assert f"IT of {who}" in line
    assert line.endswith("has to upgrade")


def test_a_site_that_is_well_is_one_short_line():
    known = {"version": fedcohort.__version__, "offset": [0.002, 0.003], "fault": ""}
    assert as_line("north", known, connected=True) == (
        f"north: connected, fedcohort {fedcohort.__version__}, clock within 0.005 s"
    )


def test_text_of_a_site_is_made_safe_to_show(tmp_path):
    parties = Parties({}, lambda line: None, tmp_path / "sites.json")
    parties.heard("north", {"fault": "\x1b[31mred\nline" + "x" * 500, "offset": "soon"})
    fault = parties.facts()["north"]["fault"]
    assert fault.isprintable()
    assert len(fault) <= 200


@pytest.mark.parametrize("odd", [10**400, -(10**400), 1e30, float("inf"), float("nan"), True, "1"])
def test_what_no_clock_can_say_is_no_time(odd):
    assert clocks.measured(lambda: odd) is None
    assert clocks.received([odd, 0.1]) is None
    assert clocks.received([0.1, odd]) is None

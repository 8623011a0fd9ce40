"""Sites that come and go: as often, and for as long, as was asked; never too few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.protocol import SettingError
from fedcohort.runtime.absences import Availability

SITES = tuple(f"s{i}" for i in range(6))


def drawn(law, rounds, quorum=0.01, sites=SITES, seed=3):
    found = law.of(sites, quorum, seed)
    return np.array([[s in found.away(r) for s in sites] for r in range(rounds)])


@pytest.mark.parametrize(("away", "length"), [(0.3, None), (0.3, 4.0), (0.6, 3.0), (0.1, 1.0)])
def test_sites_are_away_for_the_share_and_as_long_as_was_asked(away, length):
    sites = tuple(f"s{i}" for i in range(40))
    law = Availability(away=away, rounds=length)
    gone = drawn(law, 2000, sites=sites)[1:]
    starts = (gone[1:] & ~gone[:-1]).sum()
    spell = gone[1:].sum() / starts  # rounds away for each beginning of an absence
    assert gone.mean() == pytest.approx(away, abs=0.01)
    assert spell == pytest.approx(law.length, rel=0.05)


def test_without_a_length_rounds_are_independent():
    gone = drawn(Availability(away=0.4), 20_000, sites=("a", "b"), quorum=0.1)[1:, 0]
    after = gone[1:][gone[:-1]].mean(), gone[1:][~gone[:-1]].mean()
    # the quorum of one calls one back where both would be away: 0.4 · (1 − 0.4 / 2)
    assert after == pytest.approx((0.32, 0.32), abs=0.02)


def test_everybody_is_there_in_the_first_round():
    assert not drawn(Availability(away=0.9), 1).any()


@given(st.floats(0.05, 0.95), st.floats(0.05, 1.0), st.integers(0, 2**32), st.integers(1, 9))
def test_the_quorum_is_there_in_every_round(away, quorum, seed, n):
    sites = tuple(f"s{i}" for i in range(n))
    here = (~drawn(Availability(away=away), 30, quorum, sites, seed)).sum(axis=1)
    assert here.min() >= max(1, np.ceil(quorum * n - 1e-9))


@given(st.integers(0, 2**32), st.lists(st.integers(0, 40), min_size=1))
def test_asked_in_any_order_the_answers_are_the_same(seed, asked):
    law = Availability(away=0.5, rounds=3.0)
    first, second = law.of(SITES, 0.3, seed), law.of(SITES, 0.3, seed)
    whole = [second.away(r) for r in range(41)]
    assert [first.away(r) for r in asked] == [whole[r] for r in asked]


def test_who_is_always_there_never_leaves():
    gone = drawn(Availability(away=0.8, always=("s2", "s5")), 500)
    assert not gone[:, [2, 5]].any()
    assert gone[:, 0].mean() > 0.5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"away": 1.0}, "below 1"),
        ({"away": -0.1}, "from 0"),
        ({"away": 0.3, "rounds": 0.5}, "or more"),
        ({"away": 0.8, "rounds": 2.0}, "is away for 4 of them at a time"),
    ],
)
def test_what_cannot_be_is_refused(given, said):
    with pytest.raises(SettingError, match=said):
        Availability(**given)


def test_a_site_that_is_not_there_cannot_always_be_there():
    with pytest.raises(SettingError, match="no site 'x'"):
        Availability(away=0.3, always=("x",)).of(SITES, 0.5, 0)


@pytest.mark.parametrize("rounds", [float("inf"), float("nan")])
def test_a_length_is_a_number(rounds):
    with pytest.raises(SettingError, match="mean length"):
        Availability(away=0.3, rounds=rounds)


def test_as_many_are_there_as_a_masked_sum_needs():
    found = Availability(away=0.9).of(SITES, 0.1, 0, fewest=4)
    assert max(len(found.away(r)) for r in range(200)) == 2


def test_among_fewer_sites_those_left_out_need_not_be_there():
    """Tuning leaves out one site after another."""
    law = Availability(away=0.3, always=("s1", "s2")).among(["s0", "s2", "s3"])
    assert law == Availability(away=0.3, always=("s2",))

"""Sites that come and go: as often, and for as long, as was asked; never too few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.protocol import SettingError
from fedcohort.protocol.host import Call
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
    assert spell == pytest.approx(law.length(law.away), rel=0.05)


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
        ({"by_site": {"s1": 0.8}, "rounds": 2.0}, "is away for 4 of them at a time"),
        ({"by_site": {"s1": 1.0}}, "below 1"),
        ({"fraction": 0.0}, "above 0"),
        ({"by_site": {"s1": 0.2}, "always": ("s1",)}, "in 'always' and in 'by_site'"),
    ],
)
def test_what_cannot_be_is_refused(given, said):
    with pytest.raises(SettingError, match=said):
        Availability(**given)


@pytest.mark.parametrize("more", [{"always": ("x",)}, {"by_site": {"x": 0.5}}])
def test_a_site_that_is_not_there_cannot_be_named(more):
    with pytest.raises(SettingError, match="no site 'x'"):
        Availability(away=0.3, **more).of(SITES, 0.5, 0)


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


def test_each_site_is_away_for_its_own_share():
    """20,000 independent rounds: sd of a share at most 0.0036."""
    law = Availability(away=0.1, by_site={"s1": 0.6, "s4": 0.0})
    gone = drawn(law, 20_000)[1:].mean(axis=0)
    assert gone == pytest.approx([0.1, 0.6, 0.1, 0.1, 0.0, 0.1], abs=0.012)
    assert law.among(["s0", "s1"]) == Availability(away=0.1, by_site={"s1": 0.6})


def test_equal_shares_by_site_are_the_same_draws_as_one_share():
    one = Availability(away=0.4, rounds=3.0)
    other = Availability(rounds=3.0, by_site=dict.fromkeys(SITES, 0.4))
    assert (drawn(one, 200) == drawn(other, 200)).all()


def call_of(number, awaits=1, *, whole=False):
    return Call(0, None, "sum", None, None, round=number, awaits=awaits, whole=whole)


@pytest.mark.parametrize(("fraction", "asked"), [(0.5, 3), (0.3, 2), (0.01, 1), (1.0, 6)])
def test_a_client_fraction_asks_so_many_sites_of_each_round_and_each_as_often(fraction, asked):
    """Each of 6 sites in a share asked/6 of 3,000 rounds: sd of the share at most 0.009."""
    found = Availability(fraction=fraction).of(SITES, 0.01, 7)
    heard = [[not found.misses(call_of(r), s) for s in SITES] for r in range(1, 3001)]
    assert set(map(sum, heard)) == {asked}
    assert np.mean(heard, axis=0) == pytest.approx(asked / 6, abs=0.035)
    assert not any(found.misses(call_of(0), s) for s in SITES)


def test_sites_are_drawn_among_those_that_are_there():
    law = Availability(away=0.5, fraction=0.5)
    found, same = law.of(SITES, 0.1, 7), Availability(away=0.5).of(SITES, 0.1, 7)
    for r in range(1, 300):
        heard = {s for s in SITES if not found.misses(call_of(r), s)}
        assert found.away(r) == same.away(r)  # a fraction does not change who is away
        assert not heard & found.away(r)
        assert len(heard) == min(3, len(SITES) - len(found.away(r)))


def test_a_call_that_needs_more_sites_than_are_drawn_is_asked_of_all_that_are_there():
    found = Availability(fraction=0.5).of(SITES, 0.1, 7)
    for call in (call_of(4, 6, whole=True), call_of(4, 4), call_of(4, 1, whole=True)):
        assert not any(found.misses(call, s) for s in SITES)
        assert found.wait(call, SITES) == 0
    assert sum(found.misses(call_of(4, 3), s) for s in SITES) == 3

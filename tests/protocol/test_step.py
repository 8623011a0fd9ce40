"""What a step's annotations declare, and where its random numbers come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import toys
from fedcohort.protocol import Keep, Site, summed
from fedcohort.protocol.step import entropy


def test_a_step_knows_its_name_verb_reply_and_state_from_its_annotations():
    assert (toys.means.name, toys.means.verb) == ("means", "gather")
    assert (toys.solve.verb, toys.solve.reply, toys.solve.state) == (
        "sum",
        toys.Consensus,
        toys.Memory,
    )
    assert toys.solve.keeps
    assert toys.moments.state is None


def test_a_step_may_read_a_state_that_it_does_not_keep():
    assert toys.distance.state is toys.Memory
    assert not toys.distance.keeps


def no_return(site: Site[Any, None]):
    return toys.Draw(np.zeros(1))


def returns_float(site: Site[Any, None]) -> float:
    return 0.0


def keeps_float(site: Site[Any, None]) -> Keep[toys.Draw, float]:
    return Keep(toys.Draw(np.zeros(1)), 0.0)


@pytest.mark.parametrize("run", [no_return, returns_float, keeps_float])
def test_a_step_that_returns_no_message_is_refused_when_it_is_declared(run):
    with pytest.raises(TypeError, match=rf"step {run.__name__} declares .* returns a @message"):
        summed(run)


def draws(*parts: Any) -> Any:
    site = Site("", None, None, entropy(*parts))
    return np.r_[site.rng.random(4), site.seed]


def test_random_numbers_depend_on_seed_site_and_call_alone():
    assert_array_equal(draws(1, "a", 3), draws(1, "a", 3))


@pytest.mark.parametrize("other", [(2, "a", 3), (1, "b", 3), (1, "a", 4), (1, "ab", 3)])
def test_random_numbers_differ_in_each_of_seed_site_and_call(other):
    assert not np.isin(draws(1, "a", 3), draws(*other)).any()


def test_two_names_with_the_same_crc32_draw_different_numbers():
    assert not np.isin(draws(1, "plumless", 0), draws(1, "buckeroo", 0)).any()


def test_the_integer_seed_fits_in_63_bits():
    assert all(0 <= Site("", None, None, (i,)).seed < 2**63 for i in range(200))

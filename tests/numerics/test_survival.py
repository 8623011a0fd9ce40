"""When records are at risk on a grid, and up to where a cumulative hazard is known."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcohort.numerics.survival import Baseline, slots


@given(time=st.lists(st.integers(1, 40), min_size=1, max_size=30), seed=st.integers(0, 99))
def test_together_all_who_leave_in_an_interval_are_at_risk_until_its_end(time, seed):
    time = np.array(time, float)
    times = np.unique(np.r_[np.random.default_rng(seed).integers(1, 40, 4), 40]).astype(float)
    for event in (np.ones(len(time), bool), np.zeros(len(time), bool)):
        slot = slots(time, event, times, together=True)
        assert (time <= times[slot]).all()
        assert (time > np.r_[0.0, times][slot]).all()


def test_apart_the_censored_leave_before_the_end_of_their_interval_and_deaths_at_it():
    time, event = np.array([1.0, 2.0, 1.5, 1.5, 0.5]), np.array([0, 1, 0, 1, 0], bool)
    assert_array_equal(slots(time, event, np.array([1.0, 2.0])), [0, 1, 0, 1, -1])


def test_a_hazard_is_known_up_to_the_last_of_its_times_and_stays_there():
    steps = Baseline(np.array([1.0, 2.0]), np.array([0.1, 0.4]))
    assert steps.end == 2.0
    longer = steps.until(5.0, 0.4)
    assert longer.end == 5.0
    assert_array_equal(longer.at(np.array([0.5, 2.0, 4.9, 5.0, 99.0])), [0.0, 0.4, 0.4, 0.4, 0.4])
    assert longer.until(3.0, 9.0) is longer
    assert Baseline(np.zeros(0), np.zeros(0)).end == 0.0

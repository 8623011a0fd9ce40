"""Censored records wait until enough of them leave together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcohort.numerics.survival import exits, leave_together


@given(
    censored=st.lists(st.integers(0, 7), min_size=2, max_size=30),
    at_least=st.integers(1, 8),
)
def test_those_who_leave_together_are_enough_and_nobody_leaves_early(censored, at_least):
    slot = np.repeat(np.arange(-1, len(censored) - 1), censored)
    waited = leave_together(slot, np.zeros(len(slot), bool), exits(np.array(censored), at_least))
    if sum(censored) < at_least:
        assert (waited == -1).all()
        return
    assert (waited >= slot).all()
    groups = np.unique(waited, return_counts=True)[1]
    assert groups.min() >= at_least
    assert waited.max() == slot.max()


@given(censored=st.lists(st.integers(0, 7), min_size=2, max_size=30))
def test_nobody_waits_where_one_is_enough(censored):
    slot = np.repeat(np.arange(-1, len(censored) - 1), censored)
    alone = leave_together(slot, np.zeros(len(slot), bool), exits(np.array(censored), 1))
    assert_array_equal(alone, slot)


@pytest.mark.parametrize(
    ("censored", "leave"),
    [
        ([0, 5, 0, 2, 4, 6], [0, 3, 4]),  # enough at once; 2 wait for 4; enough at once
        ([0, 5, 0, 5, 2, 1], [0, 4]),  # 3 are too few at the end: the 5 before wait for them
        ([2, 0, 3, 0, 0, 0], [1]),  # those before the first time wait too
        ([9, 0, 0, 0, 0, 0], [-1]),
        ([1, 1, 1, 1, 0, 0], [-1]),  # 4 in all are never at risk
        ([0, 0, 0, 0, 0, 0], [-1]),
    ],
)
def test_exits(censored, leave):
    assert_array_equal(exits(np.array(censored), 5), leave)


def test_deaths_do_not_wait():
    slot, dies = np.array([0, 1, 2, 2]), np.array([True, False, True, False])
    assert_array_equal(leave_together(slot, dies, np.array([3])), [0, 3, 2, 3])

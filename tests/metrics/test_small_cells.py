"""Nothing that is shown tells of one to four people, not even by what it leaves of a total."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcohort.metrics.small_cells import merged, shown, shown_parts


@pytest.mark.parametrize(("count", "want"), [(0, 0), (1, None), (4, None), (5, 5), (60, 60)])
def test_a_count_of_one_to_four_is_hidden(count, want):
    assert shown(count, 5) == want


@pytest.mark.parametrize(
    ("counts", "of", "want"),
    [
        ([10, 3, 20], None, [None, None, 20]),  # else 3 is the total less 30
        ([10, 3, 2, 20], None, [10, None, None, 20]),
        ([0, 3, 0], None, [0, None, 0]),  # nothing else to hide: nobody else is there
        ([10, 7], [13, 20], [None, None]),  # 3 of 13 have no event
        ([10, 7], [10, 20], [10, 7]),
    ],
)
def test_parts_by_hand(counts, of, want):
    assert shown_parts(counts, 5, of) == want


@given(counts=st.lists(st.integers(0, 30), min_size=2, max_size=8))
def test_no_hidden_count_is_the_total_less_the_others(counts):
    parts = shown_parts(counts, 5)
    hidden = [c for c, p in zip(counts, parts, strict=True) if p is None]
    assert all(p == c for c, p in zip(counts, parts, strict=True) if p is not None)
    assert len(hidden) != 1 or sum(counts) == hidden[0]


@given(counts=st.lists(st.integers(0, 6), max_size=40), least=st.integers(1, 9))
def test_steps_hold_enough_and_all(counts, least):
    ends = merged(np.array(counts, int), least)
    sums = [sum(part) for part in np.split(np.array(counts, int), ends + 1)]
    if sum(counts) < least:
        assert not len(ends)
        return
    assert min(sums[:-1]) >= least
    assert sums[-1] == 0


def test_what_is_left_joins_the_last_step():
    assert_array_equal(merged(np.array([2, 3, 0, 5, 1, 0]), 5), [1, 4])

"""Nothing that is shown tells of one to four people, not even by what it leaves of a total."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcohort.privacy.disclosure.counts import can_rank, few, published_parts
from fedcohort.privacy.disclosure.steps import joined, merged, step_sums


def test_counts_of_one_to_four_are_few():
    assert few(np.array([0, 1, 4, 5, 60]), 5).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize(
    ("counts", "of", "want"),
    [
        ([10, 3, 20], None, [None, None, 20]),  # else 3 is the total less 30
        ([10, 3, 2, 20], None, [10, None, None, 20]),
        ([10, 1, 2, 20], None, [None, None, None, 20]),  # else 3 of two groups are the total's rest
        ([0, 3, 0], None, [None, None, None]),
        ([10, 7], [13, 20], [None, None]),  # 3 of 13 have no event
        ([10, 7], [10, 20], [10, 7]),
    ],
)
def test_parts_by_hand(counts, of, want):
    assert published_parts(counts, 5, of) == want


@given(counts=st.lists(st.integers(0, 30), min_size=2, max_size=8))
def test_no_hidden_count_is_the_total_less_the_others(counts):
    parts = published_parts(counts, 5)
    hidden = [c for c, p in zip(counts, parts, strict=True) if p is None]
    assert all(p == c for c, p in zip(counts, parts, strict=True) if p is not None)
    assert len(set(hidden)) != 1 or len(hidden) == len(counts)
    assert len(hidden) == len(counts) or not 0 < sum(hidden) < 5


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


def test_whoever_knows_the_rule_and_the_total_of_equal_groups_cannot_tell_a_hidden_count():
    for size, groups, of in ((20, 3, True), (9, 4, False)):
        seen = defaultdict(list)
        for counts in product(range(size + 1), repeat=groups):
            parts = published_parts(counts, 5, [size] * groups if of else None)
            seen[sum(counts), tuple(parts)].append(counts)
        for (total, parts), possible in seen.items():
            assert all(
                len(set(values)) > 1
                for part, values in zip(parts, zip(*possible, strict=True), strict=True)
                if part is None
            ), (total, parts)


@given(
    cells=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30),
    least=st.integers(1, 9),
    size=st.integers(1, 20),
)
def test_no_joined_step_holds_few_of_either_and_all_rows_are_in_one(cells, least, size):
    rows = np.array(cells, int).reshape(-1, 2)
    ends = joined(rows, least, size)
    sums = step_sums(rows, ends)
    whole = rows.sum(axis=0)
    if not len(ends):
        assert whole.sum() < size or ((whole > 0) & (whole < least)).any()
        return
    assert ((sums == 0) | (sums >= least)).all()
    assert sums.sum(axis=1).min() >= size
    assert ends[-1] == len(rows) - 1
    assert_array_equal(sums.sum(axis=0), whole)


def test_steps_are_joined_backwards_where_the_rest_is_few():
    rows = np.array([[5, 0], [0, 5], [5, 0], [0, 1], [1, 0]])
    assert_array_equal(joined(rows, 5), [0, 4])


@pytest.mark.parametrize(
    ("events", "others", "at_least", "both", "want"),
    [
        (4, 40, 1, False, False),
        (5, 0, 1, False, True),
        (5, 0, 1, True, False),
        (40, 4, 1, True, False),
        (7, 9, 8, True, False),
        (8, 9, 8, True, True),
    ],
)
def test_ranks_need_five_events_or_a_cell_of_either_class(events, others, at_least, both, want):
    event = np.repeat([1.0, 0.0], [events, others])
    assert can_rank(event, at_least, both=both) is want

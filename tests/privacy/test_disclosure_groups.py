"""What a site hides by group cannot be worked out, even by who knows the rule: by enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from described import enumerated
from fedcohort.privacy.disclosure.groups import hidden_levels


@pytest.mark.parametrize(
    ("m", "levels", "groups", "largest"),
    [(5, 2, 2, 20), (3, 3, 2, 10), (3, 2, 3, 10), (4, 3, 2, 11)],
)
def test_every_small_count_has_two_values_that_would_have_looked_the_same(
    m, levels, groups, largest
):
    small, pinned = enumerated(m, levels, groups, largest)
    assert small > 1000
    assert pinned == 0


TABLES = st.integers(2, 5).flatmap(
    lambda g: st.lists(
        st.lists(st.one_of(st.integers(0, 7), st.integers(0, 60)), min_size=g, max_size=g),
        min_size=2,
        max_size=5,
    )
)


@settings(max_examples=100)
@given(table=TABLES, m=st.integers(1, 7))
def test_no_small_count_is_shown_nor_a_small_sum_of_hidden_ones_and_order_is_no_matter(table, m):
    table = np.array(table)
    levels, groups = hidden_levels(table, m)
    shown = table[~levels][:, ~groups]
    assert not ((shown > 0) & (shown < m)).any()
    if m > 1 and not groups.all():
        left = table[levels][:, ~groups].sum(axis=0)
        assert not ((left > 0) & (left < m)).any()
        assert levels.sum() != 1
    flipped = hidden_levels(table[::-1, ::-1], m)
    assert flipped[0][::-1].tolist() == levels.tolist()
    assert flipped[1][::-1].tolist() == groups.tolist()


@given(table=TABLES)
def test_a_table_without_small_counts_is_shown_as_it_is(table):
    table = 5 + 5 * np.array(table)
    levels, groups = hidden_levels(table, 5)
    assert not levels.any()
    assert not groups.any()

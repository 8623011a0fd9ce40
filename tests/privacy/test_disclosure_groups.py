"""What a site hides by group cannot be worked out, even by who knows the rule: by enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from described import enumerated
from fedcohort.privacy.disclosure.groups import hidden_confusion, hidden_levels


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


@pytest.mark.parametrize(("m", "k", "largest"), [(3, 3, 14), (5, 3, 16), (3, 4, 11), (5, 4, 12)])
def test_a_hidden_mistake_has_two_values_even_if_the_right_ones_of_its_class_are_known(
    m, k, largest
):
    seen: dict[object, list[set[int]]] = {}
    others = 40 * np.ones((k - 1, k), np.int64)
    for row in itertools.product(range(largest + 1), repeat=k):
        if m <= sum(row) <= largest:
            gone = hidden_confusion(np.array([row, *others]), m)[0]
            told = tuple(None if h else n for n, h in zip(row, gone, strict=True))
            values = seen.setdefault((sum(row), row[0], told), [set() for _ in row])
            for cell, n in zip(values, row, strict=True):
                cell.add(n)
    hidden = 0
    for (*_, told), values in seen.items():
        assert not [n for n in told if n is not None and 0 < n < m]
        for shown, cell in zip(told[1:], values[1:], strict=True):
            if shown is None and any(0 < n < m for n in cell):
                hidden += 1
                assert len(cell) > 1
    assert hidden > 50


def test_a_class_of_few_hides_its_counts_and_those_of_the_next_smallest():
    gone = hidden_confusion(np.array([[40, 0, 0], [0, 20, 10], [1, 0, 2]]), 5)
    assert gone.tolist() == [[False] * 3, [True] * 3, [True] * 3]

"""What a site hides by group cannot be worked out, even by who knows the rule: by enumeration."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.data.cross_suppression import hidden_levels
from fedcohort.data.suppression import hidden


def compositions(n, k):
    """Return every way to write n as k counts from 0."""
    if k == 1:
        return [(n,)]
    return [(i, *rest) for i in range(n + 1) for rest in compositions(n - i, k - 1)]


def published(table, m):
    """Return all that is shown of a table: rows, levels, groups and cells; −1 where hidden."""
    levels, groups = hidden_levels(table, m)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    parts = [
        np.where(hidden(rows, m), -1, rows),
        np.where(hidden(columns, m), -1, columns),
        np.where(levels[:, None] | groups, -1, table).ravel(),
    ]
    n = int(table.sum())
    return (n if not 0 < n < m else -1, *np.concatenate(parts).tolist())


@pytest.mark.parametrize(
    ("m", "levels", "groups", "largest"),
    [(5, 2, 2, 24), (3, 3, 2, 12), (3, 2, 3, 11), (4, 3, 2, 12)],
)
def test_every_small_count_has_two_values_that_would_have_looked_the_same(
    m, levels, groups, largest
):
    # all tables there are, by what is seen of them: an attacker who knows the rule can do no better
    worlds = defaultdict(list)
    for n in range(1, largest + 1):
        for cells in compositions(n, levels * groups):
            worlds[published(np.reshape(cells, (levels, groups)), m)].append(cells)
    small = 0
    for tables in map(np.array, worlds.values()):
        one = tables[0]
        pinned = (tables == one).all(axis=0) & (one > 0) & (one < m)
        assert not pinned.any(), tables
        small += int(((tables > 0) & (tables < m)).sum())
    assert small > 1000


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

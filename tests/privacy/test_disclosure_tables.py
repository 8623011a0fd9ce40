"""Cells hidden beside others leave each hidden count as many values as the rule does."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from count_bounds import bounds
from examples import examples
from fedcohort.privacy.disclosure.tables import Audit, protected

TABLE = np.array([[40.0, 20, 2], [30, 25, 35], [50, 10, 30]])


def test_a_count_hidden_alone_is_the_rest_of_its_row_and_of_its_column():
    table = np.vstack([TABLE, TABLE.sum(axis=0)])
    hidden = np.zeros(table.shape, bool)
    hidden[0, 2] = True
    found = bounds(table, hidden, table.sum(axis=1), np.array([[0, 2]]))
    np.testing.assert_allclose(found, [[2, 2]], atol=1e-9)


@pytest.mark.parametrize("min_cell", [3, 5, 10])
def test_a_rectangle_is_hidden_with_it_and_the_row_of_all_is_spared(min_cell):
    shown = TABLE.copy()
    shown[0, 2] = np.nan
    whole = TABLE.sum(axis=0)
    sites, all_ = protected(shown, TABLE.sum(axis=1), whole, TABLE.sum(), min_cell)
    assert not all_.any()
    assert sites[0, 2]
    assert sites.sum() == 4, "the three other corners of one rectangle"
    table = np.vstack([TABLE, whole])
    hidden = np.vstack([sites, all_])
    low, high = bounds(table, hidden, table.sum(axis=1), np.argwhere(hidden)).T
    assert (high - low >= min_cell - 2).all()


def test_nothing_is_hidden_where_nothing_has_to_be():
    sites, all_ = protected(TABLE, TABLE.sum(axis=1), TABLE.sum(axis=0), TABLE.sum(), 5)
    assert not sites.any()
    assert not all_.any()


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sites=st.integers(2, 6),
    levels=st.integers(2, 4),
    share=st.sampled_from([0.2, 0.5, 0.9]),
    enough=st.sampled_from([1, 3, 8]),
)
def test_what_the_flows_leave_a_count_is_what_two_linear_programs_leave_it(
    seed, sites, levels, share, enough
):
    """Some row sums and some levels of all sites are not known; cells are hidden in two steps."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.choice([1.0, 4.0, 30.0], (sites, levels))).astype(float)
    whole = np.vstack([counts, counts.sum(axis=0)])
    sums = whole.sum(axis=1)
    sums[:-1][rng.random(sites) < 0.2] = np.nan
    first = rng.random(whole.shape) < np.r_[np.full(sites, share), 0.2][:, None]
    audit = Audit(np.where(first, np.nan, whole), sums, enough)
    for hidden in (first, first | (rng.random(whole.shape) < 0.2)):
        cells = np.argwhere(hidden)
        if len(cells):
            low, high = bounds(whole, hidden, sums, cells).T
            room = [audit.room(i, j, hidden) for i, j in cells.tolist()]
            np.testing.assert_allclose(room, np.minimum(high - low, enough), atol=1e-6)


def test_a_table_that_nothing_fits_is_hidden_wholly():
    shown = np.array([[np.nan, 20.0], [30, np.nan]])
    sites, all_ = protected(shown, np.array([10.0, 50]), np.array([40.0, 40]), 80.0, 5)
    assert sites.all()
    assert all_.all()


def test_forty_five_sites_with_a_rare_value_take_a_tenth_of_a_second():
    rng = np.random.default_rng(0)
    n = rng.integers(10, 140, 45).astype(float)
    few = rng.binomial(n.astype(int), 0.03).astype(float)
    table = np.stack([rng.binomial(3, 0.3, 45), n - 3 - few, few], axis=1)
    rows, whole = table.sum(axis=1), table.sum(axis=0)
    shown = np.where((table > 0) & (table < 5), np.nan, table)
    began = time.process_time()
    sites, all_ = protected(shown, rows, whole, whole.sum(), 5)
    assert time.process_time() - began < 0.5, "two linear programs a cell take some seconds"
    assert not all_.any()
    assert sites.sum() < table.size

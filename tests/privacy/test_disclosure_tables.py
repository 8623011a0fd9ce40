"""Cells hidden beside others leave each hidden count as many values as the rule does."""

from __future__ import annotations

import numpy as np
import pytest

from fedcohort.privacy.disclosure.tables import bounds, protected

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

"""One record never changes a statistic by more than it states; sums are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from fedcohort.privacy import statistics
from fedcohort.protocol.errors import SettingError

LOWER, UPPER = np.array([-2.0, 0.0, 50.0]), np.array([2.0, 10.0, 200.0])
#: Any cell that a table may hold, the impossible ones too.
CELLS = st.one_of(
    st.floats(-500, 500), st.sampled_from([np.nan, np.inf, -np.inf, 1e308, -1e308, 1e200, 5e-324])
)
TABLES = arrays(np.float64, st.tuples(st.integers(1, 8), st.just(3)), elements=CELLS)
MADE = {
    "histogram": lambda table: statistics.histogram(
        np.nan_to_num(table[:, 0], posinf=9, neginf=-9).clip(-9, 9).astype(int), 5
    ),
    "moments": lambda table: statistics.moments(table, LOWER, UPPER),
    "crossed": lambda table: statistics.cross_products(table, 1.7),
}


@pytest.mark.parametrize("kind", MADE)
@given(TABLES, st.integers(0, 7))
def test_one_record_changes_a_statistic_by_no_more_than_it_states(kind, table, which):
    whole = MADE[kind](table)
    without = MADE[kind](np.delete(table, which % len(table), axis=0))
    change = np.abs(np.ravel(whole.value - without.value))
    assert np.all(np.isfinite(whole.value))
    assert np.sum(change) <= whole.l1 * (1 + 1e-9)
    assert math.sqrt(np.sum(change**2)) <= whole.l2 * (1 + 1e-9)
    assert (whole.l1, whole.l2) == (without.l1, without.l2)


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        ("histogram", [0.0, 0.0, 0.0]),
        ("moments", [-9.0, 99.0, 0.0]),
        ("crossed", [4.0, -4.0, 4.0]),
    ],
)
def test_some_record_changes_it_by_all_that_it_states(kind, record):
    made = MADE[kind](np.array([record]))
    empty = MADE[kind](np.empty((0, 3)))
    change = np.ravel(made.value - empty.value)
    assert np.linalg.norm(change) == pytest.approx(made.l2)
    assert np.sum(np.abs(change)) == pytest.approx(made.l1)


@given(TABLES, TABLES)
def test_statistics_of_two_sites_add_up_to_those_of_both(one, other):
    for make in MADE.values():
        assert_allclose(
            make(one).value + make(other).value,
            make(np.vstack([one, other])).value,
            rtol=1e-12,
            atol=1e-12,
        )


def test_sums_are_those_of_the_records_within_their_bounds():
    table = np.random.default_rng(1).uniform(LOWER, UPPER, (200, 3))
    u = 2 * (table - LOWER) / (UPPER - LOWER) - 1
    expected = [200, *u.sum(axis=0), *(u**2).sum(axis=0)]
    assert_allclose(statistics.moments(table, LOWER, UPPER).value, expected, rtol=1e-12)
    squares = table.T @ table * np.where(np.eye(3), 1, math.sqrt(2))
    assert_allclose(
        statistics.cross_products(table, 1e4).value, squares[np.triu_indices(3)], rtol=1e-12
    )
    codes = np.array([0, 1, 1, 4, -1, 5])
    assert_array_equal(statistics.histogram(codes, 5).value, [1, 2, 0, 0, 1])


def test_moments_of_impossible_values_between_narrow_bounds_are_those_of_the_bounds():
    narrow = statistics.moments(np.array([[1e308], [-np.inf]]), np.zeros(1), np.full(1, 1e-3))
    assert_array_equal(narrow.value, [2, 0, 2])


def test_shortening_keeps_directions_and_short_rows():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1e308, 1e308], [np.nan, -np.inf]])
    short = statistics.shortened(rows, 1.0)
    half = math.sqrt(0.5)
    assert_allclose(short, [[0.6, 0.8], [0.3, 0.4], [0, 0], [half, half], [0, -1]], atol=1e-15)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: statistics.moments(np.zeros((2, 3)), LOWER, LOWER), "below its upper one"),
        (lambda: statistics.moments(np.zeros((2, 2)), LOWER, UPPER), "bounds of 3 columns"),
        (lambda: statistics.moments(np.zeros((2, 3)), LOWER, UPPER[:2]), "shapes (3,) and (2,)"),
        (lambda: statistics.moments(np.zeros((2, 3)), LOWER, UPPER * np.inf), "must be finite"),
        (lambda: statistics.cross_products(np.zeros((2, 3)), 0.0), "norm 0"),
        (lambda: statistics.cross_products(np.zeros(3), 1.0), "a matrix is needed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bounds_that_bound_nothing_are_refused(call, said):
    with pytest.raises(SettingError) as error:
        call()
    assert said in str(error.value)

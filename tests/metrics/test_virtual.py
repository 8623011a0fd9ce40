"""Virtual rows beside real ones, against scipy and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.spatial import cKDTree

from fedcohort.metrics import virtual
from fedcohort.metrics.membership import delong
from fedcohort.metrics.virtual import Columns


def table(numbers, codes=None, levels=()):
    numbers = np.asarray(numbers, float)
    codes = np.zeros((len(numbers), 0), int) if codes is None else np.asarray(codes, int)
    return Columns(numbers, codes, levels)


@given(st.integers(0, 500), st.integers(1, 40), st.integers(1, 40))
def test_the_error_of_a_number_is_scipys_distance_of_two_samples(seed, n, m):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 9, (n, 1)), rng.integers(2, 12, (m, 1))
    found = virtual.marginal_errors(table(a), table(b), np.ones((1, n)))
    assert_allclose(found[0, 0], stats.ks_2samp(a[:, 0], b[:, 0]).statistic, atol=1e-12)


@given(st.lists(st.booleans(), min_size=1), st.lists(st.booleans(), min_size=1))
def test_a_yes_no_column_without_missing_values_has_the_same_error_as_its_two_levels(a, b):
    real, drawn = (table(np.array(x)[:, None], np.array(x)[:, None], (2,)) for x in (a, b))
    number, levels = virtual.marginal_errors(real, drawn, np.ones((1, len(a))))[0]
    assert_allclose(number, levels, atol=1e-12)
    assert_allclose(number, abs(np.mean(a) - np.mean(b)), atol=1e-12)


@given(st.integers(0, 500))
def test_a_weight_counts_a_row_as_often(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(12, 2)).round(1)
    codes = rng.integers(-1, 3, (12, 1))
    times = rng.integers(0, 4, 12)
    times[0] += 1
    other = table(rng.normal(size=(9, 2)), rng.integers(-1, 3, (9, 1)), (3,))
    weighted = virtual.marginal_errors(table(x, codes, (3,)), other, times[None].astype(float))
    again = np.repeat(np.arange(12), times)
    copied = table(x[again], codes[again], (3,))
    assert_allclose(weighted, virtual.marginal_errors(copied, other, np.ones((1, len(again)))))


def test_missing_values_are_part_of_a_distribution():
    real, drawn = table([[1.0], [np.nan]], [[0], [-1]], (2,)), table([[1.0]], [[0]], (2,))
    assert_allclose(virtual.marginal_errors(real, drawn, np.ones((1, 2))), [[0.5, 0.5]])


def test_correlations_are_spearmans_among_rows_that_know_both():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 3))
    x[:10, 0] = np.nan
    features, of = virtual.features(table(x))
    found = virtual.correlations(features)
    assert_array_equal(of, [0, 1, 2])
    assert_allclose(found[1, 2], stats.spearmanr(x[:, 1], x[:, 2]).statistic, atol=1e-12)
    both = np.corrcoef(features[10:, 0], features[10:, 1])[0, 1]
    assert_allclose(found[0, 1], both, atol=1e-12)


def test_the_association_error_is_the_mean_difference_over_pairs_of_two_columns():
    codes = np.array([0, 1, 2, 0, 1, 2])[:, None]
    x = np.arange(6.0)[:, None]
    one = table(x, codes, (3,))
    assert virtual.association_error(virtual.associations(one, one)) == 0.0
    other = table(x[::-1], codes, (3,))
    found = virtual.associations(one, other)
    assert found.pairs.sum() == 2  # the number with either level, not the levels with each other
    expected = np.abs(found.real - found.virtual)[found.pairs].mean()
    assert_allclose(virtual.association_error(found), expected)


def test_nearest_distances_are_a_trees():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(1500, 4)), rng.normal(size=(300, 4))
    assert_allclose(virtual.nearest(a, b), cKDTree(b).query(a)[0])


def test_distance_counts_standard_deviations_and_unlike_levels():
    real = table([[0.0], [2.0], [np.nan]], [[0], [1], [1]], (2,))
    points = virtual.points(real, real)
    d = np.sqrt(np.square(points[:, None] - points[None]).sum(axis=2))
    assert_allclose(d[0, 1] ** 2, 2.0**2 + 1)  # two standard deviations, another level
    assert_allclose(d[1, 2] ** 2, 1.0 + 1.0)  # the mean is one away, and one more for missing


def test_copies_are_rows_that_are_equal_in_every_place():
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.5]])
    assert virtual.copies(rows, rows[:1]).tolist() == [True, True, False]


@pytest.mark.parametrize(("kept", "least", "most"), [(1.0, 0.99, 1.0), (0.0, 0.42, 0.58)])
def test_attacks_find_rows_that_were_copied_and_no_others(kept, least, most):
    """0.42 to 0.58 is four standard errors of the AUC of 400 and 400 rows."""
    rng = np.random.default_rng(4)
    train, blind, fresh = rng.normal(size=(3, 400, 5))
    drawn = train if kept else fresh
    near = delong(*virtual.nearest_record(train, blind, drawn)).value
    other = delong(*virtual.calibrated(train, blind, drawn, rng)).value
    assert least <= near <= most
    assert least - 0.02 <= other <= most + 0.02


def test_an_interpolation_lies_between_a_row_and_one_of_its_nearest():
    rng = np.random.default_rng(2)
    points = rng.normal(size=(60, 2))
    one, other, share = virtual.smote(points, 200, rng, 5)
    near = cKDTree(points).query(points, 6)[1][:, 1:]
    assert all(b in near[a] for a, b in zip(one, other, strict=True))
    assert ((share >= 0) & (share < 1)).all()

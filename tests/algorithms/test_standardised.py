"""Standardised differences, against their closed forms and scipy's Mahalanobis distance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import mahalanobis

from fedcohort.algorithms.describe.lines import of_levels, of_means

COUNTS = st.lists(st.integers(1, 60), min_size=3, max_size=3)


def test_means_differ_by_the_formula_of_austin():
    # (65 − 60) / √((10² + 8²)/2), by hand
    assert of_means((65, 10), (60, 8)) == pytest.approx(0.5521576303742327)
    assert math.isnan(of_means((1, 0), (2, 0)))


def test_of_two_levels_it_is_the_difference_of_proportions():
    p, q = 30 / 80, 45 / 70
    expected = abs(p - q) / math.sqrt((p * (1 - p) + q * (1 - q)) / 2)
    assert of_levels(np.array([50, 30]), np.array([25, 45])) == pytest.approx(expected)


@given(one=COUNTS, other=COUNTS, left_out=st.integers(0, 2))
def test_of_several_levels_it_is_the_mahalanobis_distance_whichever_is_left_out(
    one, other, left_out
):
    p, q = (np.delete(np.array(c) / sum(c), left_out) for c in (one, other))
    spread = sum(np.diag(x) - np.outer(x, x) for x in (p, q)) / 2
    expected = mahalanobis(p, q, np.linalg.inv(spread))
    assert of_levels(np.array(one), np.array(other)) == pytest.approx(expected, abs=1e-12)


def test_levels_that_nobody_has_change_nothing_and_groups_without_a_common_level_have_none():
    one, other = np.array([5, 0, 9]), np.array([8, 0, 4])
    assert of_levels(one, other) == pytest.approx(of_levels(one[[0, 2]], other[[0, 2]]))
    assert math.isnan(of_levels(np.array([5, 0]), np.array([0, 7])))
    assert math.isnan(of_levels(np.array([0, 0]), np.array([3, 7])))
    assert math.isnan(of_levels(np.array([5, 0]), np.array([7, 0])))

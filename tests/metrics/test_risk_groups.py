"""Thirds are equal where risks differ, and ties stay together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcohort.metrics.survival.log_rank import risk_groups
from fedcohort.protocol.errors import DataError


@given(n=st.integers(3, 200), groups=st.integers(2, 5), seed=st.integers(0, 99))
def test_groups_of_different_risks_are_equal_in_size_and_ordered(n, groups, seed):
    risk = np.random.default_rng(seed).permutation(n) * 0.1
    got = risk_groups(risk, groups)
    size = np.bincount(got, minlength=groups)
    assert size.max() - size.min() <= 1
    assert (np.diff(got[np.argsort(risk)]) >= 0).all()


@given(risk=st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_tied_risks_share_a_group_whatever_rounding_does(risk):
    risk = np.array(risk, float)
    noise = np.random.default_rng(0).uniform(-4e-9, 4e-9, len(risk))
    got = risk_groups(risk + noise, 3)
    assert all(len(set(got[risk == r])) == 1 for r in np.unique(risk))
    assert_array_equal(got, risk_groups(risk, 3))


def test_equal_risks_are_in_the_middle():
    assert_array_equal(risk_groups(np.zeros(7), 3), 1)
    assert len(risk_groups(np.empty(0), 3)) == 0


def test_a_risk_that_is_nan_is_refused():
    with pytest.raises(DataError, match="1 of 2 risk scores are nan"):
        risk_groups(np.array([math.nan, 0.0]), 3)

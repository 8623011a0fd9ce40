"""The points are scikit-learn's, less those that would show few patients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import roc_auc_score, roc_curve

from fedcohort.metrics.roc import roc_points


def sample(n, digits, seed):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.4
    return np.round(rng.normal(size=n) + y, digits), y


@given(
    n=st.integers(4, 300),
    digits=st.integers(0, 3),
    least=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_points_are_on_the_curve_and_no_few_of_a_class_apart(n, digits, least, seed):
    score, y = sample(n, digits, seed)
    got = roc_points(score, y, least)
    if min(y.sum(), (~y).sum()) < least:
        assert got.shape == (0, 2)
        return
    assert len(got) <= 100
    assert_array_equal(got[[0, -1]], [[0, 0], [1, 1]])
    rows = np.rint(np.diff(got, axis=0) * [(~y).sum(), y.sum()])
    assert ((rows == 0) | (rows >= least)).all()
    fpr, tpr, _ = roc_curve(y, score, drop_intermediate=False)
    apart = np.abs(got[:, None] - np.stack([fpr, tpr], axis=1)).max(axis=2)
    assert apart.min(axis=1).max() < 1e-12


def test_the_area_is_kept():
    score, y = sample(2000, 6, 1)
    fpr, tpr = roc_points(score, y, 5).T
    assert_allclose(np.trapezoid(tpr, fpr), roc_auc_score(y, score), atol=2e-3)


@pytest.mark.parametrize("y", [[], [0, 0, 0], [1, 1, 1]])
def test_without_two_classes_there_is_no_curve(y):
    assert roc_points(np.zeros(len(y)), np.array(y), 1).shape == (0, 2)

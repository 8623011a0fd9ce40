"""The bivariate normal against scipy's, and correlations behind binary values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from fedcohort.numerics.binormal import biserial, nearest_correlation, tetrachoric, upper


@pytest.mark.parametrize("rho", [-0.95, -0.5, 0.0, 0.3, 0.8, 0.98])
@pytest.mark.parametrize(("h", "k"), [(0.0, 0.0), (-1.2, 0.4), (2.0, 1.5), (0.7, -2.1)])
def test_the_probability_above_both_thresholds_is_scipys(h, k, rho):
    """P(X > h, Y > k) is P(X < −h, Y < −k), by Genz's algorithm (scipy)."""
    expected = stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([-h, -k])
    assert_allclose(upper(np.array(h), np.array(k), np.array(rho)), expected, atol=2e-6)


def test_the_tetrachoric_correlation_is_the_one_that_gives_the_joint_share():
    p, q, rho = np.meshgrid([0.05, 0.3, 0.9], [0.1, 0.5, 0.8], np.linspace(-0.7, 0.7, 8))
    both = upper(-stats.norm.ppf(p), -stats.norm.ppf(q), rho)
    assert_allclose(tetrachoric(p, q, both), rho, atol=1e-6)


def test_the_biserial_correlation_is_that_of_the_normal_behind_the_binary_value():
    """Four standard errors of a correlation of 200,000 rows are 0.009."""
    rng = np.random.default_rng(0)
    z = rng.multivariate_normal([0, 0], [[1, -0.6], [-0.6, 1]], 200_000)
    b = z[:, 0] > 1.0
    covariance = np.cov(b, z[:, 1])[0, 1]
    assert_allclose(biserial(np.array(b.mean()), np.array(covariance)), -0.6, atol=0.015)


def test_the_nearest_correlation_matrix_is_highams():
    """Higham, IMA J. Numer. Anal. 22, 2002, section 1: the nearest to an invalid matrix."""
    given_ = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    expected = [[1, 0.7607, 0.1573], [0.7607, 1, 0.7607], [0.1573, 0.7607, 1]]
    assert_allclose(nearest_correlation(given_, 1e-9), expected, atol=5e-4)


@given(st.integers(0, 1000), st.integers(2, 8))
def test_any_symmetric_matrix_becomes_a_correlation_matrix(seed, d):
    rng = np.random.default_rng(seed)
    r = np.clip(rng.uniform(-1.5, 1.5, (d, d)), -1, 1)
    r = (r + r.T) / 2
    np.fill_diagonal(r, 1.0)
    found = nearest_correlation(r)
    assert_allclose(np.diag(found), 1.0)
    assert_allclose(found, found.T)
    assert np.linalg.eigvalsh(found).min() > 0


def test_a_correlation_matrix_stays():
    r = np.array([[1, 0.5, 0.2], [0.5, 1, -0.3], [0.2, -0.3, 1]])
    assert_allclose(nearest_correlation(r), r, atol=1e-8)

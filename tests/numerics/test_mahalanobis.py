import numpy as np
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from scipy.stats import chi2

from fedcohort.numerics.mahalanobis import chi_squared, squared_distance

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(80, 3)) @ RNG.normal(size=(3, 3)) * [1.0, 1e4, 1e-4] + [5.0, 1e6, 0.0]
MEAN, COVARIANCE = ROWS.mean(axis=0), np.cov(ROWS.T, bias=True)


def test_distances_are_scipys_mahalanobis_distances():
    expected = cdist(ROWS, MEAN[None], "mahalanobis", VI=np.linalg.inv(COVARIANCE))[:, 0] ** 2
    found, rank = squared_distance(ROWS, MEAN, COVARIANCE)
    assert rank == 3
    assert_allclose(found, expected, rtol=1e-8)


def test_a_column_that_follows_from_others_changes_no_distance():
    more = np.column_stack([ROWS, ROWS @ [2.0, 3e-4, 1e4]])
    found, rank = squared_distance(more, more.mean(axis=0), np.cov(more.T, bias=True))
    assert rank == 3
    assert_allclose(found, squared_distance(ROWS, MEAN, COVARIANCE)[0], rtol=1e-6)


def test_the_share_of_nearer_rows_is_the_distribution_function_of_chi_squared():
    d = np.array([0.0, 0.5, 3.0, 200.0])
    assert_allclose(chi_squared(d, 4), chi2.cdf(d, 4), rtol=1e-12)

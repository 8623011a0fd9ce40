"""Quantiles of mixtures are roots of their distribution function, by SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from scipy.stats import norm, t

from fedcohort.numerics.mixture import below, increasing, quantiles

WEIGHTS = np.array([0.5, 0.3, 0.2])
MEANS = np.array([[0.0, 5.0], [1.0, -3.0], [-4.0, 0.1]])
SCALES = np.array([[1.0, 0.1], [2.0, 3.0], [0.5, 1.0]])


@pytest.mark.parametrize("p", [0.001, 0.025, 0.5, 0.9])
@pytest.mark.parametrize("freedom", [3.0, np.inf])
def test_a_quantile_is_the_root_of_the_distribution_function(p, freedom):
    law = norm() if np.isinf(freedom) else t(freedom)
    found = quantiles(p, WEIGHTS, MEANS, SCALES, freedom)
    for j, x in enumerate(found):
        z = (MEANS[:, j], SCALES[:, j])
        root = brentq(
            lambda x, z=z: WEIGHTS @ law.cdf((x - z[0]) / z[1]) - p, -500, 500, xtol=1e-13
        )
        assert_allclose(x, root, rtol=1e-9, atol=1e-11)
    assert_allclose(below(found, WEIGHTS, MEANS, SCALES, freedom), p, rtol=1e-9)


def test_a_root_of_an_increasing_function():
    assert_allclose(increasing(lambda x: x**3, 2.0, 0.0, 10.0), 2 ** (1 / 3), rtol=1e-12)

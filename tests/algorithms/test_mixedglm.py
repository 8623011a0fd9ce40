"""One site's likelihood with its effect integrated out: SciPy's quad, and its own differences."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.stats import bernoulli, norm, poisson

from fedcohort.algorithms.mixed.mixedglm import FAMILIES, mode_of, terms

CASES = [("binomial", n, tau) for n in (1, 3, 200) for tau in (0.05, 1.0, 6.0)]
CASES += [("poisson", n, tau) for n in (1, 3, 200) for tau in (0.05, 0.5, 2.0)]
every_case = pytest.mark.parametrize(("family", "n", "tau"), CASES)


def site(family, n):
    rng = np.random.default_rng(n)
    x = np.column_stack([np.ones(n), rng.normal(size=n)])
    y = np.ones(n) if n < 200 else rng.poisson(0.7, n).clip(0, 1 if family == "binomial" else 9)
    return x, y.astype(float), rng.normal(size=n) * 0.1


@every_case
def test_the_likelihood_is_the_integral(family, n, tau):
    x, y, offset = site(family, n)
    beta = np.array([-0.4, 0.3])
    eta = x @ beta + offset
    law = {
        "binomial": lambda e: bernoulli.logpmf(y, 1 / (1 + np.exp(-e))),
        "poisson": lambda e: poisson.logpmf(y, np.exp(e)),
    }[family]

    def height(z):
        return law(eta + tau * z).sum() + norm.logpdf(z)

    grid = np.linspace(-9, 9, 1801)
    heights = np.array([height(z) for z in grid])
    top, near = heights.max(), grid[heights > heights.max() - 45]
    ends, peak = (near[0] - 0.02, near[-1] + 0.02), grid[heights.argmax()]
    value = quad(lambda z: np.exp(height(z) - top), *ends, points=[peak], epsabs=0, limit=200)[0]
    found = terms(FAMILIES[family], x, y, offset, np.r_[beta, tau])
    assert_allclose(found.value, np.log(value) + top, rtol=1e-9, atol=1e-9)


@every_case
def test_the_slopes_are_differences_of_the_likelihood_and_of_its_slope(family, n, tau):
    x, y, offset = site(family, n)
    at, h = np.array([-0.4, 0.3, tau]), 1e-5

    def one(point):
        return terms(FAMILIES[family], x, y, offset, point)

    found = one(at)
    steps = h * np.eye(3)
    slope = [(one(at + s).value - one(at - s).value) / (2 * h) for s in steps]
    bend = [(one(at + s).slope - one(at - s).slope) / (2 * h) for s in steps]
    assert_allclose(found.slope, slope, rtol=1e-5, atol=1e-5)
    assert_allclose(found.bend, bend, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_the_likelihood_is_even_in_tau_and_smooth_at_zero(family):
    x, y, offset = site(family, 200)
    beta = [-0.4, 0.3]

    def one(tau):
        return terms(FAMILIES[family], x, y, offset, np.r_[beta, tau])

    zero, near = one(0.0), one(1e-7)
    assert_allclose(one(-0.7).value, one(0.7).value, rtol=1e-12)
    assert_allclose(zero.value, near.value, rtol=1e-5)
    assert_allclose(zero.bend, near.bend, rtol=1e-4, atol=1e-3)
    curve = approx_fprime(np.array([0.0]), lambda t: one(t[0]).slope[-1], 1e-5)
    assert_allclose(zero.bend[-1, -1], curve[0], rtol=1e-4)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_a_site_without_records_adds_nothing(family):
    nothing = (np.zeros((0, 2)), np.zeros(0), np.zeros(0))
    found = terms(FAMILIES[family], *nothing, np.array([0.3, 0.1, 0.8]))
    assert_allclose(found.value, 0, atol=1e-14)
    assert_allclose(found.slope, 0, atol=1e-14)
    assert_allclose(found.bend, 0, atol=1e-13)
    assert mode_of(FAMILIES[family], np.zeros(0), np.zeros(0), 0.8) == 0.0

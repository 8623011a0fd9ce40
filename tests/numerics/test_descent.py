"""Coordinate descent on cross-products finds the minimum that the optimality conditions define."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from fedcohort.numerics import descent
from fedcohort.numerics.descent import TOL, descend


def problem(n, p, seed, *, correlated=1.0, units=1.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) + correlated * rng.normal(size=(n, 1))
    x *= units ** rng.uniform(-1, 1, p)
    y = x @ (rng.normal(size=p) * (rng.random(p) < 0.4)) + rng.normal(size=n)
    return 2 * x.T @ x / n, 2 * x.T @ y / n


def breach(gram, cross, l1, l2, beta):
    """Return by how much β breaks the conditions of the optimum, in units of each column."""
    slope = cross - gram @ beta - l2 * beta
    off = np.where(beta != 0, slope - l1 * np.sign(beta), np.maximum(np.abs(slope) - l1, 0))
    unit = np.sqrt(np.diag(gram))
    return np.abs(off / unit).max() / np.abs(cross / unit).max()


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(3, 60),
    p=st.integers(1, 40),
    seed=st.integers(0, 2**16),
    correlated=st.sampled_from([0.0, 3.0, 30.0]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_every_point_of_a_path_keeps_the_conditions_of_the_optimum(n, p, seed, correlated, share):
    gram, cross = problem(n, p, seed, correlated=correlated, units=100.0)
    l1 = np.geomspace(1.0, 1e-3, 12) * np.abs(cross).max()
    found = descend(gram, cross, l1, share * l1)
    assert found.breach.max() <= TOL
    for a, beta in zip(l1, found.coefficients, strict=True):
        assert breach(gram, cross, a, share * a, beta) < 1e-8


def test_the_minimum_is_that_of_a_bounded_quasi_newton_method():
    # β = u − v with u, v ≥ 0 turns the absolute values into a smooth problem with bounds
    gram, cross = problem(50, 6, 2)
    l1, l2 = 0.3, 0.2

    def value(w):
        u, v = w[:6], w[6:]
        b = u - v
        slope = gram @ b - cross + l2 * b
        total = 0.5 * b @ gram @ b - cross @ b + l1 * w.sum() + l2 / 2 * b @ b
        return total, np.r_[slope + l1, l1 - slope]

    theirs = minimize(
        value, np.zeros(12), jac=True, bounds=[(0, None)] * 12,
        method="L-BFGS-B", options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 5000},
    )  # fmt: skip
    ours = descend(gram, cross, np.array([l1]), np.array([l2])).coefficients[0]
    assert_allclose(ours, theirs.x[:6] - theirs.x[6:], atol=1e-6)
    assert value(np.r_[np.maximum(ours, 0), np.maximum(-ours, 0)])[0] <= theirs.fun + 1e-12


def test_the_first_penalty_at_which_nothing_is_left_is_the_largest_product():
    gram, cross = problem(80, 7, 3, units=10.0)
    top = np.abs(cross).max()
    found = descend(gram, cross, top * np.array([1.0, 0.999]), np.zeros(2)).coefficients
    assert_array_equal(found[0], 0)
    assert (found[1] != 0).sum() == 1


def test_orthogonal_columns_are_soft_thresholded():
    cross = np.array([3.0, -0.5, 1.0, -2.0])
    found = descend(2 * np.eye(4), cross, np.array([1.0]), np.array([2.0])).coefficients[0]
    assert_allclose(found, np.sign(cross) * np.maximum(np.abs(cross) - 1, 0) / 4)


def test_a_column_that_does_not_vary_and_one_that_is_there_twice_do_no_harm():
    gram, cross = problem(60, 5, 4)
    twice = np.ix_([0, 1, 2, 3, 4, 2], [0, 1, 2, 3, 4, 2])
    gram, cross = gram[twice], cross[[0, 1, 2, 3, 4, 2]]
    gram[3], gram[:, 3], cross[3] = 0, 0, 0
    l1 = np.geomspace(1, 1e-4, 20) * np.abs(cross).max()
    found = descend(gram, cross, l1, 0 * l1)
    assert found.breach.max() <= TOL
    assert not found.coefficients[:, 3].any()
    once = descend(gram[:5, :5], cross[:5], l1, 0 * l1).coefficients
    assert_allclose(found.coefficients[:, 2] + found.coefficients[:, 5], once[:, 2], atol=1e-9)


def test_without_a_product_there_is_nothing_to_find():
    found = descend(np.eye(3), np.zeros(3), np.array([0.1, 0.0]), np.zeros(2))
    assert_array_equal(found.coefficients, 0)
    assert_array_equal(found.sweeps, 0)


def test_sweeps_stay_few_where_columns_are_strongly_correlated():
    gram, cross = problem(300, 80, 5, correlated=30.0)
    l1 = np.geomspace(1, 1e-3, 100) * np.abs(cross).max()
    found = descend(gram, cross, l1, 0 * l1)
    assert found.sweeps.max() < 50
    assert found.sweeps.mean() < 5


def test_more_columns_than_rows_and_a_small_penalty_take_few_sweeps():
    # without flat directions, breaches of 2e-4, 3e-6 and 6e-5 were left after 5,000 sweeps
    for n, p, seed, correlated in ((11, 17, 146, 0.0), (15, 37, 503, 3.0), (9, 24, 553, 0.0)):
        gram, cross = problem(n, p, seed, correlated=correlated, units=100.0)
        l1 = np.geomspace(1, 1e-4, 12) * np.abs(cross).max()
        found = descend(gram, cross, l1, 0 * l1)
        assert found.breach.max() <= TOL
        assert found.sweeps.max() < 20
        assert (found.coefficients != 0).sum(axis=1).max() <= n


def test_a_search_that_is_broken_off_tells_how_far_it_is(monkeypatch):
    monkeypatch.setattr(descent, "MOST_SWEEPS", 0)
    gram, cross = problem(50, 4, 6)
    found = descend(gram, cross, np.array([0.1]), np.zeros(1))
    assert found.breach[0] == pytest.approx(1 - 0.1 / np.abs(cross).max(), rel=0.5)
    assert found.breach[0] > TOL

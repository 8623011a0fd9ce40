"""The local problems of consensus ADMM are solved exactly, whatever the shape of the table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import LinearConstraint, milp, minimize

from fedcohort.numerics import prox_hinge
from fedcohort.numerics.prox import LOCAL

FEW = settings(max_examples=15, deadline=None)


def problem(loss, n, d, seed):
    rng = np.random.default_rng(seed)
    a = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])
    y = a @ rng.normal(size=d) + rng.normal(size=n)
    y = y if loss == "squared" else np.where(y > 0, 1.0, -1.0)
    weight = rng.random(n)
    return LOCAL[loss](a, y, 0.1 * rng.normal(size=n), weight / weight.sum()), rng.normal(size=d)


def value(local, x, v, rho):
    return local.loss(x) + rho / 2 * (x - v) @ (x - v)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize(("n", "d"), [(40, 4), (3, 6)])
@pytest.mark.parametrize("rho", [1e-3, 1.0, 50.0])
def test_the_slope_of_a_smooth_subproblem_is_zero_at_its_solution(loss, n, d, rho):
    local, v = problem(loss, n, d, 1)
    x = local.prox(v, rho, v)
    assert_allclose(local.slope(x) + rho * (x - v), 0, atol=1e-8)
    numeric = [(local.loss(x + h) - local.loss(x - h)) / 2e-6 for h in 1e-6 * np.eye(d)]
    assert_allclose(local.slope(x), numeric, atol=1e-6)
    assert minimize(lambda u: value(local, u, v, rho), v).fun >= value(local, x, v, rho) - 1e-10


@FEW
@given(
    seed=st.integers(0, 2**16),
    n=st.integers(1, 60),
    d=st.integers(1, 7),
    rho=st.sampled_from([1e-3, 0.1, 5.0]),
)
def test_no_point_of_a_hinge_subproblem_is_below_the_dual_value_that_the_solution_has(
    seed, n, d, rho
):
    local, v = problem("hinge", n, d, seed)
    x = local.prox(v, rho, v)
    pulled = rho * (x - v)  # Bᵀα for some 0 ≤ α ≤ c, and so −pulled is a slope of the loss at x
    others = (
        x + np.random.default_rng(seed).normal(size=(200, d)) * np.logspace(-6, 1, 200)[:, None]
    )
    for u in others:
        assert local.loss(u) >= local.loss(x) - pulled @ (u - x) - 1e-9


@pytest.mark.parametrize("rho", [1e-3, 0.1, 5.0])
def test_active_sets_and_interior_point_agree(rho, monkeypatch):
    local, v = problem("hinge", 80, 5, 2)
    inner = local.prox(v, rho, v)
    near = local.prox(v + 1e-4, rho, inner)
    monkeypatch.setattr(prox_hinge, "_by_active_sets", lambda *_: None)
    assert_allclose(local.prox(v, rho, v), inner, atol=1e-8)
    assert_allclose(local.prox(v + 1e-4, rho, inner), near, atol=1e-8)


def test_a_guess_near_the_solution_needs_no_interior_point(monkeypatch):
    local, v = problem("hinge", 80, 5, 2)
    first = local.prox(v, 1.0, v)
    monkeypatch.setattr(prox_hinge, "_start", None)
    assert_allclose(local.prox(v + 1e-7, 1.0, first), first, atol=1e-6)


def test_a_weak_anchor_gives_the_least_hinge_loss_that_linear_programming_finds():
    n, d = 40, 3
    local, v = problem("hinge", n, d, 5)
    b, t, c = local._signed, local._margin, local._weight
    costs = np.r_[np.zeros(d), c]
    above = LinearConstraint(np.column_stack([b, np.eye(n)]), lb=t)
    bounds = (np.r_[np.full(d, -np.inf), np.zeros(n)], np.full(d + n, np.inf))
    least = milp(costs, constraints=above, bounds=bounds).fun
    assert_allclose(local.loss(local.prox(v, 1e-9, v)), least, atol=1e-7)


@pytest.mark.parametrize("loss", list(LOCAL))
def test_a_site_without_rows_stays_at_its_anchor(loss):
    v = np.array([1.0, -2.0])
    local = LOCAL[loss](np.zeros((0, 2)), np.zeros(0), np.zeros(0), np.zeros(0))
    assert_allclose(local.prox(v, 0.7, v), v)
    assert local.loss(v) == 0


def test_rows_of_weight_zero_count_for_nothing():
    rng = np.random.default_rng(0)
    a, y, v = rng.normal(size=(20, 3)), np.sign(rng.normal(size=20)), rng.normal(size=3)
    weight = np.r_[np.full(10, 0.1), np.zeros(10)]
    whole = LOCAL["hinge"](a, y, np.zeros(20), weight).prox(v, 0.5, v)
    part = LOCAL["hinge"](a[:10], y[:10], np.zeros(10), weight[:10]).prox(v, 0.5, v)
    assert_allclose(whole, part, atol=1e-9)

"""The local problems of consensus ADMM are solved exactly, whatever the shape of the table."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import LinearConstraint, milp, minimize

from fedcohort.numerics import prox_hinge
from fedcohort.numerics.prox import LOCAL, InMetric

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


@pytest.mark.parametrize("seed", [11, 13, 15, 16])
def test_rows_of_unlike_length_and_a_weak_anchor_are_solved_to_rounding(seed, monkeypatch):
    # ρI is lost in the rounding of BᵀD⁻¹B here, which alone has no Cholesky factor
    rng = np.random.default_rng(seed)
    b = rng.normal(size=(20, 6)) * 10 ** rng.uniform(0, 1.7, (20, 1))
    v, rho = rng.normal(size=6) * 50, 0.1
    monkeypatch.setattr(prox_hinge, "_by_active_sets", lambda *_: None)
    x = prox_hinge.hinge_prox(b, np.ones(20), np.full(20, 0.05), v, rho, v)
    found = 0.05 * np.maximum(1 - b @ x, 0).sum() + rho / 2 * (x - v) @ (x - v)
    alpha = cp.Variable(20)
    dual = cp.sum(cp.multiply(alpha, 1 - b @ v)) - cp.sum_squares(b.T @ alpha) / (2 * rho)
    least = cp.Problem(cp.Maximize(dual), [alpha >= 0, alpha <= 0.05]).solve("CLARABEL")
    assert_allclose(found, least, rtol=1e-6)


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


# smoothing, and other metrics --------------------------------------------------------------


@pytest.mark.parametrize("tau", [1.0, 0.05])
def test_smoothed_hinge_loss_has_the_slope_and_curvature_of_its_differences(tau):
    local, x = problem("hinge", 40, 4, 2)
    value_, slope, curvature, weight = local.smoothed(x, tau)
    assert local.loss(x) < value_ < local.loss(x) + tau * np.log(2)
    steps = 1e-6 * np.eye(4)
    pairs = [(local.smoothed(x + h, tau), local.smoothed(x - h, tau)) for h in steps]
    assert_allclose(slope, [(a[0] - b[0]) / 2e-6 for a, b in pairs], atol=1e-7)
    assert_allclose(curvature, [(a[1] - b[1]) / 2e-6 for a, b in pairs], atol=1e-5)
    assert weight.shape == (40,)
    # the curvature is Σ aaᵀ weight/4τ, and every row's first entry is ±1
    assert_allclose(weight.sum() / (4 * tau), curvature[0, 0])


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
@pytest.mark.parametrize("rho", [1e-2, 5.0])
def test_in_another_metric_no_point_near_by_is_better(loss, rho):
    rng = np.random.default_rng(4)
    a = np.column_stack([np.ones(50), rng.normal(size=(50, 3))])
    y = a @ rng.normal(size=4) + rng.normal(size=50)
    y = y if loss == "squared" else np.where(y > 0, 1.0, -1.0)
    half = rng.normal(size=(4, 4))
    given_ = a, y, np.zeros(50), np.full(50, 0.02)
    plain, v = LOCAL[loss](*given_), rng.normal(size=4)
    metric = half @ half.T + 0.1 * np.eye(4)
    local = InMetric(loss, *given_, metric)

    def anchored(u):
        return plain.loss(u) + rho / 2 * (u - v) @ metric @ (u - v)

    x = local.prox(v, rho, v)
    assert_allclose(local.loss(v), plain.loss(v))
    assert_allclose(local.slope(v), plain.slope(v), atol=1e-12)
    for h in rng.normal(size=(300, 4)) * np.logspace(-5, 0, 300)[:, None]:
        assert anchored(x + h) >= anchored(x) - 1e-10


def test_in_the_metric_of_the_identity_it_is_the_plain_subproblem():
    local, v = problem("hinge", 30, 3, 5)
    rows, weight = local._signed, local._weight
    given_ = rows, np.ones(30), 1.0 - local._margin, weight
    same = InMetric("hinge", *given_, np.eye(3))
    assert_allclose(same.prox(v, 0.3, v), local.prox(v, 0.3, v), atol=1e-9)

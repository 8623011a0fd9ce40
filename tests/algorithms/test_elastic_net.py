"""`elastic_net` over sites equals scikit-learn and CVXPY on the pooled table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import ElasticNet

from algorithms.linear_cases import (
    diabetes,
    fit,
    objective,
    scattered,
    simulated,
    split,
    standard,
    with_cvxpy,
)
from fedcohort.protocol import SettingError

CLOSE = {"rtol": 1e-7, "atol": 1e-8}


def with_sklearn(table, l1, l2):
    """scikit-learn's is half of ours, with α r = l1/2 and α (1 − r) = l2/2."""
    alpha = (l1 + l2) / 2
    model = ElasticNet(alpha=alpha, l1_ratio=l1 / (l1 + l2), tol=1e-12, max_iter=200_000)
    return model.fit(table.x, table.y)


@pytest.mark.parametrize(("l1", "l2"), [(3.0, 0.05), (20.0, 1.0), (0.01, 3.0)])
@pytest.mark.parametrize("n_sites", [1, 6])
def test_coefficients_equal_scikit_learn_on_the_pooled_table(l1, l2, n_sites):
    table = standard(diabetes())
    ours = fit("elastic_net", scattered(table, n_sites), l1=l1, l2=l2)
    theirs = with_sklearn(table, l1, l2)
    assert_allclose(ours.coef_, theirs.coef_, **CLOSE)
    assert_allclose(ours.intercept_, theirs.intercept_, **CLOSE)


def test_one_penalty_and_its_ratio_are_the_same_as_the_two():
    parts = scattered(standard(diabetes()), 3)
    two = fit("elastic_net", parts, l1=3.0, l2=1.0)
    one = fit("elastic_net", parts, penalty=4.0, l1_ratio=0.75)
    assert_array_equal(one.coef_, two.coef_)


def test_the_two_ends_are_ridge_and_lasso():
    parts = scattered(standard(diabetes()), 3)
    ridge, lasso = fit("ridge", parts, penalty=0.7), fit("lasso", parts, penalty=6.0)
    for ours in (
        fit("elastic_net", parts, l2=0.7),
        fit("elastic_net", parts, penalty=0.7, l1_ratio=0.0),
    ):
        assert_allclose(ours.coef_, ridge.coef_, **CLOSE)
        assert_allclose([ours.objective, ours.df], [ridge.objective, ridge.df])
    ours = fit("elastic_net", parts, l1=6.0)
    assert_allclose(ours.coef_, lasso.coef_, **CLOSE)
    assert ours.df == lasso.df


@pytest.mark.parametrize("shape", [(442, 10), (40, 90)])
def test_the_objective_is_the_least_one_also_of_more_columns_than_records(shape):
    table = standard(diabetes() if shape[0] == 442 else simulated(*shape, 3))
    l1 = 0.1 * np.abs(2 * table.x.T @ (table.y - table.y.mean()) / len(table.y)).max()
    ours = fit("elastic_net", scattered(table, 4), l1=l1, l2=0.2)
    assert_allclose(
        ours.objective, objective(table, ours.intercept, ours.coefficients, l1, 0.2), rtol=1e-12
    )
    assert_allclose(ours.objective, with_cvxpy(table, l1, 0.2), rtol=1e-6)


def test_a_path_is_scikit_learns_at_the_penalty_that_held_out_rows_choose():
    table = standard(diabetes())
    ours = fit("elastic_net", scattered(table, 8), l1_ratio=0.3, path=25)
    path = ours.path_
    assert path.chosen == np.argmin(path.error)
    for k in (0, 9, path.chosen, 24):
        l1, l2 = path.penalties[k] * 0.3, path.penalties[k] * 0.7
        assert_allclose(path.coefficients[k], with_sklearn(table, l1, l2).coef_, **CLOSE)
    assert path.nonzero[0] <= 1
    assert 0 < ours.df < (ours.coef_ != 0).sum()


@settings(max_examples=10, deadline=None)
@given(n_sites=st.integers(1, 9), seed=st.integers(0, 2**16))
def test_the_fit_does_not_depend_on_how_records_are_split(n_sites, seed):
    table = standard(simulated(80, 6, seed))
    one = fit("elastic_net", [table], l1=0.3, l2=0.1)
    where = np.random.default_rng(seed).integers(0, n_sites, 80)
    many = fit("elastic_net", split(table, where)[::-1], l1=0.3, l2=0.1)
    assert_allclose(many.coefficients, one.coefficients, rtol=1e-8, atol=1e-10)
    assert_allclose(many.intercept, one.intercept, rtol=1e-8)


def test_covariates_that_are_the_same_share_their_coefficient():
    table = standard(diabetes())
    double = table._replace(x=np.column_stack([table.x, table.x[:, 2]]))
    ours = fit("elastic_net", scattered(double, 3), l1=1.0, l2=0.1)
    assert_allclose(ours.coef_[2], ours.coef_[-1])
    assert ours.coef_[2] > 1


def test_admm_comes_to_the_same_optimum():
    table = standard(diabetes())
    exact = fit("elastic_net", scattered(table, 5), l1=5.0, l2=0.2)
    ours = fit("elastic_net", scattered(table, 5), l1=5.0, l2=0.2, solver="admm")
    assert_allclose(ours.objective, exact.objective, rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"l1": -1}, "'l1' is -1.0; give a number from 0"),
        ({"l2": float("inf")}, "'l2' is inf; give a number from 0"),
        ({"l1": 1.0, "penalty": 2.0}, "penalty and l1 or l2 are given"),
        ({"l1_ratio": 0.0}, "'l1_ratio' is 0.0; give a number above 0, up to 1"),
        ({"l1_ratio": 1.5, "penalty": 1.0}, "'l1_ratio' is 1.5; give a number from 0 to 1"),
        ({"solver": "admm"}, "solver 'admm' fits one penalty"),
    ],
)
def test_settings_that_do_not_go_together_are_named(given, complaint):
    with pytest.raises(SettingError, match=complaint):
        fit("elastic_net", [diabetes()], **given)

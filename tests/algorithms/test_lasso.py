"""`lasso` over sites equals scikit-learn and CVXPY on the pooled table; choices are by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import Lasso, LinearRegression, lasso_path

import fedcohort as fc
from algorithms.linear_cases import (
    asked,
    diabetes,
    federation,
    fit,
    objective,
    scattered,
    simulated,
    spied,
    split,
    standard,
    with_cvxpy,
)
from fedcohort.algorithms.linear.steps import hashed
from fedcohort.protocol import SettingError

CLOSE = {"rtol": 1e-7, "atol": 1e-8}


def with_sklearn(table, penalty, fitted=slice(None)):
    """scikit-learn minimises Σ residual²/(2n) + α ‖β‖₁: so α is half the penalty."""
    model = Lasso(alpha=penalty / 2, tol=1e-12, max_iter=200_000)
    return model.fit(table.x[fitted], table.y[fitted])


@pytest.mark.parametrize("penalty", [0.05, 2.0, 20.0, 80.0])
@pytest.mark.parametrize("n_sites", [1, 3, 8])
def test_coefficients_equal_scikit_learn_on_the_pooled_table(penalty, n_sites):
    table = standard(diabetes())
    ours = fit("lasso", scattered(table, n_sites), penalty=penalty)
    theirs = with_sklearn(table, penalty)
    assert_allclose(ours.coef_, theirs.coef_, **CLOSE)
    assert_allclose(ours.intercept_, theirs.intercept_, **CLOSE)
    assert_array_equal(ours.coef_ != 0, theirs.coef_ != 0)


def test_the_whole_path_equals_scikit_learns():
    table = standard(simulated(150, 12, 2, correlated=2.0))
    path = fit("lasso", scattered(table, 4), path=30, path_ratio=1e-4).path_
    z, v = table.x - table.x.mean(axis=0), table.y - table.y.mean()
    alphas, theirs, _ = lasso_path(z, v, alphas=path.penalties / 2, tol=1e-12, max_iter=200_000)
    assert_allclose(2 * alphas, path.penalties)
    assert_allclose(path.coefficients, theirs.T, **CLOSE)
    assert_allclose(path.intercepts, table.y.mean() - path.coefficients @ table.x.mean(axis=0))
    residuals = v - path.coefficients @ z.T
    assert_allclose(path.fitted, (residuals**2).mean(axis=1))
    assert_allclose(path.penalties[0], np.abs(2 * z.T @ v / 150).max())
    assert path.nonzero[0] <= 1 < path.nonzero[-1]


@pytest.mark.parametrize("n_sites", [2, 10])
@pytest.mark.parametrize("shape", [(442, 10), (40, 90)])
def test_the_objective_is_the_least_one_also_of_more_columns_than_records(shape, n_sites):
    table = standard(diabetes() if shape[0] == 442 else simulated(*shape, 3))
    penalty = 0.1 * np.abs(2 * table.x.T @ (table.y - table.y.mean()) / len(table.y)).max()
    ours = fit("lasso", scattered(table, n_sites), penalty=penalty)
    assert_allclose(
        ours.objective, objective(table, ours.intercept, ours.coefficients, penalty), rtol=1e-12
    )
    assert_allclose(ours.objective, with_cvxpy(table, penalty), rtol=1e-6)


def test_a_penalty_of_nothing_is_least_squares():
    table = diabetes()
    ours = fit("lasso", scattered(table, 3), penalty=0.0)
    theirs = LinearRegression().fit(table.x, table.y)
    assert_allclose(ours.coef_, theirs.coef_, **CLOSE)
    assert_allclose(ours.r2, theirs.score(table.x, table.y))


def test_a_penalty_above_the_first_of_the_path_leaves_the_mean_alone():
    table = diabetes()
    ours = fit("lasso", scattered(table, 3), penalty=1e6)
    assert not ours.coef_.any()
    assert_allclose(ours.intercept_, table.y.mean())
    assert len(ours.path_.penalties) == 1


@settings(max_examples=10, deadline=None)
@given(n_sites=st.integers(1, 9), seed=st.integers(0, 2**16))
def test_neither_the_fit_nor_its_choice_depends_on_how_records_are_split(n_sites, seed):
    table = standard(simulated(120, 5, seed))
    one = fit("lasso", [table], folds="rows", min_cell=1, path=20)
    order = np.random.default_rng(seed).permutation(120)
    where = np.random.default_rng(seed).integers(0, n_sites, 120)
    mixed = table._replace(x=table.x[order], y=table.y[order])
    many = fit("lasso", split(mixed, where), folds="rows", min_cell=1, path=20)
    assert_allclose(many.path_.error, one.path_.error, rtol=1e-7)
    assert_allclose(many.path_.coefficients, one.path_.coefficients, rtol=1e-6, atol=1e-9)
    assert many.path_.chosen == one.path_.chosen


def errors_of(table, fold, penalties):
    """Return the mean square of the held-out residuals, and glmnet's standard error (cvm, cvsd)."""
    folds = np.unique(fold)
    squares = np.array(
        [
            [
                ((table.y - with_sklearn(table, p, fold != k).predict(table.x)) ** 2)[fold == k]
                .mean()
                for p in penalties
            ]
            for k in folds
        ]
    )  # fmt: skip
    share = np.array([(fold == k).mean() for k in folds])
    mean = share @ squares
    return mean, np.sqrt(share @ (squares - mean) ** 2 / (len(folds) - 1))


def test_held_out_errors_by_centre_equal_fits_that_leave_the_centres_out():
    table = standard(diabetes())
    where = np.random.default_rng(1).choice(9, 442, p=[0.2] * 3 + [0.4 / 6] * 6)
    fed = spied(federation(parts := split(table, where), "lasso"))
    model = fit("lasso", parts, fed=fed, path=12)
    of_site = np.array([fed.told["dealt"][f"site-{k:03}"] for k in range(9)])
    n_folds = fed.told["n_folds"]
    assert sorted(np.unique(of_site)) == list(range(n_folds))
    path = model.path_
    mean, spread = errors_of(table, of_site[where], path.penalties)
    assert_allclose(path.error, mean, rtol=1e-7)
    assert_allclose(path.spread, spread, rtol=1e-6)
    assert (path.folds, path.rule, path.n_folds) == ("centre", "min", n_folds)
    assert path.chosen == np.argmin(mean)
    assert_array_equal(model.coef_, path.coefficients[path.chosen])


def test_held_out_errors_by_row_equal_fits_that_leave_the_rows_out():
    table = standard(diabetes())
    ours = fit("lasso", scattered(table, 3), path=8, n_folds=4, folds="rows", seed=5).path_
    fold = hashed(np.column_stack([table.x, table.y]), 5) % np.uint64(4)
    mean, spread = errors_of(table, fold, ours.penalties)
    assert_allclose(ours.error, mean, rtol=1e-7)
    assert_allclose(ours.spread, spread, rtol=1e-6)
    assert (ours.folds, ours.n_folds) == ("rows", 4)


def test_the_hash_of_rows_is_even_and_knows_the_seed():
    rows = np.random.default_rng(0).integers(0, 40, size=(20_000, 3)).astype(float)
    rows = np.unique(rows, axis=0)
    one, other = (hashed(rows, seed) % np.uint64(10) for seed in (1, 2))
    counts = np.bincount(one.astype(int) * 10 + other.astype(int), minlength=100)
    expected = len(rows) / 100
    assert ((counts - expected) ** 2 / expected).sum() < 149  # 0.999 quantile of χ² on 99
    assert_array_equal(hashed(rows[::-1], 1)[::-1], hashed(rows, 1))
    assert_array_equal(hashed(-0.0 * rows, 1), hashed(0.0 * rows, 1))


def test_one_standard_error_is_the_largest_penalty_within_it():
    table = standard(diabetes())
    least = fit("lasso", scattered(table, 8))
    ours = fit("lasso", scattered(table, 8), rule="1se")
    error, best = least.path_.error, least.path_.chosen
    within = error <= error[best] + least.path_.spread[best]
    assert ours.path_.penalty == least.path_.penalties[within].max() > least.path_.penalty
    assert (ours.coef_ != 0).sum() < (least.coef_ != 0).sum()


def test_the_bayesian_criterion_takes_one_sum_and_its_choice_is_the_least_of_the_path():
    table = standard(simulated(200, 10, 8))
    fed = federation(parts := scattered(table, 4), "lasso")
    model = fit("lasso", parts, fed=fed, rule="bic")
    assert asked(fed) == ["products"]
    fits = [with_sklearn(table, p) for p in model.path_.penalties]
    bic = [
        200 * np.log(((table.y - f.predict(table.x)) ** 2).mean())
        + np.log(200) * (f.coef_ != 0).sum()
        for f in fits
    ]
    assert model.path_.chosen == np.argmin(bic)
    assert set(np.flatnonzero(model.coef_)) >= {0, 1, 2}
    assert model.df == (model.coef_ != 0).sum() < 10


def test_a_choice_takes_two_sums_and_a_given_penalty_one():
    parts = scattered(standard(diabetes()), 8)
    fed = federation(parts, "lasso")
    fit("lasso", parts, fed=fed)
    assert asked(fed) == ["products", "fold_products"]
    fed = federation(parts, "lasso")
    fit("lasso", parts, fed=fed, penalty=3.0)
    assert asked(fed) == ["products"]


def frame_of(table, n_sites):
    x = pd.DataFrame(table.x, columns=[f"x{j}" for j in range(table.x.shape[1])])
    return x.assign(y=table.y, site=np.arange(len(x)) % n_sites)


def test_the_history_is_the_path_and_a_saved_model_keeps_it(tmp_path):
    frame = frame_of(diabetes(), 8)
    fed = fc.simulate(frame, sites="site", outcome=fc.Continuous("y"))
    found = fc.fit("lasso", fed, scale="standard", path=15)
    path = found.model.path_
    columns = ["penalty", "nonzero", "fitted_error", "mean_squared_error", "standard_error"]
    assert list(found.history.columns) == ["round", *columns]
    assert found.history[columns].to_dict("records") == path.rows()
    assert len(path.rows()) == 15
    found.save(tmp_path / "model")
    again = fc.load(tmp_path / "model")
    assert_array_equal(again.predict(frame), found.predict(frame))
    assert again.model.path_.rows() == path.rows()
    assert again.model.path_.penalty == path.penalty
    assert again.summary.columns.tolist() == ["covariate", "coefficient", "unit", "shrunken"]


def test_admm_comes_to_the_same_optimum():
    table = standard(diabetes())
    exact = fit("lasso", scattered(table, 5), penalty=5.0)
    ours = fit("lasso", scattered(table, 5), penalty=5.0, solver="admm")
    assert_allclose(ours.objective, exact.objective, rtol=1e-6)
    with pytest.raises(fc.NotSupported, match="no path of penalties"):
        _ = ours.path_


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"penalty": -1}, "'penalty' is -1.0; give a number from 0, or 'auto'"),
        ({"penalty": "best"}, "'penalty'.*must be of type float or 'auto'"),
        ({"n_folds": 1}, "'n_folds' is 1; give a whole number from 2 to 20"),
        ({"path": 1}, "'path' is 1; give a whole number from 2"),
        ({"path_ratio": 1.0}, "'path_ratio' is 1.0; give a number between 0 and 1"),
        ({"rule": "aic"}, "choose one of 'min', '1se', 'bic'"),
        ({"solver": "admm"}, "solver 'admm' fits one penalty.*Give a number"),
    ],
)
def test_settings_out_of_range_are_named(given, complaint):
    with pytest.raises(SettingError, match=complaint):
        fit("lasso", [diabetes()], **given)

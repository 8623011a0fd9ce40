"""`ridge` over sites equals statsmodels, scikit-learn, CVXPY and NIST on the pooled table."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge

import fedcohort as fc
from algorithms.linear_cases import (
    asked,
    diabetes,
    federation,
    fit,
    objective,
    scattered,
    simulated,
    split,
    standard,
    with_cvxpy,
)
from fedcohort.algorithms.linear import LinearModel
from fedcohort.protocol import DataError, NothingToLearn, SettingError, SingularInformation

CLOSE = {"rtol": 1e-8, "atol": 1e-10}


@pytest.mark.parametrize("n_sites", [1, 3, 8])
@pytest.mark.parametrize("name", ["diabetes", "simulated"])
def test_without_penalty_everything_equals_statsmodels_least_squares(name, n_sites):
    table = diabetes() if name == "diabetes" else simulated(200, 5, 1)
    ours = fit("ridge", scattered(table, n_sites), level=0.9)
    theirs = sm.OLS(table.y, sm.add_constant(table.x)).fit()
    rows = pd.DataFrame(ours.summary())
    assert_allclose(np.r_[ours.intercept_, ours.coef_], theirs.params, **CLOSE)
    assert_allclose(ours.standard_errors, theirs.bse, **CLOSE)
    assert_allclose(ours.covariance, theirs.cov_params(), rtol=1e-7, atol=1e-12)
    assert_allclose(rows.t, theirs.tvalues[1:], **CLOSE)
    assert_allclose(rows.p, theirs.pvalues[1:], rtol=1e-6)
    assert_allclose(rows[["low", "high"]], theirs.conf_int(0.1)[1:], **CLOSE)
    assert_allclose(ours.r2, theirs.rsquared, **CLOSE)
    assert_allclose(ours.r2_adjusted, theirs.rsquared_adj, **CLOSE)
    assert_allclose(ours.sigma2, theirs.scale, **CLOSE)
    assert_allclose(ours.f_test, [theirs.fvalue, theirs.f_pvalue], rtol=1e-6)
    assert_allclose([ours.aic, ours.bic], [theirs.aic, theirs.bic], **CLOSE)
    assert_allclose(ours.log_likelihood, theirs.llf, **CLOSE)
    assert ours.rows == len(table.y)


def test_longleys_data_give_the_certified_values():
    # NIST StRD, Linear Regression, Longley: B0 … B6, their standard deviations, and R²
    data = sm.datasets.longley.load_pandas()
    table = diabetes()._replace(x=data.exog.to_numpy(float), y=data.endog.to_numpy(float))
    model = fit("ridge", [table], features=tuple(data.exog.columns))
    certified = [
        -3482258.63459582, 15.0618722713733, -0.358191792925910e-01, -2.02022980381683,
        -1.03322686717359, -0.511041056535807e-01, 1829.15146461355,
    ]  # fmt: skip
    errors = [
        890420.383607373, 84.9149257747669, 0.334910077722432e-01, 0.488399681651699,
        0.214274163161675, 0.226073200069370, 455.478499142212,
    ]  # fmt: skip
    assert_allclose(np.r_[model.intercept, model.coefficients], certified, rtol=1e-7)
    assert_allclose(model.standard_errors, errors, rtol=1e-7)
    assert_allclose(model.r2, 0.995479004577296, rtol=1e-10)
    assert_allclose(model.f_test[0], 330.285339234588, rtol=1e-7)


@pytest.mark.parametrize("penalty", [1e-3, 0.5, 20.0])
def test_coefficients_equal_scikit_learn_whose_alpha_is_half_the_penalty_times_the_records(penalty):
    table = diabetes()
    ours = fit("ridge", scattered(table, 4), penalty=penalty)
    theirs = Ridge(alpha=penalty * len(table.y) / 2, tol=1e-12).fit(table.x, table.y)
    assert_allclose(ours.coef_, theirs.coef_, **CLOSE)
    assert_allclose(ours.intercept_, theirs.intercept_, **CLOSE)
    assert_allclose(ours.predict(table.x[:9]), theirs.predict(table.x[:9]), **CLOSE)


@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("n_sites", [1, 2, 10])
def test_the_objective_is_the_least_one(penalty, n_sites):
    table = standard(diabetes())
    ours = fit("ridge", scattered(table, n_sites), penalty=penalty)
    assert_allclose(
        ours.objective, objective(table, ours.intercept, ours.coefficients, l2=penalty), rtol=1e-12
    )
    assert_allclose(ours.objective, with_cvxpy(table, l2=penalty), rtol=1e-7)


def test_the_uncertainty_with_a_penalty_is_that_of_least_squares_with_the_penalty_as_rows():
    # λ/2 ‖β‖² is n such losses of p more rows, √(nλ/2) e_j with outcome 0, without an intercept
    table, penalty = standard(diabetes()), 0.4
    n, p = table.x.shape
    more = np.sqrt(n * penalty / 2) * np.eye(p)
    rows = np.vstack([sm.add_constant(table.x), np.column_stack([np.zeros(p), more])])
    theirs = sm.OLS(np.r_[table.y, np.zeros(p)], rows).fit()
    ours = fit("ridge", scattered(table, 3), penalty=penalty)
    assert_allclose(np.r_[ours.intercept, ours.coefficients], theirs.params, **CLOSE)
    assert_allclose(ours.spread, theirs.normalized_cov_params, rtol=1e-7, atol=1e-14)
    singular = np.linalg.svd(table.x, compute_uv=False) ** 2
    df = (singular / (singular + n * penalty / 2)).sum()
    residual = table.y - ours.predict(table.x)
    assert_allclose(ours.df, df)
    assert_allclose(ours.sigma2, residual @ residual / (n - 1 - df))
    assert_allclose(ours.standard_errors**2, np.diag(theirs.normalized_cov_params) * ours.sigma2)


def exactly(table):
    """Return (b₀, β) of least squares in extended precision, by Gauss' elimination."""
    a = np.column_stack([np.ones(len(table.y)), table.x]).astype(np.longdouble)
    centre = a.mean(axis=0)
    centre[0] = 0
    z, v = a - centre, table.y.astype(np.longdouble)
    system = np.column_stack([z.T @ z, z.T @ v])
    for j in range(len(system)):
        system[j] /= system[j, j]
        for i in set(range(len(system))) - {j}:
            system[i] -= system[i, j] * system[j]
    beta = system[:, -1]
    beta[0] -= centre @ beta
    residual = v - a @ beta
    return beta.astype(float), float(residual @ residual) / (len(v) - len(beta))


FAR = {
    "the outcome is a year": (0.0, 1.0, 2015.0, 5.0),
    "a covariate is of the order of 1e8": (1e8, 1.0, 0.0, 1.0),
    "both are far from zero": (-3e7, 20.0, 1e6, 1.0),
}


@pytest.mark.parametrize("far", FAR)
def test_columns_far_from_zero_lose_no_digits(far):
    shift, size, middle, spread = FAR[far]
    table = standard(simulated(300, 4, 3))
    x, y = table.x.copy(), table.y
    x[:, 1] = shift + size * x[:, 1]
    table = table._replace(x=x, y=middle + spread * (y - y.mean()) / y.std())
    beta, sigma2 = exactly(table)
    model = fit("ridge", scattered(table, 4))
    assert_allclose(model.coefficients, beta[1:], rtol=1e-7)
    assert_allclose(model.intercept, beta[0], rtol=1e-7)
    assert_allclose(model.sigma2, sigma2, rtol=1e-8)


def test_one_sum_is_all_that_is_asked_for():
    fed = federation(scattered(diabetes(), 5))
    fit("ridge", [diabetes()], fed=fed)
    assert asked(fed) == ["products"]
    assert [row["round"] for row in fed.history] == [0]


def frame_of(table, n_sites=4):
    x = pd.DataFrame(table.x, columns=[f"x{j}" for j in range(table.x.shape[1])])
    return x.assign(y=table.y, site=np.arange(len(x)) % n_sites)


def simulate(frame, outcome=None):
    return fc.simulate(frame, sites="site", outcome=outcome or fc.Continuous("y"))


@pytest.mark.parametrize("scale", ["none", "standard", "minmax"])
def test_one_sum_is_enough_for_covariates_far_from_zero_since_their_fill_is_public(scale):
    table = diabetes()
    frame = frame_of(table._replace(x=table.x + 1e6, y=2015 + table.y / 20))
    found = fc.fit("ridge", simulate(frame), scale=scale)
    steps = [json.loads(line)["step"] for line in found.run.ledger.lines]
    assert steps.count("products") == 4
    assert found.run.rounds == 1
    theirs = sm.OLS(frame.y, sm.add_constant(found.parts.design.matrix(frame))).fit()
    assert_allclose(found.summary.standard_error, theirs.bse[1:], rtol=1e-6)
    assert_allclose(found.summary.coefficient, theirs.params[1:], rtol=1e-6)


def test_a_second_sum_is_asked_for_where_the_first_lost_digits():
    table = diabetes()
    fed = federation(parts := scattered(table._replace(y=1e9 + table.y), 5))
    fit("ridge", parts, fed=fed)
    assert asked(fed) == ["products", "products"]


@settings(max_examples=12, deadline=None)
@given(
    n_sites=st.integers(1, 9), seed=st.integers(0, 2**16), penalty=st.sampled_from([0.0, 1e-3, 2.0])
)
def test_the_fit_does_not_depend_on_how_records_are_split(n_sites, seed, penalty):
    table = simulated(90, 4, seed)
    one = fit("ridge", [table], penalty=penalty)
    where = np.random.default_rng(seed).integers(0, n_sites, 90)
    many = fit("ridge", split(table, where)[::-1], penalty=penalty)
    assert_allclose(many.coefficients, one.coefficients, rtol=1e-8, atol=1e-11)
    assert_allclose(many.intercept, one.intercept, rtol=1e-8)
    assert_allclose(many.standard_errors, one.standard_errors, rtol=1e-8)


def test_sites_without_records_or_with_fewer_than_columns_are_no_obstacle():
    table = diabetes()
    parts = split(table, np.r_[np.zeros(3), np.ones(1), np.full(438, 2)])
    empty = table._replace(x=table.x[:0], y=table.y[:0])
    ours, theirs = fit("ridge", [*parts, empty]), fit("ridge", [table])
    assert_allclose(ours.coefficients, theirs.coefficients, **CLOSE)


def test_more_covariates_than_records_are_fitted_with_a_penalty():
    table = standard(simulated(30, 50, 4))
    ours = fit("ridge", scattered(table, 3), penalty=0.2)
    theirs = Ridge(alpha=0.2 * 30 / 2).fit(table.x, table.y)
    assert_allclose(ours.coef_, theirs.coef_, rtol=1e-7, atol=1e-10)
    assert ours.df < 29
    assert (ours.standard_errors > 0).all()


def test_a_saved_model_predicts_and_tells_the_same(tmp_path):
    frame = frame_of(diabetes())
    found = fc.fit("ridge", simulate(frame), penalty=0.1, scale="standard")
    found.save(tmp_path / "model")
    again = fc.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(frame), found.predict(frame))
    pd.testing.assert_frame_equal(again.summary, found.summary)
    model: LinearModel = again.model
    assert (model.aic, model.r2, model.rows) == (found.model.aic, found.model.r2, 442)


def test_counts_are_an_outcome_as_well():
    frame = frame_of(diabetes())
    found = fc.fit("ridge", simulate(frame, fc.Count("y")))
    assert_allclose(found.predict(frame).mean(), frame.y.mean())


def test_a_perfect_fit_is_no_error():
    table = simulated(60, 3, 5)
    model = fit("ridge", [table._replace(y=table.x @ np.array([1.0, 2.0, -1.0]) + 3)])
    assert_allclose(model.coefficients, [1, 2, -1], rtol=1e-9)
    assert_allclose(model.r2, 1)
    assert all(row["p"] < 1e-100 for row in model.summary())


def test_collinear_and_constant_covariates_are_named():
    table = diabetes()
    double = np.column_stack([table.x, table.x[:, 2] - 2 * table.x[:, 3]])
    names = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6", "both")
    with pytest.raises(
        SingularInformation, match=r"'bmi', 'bp', 'both' are collinear.*penalty > 0"
    ):
        fit("ridge", scattered(table._replace(x=double), 3), features=names)
    assert fit("ridge", scattered(table._replace(x=double), 3), penalty=0.1).rows == 442
    for value in (0.1, 1e6):
        same = np.column_stack([table.x, np.full(442, value)])
        with pytest.raises(SingularInformation, match="covariate 'both' is constant"):
            fit("ridge", scattered(table._replace(x=same), 3), features=names)


def few(rows):
    table = diabetes()
    return table._replace(x=table.x[:rows], y=table.y[:rows])


def test_what_cannot_be_fitted_is_refused_with_the_remedy():
    table = diabetes()
    with pytest.raises(SingularInformation, match="12 records are too few for 10 covariates; 16"):
        fit("ridge", scattered(few(12), 2))
    assert fit("ridge", [few(12)]).rows == 12
    with pytest.raises(NothingToLearn, match="no site holds any record"):
        fit("ridge", [few(0), few(0)])
    with pytest.raises(NothingToLearn, match="outcome has the same value in all 442 records"):
        fit("ridge", scattered(table._replace(y=np.full(442, 0.1)), 2))
    with pytest.raises(DataError, match="no covariates"):
        fit("ridge", [table._replace(x=table.x[:, :0])], features=())


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"penalty": -1}, "'penalty' is -1.0; give a number from 0"),
        ({"penalty": "auto"}, "'penalty'.*must be of type float"),
        ({"level": 1.0}, "'level' is 1.0; give a number between 0 and 1"),
        ({"penalise_intercept": True}, "give False, or solver 'admm'"),
        ({"weighting": "sites"}, "give 'rows', or solver 'admm'"),
        ({"solver": "newton"}, "choose one of 'exact', 'admm'"),
    ],
)
def test_settings_out_of_range_are_named(given, complaint):
    with pytest.raises(SettingError, match=complaint):
        fit("ridge", [diabetes()], **given)


def test_admm_comes_to_the_same_optimum_and_has_no_standard_errors():
    table = standard(diabetes())
    exact = fit("ridge", scattered(table, 3), penalty=0.2)
    ours = fit("ridge", scattered(table, 3), penalty=0.2, solver="admm")
    assert_allclose(ours.objective, exact.objective, rtol=1e-9)
    assert_allclose(ours.coef_, exact.coef_, rtol=1e-3, atol=1e-3)
    assert ours.n_iter_ > 1
    assert [sorted(row) for row in ours.summary()] == [["coefficient", "covariate"]] * 10
    with pytest.raises(fc.FedcohortError, match="'ridge' with the exact solver"):
        _ = ours.standard_errors
    with pytest.raises(fc.FedcohortError, match="ADMM and private fits give only coefficients"):
        _ = ours.r2


def test_there_is_no_f_test_with_a_penalty_and_no_variance_without_a_residual():
    parts = scattered(standard(diabetes()), 3)
    for model in (fit("ridge", parts, penalty=0.2), fit("lasso", parts, penalty=0.0)):
        with pytest.raises(fc.NotSupported, match="least squares without a penalty"):
            _ = model.f_test
    table = simulated(12, 20, 1)
    model = fit("lasso", [table], penalty=0.0)
    for name in ("sigma2", "r2_adjusted"):
        with pytest.raises(fc.NotSupported, match="12 records leave no residual"):
            getattr(model, name)

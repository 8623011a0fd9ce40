"""`svm` over sites equals scikit-learn and CVXPY on the pooled table, with Platt's probability."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from algorithms.svm_cases import federation, fit, masses, scattered
from fedcohort.algorithms.svm import METHOD, SvmModel
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import DataError, SettingError, SiteUnavailable


def objective(table, model, penalty):
    hinge = np.maximum(1 - (2 * table.y - 1) * model.decision(table.x), 0)
    return hinge.mean() + penalty / 2 * model.coefficients @ model.coefficients


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("penalty", [0.3, 0.03])
def test_the_fit_is_scikit_learns_with_an_unpenalised_intercept(sites, penalty):
    # its loss: ½‖β‖² + C Σ hinge, so C = 1/(n · penalty)
    table = masses()
    ours = fit(scattered(table, sites), penalty=penalty, abs_tol=1e-8, rel_tol=1e-8)
    model = SVC(C=1 / (len(table.y) * penalty), kernel="linear", tol=1e-8).fit(table.x, table.y)
    assert_allclose(ours.coefficients, model.coef_[0], atol=1e-5)
    assert_allclose(ours.intercept, model.intercept_[0], atol=1e-5)
    assert_allclose(ours.decision(table.x), model.decision_function(table.x), atol=1e-4)


def test_the_objective_is_cvxpys_and_is_told():
    table, penalty = masses(), 0.05
    beta, b = cp.Variable(5), cp.Variable()
    hinge = cp.sum(cp.pos(1 - cp.multiply(2 * table.y - 1, table.x @ beta + b))) / len(table.y)
    problem = cp.Problem(cp.Minimize(hinge + penalty / 2 * cp.sum_squares(beta)))
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)
    least = problem.solve("CLARABEL", **tight)
    model = fit(scattered(table, 3), penalty=penalty)
    assert abs(objective(table, model, penalty) / least - 1) <= 1e-6
    assert_allclose(model.objective, objective(table, model, penalty), rtol=1e-12)


def test_probabilities_are_platts_on_the_decision_values():
    table = masses()
    model = fit(scattered(table, 3), penalty=0.05)
    f, ones = model.decision(table.x), table.y.sum()
    zeros = len(f) - ones
    target = np.where(table.y == 1, (ones + 1) / (ones + 2), 1 / (zeros + 2))

    def loss(at):
        eta = at[0] + at[1] * f
        return (np.logaddexp(0, eta) - target * eta).sum()

    best = minimize(loss, np.zeros(2), options={"gtol": 1e-8})
    assert_allclose([model.shift, model.slope], best.x, rtol=1e-4)
    assert_allclose(model.predict(table.x), expit(model.shift + model.slope * f))
    assert_allclose(model.predict(table.x).sum(), target.sum(), rtol=1e-9)


def test_probabilities_rank_patients_as_decision_values_do():
    table = masses()
    model = fit(scattered(table, 2), penalty=0.05)
    said = [roc_auc_score(table.y, v) for v in (model.predict(table.x), model.decision(table.x))]
    assert_allclose(said[0], said[1])
    assert said[0] > 0.95


def test_probabilities_stay_finite_where_the_classes_are_told_apart():
    rng = np.random.default_rng(0)
    y = np.repeat([0.0, 1.0], 40)
    table = LabelledTable(np.column_stack([4 * y, rng.normal(size=80)]), y)
    p = fit(scattered(table, 2)).predict(table.x)
    assert ((p > 0) & (p < 1)).all()
    assert ((p > 0.5) == (y == 1)).all()


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**16), sites=st.integers(2, 5))
def test_the_fit_does_not_depend_on_how_records_are_split(seed, sites):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 2))
    table = LabelledTable(x, (x[:, 0] + rng.normal(size=60) > 0).astype(float))
    one, many = fit([table], penalty=0.2), fit(scattered(table, sites, seed), penalty=0.2)
    assert_allclose(many.objective, one.objective, rtol=2e-6)
    assert_allclose(many.coefficients, one.coefficients, atol=5e-3)


def test_scikit_learns_names_are_there_and_a_model_survives_saving():
    table = masses()
    model = fit(scattered(table, 2), penalty=0.3)
    assert (model.coef_ == model.coefficients).all()
    assert (model.intercept_, model.n_iter_) == (model.intercept, model.rounds)
    again = SvmModel.restore(model.arrays(), model.meta())
    assert (again.predict(table.x) == model.predict(table.x)).all()
    assert again.meta() == model.meta()


def test_the_fit_does_not_depend_on_where_it_starts():
    parts = scattered(masses(), 10)
    tight = {"penalty": 0.03, "abs_tol": 1e-8, "rel_tol": 1e-8}
    smoothed, zero = (fit(parts, start=start, **tight) for start in ("smoothed", "zero"))
    assert smoothed.rounds <= 50 < zero.rounds
    assert_allclose(smoothed.coefficients, zero.coefficients, atol=1e-5)


def test_the_paper_s_variant_runs_and_is_near():
    table = masses()
    exact = fit(scattered(table, 2), penalty=0.3)
    paper = fit(scattered(table, 2), penalty=0.3, local="subgradient", max_rounds=200)
    assert exact.objective < paper.objective < exact.objective * 1.02


# what is refused --------------------------------------------------------------------------


def test_more_than_two_classes_and_one_class_are_refused():
    table = masses()
    with pytest.raises(DataError, match="more than two classes"):
        fit([table._replace(y=np.arange(569) % 3)])
    with pytest.raises(DataError, match="all 569 records are of class 0"):
        fit([table._replace(y=np.zeros(569))])


def test_a_class_below_min_cell_is_refused_over_sites():
    table = masses()
    rare = table._replace(y=(np.arange(569) < 3).astype(float))
    with pytest.raises(DataError, match="class 1 has fewer than 5 records"):
        fit(scattered(rare, 2))


@pytest.mark.parametrize("penalty", [0.0, -1.0, np.inf])
def test_an_impossible_penalty_is_named(penalty):
    with pytest.raises(
        SettingError, match=r"setting 'penalty' of method 'svm' is .*; give a number"
    ):
        METHOD.configure({"penalty": penalty})


def test_a_site_that_leaves_before_the_probabilities_is_named():
    parts = scattered(masses(), 3)
    fed = federation(parts)
    calls = fit(parts, fed=fed, penalty=0.3).rounds + 3
    away = federation(parts, quorum=0.5, absent=lambda c, site: c >= calls and site == "site-1")
    with pytest.raises(SiteUnavailable, match="site-1 left during the fit"):
        fit(parts, fed=away, penalty=0.3)

"""`logistic` by consensus ADMM ends where Newton's method does; offsets, weights and aliases."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from algorithms.logistic_cases import fit, public, scattered, simulated
from fedcohort.algorithms.glm import LogisticModel
from fedcohort.protocol import NotSupported, SettingError


@pytest.mark.parametrize("n_sites", [1, 4])
def test_admm_and_newton_give_the_same_fit(n_sites):
    table = public("diabetes")
    table = table._replace(x=table.x / table.x.std(axis=0))
    exact = fit(scattered(table, n_sites), l2=0.02)
    admm = fit(scattered(table, n_sites), penalty=0.02, solver="admm", rel_tol=1e-9, abs_tol=1e-9)
    assert_allclose(admm.coefficients, exact.coefficients, atol=1e-6)
    assert_allclose(admm.intercept, exact.intercept, atol=1e-5)
    assert_allclose(admm.log_likelihood, exact.log_likelihood, rtol=1e-8)
    assert admm.n_iter_ == admm.rounds > 0


def test_the_log_likelihood_of_weighted_records_is_that_of_the_exact_fit():
    table = simulated(200, 3, 8)
    table = table._replace(weight=np.random.default_rng(3).uniform(0.5, 2.0, 200))
    exact = fit(scattered(table, 3), l2=0.05)
    admm = fit(scattered(table, 3), penalty=0.05, solver="admm")
    assert_allclose(admm.log_likelihood, exact.log_likelihood, rtol=1e-6)


def test_where_sites_count_alike_there_is_no_log_likelihood():
    model = fit(scattered(simulated(200, 3, 8), 3), penalty=0.05, solver="admm", weighting="sites")
    assert model.log_likelihood is None
    assert np.isnan(model.deviance)
    assert LogisticModel.restore(model.arrays(), model.meta()).log_likelihood is None


def test_a_fit_by_admm_has_no_standard_errors_and_says_which_has():
    model = fit(scattered(simulated(200, 2, 0), 2), solver="admm", penalty=0.01)
    with pytest.raises(NotSupported, match="solver 'exact' has them"):
        _ = model.standard_errors
    assert set(model.summary()[0]) == {"covariate", "coefficient", "odds_ratio"}
    again = LogisticModel.restore(model.arrays(), model.meta())
    assert again.summary() == model.summary()


def test_without_a_penalty_admm_is_refused_since_it_cannot_tell_separated_classes():
    with pytest.raises(SettingError, match=r"needs a penalty above 0.* or use solver 'exact'"):
        fit(scattered(simulated(200, 2, 0), 2), solver="admm")


def test_penalty_is_another_name_of_l2():
    parts = scattered(simulated(150, 3, 1), 3)
    assert_allclose(fit(parts, penalty=0.1).coefficients, fit(parts, l2=0.1).coefficients, rtol=0)
    assert_allclose(
        fit(parts, penalty=0.1, l2=0.1).coefficients, fit(parts, l2=0.1).coefficients, rtol=0
    )


def test_weights_are_scikit_learns_sample_weights_and_repeat_records():
    table = simulated(200, 3, 6)
    times = np.random.default_rng(2).integers(1, 4, 200).astype(float)
    ours = fit(scattered(table._replace(weight=times), 3))
    spread = table.x.std(axis=0)
    theirs = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    theirs.fit(table.x / spread, table.y, sample_weight=times)
    assert_allclose(ours.coef_, theirs.coef_ / spread, rtol=1e-7)
    repeated = table._replace(
        x=np.repeat(table.x, times.astype(int), axis=0), y=np.repeat(table.y, times.astype(int))
    )
    again = fit(scattered(repeated, 3))
    assert_allclose(again.standard_errors, ours.standard_errors, rtol=1e-7)
    assert_allclose(again.deviance, ours.deviance, rtol=1e-9)


def test_the_face_is_that_of_scikit_learn():
    table = public("diabetes")
    ours = fit(scattered(table, 3))
    theirs = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    spread = table.x.std(axis=0)
    theirs.fit(table.x / spread, table.y)
    assert_allclose(ours.coef_, theirs.coef_ / spread, rtol=1e-7)
    assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-7)
    assert_allclose(ours.predict_proba(table.x), theirs.predict_proba(table.x / spread), atol=1e-9)
    assert ours.n_iter_ == 5


def test_a_model_saved_before_there_were_offsets_is_read():
    model = fit([simulated(100, 2, 3)])
    old = {k: v for k, v in model.meta().items() if k not in ("offset", "rounds")}
    assert_allclose(LogisticModel.restore(model.arrays(), old).predict(np.ones((1, 2))),
                    model.predict(np.ones((1, 2))))  # fmt: skip

"""`logistic` over sites equals scikit-learn and SciPy on the pooled table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from scipy.stats import chi2, norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from algorithms.logistic_cases import federation, fit, public, scattered, simulated, textbook
from fedcohort.algorithms.glm import LogisticModel
from fedcohort.data.tables import LabelledTable

TABLES = ["breast_cancer", "diabetes"]
CLOSE = {"rtol": 1e-6, "atol": 1e-6}
every_table = pytest.mark.parametrize("name", TABLES)


def with_sklearn(table, l2):
    """scikit-learn minimises Σ loss + ‖β‖²/(2C): so C = 1/(n·l2)."""
    c = np.inf if l2 == 0 else 1 / (l2 * len(table.y))
    spread = table.x.std(axis=0) if l2 == 0 else np.ones(table.x.shape[1])
    model = LogisticRegression(C=c, tol=1e-10, max_iter=10_000, solver="newton-cholesky")
    model.fit(table.x / spread, table.y)
    return model.coef_[0] / spread, model.intercept_[0]


@every_table
@pytest.mark.parametrize("l2", [0.0, 0.003, 0.5])
@pytest.mark.parametrize("n_sites", [1, 3, 8])
def test_coefficients_equal_scikit_learn_on_the_pooled_table(name, l2, n_sites):
    table = public(name)
    ours = fit(scattered(table, n_sites), l2=l2)
    coefficients, intercept = with_sklearn(table, l2)
    assert_allclose(ours.coefficients, coefficients, **CLOSE)
    assert_allclose(ours.intercept, intercept, **CLOSE)


@every_table
@pytest.mark.parametrize("l2", [0.0, 0.003])
def test_standard_errors_and_likelihood_equal_the_second_derivative_of_the_loss(name, l2):
    table = public(name)
    ours = fit(scattered(table, 4), l2=l2)
    theta, covariance, value = textbook(table, l2)
    assert_allclose([ours.intercept, *ours.coefficients], theta, **CLOSE)
    assert_allclose(ours.standard_errors, np.sqrt(np.diag(covariance)), rtol=1e-6)
    assert_allclose(ours.covariance, covariance, rtol=1e-4, atol=1e-9)
    assert_allclose(ours.log_likelihood, value, rtol=1e-9)


@every_table
def test_the_deviances_are_those_of_the_probabilities(name):
    table = public(name)
    ours = fit(scattered(table, 4))
    n, share = len(table.y), np.full(len(table.y), table.y.mean())
    assert_allclose(ours.deviance, 2 * n * log_loss(table.y, ours.predict(table.x)), rtol=1e-9)
    assert_allclose(ours.null_deviance, 2 * n * log_loss(table.y, share), rtol=1e-9)
    statistic, p = ours.likelihood_ratio
    assert_allclose(statistic, ours.null_deviance - ours.deviance)
    assert_allclose(p, chi2.sf(statistic, table.x.shape[1]), rtol=1e-9)
    assert (ours.rows, ours.ones) == (n, table.y.sum())


def test_the_summary_is_walds():
    table = public("diabetes")
    model = fit(scattered(table, 4), level=0.9)
    rows = pd.DataFrame(model.summary())
    b, se = rows.coefficient, model.standard_errors[1:]
    assert_allclose(rows.standard_error, se)
    assert_allclose(rows.p, 2 * norm.sf(np.abs(b / se)), rtol=1e-9)
    assert_allclose([rows.low, rows.high], norm.ppf([[0.05], [0.95]]) * se + b.to_numpy())
    ratios, logs = ["odds_ratio", "or_low", "or_high"], ["coefficient", "low", "high"]
    assert_allclose(rows[ratios], np.exp(rows[logs]))


def test_one_covariate_of_two_values_gives_the_odds_ratio_of_the_four_cells():
    # Woolf, Ann. Hum. Genet. 19, 1955: log OR = log(ad/bc), its variance 1/a + 1/b + 1/c + 1/d
    a, b, c, d = 30, 20, 12, 44
    x = np.repeat([1.0, 1.0, 0.0, 0.0], [a, b, c, d])[:, None]
    y = np.repeat([1.0, 0.0, 1.0, 0.0], [a, b, c, d])
    (row,) = fit(scattered(public("diabetes")._replace(x=x, y=y), 3)).summary()
    assert_allclose(row["odds_ratio"], a * d / (b * c), rtol=1e-9)
    assert_allclose(row["standard_error"], np.sqrt(1 / a + 1 / b + 1 / c + 1 / d), rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "l2", "rounds"),
    [
        ("diabetes", 0.0, 5),
        ("diabetes", 0.01, 5),
        ("breast_cancer", 0.0, 7),
        ("breast_cancer", 0.01, 6),
    ],
)
def test_a_fit_of_ordinary_data_takes_eight_rounds_at_most(name, l2, rounds):
    table = public(name)
    fed = federation(scattered(table, 5))
    fit([table], fed=fed, l2=l2)
    assert len(fed.history) == rounds


@pytest.mark.parametrize(("far", "auc"), [(2.0, 0.9), (4.0, 0.97), (8.0, 0.99), (12.0, 0.995)])
def test_classes_that_are_nearly_separated_take_eight_rounds_too(far, auc):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1500, 4))
    y = (rng.random(1500) < expit(far * (x @ [1.0, -1.0, 0.5, 0.3]))).astype(float)
    fed = federation(scattered(LabelledTable(x, y), 5))
    model = fit([LabelledTable(x, y)], fed=fed)
    assert roc_auc_score(y, model.predict(x)) > auc
    assert len(fed.history) <= 8


def test_the_history_rises_and_ends_with_a_step_below_the_tolerance():
    table = simulated(300, 3, 1)
    fed = federation(scattered(table, 3))
    fit([table], fed=fed)
    history = pd.DataFrame(fed.history)
    assert history.log_likelihood.is_monotonic_increasing
    assert history.step.iloc[-1] < 1e-7


def test_a_model_survives_saving():
    table = simulated(120, 3, 2)
    model = fit(scattered(table, 2), ("a", "b", "c"))
    again = LogisticModel.restore(model.arrays(), model.meta())
    assert again.summary() == model.summary()
    assert again.meta() == model.meta()
    assert (again.predict(table.x) == model.predict(table.x)).all()

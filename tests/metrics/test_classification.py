"""Metrics of probabilities equal scikit-learn's, of all bootstrap draws at once as well."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import mannwhitneyu
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

from fedcohort.metrics import classification, resampled


def cohort(n, seed, digits=2):
    """Return classes y and probabilities p with ties, somewhat too timid."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n)
    y = (rng.random(n) < truth).astype(float)
    y[:2] = 0.0, 1.0
    p = np.round(0.7 * truth + 0.15 + 0.05 * rng.normal(size=n), digits)
    return y, np.clip(p, 0.01, 0.99)


def slope(y, p, weights=None):
    """Return what scikit-learn finds with the log odds as the one covariate."""
    f = np.log(p / (1 - p))[:, None]
    model = LogisticRegression(C=np.inf, tol=1e-10, solver="newton-cholesky", max_iter=1000)
    return float(model.fit(f, y, sample_weight=weights).coef_[0, 0])


REFERENCE = {
    "auc": lambda y, p, w: roc_auc_score(y, p, sample_weight=w),
    "accuracy": lambda y, p, w: accuracy_score(y, p > 0.5, sample_weight=w),
    "brier": lambda y, p, w: brier_score_loss(y, p, sample_weight=w),
    "calibration_slope": slope,
    "log_loss": lambda y, p, w: log_loss(y, p, sample_weight=w),
}
every_metric = pytest.mark.parametrize("name", classification.METRICS)


@every_metric
@settings(max_examples=10)
@given(n=st.integers(30, 120), seed=st.integers(0, 2**16), digits=st.sampled_from([1, 2, 8]))
def test_a_metric_equals_scikit_learns(name, n, seed, digits):
    y, p = cohort(n, seed, digits)
    ours = classification.METRICS[name](y, p, None)
    assert ours.shape == ()
    assert_allclose(ours, REFERENCE[name](y, p, None), rtol=1e-6)


@every_metric
def test_draws_are_the_metric_of_records_that_are_repeated(name):
    y, p = cohort(60, 4)
    weights = resampled.multiplicities(60, 12, np.random.default_rng(1))
    ours = classification.METRICS[name](y, p, weights)
    for drawn, found in zip(weights, ours, strict=True):
        assert_allclose(found, REFERENCE[name](y, p, drawn), rtol=1e-6)
        again = classification.METRICS[name](np.repeat(y, drawn), np.repeat(p, drawn), None)
        assert_allclose(found, again, rtol=1e-9)


def test_auc_is_mann_whitneys_u_over_the_number_of_pairs():
    y, p = cohort(80, 2, digits=1)
    u = mannwhitneyu(p[y == 1], p[y == 0]).statistic
    assert_allclose(classification.auc(y, p), u / (y.sum() * (1 - y).sum()))


@settings(max_examples=10)
@given(seed=st.integers(0, 2**16))
def test_auc_sees_ranks_alone_and_turns_with_the_classes(seed):
    y, p = cohort(50, seed)
    assert_allclose(classification.auc(y, np.exp(3 * p)), classification.auc(y, p))
    assert_allclose(classification.auc(1 - y, p), 1 - classification.auc(y, p))


def test_predictions_without_information_have_the_values_of_chance():
    y = np.r_[np.zeros(40), np.ones(40)]
    p = np.full(80, 0.5)
    assert classification.auc(y, p) == 0.5
    assert classification.brier(y, p) == 0.25
    assert_allclose(classification.log_loss(y, p), np.log(2))
    assert np.isnan(classification.calibration_slope(y, p))


def test_probabilities_spread_twice_as_far_have_half_the_slope():
    y, p = cohort(200, 3)
    f = np.log(p / (1 - p))
    twice = 1 / (1 + np.exp(-2 * f))
    assert_allclose(
        classification.calibration_slope(y, twice),
        classification.calibration_slope(y, p) / 2,
        rtol=1e-9,
    )


@pytest.mark.parametrize("y", [np.zeros(6), np.ones(6)])
def test_one_class_has_no_auc_and_no_slope(y):
    p = np.linspace(0.1, 0.9, 6)
    assert np.isnan(classification.auc(y, p))
    assert np.isnan(classification.calibration_slope(y, p))
    assert np.isfinite(classification.brier(y, p))


@pytest.mark.parametrize("cut", [2, 3])
def test_probabilities_that_part_the_classes_have_no_slope(cut):
    p = np.array([0.1, 0.2, 0.3, 0.3, 0.6, 0.9])
    for y in (np.arange(6) > cut, np.arange(6) <= cut):
        assert np.isnan(classification.calibration_slope(y.astype(float), p))


def test_a_draw_without_an_answer_is_nan_and_the_others_are_not():
    y, p = cohort(20, 1)
    weights = np.stack([np.ones(20), y, np.zeros(20)])
    for metric in (classification.auc, classification.calibration_slope):
        found = metric(y, p, weights)
        assert np.isfinite(found[0])
        assert np.isnan(found[1:]).all()
    assert np.isnan(classification.brier(y, p, weights)[2])


def test_certain_predictions_that_fail_cost_a_finite_log_loss():
    found = classification.log_loss(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert_allclose(found, -np.log(np.finfo(float).eps))
    y, p = cohort(100, 5)
    p[:4] = 0.0, 0.0, 1.0, 1.0
    assert np.isfinite(classification.calibration_slope(y, p))


def test_no_records_have_no_metrics():
    none = np.zeros(0)
    assert all(np.isnan(metric(none, none, None)) for metric in classification.METRICS.values())
    assert len(classification.calibration_groups(none, none).n) == 0


def test_calibration_groups_equal_scikit_learns_quantile_bins():
    y, p = cohort(400, 6, digits=9)
    groups = classification.calibration_groups(y, p, 5)
    observed, predicted = calibration_curve(y, p, n_bins=5, strategy="quantile")
    assert_allclose(groups.predicted, predicted)
    assert_allclose(groups.observed, observed)
    assert groups.n.sum() == 400


@settings(max_examples=15)
@given(seed=st.integers(0, 2**16), n=st.integers(4, 90), least=st.integers(2, 6))
def test_no_calibration_group_shows_a_few_of_a_class(seed, n, least):
    y, p = cohort(n, seed)
    groups = classification.calibration_groups(y, p, 5, least)
    ones = np.rint(groups.observed * groups.n)
    for count in (*ones, *(groups.n - ones)):
        assert count == 0 or count >= least
    if min(y.sum(), n - y.sum()) >= least:
        assert groups.n.sum() == n
        assert_allclose(groups.predicted @ groups.n, p.sum())
        assert ones.sum() == y.sum()

"""Metrics of values and counts against scikit-learn, NumPy and numerical derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import pearsonr
from sklearn import metrics as reference
from statsmodels.stats.weightstats import DescrStatsW

from fedcohort.metrics import regression
from fedcohort.metrics.heterogeneity import pooled_r2, r2_interval, random_effects


def records(n=60, seed=0):
    """Return counts, and means that go with them."""
    rng = np.random.default_rng(seed)
    f = rng.gamma(2.0, 2.0, n) + 0.1
    return rng.poisson(f).astype(float), f


REFERENCES = {
    "r2": reference.r2_score,
    "rmse": reference.root_mean_squared_error,
    "mae": reference.mean_absolute_error,
    "poisson_deviance": reference.mean_poisson_deviance,
    "calibration_slope": lambda y, f, sample_weight: np.polyfit(f, y, 1, w=sample_weight**0.5)[0],
    "pcc": lambda y, f, sample_weight: DescrStatsW(np.c_[y, f], sample_weight).corrcoef[0, 1],
    "nrmse": lambda y, f, sample_weight: (
        reference.root_mean_squared_error(y, f, sample_weight=sample_weight)
        / DescrStatsW(y, sample_weight).std
    ),
    "calibration_intercept": lambda y, f, sample_weight: np.average(y - f, weights=sample_weight),
}


@pytest.mark.parametrize("name", regression.METRICS)
def test_every_draw_is_the_reference_s_metric_with_its_weights(name):
    y, f = records()
    weights = np.random.default_rng(1).integers(0, 4, (5, len(y))).astype(float)
    want = [REFERENCES[name](y, f, sample_weight=w) for w in weights]
    assert_allclose(regression.METRICS[name](y, f, weights), want, rtol=1e-12)
    whole = REFERENCES[name](y, f, sample_weight=np.ones(len(y)))
    assert_allclose(regression.METRICS[name](y, f), whole, rtol=1e-12)


@given(seed=st.integers(0, 999), shift=st.floats(-1e6, 1e6), scale=st.floats(1e-3, 1e3))
@settings(max_examples=20)
def test_r2_and_the_slope_have_no_unit_and_errors_have_that_of_the_outcome(seed, shift, scale):
    y, f = records(seed=seed)
    a, b = scale * y + shift, scale * f + shift
    size = max(1.0, abs(shift) / scale)
    for name, factor in (("r2", 1), ("calibration_slope", 1), ("rmse", scale), ("mae", scale)):
        metric = regression.METRICS[name]
        assert_allclose(metric(a, b), factor * metric(y, f), rtol=1e-10 * size, atol=1e-10 * size)


@pytest.mark.parametrize("name", regression.METRICS)
def test_no_records_have_no_metric(name):
    nobody = np.empty(0)
    assert np.isnan(regression.METRICS[name](nobody, nobody))
    assert np.isnan(regression.METRICS[name](*records(5), np.zeros((2, 5)))).all()


@given(seed=st.integers(0, 999), shift=st.floats(-50, 50), scale=st.floats(0.01, 100))
@settings(max_examples=10)
def test_pearson_s_correlation_is_scipy_s_and_sees_neither_level_nor_spread(seed, shift, scale):
    y, f = records(seed=seed)
    want = pearsonr(f, y).statistic
    assert regression.pcc(y, f) == pytest.approx(want, abs=1e-12)
    assert regression.pcc(y, scale * f + shift) == pytest.approx(want, abs=1e-9)
    assert regression.pcc(y, -f) == pytest.approx(-want, abs=1e-12)


def test_the_normalised_error_compares_with_the_mean_of_the_judged_records():
    y, f = records()
    assert regression.nrmse(y, f) == pytest.approx(
        reference.root_mean_squared_error(y, f) / np.std(y), rel=1e-12
    )
    assert regression.nrmse(y, np.full(len(y), y.mean())) == pytest.approx(1.0, abs=1e-15)
    assert regression.nrmse(y, f) ** 2 == pytest.approx(1 - reference.r2_score(y, f))


def test_what_has_no_answer_is_nan():
    y, f = records()
    same = np.full(len(y), 0.1)
    assert np.isnan(regression.r2(same, f))
    assert np.isnan(regression.calibration_slope(y, same))
    assert np.isnan(regression.poisson_deviance(y, f - f.min()))
    assert np.isnan(
        [regression.pcc(same, f), regression.pcc(y, same), regression.nrmse(same, f)]
    ).all()
    assert regression.r2(y, np.full(len(y), y.mean())) == pytest.approx(0.0, abs=1e-15)


def test_the_influence_on_r2_is_its_derivative_by_the_weight_of_each_record():
    y, f = records()
    found = regression.influence(y, f)
    h = 1e-6
    up, down = (regression.r2(y, f, 1 + s * h * np.eye(len(y))) for s in (1, -1))
    assert_allclose(found.slope, (up - down) / (2 * h), rtol=1e-6, atol=1e-9)
    assert found.value == pytest.approx(reference.r2_score(y, f))
    assert np.isnan(regression.influence(np.ones(4), np.ones(4)).error)


def test_the_interval_of_r2_holds_the_truth_about_as_often_as_it_says():
    """Y = f + e with unit variances: R² is ½ in the population."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        f = rng.normal(size=100)
        found = regression.influence(f + rng.normal(size=100), f)
        low, high = r2_interval(found.value, found.error)
        held += low < 0.5 < high
    assert 0.9 < held / 400 < 0.98


def test_an_r2_without_spread_has_no_interval():
    assert np.isnan(r2_interval(1.0, 0.1)).all()
    assert np.isnan(r2_interval(0.5, 0.0)).all()
    assert np.isnan(r2_interval(-3.0, np.inf)).all()
    low, high = r2_interval(-3.0, 2.0)
    assert low < -3 < high < 1


def test_pooled_r2_is_that_of_the_logarithms_of_what_is_not_explained():
    values, errors = np.array([0.4, 0.55, -0.2, 0.5]), np.array([0.1, 0.08, 0.3, 0.05])
    found = pooled_r2(values, errors)
    logs = random_effects(np.log(1 - values), errors / (1 - values))
    assert found.mean == pytest.approx(1 - np.exp(logs.mean))
    assert found.low == pytest.approx(1 - np.exp(logs.high))
    assert found.prediction_high == pytest.approx(1 - np.exp(logs.prediction_low))
    assert found.low < found.mean < found.high < 1
    assert (found.tau2, found.q) == (logs.tau2, logs.q)

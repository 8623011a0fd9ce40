"""Slope, groups and D-calibration, against lifelines, scikit-survival and the authors' example."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.datasets import load_rossi
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import chisquare
from sksurv.linear_model import CoxPHSurvivalAnalysis

from fedcohort.metrics.calibration import (
    bin_counts,
    calibration_groups,
    calibration_slope,
    d_calibration,
    own_survival,
)


@pytest.mark.parametrize("name", ["gbsg2", "whas500", "rossi"])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_slope_equals_a_breslow_refit_whatever_the_ties(request, name, scale):
    c = request.getfixturevalue(name)
    refit = CoxPHSurvivalAnalysis(ties="breslow", tol=1e-12).fit(scale * c.risk[:, None], c.y)
    slope = calibration_slope(scale * c.risk, c.time, c.event)
    assert_allclose(slope.value, refit.coef_[0], rtol=1e-7)
    assert_allclose(slope.value, 1 / scale, rtol=0.01)


def test_slope_and_its_standard_error_equal_lifelines_without_ties(gbsg2):
    time = gbsg2.time + np.random.default_rng(0).uniform(0, 0.5, len(gbsg2.time))
    frame = pd.DataFrame({"risk": gbsg2.risk, "time": time, "event": gbsg2.event})
    fit = CoxPHFitter().fit(frame, "time", "event", fit_options={"precision": 1e-12})
    slope = calibration_slope(gbsg2.risk, time, gbsg2.event)
    assert_allclose(slope.value, fit.params_["risk"], rtol=1e-7)
    assert_allclose(slope.standard_error, fit.standard_errors_["risk"], rtol=1e-6)


@pytest.mark.parametrize(
    ("risk", "event"),
    [
        ([1.0, 1.0, 1.0, 1.0], [1, 1, 0, 1]),  # equal
        ([0.3, 0.1, 0.2, 0.1], [0, 0, 0, 0]),  # nobody died
        ([4.0, 3.0, 2.0, 1.0], [1, 1, 1, 0]),  # perfect order: the best slope is infinite
        ([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 0]),
        ([], []),
    ],
)
def test_where_no_finite_slope_fits_best_there_is_none(risk, event):
    time = np.arange(1.0, len(risk) + 1)
    slope = calibration_slope(np.array(risk), time, np.array(event, bool))
    assert math.isnan(slope.value)
    assert math.isnan(slope.standard_error)


@pytest.mark.parametrize("seed", [124, 188, 286])
def test_outliers_do_not_throw_newtons_method_off(seed):
    # Plain Newton steps leave the bracket of the maximum on these draws.
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 30))
    risk = rng.standard_t(1.1, n)
    time, event = rng.exponential(size=n), rng.random(n) < 0.7

    def loss(b):
        at_risk = time >= time[event][:, None]
        return np.sum(logsumexp(np.where(at_risk, b * risk, -np.inf), axis=1) - b * risk[event])

    best = minimize_scalar(loss, bounds=(-1, 1), method="bounded", options={"xatol": 1e-9})
    assert_allclose(calibration_slope(risk, time, event).value, best.x, atol=1e-6)


@given(seed=st.integers(0, 2**16), shift=st.floats(-50, 50), scale=st.floats(0.1, 20))
@settings(max_examples=20, deadline=None)
def test_slope_is_equivariant_in_the_risk(seed, shift, scale):
    rng = np.random.default_rng(seed)
    risk, event = rng.normal(size=60), rng.random(60) < 0.7
    time = np.ceil(20 * rng.exponential(np.exp(-risk)))
    plain = calibration_slope(risk, time, event)
    moved = calibration_slope(scale * risk + shift, time, event)
    assert_allclose(moved.value * scale, plain.value, rtol=1e-6)
    assert_allclose(moved.standard_error * scale, plain.standard_error, rtol=1e-6)


def test_groups_are_kaplan_meier_beside_the_mean_prediction(gbsg2):
    horizon = 1500.0
    predicted = gbsg2.surv(np.array([horizon]))[:, 0]
    groups = calibration_groups(predicted, gbsg2.time, gbsg2.event, horizon, groups=5)
    edges = np.r_[0.0, np.quantile(predicted, [0.2, 0.4, 0.6, 0.8]), 1.0]
    quintile = pd.cut(predicted, edges, right=False, labels=False)
    assert groups.n.tolist() == np.bincount(quintile).tolist()
    for g in range(5):
        here = quintile == g
        fitter = KaplanMeierFitter().fit(gbsg2.time[here], gbsg2.event[here])
        assert_allclose(groups.observed[g], fitter.predict(horizon), atol=1e-12)
        assert_allclose(groups.predicted[g], predicted[here].mean(), atol=1e-12)
    assert np.all(np.diff(groups.predicted) > 0)


def test_one_group_is_everybody(gbsg2):
    groups = calibration_groups(np.full(686, 0.7), gbsg2.time, gbsg2.event, 1000.0)
    want = KaplanMeierFitter().fit(gbsg2.time, gbsg2.event).predict(1000.0)
    assert_allclose([groups.predicted, groups.observed, groups.n], [[0.7], [want], [686]])


def test_a_group_that_is_not_followed_to_the_horizon_has_no_observed_survival():
    time, event = np.array([1.0, 2.0, 8.0, 9.0]), np.array([1, 0, 1, 0], bool)
    groups = calibration_groups(np.array([0.1, 0.1, 0.9, 0.9]), time, event, 5.0, groups=2)
    assert_allclose(groups.observed, [np.nan, 1.0])
    time[1] = 5.0
    groups = calibration_groups(np.array([0.1, 0.1, 0.9, 0.9]), time, event, 5.0, groups=2)
    assert_allclose(groups.observed, [0.5, 1.0])


def test_d_calibration_of_the_authors_example():
    # haiderstats/survival_evaluation, README: Rossi, 300 records to fit, 132 to test, gives 0.989.
    np.random.seed(42)  # noqa: NPY002 - the example's own split
    frame = load_rossi().sample(frac=1.0)
    train, test = frame.iloc[:300], frame.iloc[300:]
    model = CoxPHFitter().fit(train, "week", "arrest")
    curves = model.predict_survival_function(test, times=np.arange(1.0, 53.0)).to_numpy().T
    own = curves[np.arange(len(test)), test["week"].to_numpy(int) - 1]
    assert_allclose(d_calibration(own, test["arrest"] == 1).p, 0.989, atol=1e-3)


def test_bins_by_hand():
    # Two bins. Deaths at 0.2 and 1.0; one record censored at 0.8: 5/8 below 0.5, 3/8 above.
    own, event = np.array([0.2, 1.0, 0.8]), np.array([1, 1, 0], bool)
    assert_allclose(bin_counts(own, event, 2).counts, [1 + 5 / 8, 1 + 3 / 8])
    assert_allclose(bin_counts(np.array([0.0]), np.array([False]), 2).counts, [1, 0])


def test_without_censoring_d_calibration_is_pearsons_test():
    rng = np.random.default_rng(5)
    own = rng.random(200) ** 1.2
    got = d_calibration(own, np.ones(200, bool))
    want = chisquare(np.histogram(own, 10, (0, 1))[0])
    assert_allclose([got.statistic, got.p], want, rtol=1e-10)


def test_the_truth_is_d_calibrated_and_overconfidence_is_not():
    rng = np.random.default_rng(6)
    rate = np.exp(rng.normal(size=3000))
    death, leaves = rng.exponential(1 / rate), rng.exponential(1.5, 3000)
    time, event = np.minimum(death, leaves), death <= leaves
    assert d_calibration(np.exp(-rate * time), event).p > 0.05
    assert d_calibration(np.exp(-(rate**1.6) * time), event).p < 1e-6


def test_without_records_there_is_nothing_to_say():
    nobody = np.empty(0)
    assert len(calibration_groups(nobody, nobody, nobody, 1.0).n) == 0
    assert math.isnan(d_calibration(np.empty(0), np.empty(0, bool)).p)


def test_own_survival_is_read_off_straight_lines_and_stops_at_the_last_time():
    times, surv = np.array([1.0, 3.0]), np.array([[0.8, 0.4]] * 5)
    time, event = np.array([0.5, 1.0, 2.0, 3.0, 7.0]), np.ones(5, bool)
    own, died = own_survival(surv, times, time, event)
    assert_allclose(own, [0.9, 0.8, 0.6, 0.4, 0.4])
    assert died.tolist() == [True, True, True, True, False]


@given(seed=st.integers(0, 300), n=st.integers(0, 80), least=st.integers(1, 8))
def test_no_calibration_group_is_of_few_whatever_they_did(seed, n, least):
    rng = np.random.default_rng(seed)
    time, event = rng.integers(1, 40, n).astype(float), rng.random(n) < 0.6
    said, horizon = rng.random(n).round(2), 20.0
    got = calibration_groups(said, time, event, horizon, 5, least)
    died, alive = event & (time <= horizon), (time > horizon) | ((time == horizon) & ~event)
    if not len(got.n):
        counts = np.array([died.sum(), alive.sum(), n])
        assert n == 0 or ((counts > 0) & (counts < least)).any()
        return
    assert got.n.sum() == n
    ends = np.cumsum(got.n).astype(int)
    order = np.argsort(said, kind="stable")
    for rows in np.split(order, ends[:-1]):
        counts = np.array([died[rows].sum(), alive[rows].sum(), len(rows)])
        assert ((counts == 0) | (counts >= least)).all()


def test_without_times_or_with_a_prediction_that_is_nan_there_is_no_d_calibration():
    time, event = np.array([3.0, 4.0]), np.array([True, False])
    own, died = own_survival(np.empty((2, 0)), np.empty(0), time, event)
    assert np.isnan(own).all()
    assert np.isnan(d_calibration(own, died).p)
    assert np.isnan(d_calibration(np.array([0.5, np.nan]), event).p)

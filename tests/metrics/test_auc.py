"""Cumulative/dynamic AUC equals scikit-survival's, and the usual AUC without censoring."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score
from sksurv.metrics import cumulative_dynamic_auc

from fedcohort.metrics.auc import dynamic_auc
from fedcohort.metrics.brier import evaluation_times


@pytest.mark.parametrize("name", ["gbsg2", "whas500", "rossi"])
def test_auc_with_other_training_records_equals_scikit_survival(request, name):
    train, test = request.getfixturevalue(name).halves()
    last = test.event & (test.time == test.time.max())
    test = test.rows(~last)
    times = evaluation_times(train.time, train.event, test.time, test.event, m=7)
    for risk in (test.risk, np.round(test.risk, 1), 1 - test.surv(times)):
        ours = dynamic_auc(train.time, train.event, test.time, test.event, risk, times)
        values, mean = cumulative_dynamic_auc(train.y, test.y, risk, times)
        assert_allclose(ours.values, values, atol=1e-8)
        assert_allclose(ours.mean, mean, atol=1e-8)


def test_without_censoring_it_is_the_usual_auc():
    rng = np.random.default_rng(2)
    time, event, risk = rng.exponential(size=60), np.ones(60, bool), rng.normal(size=60).round(1)
    got = dynamic_auc(time, event, time, event, risk, np.array([0.5]))
    want = roc_auc_score(time <= 0.5, risk)
    assert_allclose([got.values[0], got.mean], want, atol=1e-12)


def test_there_is_no_auc_without_cases_or_controls():
    time, event, risk = np.array([2.0, 3.0]), np.ones(2, bool), np.array([1.0, 0.0])
    got = dynamic_auc(time, event, time, event, risk, np.array([1.0, 2.5]))
    assert math.isnan(got.values[0])
    assert got.values[1] == got.mean == 1.0
    assert math.isnan(dynamic_auc(time, event, time, event, risk, np.array([1.0])).mean)

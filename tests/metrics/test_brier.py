"""Graf's Brier score equals scikit-survival's, and the mean squared error without censoring."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sksurv.metrics import brier_score, integrated_brier_score

from fedcohort.metrics.survival.brier import brier, evaluation_times, integrate, integrated_brier
from fedcohort.metrics.survival.censoring import censoring_of
from fedcohort.protocol.errors import DataError


def test_the_example_in_scikit_survivals_manual(gbsg2_graded):
    # It prints 0.20881843 at five years and 0.1816 from the first year to the fifth.
    cohort = gbsg2_graded
    args = (cohort.time, cohort.event, cohort.time, cohort.event)
    five_years = np.array([1825.0])
    assert_allclose(brier(*args, cohort.surv(five_years), five_years), 0.20881843, atol=5e-9)
    days = np.arange(365.0, 1826.0)
    assert_allclose(integrated_brier(*args, cohort.surv(days), days), 0.1816, atol=5e-5)


@pytest.mark.parametrize("name", ["gbsg2", "whas500", "rossi"])
def test_scores_with_other_training_records_equal_scikit_survival(request, name):
    train, test = request.getfixturevalue(name).halves()
    times = evaluation_times(train.time, train.event, test.time, test.event)
    surv = test.surv(times)
    args = (train.time, train.event, test.time, test.event, surv, times)
    assert_allclose(brier(*args), brier_score(train.y, test.y, surv, times)[1], atol=1e-10)
    want = integrated_brier_score(train.y, test.y, surv, times)
    assert_allclose(integrated_brier(*args), want, atol=1e-10)


def test_without_censoring_it_is_the_mean_squared_error():
    rng = np.random.default_rng(1)
    time, event, times = rng.exponential(size=50), np.ones(50, bool), np.array([0.3, 0.9])
    surv = rng.random((50, 2))
    want = np.mean(((time[:, None] > times) - surv) ** 2, axis=0)
    assert_allclose(brier(time, event, time, event, surv, times), want, atol=1e-14)


def test_evaluation_stays_where_records_are_followed(gbsg2):
    times = evaluation_times(gbsg2.time, gbsg2.event, gbsg2.time, gbsg2.event, m=20)
    assert len(times) == 20
    assert np.all(np.diff(times) > 0)
    died = gbsg2.time[gbsg2.event]
    assert_allclose(times[[0, -1]], np.quantile(died, [0.05, 0.9]))
    short = gbsg2.rows(gbsg2.time < 600)
    times = evaluation_times(short.time, short.event, gbsg2.time, gbsg2.event)
    assert times[-1] < short.time.max()
    assert censoring_of(short.time, short.event).at(times[-1]) >= 0.05


@pytest.mark.parametrize("event", [[0, 0, 0], [0, 1, 0]])
def test_too_few_deaths_span_no_time(event):
    time, event = np.array([1.0, 2.0, 3.0]), np.array(event, bool)
    times = evaluation_times(time, event, time, event)
    assert len(times) == 0
    assert math.isnan(integrate(np.empty(0), times))
    none = slice(0, 0)
    got = brier(time, event, time[none], event[none], np.empty((0, 1)), np.array([1.5]))
    assert np.isnan(got).all()


def test_predictions_at_other_times_are_refused(gbsg2):
    c = gbsg2
    with pytest.raises(
        DataError, match=r"shape \(686, 3\); 686 records and 2 times need \(686, 2\)"
    ):
        brier(c.time, c.event, c.time, c.event, np.ones((686, 3)), np.array([1.0, 2.0]))

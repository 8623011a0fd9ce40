"""A row of ones is the metric; a draw is its records repeated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score
from sksurv.metrics import cumulative_dynamic_auc

from fedcohort.metrics.resampled import multiplicities
from fedcohort.metrics.survival import over_time
from fedcohort.metrics.survival.brier import brier, evaluation_times


def auc_of(train_time, train_event, time, event, risk, times):
    """The AUC (m,) of the records themselves."""
    ones = np.ones((1, len(time)))
    return over_time.auc(ones, train_time, train_event, time, event, risk, times)[0]


@pytest.mark.parametrize("name", ["gbsg2", "whas500", "rossi"])
def test_auc_with_other_training_records_equals_scikit_survival(request, name):
    train, test = request.getfixturevalue(name).halves()
    test = test.rows(~(test.event & (test.time == test.time.max())))
    times = evaluation_times(train.time, train.event, test.time, test.event, m=7)
    for risk in (test.risk, np.round(test.risk, 1)):
        ours = auc_of(train.time, train.event, test.time, test.event, risk, times)
        theirs, _ = cumulative_dynamic_auc(train.y, test.y, risk, times)
        assert_allclose(ours, theirs, atol=1e-8)


def test_without_censoring_it_is_the_usual_auc():
    rng = np.random.default_rng(2)
    time, event, risk = rng.exponential(size=60), np.ones(60, bool), rng.normal(size=60).round(1)
    got = auc_of(time, event, time, event, risk, np.array([0.5]))
    assert_allclose(got, roc_auc_score(time <= 0.5, risk), atol=1e-12)


def test_a_row_of_ones_gives_the_brier_score_of_the_records(gbsg2):
    train, test = gbsg2.halves()
    times = np.array([400.0, 700, 1000, 1500])
    ones = np.ones((1, len(test.time)))
    given_ = (train.time, train.event, test.time, test.event)
    surv = test.surv(times)
    want = brier(*given_, surv, times)
    assert_allclose(over_time.brier(ones, *given_, surv, times)[0], want, rtol=1e-12)


@given(n=st.integers(10, 50), digits=st.integers(0, 2), seed=st.integers(0, 2**16))
def test_a_draw_is_its_records_repeated(n, digits, seed):
    rng = np.random.default_rng(seed)
    time = np.round(rng.exponential(size=n), digits) + 0.1
    event, risk = rng.random(n) < 0.6, np.round(rng.normal(size=n), digits)
    train = (rng.exponential(size=80), rng.random(80) < 0.5)
    times = np.array([0.3, 0.8, 1.2])
    surv = rng.random((n, 3))
    weights = multiplicities(n, 3, rng)
    got = over_time.auc(weights, *train, time, event, risk, times)
    errors = over_time.brier(weights, *train, time, event, surv, times)
    for b, m in enumerate(weights):
        r = np.repeat(np.arange(n), m)
        want = auc_of(*train, time[r], event[r], risk[r], times)
        assert_allclose(got[b], want, rtol=1e-10)
        assert_allclose(errors[b], brier(*train, time[r], event[r], surv[r], times), rtol=1e-10)


def test_it_does_not_matter_in_how_many_blocks_it_is_computed(gbsg2, monkeypatch):
    rng = np.random.default_rng(1)
    records = (gbsg2.time, gbsg2.event)
    weights, times = multiplicities(len(gbsg2.time), 7, rng), np.array([300.0, 900.0])
    at_once = over_time.auc(weights, *records, *records, gbsg2.risk, times)
    monkeypatch.setattr(over_time, "TABLE", 1500)
    blocks = over_time.auc(weights, *records, *records, gbsg2.risk, times)
    assert_allclose(blocks, at_once, rtol=1e-14)


def test_without_cases_controls_or_patients_there_is_no_answer():
    time, event = np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, True])
    weights = np.array([[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]])
    got = over_time.auc(weights, time, event, time, event, -time, np.array([0.5, 2.0, 4.0]))
    assert_allclose(got, [[np.nan, 1, np.nan], [np.nan] * 3, [np.nan] * 3])
    surv = np.full((4, 1), 0.5)
    errors = over_time.brier(weights, time, event, time, event, surv, np.array([2.0]))
    assert_allclose(errors, [[0.25], [0.25], [np.nan]])


@given(seed=st.integers(0, 300), n=st.integers(0, 60), least=st.integers(1, 8))
def test_at_every_time_of_the_shown_span_enough_have_died_and_enough_are_followed(seed, n, least):
    rng = np.random.default_rng(seed)
    time, event = rng.integers(1, 30, n).astype(float), rng.random(n) < 0.6
    low, high = over_time.published_span(time, event, least)
    for t in np.arange(0, 31, 0.5):
        enough = (event & (time <= t)).sum() >= least and (time > t).sum() >= least
        assert enough == (low <= t <= high)

"""Published values, scikit-survival's definition, and what a rank statistic must not depend on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import CoxPHFitter
from lifelines.datasets import load_lung
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import roc_auc_score
from sksurv.metrics import concordance_index_censored, concordance_index_ipcw

from fedcohort.metrics.resampled import harrell as resampled_harrell
from fedcohort.metrics.resampled import multiplicities
from fedcohort.metrics.survival.concordance import (
    comparable_pairs,
    count_at_least,
    harrell,
    influence,
    uno,
)
from fedcohort.protocol.errors import DataError

records = st.lists(
    st.tuples(st.integers(1, 9), st.booleans(), st.integers(-4, 4)), min_size=2, max_size=40
)


def columns(rows):
    time, event, risk = (np.array(c) for c in zip(*rows, strict=True))
    return time.astype(float), event, risk / 2.0


def test_harrell_of_an_efron_cox_fit_equals_the_published_values(gbsg2, whas500, rossi):
    values = [harrell(c.risk, c.time, c.event) for c in (gbsg2, whas500, rossi)]
    assert_allclose(values, [0.691851, 0.784215, 0.640329], atol=5e-7)


def test_uno_up_to_the_90_percent_quantile_equals_the_published_value(gbsg2):
    tau = np.quantile(gbsg2.time, 0.9)
    value = uno(gbsg2.time, gbsg2.event, gbsg2.time, gbsg2.event, gbsg2.risk, tau)
    assert_allclose(value, 0.673373, atol=5e-7)


def test_pairs_by_hand():
    # Deaths at 1, 2, 2; censored at 2 and 3. The death at 1 has 4 partners, each death at 2 has
    # 2: the record censored at the same time and the later one, but not the other death.
    time, event = np.array([2.0, 1.0, 2.0, 3.0, 2.0]), np.array([1, 1, 1, 0, 0], bool)
    risk = np.array([5.0, 3.0, 1.0, 1.0, 5.0])
    pairs = comparable_pairs(risk, time, event)
    assert_array_equal(pairs.comparable, [2, 4, 2])
    assert_array_equal(pairs.lower, [1, 2, 0])
    assert_array_equal(pairs.tied, [1, 0, 1])
    assert harrell(risk, time, event) == (3 + 0.5 * 2) / 8


@given(rows=records)
@settings(max_examples=60, deadline=None)
def test_harrell_equals_scikit_survival_whatever_the_ties(rows):
    time, event, risk = columns(rows)
    ours = harrell(risk, time, event)
    if math.isnan(ours):
        return
    assert_allclose(ours, concordance_index_censored(event, time, risk)[0], atol=1e-13)


def test_scores_within_rounding_are_tied_as_in_scikit_survival():
    rng = np.random.default_rng(3)
    risk = rng.integers(0, 4, 200) + rng.integers(-9, 9, 200) * 1.1e-9
    time, event = rng.exponential(size=200), rng.random(200) < 0.6
    want = concordance_index_censored(event, time, risk)
    pairs = comparable_pairs(risk, time, event)
    assert (pairs.lower.sum(), pairs.tied.sum()) == (want[1], want[3])


@pytest.mark.parametrize("name", ["gbsg2", "whas500", "rossi"])
@pytest.mark.parametrize("fraction", [0.4, 0.75])
def test_uno_with_other_training_records_equals_scikit_survival(request, name, fraction):
    train, test = request.getfixturevalue(name).halves()
    tau = float(np.quantile(test.time, fraction))
    ours = uno(train.time, train.event, test.time, test.event, test.risk, tau)
    want = concordance_index_ipcw(train.y, test.y, test.risk, tau)[0]
    assert_allclose(ours, want, atol=1e-10)


def test_uno_without_censoring_is_harrell():
    rng = np.random.default_rng(0)
    time, risk = rng.exponential(size=80), rng.normal(size=80)
    event = np.ones(80, bool)
    assert_allclose(uno(time, event, time, event, risk), harrell(risk, time, event), atol=1e-14)


def test_uno_refuses_a_tau_for_which_the_training_records_give_no_weight(gbsg2):
    train = gbsg2.rows(gbsg2.time < 800)
    with pytest.raises(DataError, match="tau=2000 lies beyond the follow-up"):
        uno(train.time, train.event, gbsg2.time, gbsg2.event, gbsg2.risk, 2000.0)
    assert 0.5 < uno(train.time, train.event, gbsg2.time, gbsg2.event, gbsg2.risk) < 1


def test_a_risk_that_is_nan_is_refused():
    time, event = np.array([1.0, 2.0]), np.array([True, True])
    with pytest.raises(DataError, match="1 of 2 risk scores are nan"):
        harrell(np.array([math.nan, 0.0]), time, event)


@pytest.mark.parametrize("event", [[0, 0, 0], [0, 0, 1]])
def test_without_comparable_pairs_there_is_no_concordance(event):
    time, risk, event = np.array([1.0, 2.0, 3.0]), np.arange(3.0), np.array(event, bool)
    assert math.isnan(harrell(risk, time, event))
    assert math.isnan(uno(time, event, time, event, risk))
    none = slice(0, 0)
    assert math.isnan(harrell(risk[none], time[none], event[none]))
    assert math.isnan(uno(time[none], event[none], time, event, risk))


@given(rows=records, seed=st.integers(0, 2**16))
@settings(max_examples=30, deadline=None)
def test_concordance_depends_on_the_order_of_risks_alone(rows, seed):
    time, event, risk = columns(rows)
    c = harrell(risk, time, event)
    if math.isnan(c):
        return
    order = np.random.default_rng(seed).permutation(len(time))
    assert_allclose(harrell(risk[order], time[order], event[order]), c, atol=1e-13)
    assert_allclose(harrell(np.exp(risk), time, event), c, atol=1e-13)
    assert_allclose(harrell(-risk, time, event), 1 - c, atol=1e-13)
    assert harrell(np.zeros(len(time)), time, event) == 0.5


@given(n=st.integers(1, 40), seed=st.integers(0, 2**16))
@settings(max_examples=40, deadline=None)
def test_counting_in_prefixes_equals_counting_one_by_one(n, seed):
    rng = np.random.default_rng(seed)
    values, length, least = (
        rng.integers(0, n, n),
        rng.integers(0, n + 1, 9),
        rng.integers(0, n + 1, 9),
    )
    want = [np.sum(values[:k] >= v) for k, v in zip(length, least, strict=True)]
    assert_array_equal(count_at_least(values, length, least), want)


# standard error ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "value", "error"),
    [(["sex"], 0.579, 0.021), (["age", "sex", "ph.ecog"], 0.637, 0.025)],
)
def test_the_standard_error_equals_rs(names, value, error):
    # R, survival: summary(coxph(Surv(time, status) ~ …, lung)) prints "Concordance= 0.579 (se =
    # 0.021)" and "Concordance= 0.637 (se = 0.025)".
    frame = load_lung()[["time", "status", *names]].dropna()
    risk = CoxPHFitter().fit(frame, "time", "status").predict_log_partial_hazard(frame)
    got = influence(risk.to_numpy(), frame["time"].to_numpy(), frame["status"].to_numpy() == 1)
    assert_allclose([got.value, got.error], [value, error], atol=5e-4)


@given(rows=records)
@settings(max_examples=40, deadline=None)
def test_the_influence_of_a_record_is_what_leaving_it_out_shows(rows):
    # Without record i, C is (A − a_i)/(B − b_i): C_(i) − C = −slope_i B/(B − b_i).
    time, event, risk = columns(rows)
    got = influence(risk, time, event)
    earlier = (time[:, None] < time) | ((time[:, None] == time) & ~event)
    pairs = earlier & event[:, None]
    total, part = pairs.sum(), pairs.sum(axis=0) + pairs.sum(axis=1)
    if not total:
        assert math.isnan(got.value)
        assert math.isnan(got.error)
        return
    assert_allclose(got.value, harrell(risk, time, event), atol=1e-14)
    assert_allclose(got.slope.sum(), 0, atol=1e-12)
    for i in np.flatnonzero(part < total):
        rest = np.arange(len(time)) != i
        without = harrell(risk[rest], time[rest], event[rest])
        moved = -got.slope[i] * total / (total - part[i])
        assert_allclose(without - got.value, moved, atol=1e-12)


@pytest.mark.parametrize("name", ["gbsg2", "whas500"])
def test_the_standard_error_agrees_with_a_bootstrap(request, name):
    c = request.getfixturevalue(name).rows(slice(0, 150))
    drawn = multiplicities(150, 1000, np.random.default_rng(0))
    want = resampled_harrell(drawn, c.risk, c.time, c.event).std()
    assert_allclose(influence(c.risk, c.time, c.event).error, want, rtol=0.1)


def test_of_two_classes_it_is_the_area_under_the_roc_curve_with_delongs_error():
    # DeLong et al., Biometrics 44, 1988, with means over m and n where he divides by m − 1, n − 1.
    rng = np.random.default_rng(5)
    y = rng.random(120) < 0.3
    score = np.round(rng.normal(size=120) + 0.8 * y, 1)
    got = influence(score, np.where(y, 1.0, 2.0), y)
    wins = (score[y][:, None] > score[~y]) + 0.5 * (score[y][:, None] == score[~y])
    cases, controls = wins.mean(axis=1), wins.mean(axis=0)
    variance = cases.var() / len(cases) + controls.var() / len(controls)
    assert_allclose([got.value, got.error**2], [roc_auc_score(y, score), variance], rtol=1e-12)

"""Percentile intervals, and the corrected resampled t-test with the interval that belongs to it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import bootstrap as scipy_bootstrap
from scipy.stats import t as student
from scipy.stats import ttest_rel

from fedcohort.metrics.intervals import (
    centred,
    interval_of,
    paired,
    percentile_interval,
    summarise,
)
from fedcohort.metrics.resampled import multiplicities
from fedcohort.metrics.virtual import Columns, marginal_errors

A = np.array([0.71, 0.74, 0.69, 0.73, 0.75, 0.70, 0.72, 0.74])
B = np.array([0.70, 0.71, 0.69, 0.70, 0.74, 0.70, 0.70, 0.72])


def test_without_shared_records_it_is_the_paired_t_test():
    got, want = paired(A, B, 0.0), ttest_rel(A, B)
    assert_allclose([got.difference, got.p, got.n], [np.mean(A - B), want.pvalue, 8], rtol=1e-10)
    assert_allclose(got[1:3], want.confidence_interval(0.95), rtol=1e-10)
    assert_allclose(paired(A, B, 0.0, 0.8)[1:3], want.confidence_interval(0.8), rtol=1e-10)


def test_nadeau_and_bengio_widen_the_variance_by_the_test_train_ratio():
    x = A - B
    error = math.sqrt((1 / 8 + 1 / 3) * x.var(ddof=1))
    got = paired(A, B, 1 / 3)
    assert_allclose(got.p, 2 * student.sf(x.mean() / error, 7), rtol=1e-10)
    assert_allclose(got[1:3], student.interval(0.95, 7, x.mean(), error), rtol=1e-10)
    assert got.p > ttest_rel(A, B).pvalue


@given(
    x=st.lists(st.floats(-1, 1), min_size=3, max_size=12),
    ratio=st.floats(0, 3),
    level=st.floats(0.05, 0.99),
)
def test_the_interval_leaves_out_zero_exactly_where_p_is_small(x, ratio, level):
    got = paired(x, np.zeros(len(x)), ratio, level)
    assume(abs(got.p - (1 - level)) > 1e-9)
    assert (got.low > 0 or got.high < 0) == (got.p < 1 - level)
    assert got.low <= got.difference <= got.high


def test_the_corrected_test_keeps_its_level_where_repeats_share_data():
    # Means over random 25 % test sets of one cohort without any difference: the usual test rejects
    # far too often, the corrected one at most at its level (here 400 cohorts, 20 repeats each).
    rng = np.random.default_rng(0)
    usual = corrected = 0
    for _ in range(400):
        cohort = rng.normal(size=80)
        a = np.array([cohort[rng.permutation(80)[:20]].mean() for _ in range(20)])
        usual += ttest_rel(a, np.zeros(20)).pvalue < 0.05
        corrected += paired(a, np.zeros(20), 1 / 3).p < 0.05
    assert usual > 0.2 * 400
    assert corrected < 0.09 * 400


def test_two_arms_are_exchangeable():
    ab, ba = paired(A, B, 1 / 3), paired(B, A, 1 / 3)
    assert_allclose([-ab.difference, ab.p, -ab.low], [ba.difference, ba.p, ba.high], atol=1e-12)


def test_equal_arms_do_not_differ():
    got = paired(A, A, 1 / 3)
    assert (got.difference, got.low, got.high, got.p) == (0.0, 0.0, 0.0, 1.0)
    assert paired([0.5, 0.75, 1.0], [0.25, 0.5, 0.75], 1 / 3)[:4] == (0.25, 0.25, 0.25, 0.0)


def test_one_repeat_has_a_mean_and_nothing_else():
    got = summarise([0.7])
    assert (got.mean, got.n) == (0.7, 1)
    assert math.isnan(got.sd)
    got = paired([0.7, math.nan], [0.6, 0.5], 1 / 3)
    assert_allclose([got.difference, got.n], [0.1, 1])
    assert all(map(math.isnan, (got.low, got.high, got.p)))


def test_two_repeats_have_a_difference_without_an_interval():
    got = paired([0.7, 0.8], [0.6, 0.6], 1 / 3)
    assert_allclose([got.difference, got.n], [0.15, 2])
    assert all(map(math.isnan, (got.low, got.high, got.p)))


def test_what_a_repeat_could_not_give_is_left_out_and_counted():
    assert_allclose(summarise(A), [A.mean(), A.std(ddof=1), 8])
    assert_allclose(summarise([0.6, math.nan, 0.8]), [0.7, math.sqrt(0.02), 2])
    assert summarise([math.nan]).n == 0
    assert math.isnan(summarise([]).mean)
    assert paired([], [], 0.3).n == 0


def test_the_percentile_interval_equals_scipys():
    want = scipy_bootstrap((A,), np.mean, method="percentile", n_resamples=500, rng=1)
    got = percentile_interval(np.r_[want.bootstrap_distribution, math.nan])
    assert_allclose(got, want.confidence_interval, rtol=1e-12)
    narrow = percentile_interval(want.bootstrap_distribution, level=0.5)
    assert got.low < narrow.low < narrow.high < got.high


@pytest.mark.parametrize("draws", [[], [0.7], [math.nan, 0.7, math.nan]])
def test_one_draw_gives_no_interval(draws):
    assert all(map(math.isnan, percentile_interval(draws)))


@given(
    draws=st.lists(st.floats(0, 1), min_size=2, max_size=30),
    value=st.floats(0, 1),
    biased=st.booleans(),
)
def test_every_interval_that_is_shown_contains_its_value(draws, value, biased):
    got = interval_of(draws, value, biased=biased)
    assert 0 <= got.low <= value <= got.high


def test_draws_around_their_value_keep_their_percentiles():
    draws = np.random.default_rng(0).normal(0.7, 0.1, 200)
    assert interval_of(draws, 0.7, biased=False) == percentile_interval(draws)
    assert_allclose(centred(draws, 0.6).mean(), 0.6)
    assert all(map(math.isnan, interval_of([math.nan], 0.5, biased=True)))


@pytest.mark.parametrize("power", [1.0, 1.3])
def test_the_interval_of_a_distance_covers_the_mean_distance_of_such_cohorts(power):
    # Eight uniform columns against a model with t^(1/power): equal at 1. Expected: the mean of
    # Kolmogorov's distance, by sorted values, over 2,000 other cohorts. Covered in 100 cohorts,
    # seeds 0 to 4: shifted 0.96 to 0.99 and 0.90 to 0.94, percentiles 0.03 and 0.49 at most; the
    # standard deviation of a share of 0.92 is 0.027.
    rng, n, c = np.random.default_rng(0), 60, 8
    s = np.sort(rng.random((2000, n, c)), axis=1) ** power
    up, down = (np.arange(a, n + a)[:, None] / n for a in (1, 0))
    want = np.maximum(up - s, s - down).max(axis=1).mean()
    grid = np.arange(1, 300)[:, None] / 300
    none = np.zeros((n, 0), int)
    model = Columns(np.repeat(grid ** (1 / power), c, axis=1), np.zeros((299, 0), int), ())
    shifted = plain = 0
    for _ in range(100):
        weights = np.concatenate([np.ones((1, n)), multiplicities(n, 59, rng)])
        real = Columns(rng.random((n, c)), none, ())
        value, *draws = marginal_errors(real, model, weights).mean(axis=1)
        low, high = interval_of(draws, value, biased=True)
        shifted += low <= want <= high
        low, high = percentile_interval(draws)
        plain += low <= want <= high
    assert shifted >= 84
    assert plain < 65

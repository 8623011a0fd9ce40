"""Intervals and the corrected resampled t-test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import bootstrap as scipy_bootstrap
from scipy.stats import t as student
from scipy.stats import ttest_rel

from fedcohort.metrics.intervals import bootstrap, paired, summarise

A = np.array([0.71, 0.74, 0.69, 0.73, 0.75, 0.70, 0.72, 0.74])
B = np.array([0.70, 0.71, 0.69, 0.70, 0.74, 0.70, 0.70, 0.72])


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def test_without_shared_records_it_is_the_paired_t_test(rng):
    got = paired(A, B, 0.0, rng)
    want = ttest_rel(A, B)
    assert_allclose([got.difference, got.p, got.n], [np.mean(A - B), want.pvalue, 8], rtol=1e-10)


def test_nadeau_and_bengio_widen_the_variance_by_the_test_train_ratio(rng):
    x = A - B
    t = x.mean() / math.sqrt((1 / 8 + 1 / 3) * x.var(ddof=1))
    got = paired(A, B, 1 / 3, rng)
    assert_allclose(got.p, 2 * student.sf(t, 7), rtol=1e-10)
    assert got.p > ttest_rel(A, B).pvalue
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
        corrected += paired(a, np.zeros(20), 1 / 3, rng, draws=2).p < 0.05
    assert usual > 0.2 * 400
    assert corrected < 0.09 * 400


def test_two_arms_are_exchangeable():
    ab, ba = (paired(x, y, 1 / 3, np.random.default_rng(0)) for x, y in ((A, B), (B, A)))
    assert_allclose([-ab.difference, ab.p, -ab.low], [ba.difference, ba.p, ba.high], atol=1e-12)


def test_equal_arms_do_not_differ(rng):
    got = paired(A, A, 1 / 3, rng)
    assert (got.difference, got.low, got.high, got.p) == (0.0, 0.0, 0.0, 1.0)
    assert paired([0.5, 0.75], [0.25, 0.5], 1 / 3, rng).p == 0.0


def test_one_repeat_has_a_mean_and_nothing_else(rng):
    got = summarise([0.7], rng)
    assert (got.mean, got.n) == (0.7, 1)
    assert all(map(math.isnan, (got.sd, got.low, got.high)))
    got = paired([0.7, math.nan], [0.6, 0.5], 1 / 3, rng)
    assert_allclose([got.difference, got.n], [0.1, 1])
    assert all(map(math.isnan, (got.low, got.high, got.p)))


def test_what_a_repeat_could_not_give_is_left_out_and_counted(rng):
    assert summarise([0.6, math.nan, 0.8], rng).n == 2
    assert summarise([math.nan], rng).n == 0
    assert math.isnan(summarise([], rng).mean)
    assert paired([], [], 0.3, rng).n == 0


def test_the_interval_of_a_mean_equals_scipys(rng):
    got = summarise(A, rng, draws=20000)
    want = scipy_bootstrap((A,), np.mean, method="percentile", n_resamples=20000, rng=1)
    assert_allclose(got[:2], [A.mean(), A.std(ddof=1)])
    assert_allclose(got[2:4], want.confidence_interval, atol=1e-3)


def test_a_metrics_interval_is_its_spread_over_draws_of_records(rng):
    values = rng.normal(size=400)
    got = bootstrap(lambda rows: float(values[rows].mean()), 400, 2000, rng)
    assert_allclose(got, values.mean() + np.array([-1.96, 1.96]) * values.std() / 20, atol=0.01)
    narrow = bootstrap(lambda rows: float(values[rows].mean()), 400, 2000, rng, level=0.5)
    assert got.low < narrow.low < narrow.high < got.high


def test_draws_without_a_value_are_left_out(rng):
    got = bootstrap(lambda rows: math.nan if rows[0] else 1.0, 2, 50, rng)
    assert got == (1.0, 1.0)
    assert all(map(math.isnan, bootstrap(lambda _: math.nan, 2, 50, rng)))

"""Each draw's metric is that of its records repeated; intervals over patients cover the truth."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcohort.metrics import calibration, resampled
from fedcohort.metrics.intervals import percentile_interval, summarise
from fedcohort.metrics.survival import brier, concordance
from fedcohort.metrics.survival.censoring import censoring_of
from fedcohort.protocol.errors import DataError

TIMES, TAU = np.linspace(0.1, 1.0, 8), 1.1


class Records(NamedTuple):
    """Records whose log risk and survival curves are the truth."""

    risk: np.ndarray
    time: np.ndarray
    event: np.ndarray
    surv: np.ndarray

    def rows(self, chosen):
        return Records(*(a[chosen] for a in self))

    @property
    def own(self):
        return calibration.own_survival(self.surv, TIMES, self.time, self.event)


def cohort(rng, n, digits=1):
    """Records with ties in risk and time, the more the fewer digits."""
    risk = rng.normal(size=n).round(digits)
    death, leaves = rng.exponential(np.exp(-risk)), rng.exponential(1.5, n)
    time = np.minimum(death, leaves).round(digits) + 0.01
    return Records(risk, time, death <= leaves, np.exp(-np.exp(risk)[:, None] * TIMES))


TRAIN = cohort(np.random.default_rng(8), 300)
G = (TRAIN.time, TRAIN.event)

PLAIN = {
    "harrell": lambda t: concordance.harrell(t.risk, t.time, t.event),
    "uno": lambda t: concordance.uno(*G, t.time, t.event, t.risk, TAU),
    "integrated_brier": lambda t: brier.integrated_brier(*G, t.time, t.event, t.surv, TIMES),
    "d_calibration": lambda t: calibration.d_calibration(*t.own).p,
    "calibration_slope": lambda t: calibration.calibration_slope(t.risk, t.time, t.event).value,
}
DRAWN = {
    "harrell": lambda m, t: resampled.harrell(m, t.risk, t.time, t.event),
    "uno": lambda m, t: resampled.uno(m, *G, t.time, t.event, t.risk, TAU),
    "integrated_brier": lambda m, t: resampled.integrated_brier(
        m, *G, t.time, t.event, t.surv, TIMES
    ),
    "d_calibration": lambda m, t: resampled.d_calibration(m, *t.own),
    "calibration_slope": lambda m, t: resampled.calibration_slope(m, t.risk, t.time, t.event),
}
each_metric = pytest.mark.parametrize("metric", PLAIN)


@each_metric
@pytest.mark.parametrize("digits", [0, 1, 6])
def test_with_everyone_once_it_is_the_metric_itself(metric, digits):
    test = cohort(np.random.default_rng(1), 150, digits)
    once = DRAWN[metric](np.ones((2, 150), np.int64), test)
    assert_allclose(once, PLAIN[metric](test), rtol=1e-10)


@each_metric
@given(n=st.integers(0, 40), digits=st.integers(0, 3), seed=st.integers(0, 2**16))
@settings(max_examples=15)
def test_a_draw_is_its_records_repeated(metric, n, digits, seed):
    rng = np.random.default_rng(seed)
    test = cohort(rng, n, digits)
    weights = resampled.multiplicities(n, 4, rng)
    repeated = [PLAIN[metric](test.rows(np.repeat(np.arange(n), m))) for m in weights]
    assert_allclose(DRAWN[metric](weights, test), repeated, rtol=1e-7, atol=1e-9)


def test_concordance_by_a_loop_over_pairs():
    rng = np.random.default_rng(3)
    test, m = cohort(rng, 30), resampled.multiplicities(30, 1, rng)
    w = test.event * (test.time < TAU) * censoring_of(*G).inverse_at(test.time) ** 2
    for name, weight in (("harrell", test.event), ("uno", w)):
        part = whole = 0.0
        for i in range(30):
            for j in range(30):
                later = test.time[j] > test.time[i]
                if later or (test.time[j] == test.time[i] and not test.event[j]):
                    pairs = weight[i] * m[0, i] * m[0, j]
                    lower = test.risk[j] < test.risk[i]
                    whole += pairs
                    part += pairs * (lower + 0.5 * (test.risk[j] == test.risk[i]))
        assert_allclose(DRAWN[name](m, test), part / whole, rtol=1e-12)


@each_metric
def test_it_does_not_matter_in_how_many_blocks_it_is_computed(metric, monkeypatch):
    rng = np.random.default_rng(4)
    test, m = cohort(rng, 60), resampled.multiplicities(60, 11, rng)
    at_once = DRAWN[metric](m, test)
    monkeypatch.setattr(resampled, "TABLE", 200)
    assert_allclose(DRAWN[metric](m, test), at_once, rtol=1e-12)


def test_to_first_order_draws_of_concordance_are_the_exact_ones_but_for_a_few_hundredths(
    monkeypatch,
):
    rng = np.random.default_rng(4)
    n = 1500
    risk = rng.normal(size=n).round(2)
    died, censored = rng.exponential(np.exp(-risk)), rng.exponential(2.0, n)
    time, event = np.minimum(died, censored).round(2), died <= censored
    weights = resampled.multiplicities(n, 100, rng)
    for found in (
        lambda: resampled.harrell(weights, risk, time, event),
        lambda: resampled.uno(weights, time, event, time, event, risk, 1.5),
    ):
        exact = found()
        monkeypatch.setattr(resampled, "LINEAR", n)
        first = found()
        monkeypatch.undo()
        # 2 / √n is 0.05 of a draw's deviation
        assert np.std(first - exact) < 0.1 * exact.std()
        assert abs(np.mean(first - exact)) < 0.05 * exact.std()
        assert np.std(first - exact) > 0


def test_derivatives_of_a_weighted_concordance_are_differences_of_it():
    rng = np.random.default_rng(5)
    risk, time = rng.integers(0, 6, 30) / 2.0, rng.integers(1, 9, 30).astype(float)
    event = rng.random(30) < 0.6
    w = rng.random(event.sum())
    found = concordance.influence(risk, time, event, w)
    step = 2.0**-7  # exact in single precision; a central difference errs by its square
    eye = np.eye(30) * step
    up, down = (resampled._concordance(m, risk, time, event, w) for m in (1 + eye, 1 - eye))
    assert_allclose(found.slope, (up - down) / (2 * step), atol=2e-6)


def test_slopes_of_outliers_are_found_as_well():
    # Plain Newton steps leave the bracket of the maximum on such draws.
    rng = np.random.default_rng(124)
    n = 29
    risk, time, event = rng.standard_t(1.1, n), rng.exponential(size=n), rng.random(n) < 0.7
    weights = resampled.multiplicities(n, 200, rng)
    got = resampled.calibration_slope(weights, risk, time, event)
    rows = (np.repeat(np.arange(n), m) for m in weights)
    want = [calibration.calibration_slope(risk[r], time[r], event[r]).value for r in rows]
    assert np.isfinite(want).sum() > 150
    assert_allclose(got, want, rtol=1e-6)


@each_metric
def test_a_draw_of_nobody_has_no_answer(metric):
    test = cohort(np.random.default_rng(5), 20)
    weights = np.array([[0] * 20, [1] * 20])
    got = DRAWN[metric](weights, test)
    assert math.isnan(got[0])
    assert np.isfinite(got[1])


def test_what_the_metrics_refuse_is_refused():
    test, m = cohort(np.random.default_rng(6), 20), np.ones((1, 20), np.int64)
    with pytest.raises(DataError, match="risk scores are nan"):
        resampled.harrell(m, np.full(20, math.nan), test.time, test.event)
    with pytest.raises(DataError, match="tau=9 lies beyond"):
        resampled.uno(m, *G, test.time + 8, test.event, test.risk, 9.0)
    got = resampled.integrated_brier(m, *G, test.time, test.event, test.surv[:, :1], TIMES[:1])
    assert math.isnan(got[0])


def test_multiplicities_draw_as_many_patients_as_there_are():
    drawn = resampled.multiplicities(50, 400, np.random.default_rng(7))
    assert_array_equal(drawn.sum(axis=1), 50)
    assert_allclose([drawn.mean(), drawn.var()], [1.0, 1 - 1 / 50], atol=0.03)
    assert resampled.multiplicities(0, 3, np.random.default_rng(7)).shape == (3, 0)


def test_intervals_over_patients_cover_where_intervals_over_repeats_do_not():
    # 150 cohorts of 200 patients, 6 repeats that test 25 % of them. The standard error of a
    # coverage of 95 % is 1.8 %; the truth is the C-index of 50 000 patients.
    rng = np.random.default_rng(0)
    truth = PLAIN["harrell"](cohort(rng, 50_000, 6))
    patients = repeats = 0
    for _ in range(150):
        everyone = cohort(rng, 200, 6)
        weights = resampled.multiplicities(200, 100, rng)
        tests = [rng.permutation(200)[:50] for _ in range(6)]
        draws = [DRAWN["harrell"](weights[:, rows], everyone.rows(rows)) for rows in tests]
        low, high = percentile_interval(np.mean(draws, axis=0))
        patients += low <= truth <= high
        plain = summarise([PLAIN["harrell"](everyone.rows(rows)) for rows in tests])
        repeats += abs(plain.mean - truth) < 1.96 * plain.sd / math.sqrt(6)
    assert 0.88 <= patients / 150 <= 0.99
    assert repeats / 150 < 0.8

"""Antolini's C from its definition, pair by pair, from Harrell's C, and from an integral."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad

from fedcohort.arrays import Array
from fedcohort.metrics.resampled import harrell as resampled_harrell
from fedcohort.metrics.resampled import multiplicities
from fedcohort.metrics.sums import curve_pairs
from fedcohort.metrics.survival.antolini import antolini
from fedcohort.metrics.survival.concordance import harrell
from fedcohort.protocol.errors import DataError
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

TIMES = np.linspace(0.05, 3.0, 40)


def by_definition(surv, times, time, event, ties=0.5):
    """Return C_td by Antolini et al., section 2: S(t_i | x_i) < S(t_i | x_j), pair by pair.

    Pairs are those of their definition: t_i < t_j and i died, or t_i = t_j, i died and j did not.
    """

    def curve(i, t):
        known = surv[i] < 1  # what has not fallen yet is not known
        return np.interp(t, np.r_[0.0, times[known]], np.r_[1.0, surv[i][known]])

    right = whole = 0.0
    for i in range(len(time)):
        for j in range(len(time)):
            later = time[i] < time[j] or (time[i] == time[j] and not event[j])
            if i == j or not event[i] or not later:
                continue
            own, other = curve(i, time[i]), curve(j, time[i])
            whole += 1
            right += 1.0 if own < other - 1e-12 else ties * (abs(own - other) <= 1e-12)
    return right / whole if whole else math.nan


def weibull(shape, scale, times=TIMES):
    """Return curves exp(−(t/scale)^shape) that cross, as each record has its own shape."""
    return np.exp(-((times / scale[:, None]) ** shape[:, None]))


def cohort(seed, n, steps=0):
    """Return crossing curves, and follow-up that comes of them; times are tied with `steps`."""
    rng = np.random.default_rng(seed)
    shape, scale = rng.choice([0.6, 1.0, 2.5], n), np.exp(rng.normal(0, 0.5, n)).round(1)
    died, left = scale * rng.weibull(shape), rng.exponential(2.0, n)
    time = np.minimum(died, left)
    time = np.ceil(time * steps) / steps if steps else time
    return weibull(shape, scale), time, died <= left


@given(seed=st.integers(0, 9999), n=st.integers(2, 30), steps=st.sampled_from([0, 3]))
@settings(max_examples=20, deadline=None)
def test_it_is_the_definition_s_whatever_the_ties(seed, n, steps):
    surv, time, event = cohort(seed, n, steps)
    want = by_definition(surv, TIMES, time, event)
    assert antolini(surv, TIMES, time, event) == pytest.approx(want, abs=1e-12, nan_ok=True)
    if len(np.unique(surv, axis=0)) == n:  # no curve stands twice
        strict = by_definition(surv, TIMES, time, event, ties=0.0)
        assert want == pytest.approx(strict, nan_ok=True), "so ties need no convention"


records = st.lists(
    st.tuples(st.integers(1, 9), st.booleans(), st.integers(-4, 4)), min_size=2, max_size=30
)


@given(rows=records)
@settings(max_examples=20, deadline=None)
def test_curves_that_do_not_cross_give_harrell_s_c(rows):
    time, event, risk = (np.array(c) for c in zip(*rows, strict=True))
    surv = np.exp(-0.1 * np.outer(np.exp(risk / 2), TIMES))  # deaths beyond the last time count too
    found = antolini(surv, TIMES, time, event)
    assert found == pytest.approx(harrell(risk / 2, time, event), abs=1e-12, nan_ok=True)


def test_of_a_cox_model_it_is_the_published_c_index(gbsg2):
    times = np.linspace(300, 2000, 30)
    found = antolini(gbsg2.surv(times), times, gbsg2.time, gbsg2.event)
    assert found == pytest.approx(0.691851, abs=5e-7)


def test_the_first_step_of_a_step_curve_is_no_tie(gbsg2):
    surv = gbsg2.surv(TIMES * 700)
    coarse = np.where(TIMES < 0.8, 1.0, surv)  # nothing is known of the first 560 days
    found = antolini(coarse, TIMES * 700, gbsg2.time, gbsg2.event)
    assert found == pytest.approx(0.691851, abs=5e-7)
    assert antolini(np.ones_like(surv), TIMES, gbsg2.time, gbsg2.event) == 0.5


def test_it_sees_an_order_that_no_risk_has():
    # each dies when the own curve is the lowest, and the curves cross between
    time, event, times = np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4, bool), np.array([1.0, 2.0, 3.0])
    surv = np.array([[0.2, 0.1, 0.1], [0.9, 0.3, 0.3], [0.8, 0.8, 0.2], [0.7, 0.6, 0.5]])
    assert antolini(surv, times, time, event) == 1.0


@pytest.mark.parametrize("n", [3000])
def test_crossing_curves_of_two_groups_give_the_integral(n):
    """P(right) = ∫ f_a S_b 1(S_a < S_b) + f_b S_a 1(S_b < S_a) dt for pairs of two groups."""
    shapes, rng = (0.6, 2.5), np.random.default_rng(4)
    shape = np.array(shapes)[rng.integers(0, 2, n)]
    time, event, times = rng.weibull(shape), np.ones(n, bool), np.linspace(0.02, 4.0, 200)

    def density(t, k):
        return k * t ** (k - 1) * math.exp(-(t**k))

    a, b = shapes  # S_a < S_b below 1, where the curves cross, and above it the reverse
    across = quad(lambda t: density(t, a) * math.exp(-(t**b)), 0, 1)[0]
    across += quad(lambda t: density(t, b) * math.exp(-(t**a)), 1, np.inf)[0]
    want = 0.5 * across + 0.25  # a half of the pairs is of one group, and tied
    found = antolini(weibull(shape, np.ones(n), times), times, time, event)
    assert found == pytest.approx(want, abs=3 * 0.5 / math.sqrt(n))


def test_a_draw_is_the_metric_of_the_records_repeated():
    surv, time, event = cohort(3, 60, 4)
    weights = multiplicities(60, 5, np.random.default_rng(0))
    found = antolini(surv, TIMES, time, event, weights)
    for value, drawn in zip(found, weights, strict=True):
        rows = np.repeat(np.arange(60), drawn)
        # copies of one record die together, and are not compared
        assert value == pytest.approx(by_definition(surv[rows], TIMES, time[rows], event[rows]))
    risk = np.random.default_rng(1).normal(size=60)
    flat = antolini(np.exp(-np.outer(np.exp(risk), TIMES)), TIMES, time, event, weights)
    assert_allclose(flat, resampled_harrell(weights, risk, time, event), atol=1e-12)


def test_no_comparable_pair_has_no_value_and_nan_is_an_error():
    surv = np.full((3, 2), 0.5)
    assert np.isnan(antolini(surv, TIMES[:2], np.ones(3), np.zeros(3, bool)))
    assert np.isnan(antolini(surv[:0], TIMES[:2], np.empty(0), np.empty(0, bool)))
    assert np.isnan(antolini(surv[:, :0], TIMES[:0], np.arange(3.0), np.ones(3, bool)))
    with pytest.raises(DataError, match="6 of 6 values of predicted survival are nan"):
        antolini(surv * np.nan, TIMES[:2], np.arange(3.0), np.ones(3, bool))


# over sites -------------------------------------------------------------------------------


@dataclass
class Rows:
    """What the steps look at."""

    surv: Array
    time: Array
    event: Array


def over(surv, time, event, where, grid, bins=50):
    parts = (np.flatnonzero(where == s) for s in range(4))  # the last site is empty
    fed = local([
        Host(f"s{s}", Rows(surv[rows], time[rows], event[rows]), curve_pairs.STEPS)
        for s, rows in enumerate(parts)
    ])  # fmt: skip
    own = fed.sum(curve_pairs.sum_own_curve_pairs, times=TIMES)
    return curve_pairs.federated_antolini(fed, own, grid=grid, times=TIMES, bins=bins, fine=4)


def grid_of(time, event, least=5):
    """Return ends of intervals of `least` deaths, the last one behind all records."""
    died = np.sort(time[event])
    return np.unique(np.r_[died[least - 1 : len(died) - least : least], time.max()])


@given(seed=st.integers(0, 9999))
@settings(max_examples=10, deadline=None)
def test_of_one_site_it_is_exact(seed):
    surv, time, event = cohort(seed, 80, 5)
    found = over(surv, time, event, np.zeros(80, int), grid_of(time, event))
    assert found == pytest.approx(float(antolini(surv, TIMES, time, event)), abs=1e-12)


def test_over_sites_it_is_near_that_of_the_pooled_records():
    """Of 20 cohorts with 300 records and about 200 deaths; its standard error is about 0.02."""
    errors = []
    for seed in range(20):
        surv, time, event = cohort(seed, 300)
        where = np.random.default_rng(seed).choice(3, 300, p=(0.5, 0.3, 0.2))
        found = over(surv, time, event, where, grid_of(time, event), bins=60)
        errors.append(found - float(antolini(surv, TIMES, time, event)))
    assert abs(np.mean(errors)) < 0.002, np.mean(errors)
    assert np.abs(errors).max() < 0.008, np.abs(errors).max()


@given(seed=st.integers(0, 9999), least=st.integers(2, 12))
@settings(max_examples=10, deadline=None)
def test_moments_of_curves_are_of_enough_rows_and_so_are_their_differences(seed, least):
    surv, time, event = cohort(seed, 120)
    grid = grid_of(time, event, least)
    rows = Rows(surv, time, event)
    asked = {"times": TIMES, "grid": grid, "groups": curve_pairs.groups_of(grid, TIMES)}
    fed = local([Host("s", rows, curve_pairs.STEPS)])
    told = fed.sum(curve_pairs.sum_curve_moments, centre=np.zeros(len(TIMES)), **asked)
    assert told.followed[told.followed > 0].min() >= least
    left = -np.diff(told.followed)
    assert left[left > 0].min(initial=least) >= least


def test_equal_curves_of_all_are_chance_over_sites_too():
    _, time, event = cohort(1, 90)
    where = np.random.default_rng(0).integers(0, 3, 90)
    found = over(weibull(np.ones(90), np.ones(90)), time, event, where, grid_of(time, event))
    assert found == pytest.approx(0.5, abs=1e-12)


def test_every_interval_reads_curves_at_the_evaluation_time_nearest_to_its_middle():
    grid, times = np.array([1.0, 2.0, 2.1, 9.0]), np.array([0.4, 1.6, 3.0])
    assert curve_pairs.groups_of(grid, times).tolist() == [0, 1, 1, 2, 2]

"""The pieces of the partial likelihood, against its definition written out as loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedcohort.numerics import coxph
from fedcohort.numerics.coxph import (
    Placed,
    Ties,
    at_risk,
    centred,
    drift,
    hazard,
    means,
    pooled,
    tied,
)


def by_definition(x, time, event, beta, ties):
    """Return log-likelihood, score and information, death by death, from the textbook's sums."""
    value, score = 0.0, np.zeros(x.shape[1])
    information = np.zeros((x.shape[1],) * 2)
    for t in np.unique(time[event]):
        risk, dead = time >= t, (time == t) & event
        r = np.exp(x @ beta)
        for rank in range(dead.sum()):
            f = rank / dead.sum() if ties == "efron" else 0.0
            w = r * (risk - f * dead)
            mean = w @ x / w.sum()
            value -= np.log(w.sum())
            score -= mean
            information += (w[:, None] * x).T @ x / w.sum() - np.outer(mean, mean)
        value += (x[dead] @ beta).sum()
        score += x[dead].sum(axis=0)
    return value, score, information


def cohort(n, p, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    time = rng.integers(1, 6, n).astype(float)
    return x, time, rng.random(n) < 0.6, rng.normal(size=p)


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 40),
    p=st.integers(1, 4),
    seed=st.integers(0, 2**16),
    ties=st.sampled_from(["efron", "breslow"]),
)
def test_pooled_pieces_equal_the_definition(n, p, seed, ties):
    x, time, event, beta = cohort(n, p, seed)
    expected = by_definition(x, time, event, beta, ties)
    result = pooled(Placed.on(np.unique(time[event]), x, time, event), beta, ties)
    for got, want in zip(result, expected, strict=True):
        assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_score_and_information_are_derivatives_of_the_log_likelihood(ties):
    x, time, event, beta = cohort(60, 3, 5)
    records = Placed.on(np.unique(time[event]), x, time, event)
    h = 1e-5
    up, down = ([pooled(records, beta + s * h * e, ties) for e in np.eye(3)] for s in (1, -1))
    here = pooled(records, beta, ties)
    slope = [(u.log_likelihood - d.log_likelihood) / (2 * h) for u, d in zip(up, down, strict=True)]
    bend = [(d.score - u.score) / (2 * h) for u, d in zip(up, down, strict=True)]
    assert_allclose(here.score, slope, rtol=1e-6, atol=1e-6)
    assert_allclose(here.information, bend, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_expected_deaths_sum_to_the_deaths(ties):
    x, time, event, beta = cohort(80, 2, 11)
    records = Placed.on(np.unique(time[event]), np.c_[np.ones(80), x], time, event)
    risk = records.risk(np.r_[0.0, beta])
    deaths = np.bincount(records.slot[records.dead], minlength=records.n_times).astype(float)
    alike = tied(deaths, ties)
    d0 = records.sharing_sum(risk, alike.at)
    h = hazard(deaths, at_risk(records.leaving(risk)), d0, alike)
    first, _ = records.expected(risk, h.a, h.b)
    assert_allclose(first[0], event.sum())


def test_drift_vanishes_where_the_risk_set_is_always_the_same():
    x = np.array([[1.0], [-2.0], [0.5]])
    time, event, times = np.full(3, 2.0), np.array([True, False, False]), np.array([1.0, 2.0])
    records = Placed.on(times, x, time, event)
    risk = records.risk(np.array([0.3]))
    s0, s1 = at_risk(records.leaving(risk)), at_risk(records.leaving(risk[:, None] * records.x))
    deaths = np.array([0.0, 1.0])
    none = tied(deaths, "breslow")
    a = hazard(deaths, s0, np.zeros(0), none)
    mean, _ = centred(*records.expected(risk, a.a, a.b), 1.0)
    at_each = means(deaths, none, s0, np.zeros(0), s1, np.zeros((0, 1)))
    lost = drift(at_each, mean)
    assert_allclose(lost, 0, atol=1e-15)


def test_records_that_are_never_at_risk_are_left_out():
    x, time = np.arange(3.0)[:, None], np.array([0.5, 1.0, 2.0])
    event = np.array([False, True, False])
    records = Placed.on(np.array([1.0]), x, time, event)
    assert records.x.ravel().tolist() == [1.0, 2.0]
    assert records.dead.tolist() == [0]


def test_an_empty_table_adds_nothing():
    nothing = np.zeros(0)
    records = Placed.on(np.array([1.0, 2.0]), np.zeros((0, 2)), nothing, nothing.astype(bool))
    result = pooled(records, np.ones(2), "efron")
    assert result.log_likelihood == 0
    assert not result.score.any()
    assert not result.information.any()
    assert records.leaving(np.zeros((0, 2))).shape == (2, 2)


def test_a_step_far_too_long_gives_no_overflow():
    x, time, event, _ = cohort(30, 2, 1)
    result = pooled(Placed.on(np.unique(time[event]), x, time, event), np.full(2, 1e6), "efron")
    assert result.log_likelihood < -1e3


def test_two_means_stand_for_the_many_of_a_tied_time(monkeypatch):
    rng = np.random.default_rng(0)
    s0, d0 = np.array([90.0, 70, 50, 20]), np.array([15.0, 8])
    s1, d1 = s0[:, None] * rng.standard_normal((4, 3)), d0[:, None] * rng.standard_normal((2, 3))
    weight, g = rng.uniform(1, 9, 4), rng.standard_normal(4)
    ties = Ties(np.array([1, 2]), np.array([12, 9]), np.array([11, 9]))
    one_by_one = means(weight, ties, s0, d0, s1, d1)
    monkeypatch.setattr(coxph, "LONG", 10)
    found = means(weight, ties, s0, d0, s1, d1)
    assert (len(one_by_one.time), len(found.time)) == (2 + 11 + 9, 2 + 2 + 9)
    assert_allclose(drift(found, np.ones(3)), drift(one_by_one, np.ones(3)), rtol=1e-12)
    sums = [(m.weight * g[m.time]) @ m.mean for m in (found, one_by_one)]
    assert_allclose(*sums, rtol=1e-12)

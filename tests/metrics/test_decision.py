"""Vickers' formulas by hand, lifelines' Kaplan–Meier, and what a shown curve tells."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from numpy.testing import assert_allclose

from fedcohort.metrics import decision
from fedcohort.metrics.calibration import group_sums


def classes(seed, n=400):
    rng = np.random.default_rng(seed)
    p = rng.beta(2, 5, n)
    return (rng.random(n) < p).astype(float), p


def patients(seed, n=500, censored=True):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    died = np.round(rng.exponential(20 * np.exp(-x)), 2) + 0.01
    left = rng.uniform(2, 60, n) if censored else np.full(n, 1e6)
    return np.exp(-12 * np.exp(x) / 20), np.minimum(died, left), died <= left


def test_net_benefit_of_classes_is_vickers_and_elkins_formula_at_every_threshold():
    y, p = classes(1)
    got = decision.of_classes(y, p)
    share = y.mean()
    for t, nb, treat_all in zip(got.threshold, got.net_benefit, got.all, strict=True):
        tp = sum(1 for a, b in zip(y, p, strict=True) if b >= t and a == 1)
        fp = sum(1 for a, b in zip(y, p, strict=True) if b >= t and a == 0)
        assert_allclose(nb, tp / len(y) - fp / len(y) * t / (1 - t), atol=1e-14)
        assert_allclose(treat_all, share - (1 - share) * t / (1 - t), atol=1e-14)
    assert got.threshold[0] == 0
    assert got.net_benefit[0] == got.all[0] == share


def test_a_published_example_by_hand():
    # 10 patients, 4 with the event; at 20 % six are treated, 4 with it: 0.4 − 0.2 · 0.25
    y = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0.0])
    p = np.array([0.9, 0.8, 0.5, 0.2, 0.3, 0.25, 0.1, 0.1, 0.05, 0.0])
    got = decision.of_classes(y, p)
    at = dict(zip(got.threshold.round(2).tolist(), got.net_benefit, strict=True))
    assert_allclose(at[0.2], 0.4 - 0.2 * 0.25)
    assert_allclose(at[0.5], 0.3)


def test_the_interval_of_classes_is_that_of_a_mean_of_patients():
    y, p = classes(2)
    got = decision.of_classes(y, p)
    for t, nb, low, high in zip(*got[:4], strict=True):
        each = (p >= t) * np.where(y > 0, 1.0, -t / (1 - t))
        half = 1.959963984540054 * each.std() / np.sqrt(len(y))
        assert_allclose([low, high], [nb - half, nb + half], atol=1e-12)


def test_net_benefit_of_survival_is_that_of_lifelines_estimate_among_the_treated():
    surv, time, event = patients(3)
    got = decision.of_survival(surv, time, event, 12.0)
    whole = 1 - float(KaplanMeierFitter().fit(time, event).predict(12.0))
    assert len(got.threshold) > 50
    for t, nb, treat_all in zip(got.threshold, got.net_benefit, got.all, strict=True):
        w, treated = t / (1 - t), 1 - surv >= t
        risk = 1 - float(KaplanMeierFitter().fit(time[treated], event[treated]).predict(12.0))
        q = treated.mean()
        assert_allclose(nb, risk * q - (1 - risk) * q * w, atol=1e-12)
        assert_allclose(treat_all, whole - (1 - whole) * w, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_without_censoring_survival_by_a_horizon_is_a_yes_or_no_outcome(seed):
    surv, time, event = patients(seed, censored=False)
    got = decision.of_survival(surv, time, event, 12.0)
    want = decision.of_classes((time <= 12.0).astype(float), 1 - surv)
    assert_allclose(np.array(got), np.array(want), atol=1e-12)


def test_the_interval_of_survival_covers_the_truth_as_often_as_it_says():
    truth = {}
    surv, time, event = patients(99, n=200_000, censored=False)
    big = decision.of_survival(surv, time, event, 12.0)
    truth = dict(zip(big.threshold.round(2).tolist(), big.net_benefit, strict=True))
    inside = []
    for seed in range(200):
        got = decision.of_survival(*patients(1000 + seed, n=300), 12.0)
        for t, low, high in zip(got.threshold.round(2).tolist(), got.low, got.high, strict=True):
            if t in (0.2, 0.4, 0.6):
                inside.append(low <= truth[t] <= high)
    assert len(inside) > 500
    assert 0.92 <= np.mean(inside) <= 0.975


@given(seed=st.integers(0, 500), n=st.integers(0, 300), least=st.integers(2, 8))
def test_between_two_shown_thresholds_lie_no_few_of_either_class(seed, n, least):
    y, p = classes(seed, n)
    got = decision.of_classes(y, p, least)
    if not len(got.threshold):
        return
    for value in (0, 1):
        edges = np.r_[got.threshold, 1.1]
        counts = np.array([
            ((y == value) & (p >= a) & (p < b)).sum()
            for a, b in itertools.pairwise(edges)
        ])  # fmt: skip
        assert ((counts == 0) | (counts >= least)).all()


@given(seed=st.integers(0, 100), least=st.integers(2, 8))
def test_between_two_shown_thresholds_lie_no_few_who_died_by_the_horizon_or_live_then(seed, least):
    surv, time, event = patients(seed, 200)
    got = decision.of_survival(surv, time, event, 12.0, least)
    edges = np.r_[got.threshold, 1.1]
    for group in (event & (time <= 12), time > 12):
        counts = np.array([
            (group & (1 - surv >= a) & (1 - surv < b)).sum()
            for a, b in itertools.pairwise(edges)
        ])  # fmt: skip
        assert ((counts == 0) | (counts >= least)).all()


@given(seed=st.integers(0, 50))
def test_sums_of_sites_give_the_curve_of_the_pooled_patients(seed):
    surv, time, event = patients(seed, 240)
    grid = np.unique(np.r_[time[time < 12], 12.0])
    parts = [
        group_sums(surv[i::3], time[i::3], event[i::3], decision.survival_edges(), grid)
        for i in range(3)
    ]
    pooled = type(parts[0])(
        *(sum(getattr(p, k) for p in parts) for k in ("predicted", "deaths", "censored"))
    )
    want = decision.of_survival(surv, time, event, 12.0, 5)
    assert_allclose(np.array(decision.of_sums(pooled, 5)), np.array(want), atol=1e-12)


def test_nobody_has_no_curve():
    nothing = np.empty(0)
    assert len(decision.of_classes(nothing, nothing).threshold) == 0
    assert len(decision.of_survival(nothing, nothing, nothing > 0, 1.0).threshold) == 0

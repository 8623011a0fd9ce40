"""The partial likelihood's value and slope, against lifelines, a double loop and differences."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import CoxPHFitter
from lifelines.datasets import load_rossi
from numpy.testing import assert_allclose
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv

from fedcohort.models.losses import PartialLikelihood, RiskSets, weights_of


def drawn(n, seed, ties=True):
    rng = np.random.default_rng(seed)
    time = rng.exponential(5.0, n)
    return (
        rng.normal(size=n),
        np.ceil(time) if ties else time,
        rng.random(n) < 0.5,
    )


def by_double_loop(f, time, event):
    loss = 0.0
    for j in np.flatnonzero(event):
        loss -= f[j] - np.log(np.exp(f[time >= time[j]]).sum())
    return loss / len(f)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 40), seed=st.integers(0, 2**16), ties=st.booleans())
def test_the_loss_is_the_definition_with_and_without_ties(n, seed, ties):
    f, time, event = drawn(n, seed, ties)
    value, _ = PartialLikelihood(time, event)(f)
    assert_allclose(value, by_double_loop(f, time, event), rtol=1e-10, atol=1e-12)


def test_the_loss_of_a_fitted_cox_model_is_the_log_likelihood_that_lifelines_prints():
    rossi = load_rossi().drop_duplicates("week")  # without ties Efron's and Breslow's agree
    fit = CoxPHFitter().fit(rossi, "week", "arrest")
    covariates = rossi[fit.params_.index].to_numpy(float)
    loss = PartialLikelihood(rossi["week"].to_numpy(float), rossi["arrest"].to_numpy(bool))
    value, _ = loss(covariates @ fit.params_.to_numpy())
    assert_allclose(-value * len(rossi), fit.log_likelihood_, rtol=1e-9)


def test_the_slope_vanishes_along_the_covariates_at_the_breslow_fit_of_scikit_survival():
    rossi = load_rossi()
    x = pd.DataFrame(rossi).drop(columns=["week", "arrest"]).to_numpy(float)
    time, event = rossi["week"].to_numpy(float), rossi["arrest"].to_numpy(bool)
    fit = CoxPHSurvivalAnalysis(tol=1e-13, n_iter=200).fit(x, Surv.from_arrays(event, time))
    _, slope = PartialLikelihood(time, event)(x @ fit.coef_)
    assert_allclose(x.T @ slope, 0.0, atol=1e-9)


@pytest.mark.parametrize("ties", [True, False])
def test_the_slope_is_the_derivative_of_the_value(ties):
    f, time, event = drawn(25, 3, ties)
    loss = PartialLikelihood(time, event)
    _, slope = loss(f)
    h = 1e-6
    numeric = [(loss(f + h * unit)[0] - loss(f - h * unit)[0]) / (2 * h) for unit in np.eye(25)]
    assert_allclose(slope, numeric, atol=1e-8)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16), shift=st.floats(-1e6, 1e6))
def test_adding_a_constant_to_all_risks_changes_nothing(seed, shift):
    f, time, event = drawn(30, seed)
    loss = PartialLikelihood(time, event)
    (value, slope), (moved, its_slope) = loss(f), loss(f + shift)
    assert_allclose(moved, value, atol=1e-8)
    assert_allclose(its_slope, slope, atol=1e-8)


def test_risks_hundreds_apart_lose_no_digits():
    f, time, event = drawn(30, 1)
    f = 550.0 * (f - f.min()) / np.ptp(f)
    value, _ = PartialLikelihood(time, event)(f)
    sets = [np.logaddexp.reduce(f[time >= time[j]]) for j in np.flatnonzero(event)]
    assert_allclose(value, (sum(sets) - f[event].sum()) / 30, rtol=1e-12)


def test_risks_thousands_apart_give_finite_numbers():
    f, time, event = drawn(30, 1)
    value, slope = PartialLikelihood(time, event)(5000.0 * f)
    assert np.isfinite(value)
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("n", [0, 1, 7])
def test_rows_without_a_death_have_loss_0_and_slope_0(n):
    loss = PartialLikelihood(np.arange(1.0, n + 1), np.zeros(n, bool))
    value, slope = loss(np.linspace(-1.0, 1.0, n))
    assert value == 0.0
    assert_allclose(slope, np.zeros(n))
    assert not loss.informative


def test_taking_rows_is_building_the_loss_from_those_rows():
    f, time, event = drawn(30, 2)
    rows = np.array([3, 4, 11, 20, 29])
    taken = PartialLikelihood(time, event).take(rows)(f[rows])
    built = PartialLikelihood(time[rows], event[rows])(f[rows])
    assert taken[0] == built[0]
    assert_allclose(taken[1], built[1], rtol=0)


def test_risk_sets_over_parts_add_up_to_those_of_the_whole():
    f, time, event = drawn(60, 5)
    times = np.unique(time[event])
    whole = RiskSets(time, event, times)
    parts = [RiskSets(time[k::3], event[k::3], times) for k in range(3)]
    s0 = sum(p.s0(weights_of(f[k::3], 0.2)) for k, p in enumerate(parts))
    assert_allclose(s0, whole.s0(weights_of(f, 0.2)), rtol=1e-13)
    assert_allclose(sum(p.deaths for p in parts), whole.deaths)
    assert_allclose(s0, [np.exp(f[time >= t] - 0.2).sum() for t in times], rtol=1e-13)

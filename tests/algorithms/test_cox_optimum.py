"""Where `cox` ends, the textbook's score is 0: for data that are small, tied and badly scaled."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from algorithms.cox_cases import Overheard, federation, fit, simulated, split
from examples import examples
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import NotConverged, SingularInformation


def textbook(table, beta, ties):
    """Return log-likelihood, score and information, time by time and death by death."""
    x, time, event, *_ = table
    x = x - x.mean(axis=0)
    value, score, information = 0.0, np.zeros(x.shape[1]), np.zeros((x.shape[1],) * 2)
    for t in np.unique(time[event]):
        at_risk, dying = time >= t, event & (time == t)
        log_risk = x @ beta
        top = log_risk[at_risk].max()
        risk = np.where(at_risk, np.exp(np.minimum(log_risk - top, 0.0)), 0.0)
        value += (log_risk[dying] - top).sum()
        score += x[dying].sum(axis=0)
        for rank in range(dying.sum()):
            f = rank / dying.sum() if ties == "efron" else 0.0
            weight = risk * (1.0 - f * dying)
            value -= np.log(weight.sum())
            weight = weight / weight.sum()
            mean = weight @ x
            score -= mean
            information += (weight * (x - mean).T) @ (x - mean)
    return value, score, information


def over(parts, beta, ties, baseline):
    """Return the same under one baseline hazard, or under one for each site."""
    if baseline == "shared":
        columns = zip(*(part[:3] for part in parts), strict=True)
        return textbook(SurvivalTable(*map(np.concatenate, columns)), beta, ties)
    return tuple(map(sum, zip(*(textbook(part, beta, ties) for part in parts), strict=True)))


def awkward(n, n_times, seed):
    """Return a small table of counts, rare flags, heavy tails and normals, in absurd units."""
    rng = np.random.default_rng(seed)
    x = np.column_stack(
        [
            rng.normal(size=n) * 1e8,
            rng.integers(0, 3, n) * 1e-8,
            rng.standard_t(1.5, n) + 100.0,
            rng.random(n) < 0.15,
        ]
    )[:, rng.permutation(4)[: rng.integers(1, 5)]]
    event = rng.random(n) < rng.choice([0.2, 0.6, 1.0])
    time = rng.integers(1, n_times + 1, n) * 10.0 ** rng.choice([-6, 0, 6])
    event[np.argmax(time)] = True
    return SurvivalTable(x, time, event)


@settings(max_examples=examples(60), deadline=None)
@given(
    n=st.integers(2, 40),
    n_times=st.sampled_from([2, 6, 1000]),
    n_sites=st.integers(1, 8),
    ties=st.sampled_from(["efron", "breslow"]),
    baseline=st.sampled_from(["shared", "stratified"]),
    seed=st.integers(0, 2**20),
)
def test_a_fit_that_is_given_is_the_optimum_with_its_exact_information(
    n, n_times, n_sites, ties, baseline, seed
):
    table = awkward(n, n_times, seed)
    parts = split(table, np.random.default_rng(seed).integers(0, n_sites, n))
    try:
        model = fit(parts, ties=ties, baseline=baseline)
    except (NotConverged, SingularInformation):
        assume(False)
    sd = table.x.std(axis=0)
    value, score, information = over(parts, model.coefficients, ties, baseline)
    covariance = np.linalg.inv(information / np.outer(sd, sd))
    assert np.abs(covariance @ (score / sd)).max() < 1e-6
    assert_allclose(model.standard_errors * sd, np.sqrt(np.diag(covariance)), rtol=1e-6)
    assert_allclose(model.log_likelihood, value, rtol=1e-9, atol=1e-9)
    null, *_ = over(parts, 0 * model.coefficients, ties, baseline)
    assert_allclose(model.null_log_likelihood, null, rtol=1e-9, atol=1e-9)
    statistic, p = model.likelihood_ratio
    assert_allclose(statistic, 2 * (value - null), rtol=1e-6, atol=1e-8)
    assert 0 <= p <= 1


def test_a_flat_likelihood_that_the_secant_hides_is_named():
    # x0 splits off the two last deaths: its likelihood is monotone, by way of tiny information
    x = np.array([
        [0.0, 0.0232], [0.0, 0.1033], [0.0, 0.3536], [0.0, 0.5933],
        [1.0, 0.5704], [1.0, 0.3825], [0.0, 9.8017], [0.0, 14.325],
    ])  # fmt: skip
    time = np.array([1.0, 3, 5, 8, 10, 13, 15, 18])
    event = np.array([1, 1, 1, 1, 1, 1, 0, 0], bool)
    with pytest.raises(NotConverged, match="rises without limit"):
        fit([SurvivalTable(x, time, event)])


@pytest.mark.parametrize("baseline", ["shared", "stratified"])
@pytest.mark.parametrize("size", [5e3, 2e4, 1e8])
@pytest.mark.parametrize("seed", [0, 1, 14])
def test_an_outlier_beyond_floating_point_gives_the_optimum_or_an_error(seed, size, baseline):
    table = simulated(60, 2, seed, tied=False)
    x = table.x.copy()
    x[np.argmin(table.time), 0] = size
    table = table._replace(x=x)
    try:
        model = fit([table], ties="breslow", baseline=baseline)
    except NotConverged:
        return
    value, score, _ = textbook(table, model.coefficients, "breslow")
    assert_allclose(model.log_likelihood, value, rtol=1e-9)
    assert_allclose(score / x.std(axis=0), 0, atol=1e-5)


def test_records_with_other_outcomes_are_placed_anew_though_their_covariates_are_the_same_array():
    table = simulated(100, 2, 4)
    shuffled = np.random.default_rng(0).permutation(100)
    other = table._replace(time=table.time[shuffled], event=table.event[shuffled])
    fit([table])
    fresh = fit([other._replace(x=other.x.copy())])
    assert_allclose(fit([other]).coefficients, fresh.coefficients, rtol=1e-12)


def test_a_hazard_ratio_that_overflows_is_infinite_and_a_doomed_patient_dies_at_once():
    table = simulated(100, 1, 1)
    model = fit([table._replace(x=table.x * -1e-8)])
    (row,) = model.summary()
    assert (row["hazard_ratio"], np.isfinite(row["z"])) == (np.inf, True)
    first = model.baseline.times[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curve = model.predict_survival(np.array([[1.0], [-1.0]]), np.array([first / 2, first]))
    assert_allclose(curve, [[1.0, 0.0], [1.0, 1.0]])


@pytest.mark.parametrize("patients", [6, 12, 24, 31])
@pytest.mark.parametrize("time_grid", ["exact", "protected"])
def test_a_ridge_fit_of_more_covariates_than_patients_ends_at_its_optimum(patients, time_grid):
    """A small hospital alone: the penalised optimum is unique, so it is found in 60 rounds."""
    table = simulated(patients, 60, seed=patients, tied=False)
    model = fit([table], l2=0.01, time_grid=time_grid)
    if time_grid == "exact":
        score = textbook(table, model.coefficients, "efron")[1]
        assert_allclose(score, patients * 0.01 * model.coefficients, atol=1e-6)


def test_covariate_sums_on_the_way_stay_within_what_may_be_told_of_patients():
    """Over sites every one counts as p sums; where these would be too many none is asked for."""
    parts = split(simulated(60, 30, seed=1, tied=False), np.arange(60) % 3)
    for grid, cell in (("protected", 5), ("exact", 1)):
        told: dict[str, list[object]] = {}
        fed = Overheard(federation(parts), told)
        fit(parts, fed=fed, l2=1e-4, time_grid=grid)
        weights, sums = len(told["risk_weights"]), len(told["risk_moments"])
        assert sums > 1
        assert grid == "exact" or weights + 30 * sums < cell * 30

"""What must not matter to `cox`: the split, the order of sites, units; what must be refused."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from algorithms.cox_cases import federation, fit, public, simulated, split, take
from fedcohort.algorithms.cox import METHOD
from fedcohort.algorithms.cox.own_steps import own_likelihood
from fedcohort.algorithms.cox.steps import risk_moments
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import (
    DataError,
    NotConverged,
    SettingError,
    SingularInformation,
    SiteUnavailable,
    Task,
    VerbRefused,
)
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

FEW = settings(max_examples=15, deadline=None)


def assert_same_model(a, b, **tolerance):
    tolerance = tolerance or {"rtol": 1e-7, "atol": 1e-9}
    assert_allclose(a.coefficients, b.coefficients, **tolerance)
    assert_allclose(a.standard_errors, b.standard_errors, **tolerance)
    assert_allclose(a.log_likelihood, b.log_likelihood, rtol=1e-9)
    assert_allclose(a.baseline.cumulative, b.baseline.cumulative, rtol=1e-6)


@FEW
@given(
    n_sites=st.integers(1, 8),
    seed=st.integers(0, 2**16),
    ties=st.sampled_from(["efron", "breslow"]),
    l2=st.sampled_from([0.0, 0.05]),
    tied=st.booleans(),
)
def test_the_fit_does_not_depend_on_how_records_are_split(n_sites, seed, ties, l2, tied):
    table = simulated(120, 3, seed, tied=tied)
    where = np.random.default_rng(seed).integers(0, n_sites, 120)
    pooled, over_sites = (fit(parts, ties=ties, l2=l2) for parts in ([table], split(table, where)))
    assert_same_model(over_sites, pooled)


@FEW
@given(seed=st.integers(0, 2**16), by=st.sampled_from(["time", "event", "feature", "singles"]))
def test_the_fit_does_not_depend_on_how_unlike_the_sites_are(seed, by):
    table = simulated(60, 2, seed)
    where = {
        "time": np.digitize(table.time, np.quantile(table.time, [0.3, 0.6])),
        "event": table.event.astype(int),
        "feature": np.digitize(table.x[:, 0], [-0.5, 0.5]),
        "singles": np.minimum(np.arange(60), 5),
    }[by]
    assert_same_model(fit(split(table, where)), fit([table]))


@FEW
@given(
    n_sites=st.integers(2, 8),
    seed=st.integers(0, 2**16),
    ties=st.sampled_from(["efron", "breslow"]),
    tied=st.booleans(),
    grid=st.sampled_from(["protected", 6]),
    scattered=st.booleans(),
)
def test_on_a_coarse_grid_too_the_fit_does_not_depend_on_the_split(
    n_sites, seed, ties, tied, grid, scattered
):
    table = simulated(150, 3, seed, tied=tied)
    rng = np.random.default_rng(seed)
    cuts = np.quantile(table.time, rng.random(n_sites - 1))
    where = (
        rng.integers(0, n_sites, 150) if scattered else np.searchsorted(np.sort(cuts), table.time)
    )
    one, many = (fit(parts, ties=ties, time_grid=grid) for parts in ([table], split(table, where)))
    np.testing.assert_array_equal(many.baseline.times, one.baseline.times)
    assert_same_model(many, one)


def test_a_site_without_records_changes_nothing():
    table = simulated(80, 2, 5)
    for baseline in ("shared", "stratified"):
        with_empty = fit([table, take(table, np.zeros(80, bool))], baseline=baseline)
        assert_same_model(with_empty, fit([table], baseline=baseline))


@FEW
@given(seed=st.integers(0, 2**16), baseline=st.sampled_from(["shared", "stratified"]))
def test_the_fit_does_not_depend_on_the_order_of_sites(seed, baseline):
    table = simulated(120, 2, seed)
    where = np.arange(120) % 4
    names = np.random.default_rng(seed).permutation(4)
    fits = [
        fit([split(table, where)[k] for k in order], baseline=baseline)
        for order in (range(4), names)
    ]
    assert_same_model(*fits)


@FEW
@given(
    seed=st.integers(0, 2**16),
    shift=st.floats(-1e4, 1e4),
    unit=st.floats(1e-4, 1e4),
    baseline=st.sampled_from(["shared", "stratified"]),
)
def test_units_and_origins_of_covariates_do_not_matter(seed, shift, unit, baseline):
    table = simulated(120, 2, seed)
    other = table._replace(x=table.x * unit + shift)
    where = np.arange(120) % 3
    a, b = (fit(split(t, where), baseline=baseline) for t in (table, other))
    assert_allclose(b.coefficients * unit, a.coefficients, rtol=1e-5, atol=1e-7)
    assert_allclose(b.standard_errors * unit, a.standard_errors, rtol=1e-5)
    assert_allclose(b.log_likelihood, a.log_likelihood, rtol=1e-9)


def test_a_stratum_of_one_table_is_the_shared_fit():
    table = simulated(150, 3, 9)
    assert_same_model(fit([table], baseline="stratified"), fit([table]))


def test_stratified_does_not_see_that_sites_measure_time_in_other_units():
    table = simulated(150, 2, 6)
    where = np.arange(150) % 3
    slowed = table._replace(time=table.time * np.array([1.0, 30.0, 365.0])[where])
    plain, other = (fit(split(t, where), baseline="stratified") for t in (table, slowed))
    assert_allclose(other.coefficients, plain.coefficients, rtol=1e-9)
    assert_allclose(other.standard_errors, plain.standard_errors, rtol=1e-9)


def test_heavy_tails_do_not_throw_the_ascent_off():
    table = simulated(300, 3, 12)
    table = table._replace(x=np.sign(table.x) * np.exp(3 * np.abs(table.x)))
    whole = fit([table], ties="breslow")
    assert whole.log_likelihood >= whole.null_log_likelihood
    assert_same_model(fit(split(table, np.arange(300) % 5), ties="breslow"), whole)


@pytest.mark.parametrize("baseline", ["shared", "stratified"])
def test_collinear_covariates_are_named(baseline):
    table = simulated(100, 3, 1)
    x = np.c_[table.x, table.x[:, 0] - 2 * table.x[:, 2]]
    parts = split(table._replace(x=x), np.arange(100) % 3)
    with pytest.raises(SingularInformation, match="'age', 'bmi', 'sum' are collinear"):
        fit(parts, ("age", "sex", "bmi", "sum"), baseline=baseline)
    assert np.isfinite(fit(parts, baseline=baseline, l2=0.01).standard_errors).all()


def test_a_constant_covariate_is_named():
    table = simulated(70, 2, 1)
    x = np.c_[table.x, np.full(70, 0.1)]
    with pytest.raises(SingularInformation, match="'site' is constant"):
        fit(split(table._replace(x=x), np.arange(70) % 3), ("age", "sex", "site"))


def test_a_covariate_of_the_site_is_constant_within_strata():
    table = simulated(90, 1, 1)
    where = np.arange(90) % 3
    parts = split(table._replace(x=np.c_[table.x, where]), where)
    with pytest.raises(SingularInformation, match="'volume' is constant"):
        fit(parts, ("age", "volume"), baseline="stratified")
    assert fit(parts, ("age", "volume")).events


@pytest.mark.parametrize("baseline", ["shared", "stratified"])
def test_separation_is_named(baseline):
    table = simulated(100, 2, 3)
    x = np.c_[table.x, (~table.event & (table.x[:, 0] > 0)).astype(float)]
    parts = split(table._replace(x=x), np.arange(100) % 2)
    with pytest.raises(NotConverged, match="rises without limit along 'drug':"):
        fit(parts, ("age", "sex", "drug"), baseline=baseline)
    assert fit(parts, ("age", "sex", "drug"), baseline=baseline, l2=0.01).coefficients[2] < 0


def test_too_few_rounds_are_reported():
    with pytest.raises(NotConverged, match="after 2 rounds"):
        fit([simulated(100, 2, 3)], max_rounds=2)


def test_no_events_and_no_records_and_no_covariates_are_named():
    table = simulated(30, 1, 0)
    with pytest.raises(DataError, match="event"):
        fit([table._replace(event=np.zeros(30, bool))])
    with pytest.raises(DataError, match="no records"):
        fit([take(table, np.zeros(30, bool))])
    with pytest.raises(DataError, match="no covariates"):
        METHOD.fit(federation([table]), METHOD.configure({}), Task(kind="survival", features=()))


@pytest.mark.parametrize(
    "given_", [{"l2": -1.0}, {"tol": 0.0}, {"max_rounds": 0}, {"level": 1.0}, {"ties": "exact"}]
)
def test_impossible_settings_are_refused(given_):
    with pytest.raises(SettingError, match=next(iter(given_))):
        METHOD.configure(given_)


@pytest.mark.parametrize("baseline", ["shared", "stratified"])
def test_a_site_that_is_away_from_the_start_is_left_out_and_one_that_leaves_is_named(baseline):
    table = simulated(120, 2, 4)
    parts = split(table, np.arange(120) % 3)
    away = federation(parts, quorum=0.5, absent=lambda _, site: site == "site-1")
    rest = fit([parts[0], parts[2]], baseline=baseline)
    assert_same_model(fit(parts, fed=away, baseline=baseline), rest)
    leaves = federation(parts, quorum=0.5, absent=lambda call, site: call > 4 and site == "site-1")
    with pytest.raises(SiteUnavailable, match="site-1 left during the fit"):
        fit(parts, fed=leaves, baseline=baseline)


def test_history_holds_a_rising_log_likelihood_and_ends_below_the_tolerance():
    table, features = public("veteran")
    fed = federation(split(table, np.arange(len(table.x)) % 3))
    fit([table], features, fed=fed)
    values = [row["log_likelihood"] for row in fed.history]
    assert all(b >= a - 1e-8 for a, b in pairwise(values))
    assert fed.history[-1]["step"] < 1e-7 <= fed.history[-2]["step"]
    assert len(values) <= 12


# what is revealed -----------------------------------------------------------------------------


def shapes_by_step(fed):
    seen = {}
    for line in map(json.loads, fed.ledger.lines):
        shapes = {tuple(f["shape"]) for f in line["fields"].values()}
        seen.setdefault(line["step"], []).append((line["call"], shapes))
    return seen


def test_second_moments_by_time_never_leave_and_first_moments_leave_once():
    table = simulated(200, 3, 7)
    fed = federation(split(table, np.arange(200) % 4))
    fit([table], fed=fed, time_grid="protected")
    seen = shapes_by_step(fed)
    times = max(s[0] for _, shapes in seen["risk_weights"] for s in shapes)
    assert times > 5
    by_time = {
        step: {call for call, shapes in lines if any(s[:1] == (times,) for s in shapes)}
        for step, lines in seen.items()
    }
    seen.pop("isolation")
    assert all(len(s) < 3 for lines in seen.values() for _, shapes in lines for s in shapes)
    assert {s for s, calls in by_time.items() if calls} == {
        "deaths",
        "risk_weights",
        "risk_moments",
    }
    assert len(by_time["risk_moments"]) == 1
    assert {s for _, shapes in seen["expected_deaths"] for s in shapes} == {(3,), (3, 3)}


def test_stratified_reveals_no_risk_set_but_for_the_baseline():
    table = simulated(200, 3, 7)
    fed = federation(split(table, np.arange(200) % 4))
    fit([table], fed=fed, baseline="stratified", time_grid="protected")
    seen = shapes_by_step(fed)
    assert "risk_moments" not in seen
    assert "expected_deaths" not in seen
    assert len({call for call, _ in seen["risk_weights"]}) == 1
    assert {s for _, shapes in seen["own_likelihood"] for s in shapes} == {(), (3,), (3, 3)}


@pytest.mark.parametrize("step", [risk_moments, own_likelihood])
def test_a_site_refuses_to_show_its_own_sums(step):
    fed = federation([simulated(50, 1, 0)])
    with pytest.raises(VerbRefused, match=f"only the sum of {step.name}"):
        fed.gather(step)


def test_every_step_of_the_method_but_the_exact_grid_is_summed():
    assert {s.name for s in METHOD.steps if s.verb == "gather"} == {"death_times"}


def test_a_site_places_its_records_anew_when_its_table_changes():
    first, second = simulated(60, 2, 0), simulated(60, 2, 1)
    fresh = fit([second])
    fit([first])
    host = Host("a", SurvivalTable(*second), METHOD.steps)
    assert_same_model(fit([second], fed=local([host])), fresh)

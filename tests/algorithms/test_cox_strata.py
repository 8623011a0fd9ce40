"""Strata of `cox` have baseline hazards of their own, as lifelines and statsmodels fit them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import CoxPHFitter
from numpy.testing import assert_allclose
from statsmodels.duration.hazard_regression import PHReg

import fedcohort as fc
from algorithms.cox_cases import federation, fit, public, simulated, split, take
from algorithms.test_cox_disclosure import overhear, recovered
from fedcohort.algorithms.cox import METHOD, CoxModel, CoxSettings
from fedcohort.protocol import DataError, NotSupported, SettingError

CLOSE = {"rtol": 0, "atol": 1e-6}
PRECISE = {"precision": 1e-16, "r_precision": 1e-16}
TIES = ["efron", "breslow"]


def in_strata(table, seed, n=3):
    """Return the table with n strata of unequal size, whose clocks run at unequal speeds."""
    stratum = np.minimum(np.random.default_rng(seed).geometric(0.5, len(table.x)), n) - 1
    return table._replace(stratum=stratum, time=table.time * (1 + stratum))


def with_codes(table):
    """Return x as a saved model takes it, with the number of the stratum last."""
    return np.c_[table.x, table.stratum]


def same(ours, theirs):
    assert_allclose(ours.coefficients, theirs.coefficients, rtol=1e-6, atol=1e-8)
    assert_allclose(ours.standard_errors, theirs.standard_errors, rtol=1e-6)
    assert_allclose(ours.log_likelihood, theirs.log_likelihood, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:It appears your weights")
@pytest.mark.parametrize(("n_sites", "weights"), [(1, False), (5, False), (5, True)])
@pytest.mark.parametrize("name", ["rossi", "gbsg2", "veteran"])
def test_strata_equal_those_of_lifelines_on_the_pooled_table(name, n_sites, weights):
    table, features = public(name)
    table, rng = in_strata(table, 1), np.random.default_rng(0)
    given = rng.uniform(0.2, 3, len(table.x)) if weights else np.ones(len(table.x))
    table = table._replace(weight=given if weights else None)
    ours = fit(split(table, rng.integers(0, n_sites, len(table.x))), features)
    frame = pd.DataFrame(table.x, columns=list(features))
    frame = frame.assign(T=table.time, E=table.event, S=table.stratum, W=given)
    theirs = CoxPHFitter().fit(frame, "T", "E", strata=["S"], weights_col="W", fit_options=PRECISE)
    assert_allclose(ours.coefficients, theirs.params_, **CLOSE)
    assert_allclose(ours.standard_errors, theirs.standard_errors_, **CLOSE)
    assert_allclose(ours.log_likelihood, theirs.log_likelihood_, **CLOSE)
    # its cumulative hazard is of a patient at the mean; between times it would interpolate
    hazard = theirs.baseline_cumulative_hazard_
    for k in range(3):
        times = np.unique(table.time[table.stratum == k])
        patient = np.r_[theirs._norm_mean, k][None]
        expected = np.exp(-hazard.iloc[:, k].loc[times])
        assert_allclose(ours.predict_survival(patient, times)[0], expected, **CLOSE)


@pytest.mark.parametrize("baseline", ["shared", "stratified"])
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("late", [False, True])
def test_strata_equal_those_of_statsmodels_with_offset_and_entries(ties, baseline, late):
    table, features = public("gbsg2")
    table, rng = in_strata(table, 2), np.random.default_rng(3)
    offset, where = rng.normal(3.0, 1.0, len(table.x)), rng.integers(0, 3, len(table.x))
    entry = table.time * rng.uniform(0, 0.6, len(table.x)) if late else None
    strata = table.stratum + 3 * where if baseline == "stratified" else table.stratum
    theirs = PHReg(
        table.time, table.x, table.event.astype(int),
        ties=ties, offset=offset, entry=entry, strata=strata,
    ).fit(method="newton", maxiter=100)  # fmt: skip
    parts = split(table._replace(x=np.c_[table.x, offset], entry=entry), where)
    ours = fit(parts, (*features, "o"), ties=ties, baseline=baseline, last_is_offset=True)
    assert_allclose(ours.coefficients, theirs.params, **CLOSE)
    assert_allclose(ours.standard_errors, theirs.bse, **CLOSE)
    assert_allclose(ours.log_likelihood, theirs.llf, **CLOSE)


@settings(max_examples=12, deadline=None)
@given(
    n_sites=st.integers(1, 5),
    seed=st.integers(0, 2**16),
    ties=st.sampled_from(TIES),
    l2=st.sampled_from([0.01, 0.1]),
    grid=st.sampled_from(["exact", "protected"]),
)
def test_the_split_over_sites_changes_nothing(n_sites, seed, ties, l2, grid):
    table = in_strata(simulated(240, 2, seed), seed, 2)
    where = np.random.default_rng(seed).integers(0, n_sites, 240)
    whole, ours = (
        fit(parts, ties=ties, l2=l2, time_grid=grid) for parts in ([table], split(table, where))
    )
    same(ours, whole)
    chi2 = [[row["chi2"] for row in model.proportional_hazards()] for model in (ours, whole)]
    assert_allclose(*chi2, rtol=1e-6, atol=1e-9)
    for a, b in zip(ours.baselines, whole.baselines, strict=True):
        assert_allclose(a.cumulative, b.cumulative, rtol=1e-6)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize(
    "asked",
    [{"ph_check": "identity"}, {"ph_check": "rank", "l2": 0.1}, {"l1": 0.05, "l2": 0.02}],
)
def test_strata_at_one_site_are_sites_with_a_baseline_each(asked, ties):
    table = in_strata(simulated(200, 3, 5), 5)
    ours = fit([table], ties=ties, **asked)
    each = split(table._replace(stratum=None), table.stratum)
    theirs = fit(each, ties=ties, baseline="stratified", **asked)
    same(ours, theirs)
    chi2 = [[row["chi2"] for row in model.proportional_hazards()] for model in (ours, theirs)]
    assert_allclose(*chi2, rtol=1e-6)


@pytest.mark.parametrize("baseline", ["shared", "stratified"])
def test_a_penalty_is_chosen_within_strata(baseline):
    # each site holds one stratum, so that strata within sites are sites
    table = in_strata(simulated(300, 3, 7), 7, 2)
    asked = {"penalty": "auto", "path": 5, "folds": "rows"}
    ours = fit(split(table, table.stratum), baseline=baseline, **asked)
    plain = split(table._replace(stratum=None), table.stratum)
    theirs = fit(plain, baseline="stratified", **asked)
    assert_allclose(ours.path_.held_out, theirs.path_.held_out, atol=1e-6)
    assert_allclose(ours.coefficients, theirs.coefficients, atol=1e-6)


@pytest.mark.parametrize("ties", TIES)
def test_on_a_grid_of_each_stratum_it_is_near_the_fit_at_exact_times(ties):
    table, features = public("gbsg2")
    table = in_strata(table, 4)
    where = np.arange(len(table.x)) % 3
    ours = fit(split(table, where), features, ties=ties, time_grid="protected")
    exact = fit([table], features, ties=ties)
    shift = (ours.coefficients - exact.coefficients) / exact.standard_errors
    assert np.abs(shift).max() < 0.15
    assert np.abs(shift).max() < 3 * (ours.grid_error / ours.standard_errors).max()
    assert [len(b.times) for b in ours.baselines] != [0] * 3
    for k, end in enumerate(b.end for b in ours.baselines):
        assert ((table.stratum == k) & (table.time > end)).sum() >= 5


def test_with_late_entries_a_stratums_curve_on_a_grid_is_the_mean_of_the_sites_own():
    table = in_strata(simulated(240, 2, 3), 3, 2)
    table = table._replace(entry=table.time * np.random.default_rng(0).uniform(0, 0.5, 240))
    parts = split(table, np.arange(240) % 2)
    model = fit(parts, baseline="stratified", time_grid="protected")
    for k in range(2):
        total = 0.0
        for part in (take(p, p.stratum == k) for p in parts):
            risk = np.exp(model.predict(with_codes(part)))
            end = model.baselines[k].end
            for t in np.unique(part.time[part.event & (part.time <= end)]):
                here = (part.entry < t) & (part.time >= t)
                total += len(part.x) * (part.event & (part.time == t)).sum() / risk[here].sum()
        rows = (table.stratum == k).sum()
        assert_allclose(model.baselines[k].cumulative[-1], total / rows, rtol=1e-9)


@pytest.mark.parametrize("grid", ["exact", "protected"])
def test_a_stratum_without_deaths_is_in_no_risk_set_and_has_no_curve(grid):
    table = in_strata(simulated(300, 2, 6), 6)
    quiet = table._replace(event=table.event & (table.stratum != 1))
    rest = take(quiet, quiet.stratum != 1)
    parts = split(quiet, np.arange(300) % 3)
    ours = fit(parts, time_grid=grid)
    same(ours, fit([rest], time_grid=grid))
    times = np.array([0.5, 1.0])
    assert ours.predict_survival(with_codes(rest), times).shape == (len(rest.x), 2)
    with pytest.raises(DataError, match="stratum 'level-1' has no baseline hazard"):
        ours.predict_survival(with_codes(quiet), times)


@pytest.mark.parametrize("grid", ["protected", 4])
@pytest.mark.parametrize("baseline", ["shared", "stratified"])
def test_a_level_with_few_deaths_is_named_with_what_to_do(grid, baseline):
    table = in_strata(simulated(300, 3, 6), 6, 2)
    few = np.flatnonzero(table.event & (table.stratum == 1))[4:]
    event = table.event.copy()
    event[few] = False
    fed = federation([table._replace(event=event)])
    with pytest.raises(SettingError, match=r"in level 'level-1': .* Join levels") as caught:
        fit([table], fed=fed, time_grid=grid, baseline=baseline, strata="arm")
    assert "'arm'" in str(caught.value)
    assert "4" not in str(caught.value)
    asked = {json.loads(line)["step"] for line in fed.ledger.lines}
    assert not asked & {"deaths", "death_moments", "risk_weights", "own_likelihood"}
    assert len(fit([table._replace(event=event)]).baselines) == 2


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("name", ["gbsg2", "whas500"])
def test_no_patient_is_a_difference_of_a_stratums_sums(name, ties):
    table, features = public(name)
    table = in_strata(table, 1, 2)
    seen = overhear(table, features, ties=ties, time_grid="protected")
    assert recovered(seen, table.x) == 0
    assert recovered(overhear(table, features, ties=ties), table.x) > len(table.x) / 6


@settings(max_examples=15, deadline=None)
@given(
    p=st.integers(1, 4),
    seed=st.integers(0, 2**16),
    ties=st.sampled_from(TIES),
    tied=st.booleans(),
    grid=st.sampled_from(["protected", 3]),
)
def test_with_each_interval_of_a_stratum_leave_enough_records(p, seed, ties, tied, grid):
    table = in_strata(simulated(300, p, seed, tied=tied), seed, 2)
    seen = overhear(table, ties=ties, time_grid=grid)
    least = max(5, -(-12 // p) + 1)
    ((_, died),) = seen["deaths"]
    assert died.deaths.sum() == table.event.sum()
    question, weights = seen["risk_weights"][0]
    assert not question["beta"].any()
    assert len(question["sizes"]) == 2
    assert weights.leaving.min() >= least
    apart = (weights.leaving - died.deaths)[question["tied"]]
    assert min([*apart, *died.deaths[question["tied"]], least]) == least
    for k, leavers in enumerate(np.split(weights.leaving, np.cumsum(question["sizes"])[:-1])):
        assert (table.stratum == k).sum() == leavers.sum()
    assert len(seen["risk_weights"]) + p < least * p
    assert len(seen["risk_moments"]) == 1
    assert all(reply.first.shape == (p,) for _, reply in seen["expected_deaths"])


def frame_of(table):
    columns = {f"x{j}": table.x[:, j] for j in range(table.x.shape[1])}
    frame = pd.DataFrame({**columns, "time": table.time, "event": table.event.astype(int)})
    arm = np.array(["old", "new", "none"])[table.stratum]
    return frame.assign(arm=arm, site=np.arange(len(frame)) % 3)


def test_a_table_names_the_column_which_is_no_feature_and_a_saved_model_knows_it(tmp_path):
    table = in_strata(simulated(300, 2, 1), 1)
    frame = frame_of(table)
    fed = fc.simulate(frame, sites="site", outcome=fc.Survival("time", "event"))
    ours = fc.fit("cox", fed, strata="arm", time_grid="exact")
    theirs = fit([table])
    assert ours.model.features == ("x0", "x1")
    assert_allclose(ours.model.coefficients, theirs.coefficients, rtol=1e-7)
    ours.save(tmp_path / "model")
    times = [0.5, 1.5]
    new = frame.drop(columns=["time", "event", "site"])
    for one in (ours, fc.load(tmp_path / "model")):
        assert_allclose(
            one.predict_survival(new, times),
            theirs.predict_survival(with_codes(table), np.array(times)),
            rtol=1e-7,
        )
        with pytest.raises(DataError, match=r"'arm' has a level outside the 3 .* in row"):
            one.predict_survival(new.assign(arm="newest"), times)
        with pytest.raises(DataError, match="'arm', the strata, is missing in row"):
            one.predict_survival(new.assign(arm=None), times)
        with pytest.raises(DataError, match="no column 'arm'"):
            one.predict_survival(new.drop(columns="arm"), times)


def test_a_binary_column_makes_two_strata():
    frame = frame_of(in_strata(simulated(300, 2, 1), 1, 2)).drop(columns="arm")
    frame["treated"] = (frame.index % 2).astype(float)
    fed = fc.simulate(frame, sites="site", outcome=fc.Survival("time", "event"))
    model = fc.fit("cox", fed, strata="treated").model
    assert model.strata == ("0", "1")
    assert len(model.baselines) == 2


@pytest.mark.parametrize(
    ("name", "what"),
    [("arms", "strata names a column"), ("event", "which is the outcome"), ("x0", "of type")],
)
def test_a_column_that_makes_no_strata_is_named(name, what):
    fed = fc.simulate(
        frame_of(in_strata(simulated(60, 1, 1), 1)),
        sites="site", outcome=fc.Survival("time", "event"),
    )  # fmt: skip
    with pytest.raises(SettingError, match=what):
        fc.fit("cox", fed, strata=name)


def test_a_model_of_strata_survives_saving_and_has_no_single_baseline():
    table = in_strata(simulated(200, 2, 2), 2)
    model = fit([table])
    again = CoxModel.restore(model.arrays(), json.loads(json.dumps(model.meta())))
    x, times = with_codes(table), np.array([0.2, 1.0, 3.0])
    assert (again.predict_survival(x, times) == model.predict_survival(x, times)).all()
    with pytest.raises(NotSupported, match="each stratum has a baseline"):
        _ = model.baseline
    with pytest.raises(DataError, match="the number of each row's stratum"):
        model.predict(table.x)


def test_what_is_said_to_be_revealed_names_strata():
    assert "stratum" in METHOD.reveals_with(CoxSettings(strata="arm"))
    assert "stratum" not in METHOD.reveals_with(CoxSettings())

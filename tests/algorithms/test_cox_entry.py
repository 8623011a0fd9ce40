"""Patients who come under observation late are in no risk set before: left truncation of `cox`."""

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
from algorithms.cox_cases import federation, fit, public, simulated, split
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import DataError, SettingError

CLOSE = {"rtol": 0, "atol": 1e-6}
PRECISE = {"precision": 1e-16, "r_precision": 1e-16}
TIES = ["efron", "breslow"]


def late(table, seed, share=0.6):
    """Return the table with entries: at most `share` of the time, 0 for a third of the records."""
    rng = np.random.default_rng(seed)
    entry = table.time * rng.uniform(0, share, len(table.time))
    return table._replace(entry=np.where(rng.random(len(entry)) < 1 / 3, 0.0, entry))


def by_definition(table, beta, ties):
    """Return the partial log-likelihood, death by death."""
    value, risk = 0.0, np.exp(table.x @ beta)
    for t in np.unique(table.time[table.event]):
        here = (table.entry < t) & (table.time >= t)
        dead = (table.time == t) & table.event
        value += np.log(risk[dead]).sum()
        for rank in range(dead.sum()):
            f = rank / dead.sum() if ties == "efron" else 0.0
            value -= np.log(risk[here].sum() - f * risk[dead].sum())
    return value


@pytest.mark.parametrize("n_sites", [1, 6])
@pytest.mark.parametrize("name", ["gbsg2", "veteran", "whas500"])
def test_entries_equal_those_of_lifelines_on_the_pooled_table(name, n_sites):
    table, features = public(name)
    table = late(table, 1)
    where = np.random.default_rng(0).integers(0, n_sites, len(table.x))
    ours = fit(split(table, where), features)
    frame = pd.DataFrame(table.x, columns=list(features))
    frame = frame.assign(T=table.time, E=table.event, since=table.entry)
    theirs = CoxPHFitter().fit(frame, "T", "E", entry_col="since", fit_options=PRECISE)
    assert_allclose(ours.coefficients, theirs.params_, **CLOSE)
    assert_allclose(ours.standard_errors, theirs.standard_errors_, **CLOSE)
    assert_allclose(ours.log_likelihood, theirs.log_likelihood_, **CLOSE)


@pytest.mark.parametrize("baseline", ["shared", "stratified"])
@pytest.mark.parametrize("ties", TIES)
def test_entries_equal_those_of_statsmodels(ties, baseline):
    table, features = public("rossi")
    table = late(table, 2)
    where = np.random.default_rng(0).integers(0, 3, len(table.x))
    strata = {"strata": where} if baseline == "stratified" else {}
    theirs = PHReg(
        table.time, table.x, table.event.astype(int), ties=ties, entry=table.entry, **strata
    ).fit(method="newton", maxiter=100)
    ours = fit(split(table, where), features, ties=ties, baseline=baseline)
    assert_allclose(ours.coefficients, theirs.params, **CLOSE)
    assert_allclose(ours.standard_errors, theirs.bse, **CLOSE)
    assert_allclose(ours.log_likelihood, theirs.llf, **CLOSE)


@settings(max_examples=15, deadline=None)
@given(
    n_sites=st.integers(1, 5),
    seed=st.integers(0, 2**16),
    ties=st.sampled_from(TIES),
    tied=st.booleans(),
)
def test_whatever_the_split_the_likelihood_is_that_of_the_definition(n_sites, seed, ties, tied):
    table = late(simulated(120, 2, seed, tied=tied), seed)
    where = np.random.default_rng(seed).integers(0, n_sites, 120)
    whole, ours = (fit(parts, ties=ties, l2=0.01) for parts in ([table], split(table, where)))
    assert_allclose(ours.coefficients, whole.coefficients, rtol=1e-6, atol=1e-9)
    assert_allclose(ours.standard_errors, whole.standard_errors, rtol=1e-7)
    expected = by_definition(table, ours.coefficients, ties)
    assert_allclose(ours.log_likelihood, expected, rtol=1e-9)


def test_an_entry_at_the_time_of_a_death_is_after_it():
    # the third patient enters at the first death's time: not in its risk set
    x = np.array([[0.3], [1.2], [-0.7], [0.1], [2.0], [0.9]])
    time, event = np.array([1.0, 2, 3, 4, 5, 6]), np.array([1, 1, 1, 1, 1, 0]) > 0
    entry = np.array([0.0, 0, 1, 0, 0, 3])
    model = fit([SurvivalTable(x, time, event, None, entry)], l2=0.1)
    expected = by_definition(
        SurvivalTable(x, time, event, None, entry), model.coefficients, "breslow"
    )
    assert_allclose(model.log_likelihood, expected, rtol=1e-12)


def test_entries_before_all_deaths_change_nothing():
    table = simulated(150, 2, 3)
    early = table._replace(entry=np.full(150, table.time.min() / 2))
    for grid in ("exact", "protected"):
        a, b = (fit(split(t, np.arange(150) % 2), time_grid=grid) for t in (table, early))
        assert_allclose(b.coefficients, a.coefficients, rtol=1e-9)
        assert_allclose(b.baseline.cumulative, a.baseline.cumulative, rtol=1e-9)


def test_the_check_is_that_of_records_split_in_two():
    # a patient followed to t is one followed to s, then censored, and one who enters at s
    table = simulated(160, 2, 6)
    cut = np.median(table.time)
    long = table.time > cut
    first = table._replace(
        time=np.minimum(table.time, cut), event=table.event & ~long, entry=np.zeros(160)
    )
    halves = SurvivalTable(
        np.r_[first.x, table.x[long]],
        np.r_[first.time, table.time[long]],
        np.r_[first.event, table.event[long]],
        None,
        np.r_[first.entry, np.full(long.sum(), cut)],
    )
    for kind in ("identity", "rank"):
        a, b = (fit([t], ph_check=kind) for t in (table, halves))
        assert_allclose(b.coefficients, a.coefficients, rtol=1e-9)
        assert_allclose(
            [r["chi2"] for r in b.proportional_hazards()],
            [r["chi2"] for r in a.proportional_hazards()],
            rtol=1e-7,
        )


def test_a_protected_grid_of_all_sites_is_refused_with_what_to_do():
    table = late(simulated(200, 2, 3), 1)
    fed = federation(split(table, np.arange(200) % 3))
    with pytest.raises(SettingError, match=r"baseline 'stratified'.* or time_grid 'exact'"):
        fit([table], fed=fed, time_grid="protected")
    asked = {json.loads(line)["step"] for line in fed.ledger.lines}
    assert not asked & {"risk_weights", "risk_moments"}


def test_stratified_needs_no_sum_over_a_risk_set_and_its_curve_is_the_mean_of_the_sites_own():
    table = late(simulated(240, 2, 3), 1)
    parts = split(table, np.arange(240) % 3)
    fed = federation(parts)
    model = fit([table], fed=fed, baseline="stratified", time_grid="protected")
    asked = {json.loads(line)["step"] for line in fed.ledger.lines}
    assert not asked & {"risk_weights", "risk_moments"}
    total = 0.0
    for part in parts:
        risk = np.exp(model.predict(part.x))
        for t in np.unique(part.time[part.event & (part.time <= model.baseline.end)]):
            here = (part.entry < t) & (part.time >= t)
            total += len(part.x) * (part.event & (part.time == t)).sum() / risk[here].sum()
    assert_allclose(model.baseline.cumulative[-1], total / 240, rtol=1e-9)


def frame_of(table):
    columns = {f"x{j}": table.x[:, j] for j in range(table.x.shape[1])}
    frame = pd.DataFrame({**columns, "time": table.time, "event": table.event.astype(int)})
    return frame.assign(since=table.entry, site=np.arange(len(frame)) % 3)


def test_an_outcome_names_the_column_of_entries_which_is_no_feature():
    table = late(simulated(240, 2, 1), 1)
    fed = fc.simulate(
        frame_of(table), sites="site", outcome=fc.Survival("time", "event", entry="since")
    )
    ours = fc.fit("cox", fed, time_grid="exact")
    assert ours.model.features == ("x0", "x1")
    assert_allclose(ours.model.coefficients, fit([table]).coefficients, rtol=1e-7)
    assert len(ours.predict_survival(frame_of(table), [1.0])) == 240


@pytest.mark.parametrize(
    ("value", "what"),
    [(1e6, "is not below column 'time' in row"), (np.nan, "is missing in row")],
)
def test_impossible_entries_are_named_with_their_rows(value, what):
    frame = frame_of(late(simulated(60, 1, 1), 1))
    frame.loc[7, "since"] = value
    with pytest.raises(DataError, match=f"'since' {what}"):
        fed = fc.simulate(frame, sites="site", outcome=fc.Survival("time", "event", "since"))
        fc.fit("cox", fed, time_grid="exact")


def test_a_method_that_does_not_heed_entries_refuses_them():
    frame = frame_of(late(simulated(60, 1, 1), 1))
    fed = fc.simulate(frame, sites="site", outcome=fc.Survival("time", "event", "since"))
    with pytest.raises(
        SettingError, match=r"'deepcox' does not support entry times \(column 'since'\)"
    ):
        fc.fit("deepcox", fed)

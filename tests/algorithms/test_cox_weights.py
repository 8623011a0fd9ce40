"""Case weights and offsets of `cox` are those of lifelines, statsmodels and of repeated rows."""

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
from fedcohort.algorithms.cox import CoxModel
from fedcohort.protocol import DataError, SettingError

CLOSE = {"rtol": 0, "atol": 1e-6}
PRECISE = {"precision": 1e-16, "r_precision": 1e-16}
TIES = ["efron", "breslow"]


def weighted(table, seed, *, whole=False):
    rng = np.random.default_rng(seed)
    n = len(table.x)
    weight = rng.integers(1, 4, n).astype(float) if whole else rng.uniform(0.2, 3.0, n)
    return table._replace(weight=weight)


def chi2_of(model):
    return np.array([row["chi2"] for row in model.proportional_hazards()])


@pytest.mark.filterwarnings("ignore:It appears your weights")
@pytest.mark.parametrize("n_sites", [1, 5])
@pytest.mark.parametrize("name", ["rossi", "gbsg2", "veteran"])
def test_weights_equal_those_of_lifelines_on_the_pooled_table(name, n_sites):
    table, features = public(name)
    table = weighted(table, 1)
    where = np.random.default_rng(0).integers(0, n_sites, len(table.x))
    ours = fit(split(table, where), features)
    frame = pd.DataFrame(table.x, columns=list(features))
    frame = frame.assign(T=table.time, E=table.event, W=table.weight)
    theirs = CoxPHFitter().fit(frame, "T", "E", weights_col="W", fit_options=PRECISE)
    assert_allclose(ours.coefficients, theirs.params_, **CLOSE)
    assert_allclose(ours.standard_errors, theirs.standard_errors_, **CLOSE)
    assert_allclose(ours.log_likelihood, theirs.log_likelihood_, **CLOSE)


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    n_sites=st.integers(1, 4),
    baseline=st.sampled_from(["shared", "stratified"]),
    l2=st.sampled_from([0.0, 0.05]),
)
def test_a_whole_weight_is_a_row_repeated_with_breslows_ties(seed, n_sites, baseline, l2):
    # Efron's weighted form shares a time's weight among its deaths and is not that of repeats
    table = weighted(simulated(150, 2, seed), seed, whole=True)
    where = np.random.default_rng(seed).integers(0, n_sites, 150)
    copies = np.repeat(np.arange(150), table.weight.astype(int))
    repeated = take(table, copies)._replace(weight=None)
    asked = {"ties": "breslow", "baseline": baseline, "l2": l2}
    ours = fit(split(table, where), **asked)
    theirs = fit(split(repeated, where[copies]), **asked)
    assert_allclose(ours.coefficients, theirs.coefficients, rtol=1e-7, atol=1e-9)
    assert_allclose(ours.standard_errors, theirs.standard_errors, rtol=1e-7)
    assert_allclose(ours.log_likelihood, theirs.log_likelihood, rtol=1e-9)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**16), factor=st.floats(0.01, 100), ties=st.sampled_from(TIES))
def test_the_unit_of_the_weights_changes_standard_errors_alone(seed, factor, ties):
    table = weighted(simulated(120, 2, seed), seed)
    other = table._replace(weight=table.weight * factor)
    where = np.arange(120) % 3
    a, b = (fit(split(t, where), ties=ties, l2=0.01) for t in (table, other))
    assert_allclose(b.coefficients, a.coefficients, rtol=1e-6, atol=1e-8)
    assert_allclose(b.standard_errors * np.sqrt(factor), a.standard_errors, rtol=1e-6)


@pytest.mark.parametrize("baseline", ["shared", "stratified"])
@pytest.mark.parametrize("ties", TIES)
def test_an_offset_equals_that_of_statsmodels(ties, baseline):
    table, features = public("gbsg2")
    rng = np.random.default_rng(3)
    offset, where = rng.normal(3.0, 1.0, len(table.x)), rng.integers(0, 4, len(table.x))
    strata = {"strata": where} if baseline == "stratified" else {}
    theirs = PHReg(
        table.time, table.x, table.event.astype(int), ties=ties, offset=offset, **strata
    ).fit(method="newton", maxiter=100)
    with_it = table._replace(x=np.c_[table.x, offset])
    ours = fit(
        split(with_it, where), (*features, "o"), ties=ties, baseline=baseline, last_is_offset=True
    )
    assert_allclose(ours.coefficients, theirs.params, **CLOSE)
    assert_allclose(ours.standard_errors, theirs.bse, **CLOSE)
    assert_allclose(ours.log_likelihood, theirs.llf, **CLOSE)
    assert ours.features == tuple(features)
    assert [row["covariate"] for row in ours.summary()] == list(features)
    # predictions add the offset as it is
    risk, full = ours.predict(with_it.x), table.x @ ours.coefficients + offset
    assert_allclose(risk - risk[0], full - full[0], atol=1e-9)
    again = CoxModel.restore(ours.arrays(), json.loads(json.dumps(ours.meta())))
    assert (again.predict(with_it.x) == risk).all()


@pytest.mark.parametrize("grid", ["exact", "protected"])
def test_the_true_effect_as_an_offset_leaves_nothing_to_the_covariate(grid):
    table = simulated(400, 2, 5)
    whole = fit([table], time_grid=grid)
    known = table.x[:, 0] * whole.coefficients[0]
    both = table._replace(x=np.c_[table.x, known])
    rest = fit([both], time_grid=grid, last_is_offset=True)
    assert_allclose(rest.coefficients, [0.0, whole.coefficients[1]], atol=1e-8)
    assert_allclose(rest.log_likelihood, whole.log_likelihood, rtol=1e-9)


@pytest.mark.parametrize("ties", TIES)
def test_equal_weights_and_an_offset_of_nothing_leave_the_check_as_it_was(ties):
    table = simulated(150, 2, 4)
    plain = fit([table], ties=ties)
    same = table._replace(weight=np.full(150, 2.5), x=np.c_[table.x, np.full(150, 7.0)])
    ours = fit(split(same, np.arange(150) % 3), ties=ties, last_is_offset=True)
    assert_allclose(chi2_of(ours), 2.5 * chi2_of(plain), rtol=1e-7)


def test_with_a_clock_that_counts_no_rows_the_check_is_that_of_repeated_rows():
    table = weighted(simulated(200, 2, 8), 2, whole=True)
    copies = np.repeat(np.arange(200), table.weight.astype(int))
    repeated = take(table, copies)._replace(weight=None)
    a, b = (fit([t], ties="breslow", ph_check="identity") for t in (table, repeated))
    assert_allclose(chi2_of(a), chi2_of(b), rtol=1e-7)


def frame_of(table):
    columns = {f"x{j}": table.x[:, j] for j in range(table.x.shape[1])}
    return pd.DataFrame({**columns, "time": table.time, "event": table.event.astype(int)})


def test_a_table_names_its_columns_of_weights_and_offset():
    table = weighted(simulated(240, 2, 1), 1)
    offset = np.linspace(-1, 1, 240)
    frame = frame_of(table).assign(w=table.weight, o=offset, site=np.arange(240) % 3)
    fed = fc.simulate(frame, sites="site", outcome=fc.Survival("time", "event"))
    ours = fc.fit("cox", fed, weights="w", offset="o", time_grid="exact")
    both = table._replace(x=np.c_[table.x, offset])
    theirs = fit([both], last_is_offset=True)
    assert_allclose(ours.model.coefficients, theirs.coefficients, rtol=1e-7)
    risk = ours.predict(frame.drop(columns="w"))
    assert_allclose(risk - risk[0], theirs.predict(both.x) - theirs.predict(both.x[:1]), atol=1e-7)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_weights_that_are_none_are_named_with_their_rows(value):
    frame = frame_of(simulated(60, 1, 1)).assign(w=np.arange(60) / 7 + 1, site=np.arange(60) % 2)
    frame.loc[4, "w"] = value
    fed = fc.simulate(frame, sites="site", outcome=fc.Survival("time", "event"))
    with pytest.raises(DataError, match=r"column 'w' is .* in row"):
        fc.fit("cox", fed, weights="w")


def test_a_column_of_weights_that_is_not_there_is_named():
    fed = fc.simulate(
        frame_of(simulated(60, 1, 1)).assign(site=np.arange(60) % 2),
        sites="site", outcome=fc.Survival("time", "event"),
    )  # fmt: skip
    with pytest.raises(SettingError, match="weights names a column"):
        fc.fit("cox", fed, weights="w8")


def test_a_site_without_events_is_in_the_risk_sets_of_the_others():
    table = weighted(simulated(200, 2, 6), 3)
    quiet = take(table, ~table.event)
    parts = [quiet, take(table, table.event)]
    assert_allclose(fit(parts).coefficients, fit([table]).coefficients, rtol=1e-7)
    fed = federation([quiet, table, table])
    stratified = fit([table], fed=fed, baseline="stratified")
    assert_allclose(
        stratified.coefficients, fit([table], baseline="stratified").coefficients, rtol=1e-7
    )


@pytest.mark.parametrize("n_sites", [1, 3])
def test_an_offset_that_is_no_logarithm_is_refused_with_its_row(n_sites):
    table = simulated(90, 2, 0)
    offset = np.where(np.arange(90) % 9 < 4, 1e9, 0.0)
    table = table._replace(x=np.column_stack([table.x, offset]))
    with pytest.raises(DataError, match=r"offset is beyond ±300 in rows? .*logarithm of a hazard"):
        fit(split(table, np.arange(90) % n_sites), last_is_offset=True)

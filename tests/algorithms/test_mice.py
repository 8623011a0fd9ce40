"""Chained equations over sites: what they fill in, what they may sum, and what they refuse."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import fedcohort as fc
from algorithms.imputing_cases import cohort, mixed
from fedcohort.algorithms.mice import METHOD
from fedcohort.algorithms.mice.program import Trace, _merged, limit
from fedcohort.data.prepare import Head
from fedcohort.data.tables import FeatureTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

QUICK = {"draws": 3, "sweeps": 3}


@pytest.fixture(scope="module")
def fitted():
    full, holes = mixed(180, 1)
    return full, holes, fc.fit("mice", cohort(holes), **QUICK)


def test_known_cells_stay_and_missing_ones_are_as_the_dictionary_says(fitted):
    _, holes, fit = fitted
    found = fit.impute(holes)
    assert not found.isna().any(axis=None)
    for name in holes:
        known = holes[name].notna()
        assert (found[name][known] == holes[name][known]).all()
    filled = found[holes.isna()]
    assert set(filled["stage"].dropna()) <= {"I", "II", "III"}
    assert set(filled["flag"].dropna().astype(float)) <= {0.0, 1.0}
    n = filled["n"].dropna().astype(float)
    assert ((n == n.round()) & (n >= 0) & (n <= 40)).all()
    assert (filled["b"].dropna() >= 0.01).all()


def test_mixed_columns_are_filled_in_better_than_by_one_value(fitted):
    full, holes, fit = fitted
    found = fit.impute(holes)
    for name in ("a", "n"):
        hole = holes[name].isna()
        off = (found[name][hole].astype(float) - full[name][hole]).pow(2).mean()
        assert off < 0.6 * full[name].var()  # 0.2 and 0.4 over ten seeds, sd 0.06
    for name in ("flag", "stage"):
        hole = holes[name].isna()
        wrong = (found[name][hole] != full[name][hole]).mean()
        assert wrong < (full[name] != full[name].mode()[0]).mean()


def test_draws_spread_as_the_rest_of_a_known_regression():
    """x2 = x1 + e with sd 0.5: a drawn x2 has that spread, and its mean has less than the draws."""
    rng = np.random.default_rng(0)
    x1 = rng.standard_normal(600)
    table = pd.DataFrame({"a": x1, "c": x1 + 0.5 * rng.standard_normal(600)})
    holes = table.mask(np.column_stack([np.zeros(600), rng.random(600) < 0.3]).astype(bool))
    fit = fc.fit("mice", cohort(holes, c={"type": "number"}), **QUICK)
    x = fit.parts.design.matrix(holes)
    hole = np.isnan(x[:, 1])
    scale = fit.parts.design.columns[1].scale
    drawn = fit.model.impute_drawn(x, np.random.default_rng(1))[hole, 1] * scale
    mean = fit.impute(holes)["c"].to_numpy()[hole]
    centre = drawn + fit.parts.design.columns[1].shift
    # about 180 entries: an sd to 5 %, of which three
    assert_allclose(np.std(centre - x1[hole]), 0.5, rtol=0.17)
    assert np.std(mean - x1[hole]) < 0.1


def test_a_saved_model_fills_in_the_same(fitted, tmp_path):
    _, holes, fit = fitted
    fit.save(tmp_path / "m")
    pd.testing.assert_frame_equal(fc.load(tmp_path / "m").impute(holes), fit.impute(holes))


def test_a_column_that_one_site_lacks_is_learnt_from_the_others():
    full, holes = mixed(150, 2)
    parts = {f"s{k}": holes.iloc[k::3].reset_index(drop=True) for k in range(3)}
    parts["s1"]["a"] = np.nan
    fed = fc.simulate(parts, dictionary=cohort(holes).dictionary)
    found = fc.fit("mice", fed, **QUICK).impute(parts["s1"])["a"].to_numpy(float)
    truth = full["a"].iloc[1::3].to_numpy()
    assert np.corrcoef(found, truth)[0, 1] > 0.7  # 0.9 over ten seeds, sd 0.03


def test_a_row_without_any_known_entry_is_filled_in(fitted):
    _, holes, fit = fitted
    empty = holes.iloc[:1].copy()
    empty.loc[:, :] = np.nan
    assert not fit.impute(empty).isna().any(axis=None)


def test_the_change_of_a_sweep_is_of_columns_with_imputed_values_alone():
    """A complete column is fitted in the last sweep for the first time: no change of a chain."""
    rng = np.random.default_rng(6)
    b = rng.normal(size=200)
    a = b + 0.1 * rng.normal(size=200)
    a[:40] = np.nan
    fed = fc.simulate(
        {"x": pd.DataFrame({"a": a, "b": b})[::2], "y": pd.DataFrame({"a": a, "b": b})[1::2]},
        dictionary={"a": "number", "b": "number"},
    )
    change = fc.fit("mice", fed, **QUICK).history["change"].to_numpy(float)
    assert change[0] > 0.5 and change[-1] < 0.2


def test_bad_tables_end_with_one_clear_line():
    _, holes = mixed(90, 3)
    with pytest.raises(fc.DataError, match="two columns or more"):
        fc.fit("mice", cohort(holes[["a"]]), **QUICK)
    nothing = holes[["a", "n"]] * np.nan
    with pytest.raises(fc.FedcohortError, match="none of the 2 columns varies"):
        fc.fit("mice", cohort(nothing), **QUICK)
    same = holes[["a", "n"]].assign(n=3.0)
    with pytest.raises(fc.DataError, match="two columns or more"):
        fc.fit("mice", cohort(same), **QUICK)


def test_columns_never_known_together_are_named():
    _, holes = mixed(90, 4)
    parts = [holes[["a", "n"]].iloc[k::3].reset_index(drop=True) for k in range(3)]
    x = [np.column_stack([p["a"], p["n"]]) for p in parts]
    for table in x:
        table[:, 0] = np.where(np.arange(len(table)) < 1, 0.3, np.nan)
    fed = local([Host(f"s{k}", FeatureTable(t), METHOD.steps) for k, t in enumerate(x)])
    heads = tuple(Head(name=n, kind="normal", at=(j,)) for j, n in enumerate(("a", "n")))
    task = Task(kind="latent", features=("a", "n"), heads=heads)
    with pytest.raises(fc.FedcohortError, match="'a' has the same value in all but a few records"):
        METHOD.fit(fed, METHOD.configure(QUICK), task)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**16), n=st.integers(6, 60), p=st.integers(2, 7),
    least=st.integers(2, 8), share=st.floats(0.01, 0.5),
)  # fmt: skip
def test_of_any_two_sets_of_records_none_or_enough_are_in_one_alone(seed, n, p, least, share):
    there = np.random.default_rng(seed).random((n, p)) > share
    groups = np.eye(p, dtype=np.int64)

    def apart(groups):
        sets = [there[:, g.astype(bool)].all(axis=1) for g in groups] + [np.ones(n, bool)]
        inside = np.array(sets).T.astype(np.int64)
        return inside.T @ (1 - inside)

    for _ in range(p * p):
        merged = _merged(groups, apart(groups), least)
        if (merged == groups).all():
            break
        groups = merged
    assert (_merged(groups, apart(groups), least) == groups).all()
    found = apart(groups)[:-1, :-1]
    differ = found + found.T
    assert ((differ == 0) | (differ >= least)).all()


def test_few_missing_entries_do_not_move_between_sums():
    _, holes = mixed(120, 5, share=0.3)
    holes["a"] = holes["a"].fillna(0.1).mask(np.arange(120) < 4)
    fit = fc.fit("mice", cohort(holes), **QUICK)
    assert fit.model.still == ("a",)
    assert not fit.impute(holes)["a"].isna().any()


def drift_of(moves: float, seed: int, chains: int = 10, columns: int = 6) -> float:
    """Return the drift of independent draws whose mean moves by so many sd in a sweep."""
    rng, trace = np.random.default_rng(seed), Trace(12)
    for sweep in range(12):
        draws = [rng.standard_normal((chains, 5)) + moves * sweep for _ in range(columns)]
        trace.add(draws, np.ones((chains, columns)))
    return trace.drift(4, range(columns))


def test_the_drift_is_one_at_rest_and_above_its_limit_where_all_chains_move():
    rest = [drift_of(0.0, seed) for seed in range(60)]
    # 30 independent coefficients of 10 chains: F(30, 270), of mean 1.01 and sd 0.27
    assert abs(np.mean(rest) - 1.0) < 3 * 0.27 / np.sqrt(60)
    assert max(rest) < limit(6, 10) < drift_of(0.2, 0)


def test_rows_of_nearly_collinear_columns_do_not_grow_with_the_sweeps(monkeypatch):
    """Of five columns that say nearly the same, half of the entries are missing.

    Sweeps by the last draw of the coefficients alone multiply a row's entries by more than 1 here.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal(120)[:, None] + 0.02 * rng.standard_normal((120, 5))
    holes = pd.DataFrame(np.where(rng.random((120, 5)) < 0.5, np.nan, x), columns=list("acdef"))
    numbers = {name: {"type": "number"} for name in "cdef"}
    fit = fc.fit("mice", cohort(holes, **numbers), draws=4, sweeps=8)
    chain, x = fit.model.chain, fit.parts.design.matrix(holes)
    assert chain.spread.shape == (4, 5, 5)
    last = dataclasses.replace(
        chain,
        coefficients=tuple(c[:, -1:] for c in chain.coefficients),
        spread=chain.spread[:, -1:],
    )
    monkeypatch.setattr("fedcohort.data.imputing.chained.SWEEPS", 120)
    # known entries are at most 2.8 sd; of twelve such tables the largest mean is 5.4
    assert np.abs(chain.mean(x, np.random.default_rng(0))).max() < 6
    assert np.abs(last.mean(x, np.random.default_rng(0))).max() > 100


def test_a_fit_whose_chains_still_move_says_so_and_names_a_number_of_sweeps(fitted):
    """The chains of a fit with 3 sweeps have no window at rest before; its drift is stated."""
    model = fitted[-1].model
    moving = dataclasses.replace(model, drift=model.limit + 1, sweeps=10)
    assert "had not settled after 10 sweeps" in moving.cautions()[0]
    assert "Set sweeps to 20" in moving.cautions()[0]
    assert not dataclasses.replace(model, drift=1.0).cautions()
    assert not dataclasses.replace(model, drift=float("nan")).cautions()

"""What the sums over sites say of a booster is what XGBoost says of it on all rows together."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from algorithms.boosting_cases import KINDS, federation, fit, simulated, thirds
from examples import examples
from fedcohort.algorithms import boosting
from fedcohort.algorithms.boosting import explaining
from fedcohort.algorithms.boosting.explaining import COLUMNS, GROUPS, POINTS, group_ends
from fedcohort.algorithms.boosting.explanation import Explanation, value_in
from fedcohort.algorithms.boosting.model import BoostedModel
from fedcohort.algorithms.boosting.settings import BoostingSettings
from fedcohort.numerics.trees.histogram import numbered
from fedcohort.protocol import Refused, Task

ROUNDS = 6
#: Outcome and settings; thirds of 200 rows unless the settings hold some out.
CASES = {
    "binary": {}, "category": {}, "count": {}, "survival": {},
    "continuous": {"subsample": 0.5}, "weibull": {"objective": "weibull"},
    "bagging": {"strategy": "bagging", "local_trees": 2}, "cyclic": {"strategy": "cyclic"},
}  # fmt: skip
OUTCOMES = {"weibull": "survival", "bagging": "binary", "cyclic": "category"}


def fitted(case: str, parts=None, *, seed: int = 3, n: int = 200, min_cell: int = 5, **more):
    x, outcomes = simulated(seed, n)
    outcome = OUTCOMES.get(case, case)
    given_ = {"rounds": ROUNDS, "max_depth": 3, **CASES[case], **more}
    parts = thirds(n) if parts is None else parts
    return x, fit(x, outcomes[outcome], outcome, parts, min_cell=min_cell, **given_)


@cache
def exactly(case: str, **more):
    """Return `fitted` with means that are not rounded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Explanation, "rounded", lambda self: self)
        return fitted(case, **more)


def booster_of(model) -> xgboost.Booster:
    booster = xgboost.Booster()
    booster.load_model(bytearray(model.files()["xgboost.json"]))
    return booster


def matrix(model, x) -> xgboost.DMatrix:
    return xgboost.DMatrix(x, feature_names=list(model.features))


@pytest.mark.parametrize("case", CASES)
def test_means_of_shapley_values_are_those_of_xgboost_over_all_rows(case):
    x, model = exactly(case)
    said = booster_of(model).predict(matrix(model, x), pred_contribs=True)
    phi = said.reshape(len(x), -1, x.shape[1] + 1)[..., :-1]
    told = model.explanation
    assert_array_equal(told.rows, [len(x), len(x)])
    assert_allclose(told.absolute, np.abs(phi).mean(axis=0), atol=1e-5)
    assert told.absolute.max() > 0.01
    for j, (at, low, high), mean in zip(told.group_of, told.group, told.shift.T, strict=True):
        column = x[:, j]
        own = np.isnan(column) if np.isnan(at) else ~((column < low) | (column >= high))
        own &= np.isnan(column) == np.isnan(at)
        assert own.sum() >= 10
        assert_allclose(mean, phi[own][..., j].mean(axis=0), atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_partial_dependence_is_the_mean_prediction_of_xgboost_with_the_column_replaced(case):
    x, model = exactly(case)
    booster, told = booster_of(model), model.explanation
    whole = OUTCOMES.get(case, case) in ("binary", "category")
    assert np.ptp(told.curve, axis=0).max() > 0.01
    for j, value, mean in zip(told.point_of, told.point, told.curve, strict=True):
        changed = x.copy()
        changed[:, j] = value
        said = booster.predict(matrix(model, changed), output_margin=not whole)
        assert_allclose(mean, said.reshape(len(x), -1).mean(axis=0), atol=1e-6)


def test_after_early_stopping_the_means_are_of_the_trees_that_are_kept():
    """One row of 200 is held out, which changes a mean by no more than the largest φ by 200."""
    x, model = exactly("binary", min_cell=1, patience=1, validation_fraction=0.01, rounds=60)
    assert model.rounds < 59  # of those grown the last was no better
    phi = booster_of(model).predict(matrix(model, x), pred_contribs=True)[:, :-1]
    assert_array_equal(model.explanation.rows, [199, 199])
    near = 2 * np.abs(phi).max() / 200
    assert_allclose(model.explanation.absolute[0], np.abs(phi).mean(axis=0), atol=near)


def test_a_site_without_rows_adds_nothing():
    _, one = exactly("binary", n=120)
    none = np.zeros(0, int)
    x, outcomes = simulated(3, 120)
    parts = [*thirds(120), none]
    other = fit(
        x, outcomes["binary"], "binary", parts, min_cell=5, rounds=ROUNDS, max_depth=3
    )  # fmt: skip
    assert_allclose(other.explanation.absolute, one.explanation.absolute, rtol=0, atol=1e-4)


@given(seed=st.integers(0, 2**16), cuts=st.sets(st.integers(1, 119), max_size=4))
@settings(max_examples=examples(10), deadline=None)
def test_the_means_do_not_depend_on_how_rows_are_divided(seed, cuts):
    """Sums are of whole numbers; where a row's is rounded may differ in the last of 30 bits."""
    order = np.random.default_rng(seed).permutation(120)
    parts = np.split(order, sorted(cuts))
    kinds = sorted(set(KINDS) & set(CASES))
    case = kinds[seed % len(kinds)]
    more = {"subsample": 1.0, "n": 120, "rounds": 3, "min_cell": 1}
    _, one = fitted(case, [np.arange(120)], **more)
    _, several = fitted(case, parts, **more)
    for name, own in vars(one.explanation).items():
        assert_allclose(getattr(several.explanation, name), own, rtol=0, atol=1e-7)


@given(
    counts=st.lists(st.integers(0, 30), min_size=3, max_size=70).filter(lambda c: sum(c) >= 20),
    least=st.integers(10, 15),
)
def test_each_group_of_values_has_enough_rows(counts, least):
    ends = group_ends(np.array(counts), least)
    held = np.add.reduceat(counts, np.r_[0, np.flatnonzero(ends)[:-1] + 1])
    assert ends[-1]
    assert sum(counts) < least or held.min() >= least
    assert ends.sum() <= GROUPS + 1
    if counts[0] >= least and sum(counts[1:]) >= least:
        assert held[0] == counts[0]  # of missing values alone


@pytest.mark.parametrize(("gaps", "apart"), [(3, False), (12, True)])
def test_few_missing_values_are_told_with_the_lowest_and_enough_of_them_alone(gaps, apart):
    x, outcomes = simulated(0, 150, gaps=0.0)
    x[:gaps, 0] = np.nan
    model = fit(x, outcomes["binary"], "binary", thirds(150), min_cell=5, rounds=4)
    told = model.explanation
    own = told.group_of == 0
    assert np.isnan(told.group[own, 0]).any() == apart
    assert np.isnan(told.point[told.point_of == 0]).any() == apart


def test_the_sites_are_asked_twice_and_answer_with_sums_alone():
    x, outcomes = simulated(2, 150)
    task = Task(
        kind="classification", features=tuple("abcd"), outcome="binary", levels=("0", "1"),
    )  # fmt: skip
    config = BoostingSettings(rounds=3)
    asked = {}
    for explained in (True, False):
        fed = federation(x, outcomes["binary"], thirds(150))
        model = boosting.METHOD.fit(fed, config, replace(task, explained=explained))
        asked[explained] = [line for line in fed.ledger.lines if '"site":"site-0"' in line]
        assert bool(model.explained()) == explained
    extra = asked[True][len(asked[False]) :]
    assert len(extra) == 2
    assert all('"verb":"sum"' in line for line in extra)
    assert [f'"step":"{s.name}"' in line for s, line in zip(explaining.STEPS, extra, strict=True)]


def test_of_many_rows_each_site_draws_the_same_share(monkeypatch):
    monkeypatch.setattr(explaining, "WORK", 1)
    monkeypatch.setattr(explaining, "FEWEST", 100)
    _, model = fitted("binary", np.split(np.arange(1500), [300, 900]), n=1500)
    used, of = model.explanation.rows
    assert of == 1500
    assert abs(used - 300) < 5 * np.sqrt(1500 * 0.2 * 0.8)  # five standard deviations
    x, _ = simulated(3, 1500)
    phi = np.abs(booster_of(model).predict(matrix(model, x), pred_contribs=True)[:, :-1])
    near = 5 * phi.std(axis=0) / np.sqrt(used)
    assert (np.abs(model.explanation.absolute[0] - phi.mean(axis=0)) < near).all()
    assert model.explained()[0]["rows"] == used


class Changed:
    """A federation whose coordinator changes arguments of a step, and keeps what it hears."""

    heard = ()

    def __init__(self, fed, **changes):
        self._fed, self._changes = fed, changes

    def __getattr__(self, name):
        return getattr(self._fed, name)

    def only(self, sites):
        return Changed(self._fed.only(sites), **self._changes)

    def awaiting(self):
        return Changed(self._fed.awaiting(), **self._changes)

    def sum(self, step, **arguments):
        if step.name in ("count_explained", "explain_trees"):
            arguments |= {k: f(arguments[k]) for k, f in self._changes.items() if k in arguments}
        told = self._fed.sum(step, **arguments)
        Changed.heard = (*Changed.heard, (step.name, arguments, told))
        return told


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 2**16), gaps=st.floats(0, 0.2), min_cell=st.integers(2, 20))
def test_no_sum_of_shapley_values_and_no_difference_of_two_is_of_few_patients(seed, gaps, min_cell):
    """Groups are disjoint, and with missing values they are all rows; of each column anew."""
    x, outcomes = simulated(seed, 160, gaps=gaps)
    task = Task(
        kind="regression", features=tuple("abcd"), outcome="continuous", min_cell=min_cell
    )  # fmt: skip
    Changed.heard = ()
    fed = Changed(federation(x, outcomes["continuous"], thirds(160)))
    boosting.METHOD.fit(fed, BoostingSettings(rounds=2, max_depth=2), task)
    told = {name: (arguments, reply) for name, arguments, reply in Changed.heard}
    if "explain_trees" not in told:  # no tree has a split
        return
    asked, reply = told["explain_trees"]
    counts = told["count_explained"][1].bins
    assert reply.shift.shape[1] == asked["ends"].sum()
    for j, own, ends in zip(asked["columns"], counts, asked["ends"], strict=True):
        assert own.sum() == 160
        assert own[0] == np.isnan(x[:, j]).sum()
        held = np.add.reduceat(own, np.r_[0, np.flatnonzero(ends)[:-1] + 1])
        assert held.min() >= max(min_cell, 10)


def moved(values):
    """Return values of which one is another."""
    return np.r_[values[:-1], values[-1] + 1].astype(values.dtype)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"columns": lambda c: c[::-1].copy()}, "covariates, in order"),
        ({"columns": lambda c: c + 4}, "covariates, in order"),
        ({"share": lambda _: 0.0}, "a share above 0"),
        ({"share": lambda _: float("nan")}, "a share above 0"),
        ({"ends": lambda e: e & False}, "groups of bins"),
        ({"ends": lambda e: e[:, :-1]}, "groups of bins"),
        ({"points": lambda v: v + 99}, "bins of the grid"),
        ({"points": lambda v: v.astype(float)}, "bins of the grid"),
        ({"objective": lambda _: "none"}, "one of logistic"),
        ({"threshold": lambda t: t + np.float32(1)}, "the trees of this fit"),
        ({"value": lambda v: v * 2}, "the trees of this fit"),
        ({"value": lambda v: v[:-1]}, "the trees of this fit"),
        ({"value": lambda v: v[:, None]}, "vectors of nodes and trees"),
        ({"left": lambda v: v[::-1].copy()}, "the trees of this fit"),
        ({"feature": lambda v: v + 50}, "the trees of this fit"),
        ({"base": lambda b: np.r_[b, b]}, "the trees of this fit"),
        ({"cover": lambda c: -c}, "the trees of this fit"),
        ({"kept": lambda _: np.array(999)}, "number of the fit's trees"),
        ({"kept": lambda _: np.array([1, 2])}, "number of the fit's trees"),
    ],
)  # fmt: skip
def test_a_site_refuses_other_trees_and_what_is_not_of_its_grid(change, said):
    x, outcomes = simulated(2, 100)
    task = Task(
        kind="classification", features=tuple("abcd"), outcome="binary", levels=("0", "1"),
    )  # fmt: skip
    fed = Changed(federation(x, outcomes["binary"], thirds(100)), **change)
    with pytest.raises(Refused, match=f"site 'site-.': argument .*{said}"):
        boosting.METHOD.fit(fed, BoostingSettings(rounds=2), task)


def test_a_saved_model_tells_the_same_with_five_digits_and_no_number_of_a_group():
    _, model = fitted("category")
    again = BoostedModel.restore(model.arrays(), model.meta())
    rows = model.explained()
    assert again.explained() == rows
    assert {r["kind"] for r in rows} == {"about", "absolute", "shift", "curve"}
    assert not {k for r in rows[1:] for k in r} & {"rows", "of", "n", "size", "count"}
    for r in rows[1:]:
        assert abs(r["value"]) < 10 and r["value"] == round(r["value"], 5)
    broken = model.arrays() | {"explained_group_of": np.full(99, 4)}
    with pytest.raises(ValueError, match="means over rows"):
        BoostedModel.restore(broken, model.meta())
    assert model.at_round(2).explained() == []


@given(
    edges=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=9, unique=True),
    half=st.booleans(),
)
def test_a_value_of_a_bin_lies_in_it(edges, half):
    found = np.sort(np.array(edges, np.float32))
    if half:
        found = np.unique(np.floor(np.clip(found, -1e5, 1e5)) + np.float32(0.5))
    values = np.array([value_in(found, b) for b in range(len(found) + 2)])
    assert_array_equal(numbered(values[:, None], found[None])[:, 0], np.arange(len(values)))
    assert not half or (values[1:] == np.floor(values[1:])).all()


def test_no_more_columns_groups_and_points_than_the_page_says():
    assert (COLUMNS, GROUPS, POINTS) == (6, 12, 20)

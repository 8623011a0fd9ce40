"""Shapley values of trees: those of the definition, of XGBoost, and what holds for any trees."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import xgboost as xgb
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedcohort.algorithms.boosting.xgboost_reader import read
from fedcohort.numerics.trees import shapley as module
from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.nodes import Trees
from fedcohort.numerics.trees.shapley import shapley
from tree_cases import grown, rows, value_of


def by_definition(ensemble, row):
    """Return φ (K, p) = Σ_S |S|! (p − |S| − 1)!/p! (v(S ∪ j) − v(S)) over all sets S without j."""
    p = len(row)
    sets = [frozenset(s) for k in range(p + 1) for s in combinations(range(p), k)]
    value = {s: value_of(ensemble, row, set(s)) for s in sets}
    phi = np.zeros((len(ensemble.base), p))
    for s in sets:
        weight = math.factorial(len(s)) * math.factorial(p - len(s) - 1) if len(s) < p else 0
        for j in set(range(p)) - s:
            phi[:, j] += weight / math.factorial(p) * (value[s | {j}] - value[s])
    return phi, value[frozenset()]


@given(seed=st.integers(0, 2**16), p=st.integers(1, 4), depth=st.integers(0, 5))
def test_values_are_the_mean_gains_over_all_orders_in_which_covariates_become_known(seed, p, depth):
    ensemble, x = grown(seed, p, depth=depth, outputs=2), rows(seed, 3, p)
    phi, expected = shapley(ensemble, x)
    for own, row in zip(phi, x, strict=True):
        exact, empty = by_definition(ensemble, row)
        assert_allclose(own, exact, rtol=1e-9, atol=1e-12)
        assert_allclose(expected, empty, rtol=1e-9, atol=1e-12)


@given(seed=st.integers(0, 2**16), outputs=st.integers(1, 3))
def test_values_of_a_row_add_to_its_margin_less_the_mean_and_are_0_without_a_split(seed, outputs):
    ensemble, x = grown(seed, 5, trees=6, depth=6, outputs=outputs), rows(seed, 20, 6)
    x[0, :5] = np.inf
    x[1, :5] = -np.inf
    phi, expected = shapley(ensemble, x)
    assert_allclose(phi.sum(axis=2) + expected, ensemble.margins(x), rtol=1e-10, atol=1e-12)
    assert not phi[:, :, 5].any()


def test_values_are_those_of_xgboost():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(150, 6)).astype(np.float32)
    y = (np.round(x[:, 0] * x[:, 1] + x[:, 2]) % 3).astype(int)
    x[rng.random(x.shape) < 0.1] = np.nan
    d = xgb.DMatrix(x, label=y)
    param = {"objective": "multi:softprob", "num_class": 3, "max_depth": 5, "nthread": 1}
    booster = xgb.train(param, d, 8)
    held = read(bytes(booster.save_raw("json")), "booster")
    phi, expected = shapley(held.ensemble, x)
    theirs = booster.predict(d, pred_contribs=True)
    assert np.abs(phi).max() > 0.1
    assert_allclose(phi, theirs[:, :, :-1], atol=1e-5)
    assert_allclose(np.tile(expected, (len(x), 1)), theirs[:, :, -1], atol=1e-5)


def test_a_path_of_forty_covariates_keeps_its_digits():
    # one path: a chain of 40 splits, whose Shapley sums have terms up to 40!
    d = 40
    inner = np.arange(0, 2 * d, 2)
    feature, left, right = (np.full(2 * d + 1, -1, np.int32) for _ in range(3))
    feature[inner], left[inner], right[inner] = np.arange(d), inner + 1, inner + 2
    cover = np.zeros(2 * d + 1)
    cover[inner], cover[inner + 1], cover[-1] = (
        2.0 ** (d - inner / 2),
        2.0 ** (d - inner / 2 - 1),
        1,
    )
    n = 2 * d + 1
    value = np.zeros(n)
    value[-1] = 1.0
    trees = Trees(
        roots=np.zeros(1, np.int32), feature=feature, threshold=np.zeros(n, np.float32),
        left=left, right=right, missing_left=np.zeros(n, bool), value=value[:, None],
    )  # fmt: skip
    ensemble = Ensemble(
        trees=trees, gain=np.zeros(n), cover=cover, group=np.zeros(1, np.int32), base=np.zeros(1)
    )
    phi, expected = shapley(ensemble, np.ones((1, d)))
    # by symmetry all 40 are equal, and they add to 1 − 2⁻⁴⁰
    assert_allclose(phi[0, 0], (1 - 2.0**-d) / d, rtol=1e-12)
    assert_allclose(expected, 2.0**-d, rtol=1e-12)


def test_a_node_that_no_row_reached_splits_evenly():
    ensemble = grown(1, 3, depth=4)
    ensemble.cover[:] = 0
    phi, expected = shapley(ensemble, rows(0, 5, 3))
    assert_allclose(phi.sum(axis=2) + expected, ensemble.margins(rows(0, 5, 3)), atol=1e-12)


def test_values_do_not_depend_on_the_rows_and_leaves_that_are_computed_at_a_time(monkeypatch):
    ensemble, x = grown(5, 4, trees=5, depth=5), rows(5, 30, 4)
    phi, _ = shapley(ensemble, x)
    monkeypatch.setattr(module, "CHUNK", 40)
    again, _ = shapley(ensemble, x)
    assert_allclose(again, phi, rtol=1e-12, atol=1e-14)
    alone, _ = shapley(ensemble, x[7:8])
    assert_allclose(alone[0], phi[7], rtol=1e-12, atol=1e-14)

"""Margins and importance of trees, and which arrays are trees at all."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcohort.algorithms.boosting.xgboost_reader import read
from fedcohort.numerics.trees.ensemble import DEEPEST, Ensemble, depths
from tree_cases import grown, rows, value_of


@given(seed=st.integers(0, 2**16), outputs=st.integers(1, 3))
def test_margins_are_the_leaves_that_rows_reach_step_by_step(seed, outputs):
    ensemble, x = grown(seed, 4, trees=5, depth=4, outputs=outputs), rows(seed, 8, 4)
    walked = [value_of(ensemble, row, {0, 1, 2, 3}) for row in x]
    assert_array_equal(ensemble.margins(x), walked)
    assert ensemble.margins(x[:0]).shape == (0, outputs)


def test_importance_is_that_of_xgboost():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 5))
    x[:, 4] = 0  # never split
    booster = xgb.train(
        {"max_depth": 3, "nthread": 1}, xgb.DMatrix(x, label=x[:, 0] ** 2 + x[:, 1]), 6
    )
    ensemble = read(bytes(booster.save_raw("json")), "booster").ensemble
    for kind, found in ensemble.importance(5).items():
        theirs = booster.get_score(importance_type=kind)
        assert_allclose(
            np.nan_to_num(found), [theirs.get(f"f{j}", 0.0) for j in range(5)], rtol=1e-5
        )
    assert np.isnan(ensemble.importance(5)["gain"][4])


def test_trees_of_an_output_are_numbered_in_their_order():
    ensemble = dataclasses.replace(
        grown(0, 2, trees=5), group=np.array([0, 1, 1, 0, 1]), base=np.zeros(2)
    )
    assert ensemble.round_of.tolist() == [0, 0, 1, 1, 2]


def test_saved_arrays_are_the_ensemble():
    ensemble, x = grown(4, 3, outputs=2), rows(4, 9, 3)
    again = Ensemble.from_arrays(ensemble.arrays(), 3)
    assert_array_equal(again.margins(x), ensemble.margins(x))
    assert_array_equal(again.gain, ensemble.gain)


def chain(n):
    """Return the children of a tree whose left child is always a leaf, with n splits."""
    left, right = np.full(2 * n + 1, -1), np.full(2 * n + 1, -1)
    left[0 : 2 * n : 2], right[0 : 2 * n : 2] = np.arange(1, 2 * n, 2), np.arange(2, 2 * n + 1, 2)
    return left, right


def test_depth_counts_the_splits_above_a_node():
    left, right = chain(3)
    assert depths(np.zeros(1, int), left, right).tolist() == [0, 1, 1, 2, 2, 3, 3]
    assert depths(np.zeros(1, int), *chain(DEEPEST)).max() == DEEPEST
    with pytest.raises(ValueError, match="more than 512 splits"):
        depths(np.zeros(1, int), *chain(DEEPEST + 1))


@pytest.mark.parametrize(
    ("name", "node", "value", "says"),
    [
        ("left", 0, 0, "no node of its tree"),  # the root is its own child
        ("left", 0, 2, "two paths lead to one node"),
        ("left", 1, 0, "one child"),
        ("right", 0, 3, "no node of its tree"),  # of the next tree
        ("right", 0, 99, "no node of its tree"),
        ("roots", 0, 1, "roots of the trees are no nodes"),
        ("roots", 1, 0, "do not ascend"),
        ("roots", 1, 99, "roots of the trees are no nodes"),
        ("feature", 0, 2, "a covariate that does not exist"),
        ("feature", 0, -2, "a covariate that does not exist"),
        ("feature", 1, 0, "a leaf splits a covariate"),
        ("group", 1, 1, "an output that does not exist"),
        ("group", 1, -1, "an output that does not exist"),
        ("cover", 1, -1, "cover of a node is negative"),
    ],
)
def test_arrays_that_are_no_trees_are_refused(name, node, value, says):
    arrays = two_stumps()
    Ensemble.from_arrays(arrays, 2)
    arrays[name][node] = value
    with pytest.raises(ValueError, match=says):
        Ensemble.from_arrays(arrays, 2)


def test_arrays_of_another_shape_or_type_are_refused():
    for name, bad in (
        ("value", np.zeros((6, 2))), ("gain", np.zeros(5)), ("base", np.zeros(0)),
        ("feature", np.zeros(6)), ("group", np.zeros(3, int)), ("threshold", np.full(6, "a")),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            Ensemble.from_arrays(two_stumps() | {name: bad}, 2)
    unreached = two_stumps()
    for name in ("left", "right", "feature"):
        unreached[name][0] = -1
    with pytest.raises(ValueError, match="no path reaches"):
        Ensemble.from_arrays(unreached, 2)


def two_stumps():
    """Return the arrays of two trees with one split each, over 2 covariates."""
    return {
        "roots": np.array([0, 3]),
        "feature": np.array([0, -1, -1, 1, -1, -1]),
        "threshold": np.zeros(6, np.float32),
        "left": np.array([1, -1, -1, 4, -1, -1]),
        "right": np.array([2, -1, -1, 5, -1, -1]),
        "missing_left": np.zeros(6, bool),
        "value": np.zeros((6, 1)),
        "gain": np.zeros(6),
        "cover": np.ones(6),
        "group": np.array([0, 0]),
        "base": np.zeros(1),
    }

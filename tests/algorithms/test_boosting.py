"""`boosting`: XGBoost's trees on one grid, however rows are divided, and rules of disclosure."""

from __future__ import annotations

import json
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines import NelsonAalenFitter
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import roc_auc_score

from algorithms.boosting_cases import fit, simulated, theirs, thirds
from fedcohort.algorithms.boosting.settings import BoostingSettings
from fedcohort.numerics.trees import histogram, splits
from fedcohort.numerics.trees.nodes import LEAF
from fedcohort.protocol import DataError, NothingToLearn, SettingError

OUTCOMES = ("binary", "category", "continuous", "count", "survival")


def nodes(model):
    """Return all that a model's trees are."""
    return [*model.ensemble.arrays().values()]


def same(one, other):
    """Say whether two models have the same trees, bit for bit."""
    return all(np.array_equal(a, b) for a, b in zip(nodes(one), nodes(other), strict=True))


@contextmanager
def kernels(*, fast):
    """Take numba's kernels, or NumPy."""
    before = histogram._Work.done
    histogram._Work.done = histogram.WORTH if fast else 0
    try:
        yield
    finally:
        histogram._Work.done = before


# the trees are XGBoost's ------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 6])
@pytest.mark.parametrize("which", [*OUTCOMES, "weibull"])
def test_trees_of_three_sites_are_those_of_xgboost_on_the_pooled_rows(which, seed):
    """Whole numbers from 0 to 11 have one bin each, here and there.

    Random weights let no two splits gain the same; XGBoost ignores them in Cox's risk sets. With a
    small σ XGBoost loses the digits of e^−e^z of censored rows.
    """
    x, outcomes = simulated(seed)
    y = outcomes["survival" if which == "weibull" else which]
    outcome = "survival" if which == "weibull" else which
    weight = np.random.default_rng(seed).uniform(0.5, 2, len(x))
    more = {"objective": "weibull", "sigma": 1.5} if which == "weibull" else {}
    if which == "survival":
        weight, more = None, {"time_grid": "exact"}
    model = fit(x, y, outcome, thirds(len(x)), weight=weight, **more)
    expected = theirs(x, y, which, model.ensemble.base, weight=weight)
    assert_allclose(model.margins(x), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("ours", "xgboost"),
    [
        ({"l2": 5.0, "l1": 0.7}, {"lambda": 5.0, "alpha": 0.7}),
        ({"gamma": 3.0, "min_child_weight": 12.0}, {"gamma": 3.0, "min_child_weight": 12.0}),
        ({"max_depth": 2, "learning_rate": 0.5}, {"max_depth": 2, "learning_rate": 0.5}),
        (
            {"increasing": ("x0",), "decreasing": ("x2",)},
            {"monotone_constraints": "(1,0,-1,0)"},
        ),
        (
            {"interactions": (("x0", "x1"), ("x2", "x3"))},
            {"interaction_constraints": "[[0, 1], [2, 3]]"},
        ),
    ],
)
def test_penalties_and_constraints_are_those_of_xgboost(ours, xgboost):
    x, outcomes = simulated(2)
    y, weight = outcomes["binary"], np.random.default_rng(2).uniform(0.5, 2, len(x))
    model = fit(x, y, "binary", thirds(len(x)), weight=weight, **ours)
    expected = theirs(x, y, "binary", model.ensemble.base, weight=weight, **xgboost)
    assert_allclose(model.margins(x), expected, rtol=0, atol=1e-5)


def test_case_weights_are_those_of_xgboost():
    x, outcomes = simulated(3)
    weight = np.random.default_rng(3).integers(1, 5, len(x)).astype(float)
    model = fit(x, outcomes["count"], "count", thirds(len(x)), weight=weight)
    expected = theirs(x, outcomes["count"], "count", model.ensemble.base, weight=weight)
    assert_allclose(model.margins(x), expected, rtol=0, atol=1e-5)


def test_balanced_classes_count_as_much_as_each_other():
    x, outcomes = simulated(4)
    y = (outcomes["continuous"] > 1.5).astype(float)
    model = fit(x, y, "binary", thirds(len(x)), class_weight="balanced")
    sizes = np.bincount(y.astype(int))
    weight = (len(y) / 2 / sizes)[y.astype(int)]
    assert_allclose(model.ensemble.base, 0, atol=1e-6)
    expected = theirs(x, y, "binary", model.ensemble.base, weight=weight)
    assert_allclose(model.margins(x), expected, rtol=0, atol=1e-5)


def test_a_monotone_covariate_never_lowers_the_prediction():
    x, outcomes = simulated(5)
    model = fit(x, outcomes["binary"], "binary", thirds(len(x)), increasing=("x3",), rounds=20)
    grid = np.repeat(x[:50], 12, axis=0)
    grid[:, 3] = np.tile(np.arange(12), 50)
    assert (np.diff(model.margins(grid).reshape(50, 12), axis=1) >= 0).all()


@pytest.mark.parametrize("outcomes", ["cox", "weibull"])
def test_survival_is_known_while_min_cell_records_are_followed(outcomes):
    x, told = simulated(8)
    model = fit(x, told["survival"], "survival", thirds(len(x)), objective=outcomes, min_cell=20)
    (end,) = np.unique(model.known_until(x))
    time = np.sort(told["survival"][0])
    assert time[-80] < end <= time[-20]


# and do not depend on how rows are divided ------------------------------------------------


@given(seed=st.integers(0, 2**20), sites=st.integers(2, 6), outcome=st.sampled_from(OUTCOMES))
def test_trees_are_the_same_bits_however_rows_are_divided(seed, sites, outcome):
    """A site may hold one row, or none with a value, and rows in any order."""
    rng = np.random.default_rng(seed)
    x, outcomes = simulated(seed, n=90)
    order = rng.permutation(90)
    cuts = np.sort(rng.choice(np.arange(1, 90), sites - 1, replace=False))
    settings = {"rounds": 3, "max_depth": 3, "min_cell": 5, "l1": 0.1}
    one = fit(x, outcomes[outcome], outcome, thirds(90), **settings)
    other = fit(x, outcomes[outcome], outcome, np.split(order, cuts), **settings)
    assert same(one, other)


@given(seed=st.integers(0, 2**20))
def test_numba_and_numpy_give_the_same_sums(seed):
    rng = np.random.default_rng(seed)
    n, p, size, nodes = 50, 3, 6, 4
    bins = rng.integers(0, size, (n, p)).astype(np.uint8)
    at = np.where(rng.random(n) < 0.7, rng.integers(0, nodes, n), -1)
    ends = rng.random((nodes, p, size)) < 0.6
    ends[..., -1] = True
    g, h = (rng.integers(-(2**40), 2**40, n) for _ in range(2))
    with kernels(fast=False):
        plain = histogram.summed(bins, at, g, h, ends)
        counts = histogram.counted(bins, at, ends)
    with kernels(fast=True):
        assert_array_equal(histogram.summed(bins, at, g, h, ends), plain)
        assert_array_equal(histogram.counted(bins, at, ends), counts)
    for fast in (False, True):
        with kernels(fast=fast):
            without = histogram.summed(bins, at, g, h, ends, count=False)
        assert_array_equal(without, plain[:, :2])
    assert_array_equal(plain[:, 2], counts)
    wider = ends & (rng.random(ends.shape) < 0.5)
    wider[..., -1] = True
    assert_array_equal(splits.regrouped(counts, ends, wider), histogram.counted(bins, at, wider))
    total = g[at >= 0].sum()
    assert plain[:, 0].sum() == p * total


@given(
    seed=st.integers(0, 2**20), outcome=st.sampled_from(OUTCOMES), l1=st.sampled_from([0.0, 0.3])
)
def test_numba_and_numpy_grow_the_same_trees(seed, outcome, l1):
    x, outcomes = simulated(seed, n=90)
    settings = {"rounds": 2, "max_depth": 3, "min_cell": 3, "l1": l1, "gamma": 0.05}
    models = []
    for fast in (False, True):
        with kernels(fast=fast):
            models.append(fit(x, outcomes[outcome], outcome, thirds(90), **settings))
    assert same(*models)


# groups of few rows -----------------------------------------------------------------------


@pytest.mark.parametrize("fast", [False, True], ids=["numpy", "numba"])
@given(seed=st.integers(0, 2**20), least=st.integers(2, 7))
def test_joined_groups_have_no_row_or_enough_of_both_siblings(seed, least, fast):
    rng = np.random.default_rng(seed)
    size = 9
    child = rng.poisson(rng.uniform(0, 4), (2, 3, size))
    other = rng.poisson(rng.uniform(0, 4), (2, 3, size))
    for held in (child, other):  # one number of rows a node, at least the smallest
        held[..., 0] += least + held.sum(axis=2).max() - held.sum(axis=2)
    ends = rng.random(child.shape) < 0.7
    ends[..., -1] = True
    groups = np.add.reduceat(child.ravel(), np.r_[0, np.flatnonzero(ends.ravel())[:-1] + 1])
    parent = splits.Cells((child + other).cumsum(axis=2), np.zeros((*child.shape, 2), int), ends)
    with kernels(fast=fast):
        found = splits.joined(groups, parent, least)
    with kernels(fast=not fast):
        assert_array_equal(splits.joined(groups, parent, least), found)
    assert (found <= ends).all() and found[..., -1].all()
    for held in (child, other):
        for a, j in np.ndindex(2, 3):
            at = np.r_[0, np.flatnonzero(found[a, j])[:-1] + 1]
            rows = np.add.reduceat(held[a, j], at)
            assert ((rows == 0) | (rows >= least)).all()


def test_no_leaf_has_fewer_rows_than_min_cell():
    x, outcomes = simulated(6)
    model = fit(x, outcomes["binary"], "binary", thirds(len(x)), min_cell=20, rounds=5)
    leaves = model.ensemble.trees.leaves(x)
    assert min(np.unique(leaves, return_counts=True)[1]) >= 20
    free = fit(x, outcomes["binary"], "binary", thirds(len(x)), rounds=5, min_child_weight=0.0)
    assert min(np.unique(free.ensemble.trees.leaves(x), return_counts=True)[1]) < 20


# predictions ------------------------------------------------------------------------------


def test_without_a_split_survival_is_that_of_nelson_and_aalen():
    x, (time, event) = simulated(7)[0], simulated(7)[1]["survival"]
    model = fit(
        x, (time, event), "survival", thirds(len(x)), rounds=1, gamma=1e9, time_grid="exact"
    )
    assert (model.ensemble.trees.feature == LEAF).all()
    at = np.sort(time[event])[[50, 130, 200]]
    hazard = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(time, event)
    expected = np.exp(-hazard.cumulative_hazard_at_times(at).to_numpy())
    assert_allclose(model.predict_survival(x, at), np.tile(expected, (len(x), 1)), atol=1e-12)


def test_held_out_rows_choose_the_number_of_rounds():
    x, outcomes = simulated(8)
    y = outcomes["binary"]
    late = fit(x, y, "binary", thirds(len(x)), rounds=60, learning_rate=0.5)
    early = fit(x, y, "binary", thirds(len(x)), rounds=60, learning_rate=0.5, patience=5)
    assert early.rounds < 30 < late.rounds
    fresh, truth = simulated(9, n=4000)
    scores = [roc_auc_score(truth["binary"], m.predict(fresh)) for m in (early, late)]
    assert scores[0] > scores[1] + 0.01


def test_drawn_rows_and_columns_change_the_trees_and_two_fits_are_the_same():
    x, outcomes = simulated(10)
    plain = fit(x, outcomes["binary"], "binary", thirds(len(x)), rounds=4)
    drawn = [
        fit(x, outcomes["binary"], "binary", thirds(len(x)), rounds=4, min_cell=3, **more)
        for more in ({"subsample": 0.5}, {"subsample": 0.5}, {"colsample": 0.5})
    ]
    assert same(drawn[0], drawn[1]) and not same(drawn[0], plain)
    trees = drawn[2].ensemble.trees
    for part in trees.parts():
        assert len({*trees.feature[part].tolist()} - {LEAF}) <= 2


# input ------------------------------------------------------------------------------------


def test_a_covariate_that_is_constant_or_empty_is_never_split():
    x, outcomes = simulated(11)
    x[:, 1], x[:, 2] = 3.0, np.nan
    model = fit(x, outcomes["binary"], "binary", thirds(len(x)), min_cell=5)
    assert {*model.ensemble.trees.feature.tolist()} <= {LEAF, 0, 3}


def test_what_trees_cannot_learn_from_is_one_line():
    x, outcomes = simulated(12)
    parts = thirds(len(x))
    with pytest.raises(NothingToLearn, match="no covariate has two values"):
        fit(np.ones_like(x), outcomes["binary"], "binary", parts)
    with pytest.raises(NothingToLearn, match="all 400 records are of class 1"):
        fit(x, np.ones(len(x)), "binary", parts)
    with pytest.raises(NothingToLearn, match="fewer than 5 records"):
        fit(x, (np.arange(len(x)) < 3) * 1.0, "binary", parts, min_cell=5)
    with pytest.raises(NothingToLearn, match="has the event"):
        fit(x, (outcomes["survival"][0], np.zeros(len(x), bool)), "survival", parts)
    with pytest.raises(SettingError, match="no column 'height'"):
        fit(x, outcomes["binary"], "binary", parts, increasing=("height",))
    with pytest.raises(SettingError, match="give 'auto' or 'logistic'"):
        fit(x, outcomes["binary"], "binary", parts, objective="cox")
    with pytest.raises(
        SettingError, match=r"'class_weight'.* the outcome is count, without classes"
    ):
        fit(x, outcomes["count"], "count", parts, class_weight="balanced")
    with pytest.raises(DataError, match="no covariates"):
        fit(x[:, :0], outcomes["binary"], "binary", parts)


def test_trees_over_sites_are_those_of_one_site_only_without_a_min_cell():
    x, outcomes = simulated(3, n=200)
    one = fit(x, outcomes["binary"], "binary", [np.arange(200)], min_cell=5, rounds=3)
    assert same(one, fit(x, outcomes["binary"], "binary", thirds(200), min_cell=1, rounds=3))
    grouped = fit(x, outcomes["binary"], "binary", thirds(200), min_cell=5, rounds=3)
    assert not same(one, grouped)
    assert same(
        grouped,
        fit(x, outcomes["binary"], "binary", np.split(np.arange(200), 10), min_cell=5, rounds=3),
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"increasing": "age"}, r"'age'; it must be of type list, such as \[a, b\]\."),
        (
            {"interactions": ["age", "nodes"]},
            r"is \['age', 'nodes'\]; it must be of type list of lists, such as \[\[a, b\], \[c\]\]",
        ),
        ({"interactions": [["age"], 3]}, r"is \[\['age'\], 3\]; it must be of type list of lists"),
    ],
)
def test_a_setting_that_is_no_list_of_columns_says_how_to_write_one(given, says):
    with pytest.raises(SettingError, match=says):
        BoostingSettings.typed(given, "boosting")
    lists = BoostingSettings.typed({"interactions": [["age"], ["nodes"]]}, "boosting")
    assert lists.interactions == (("age",), ("nodes",))


def test_a_patience_without_a_row_held_out_is_refused_and_not_left_aside():
    x, outcomes = simulated(12, n=40)
    four = np.split(np.arange(40), 10)
    with pytest.raises(NothingToLearn, match=r"^no site has 5 rows.* Set a larger one"):
        fit(x, outcomes["binary"], "binary", four, patience=3)
    assert fit(x, outcomes["binary"], "binary", four, patience=3, validation_fraction=0.5)


@pytest.mark.parametrize("settings", [{"gamma": 1e9}, {"subsample": 0.045, "min_cell": 5}])
def test_a_model_without_a_split_says_so(settings):
    x, outcomes = simulated(12)
    flat = fit(x, outcomes["binary"], "binary", thirds(len(x)), rounds=2, **settings)
    (said,) = flat.cautions()
    assert "all rows have one prediction" in said
    assert np.ptp(flat.predict(x)) == 0
    assert not fit(x, outcomes["binary"], "binary", thirds(len(x)), rounds=1).cautions()


def test_a_site_with_one_class_or_one_row_takes_part():
    x, outcomes = simulated(13)
    y = outcomes["binary"]
    order = np.argsort(y)
    parts = [order[:150], order[150:399], order[399:]]
    assert same(
        fit(x, y, "binary", parts, min_cell=5), fit(x, y, "binary", thirds(400), min_cell=5)
    )


def test_the_model_is_an_xgboost_file_that_predicts_the_same(tmp_path):
    import xgboost

    x, outcomes = simulated(14)
    model = fit(x, outcomes["category"], "category", thirds(len(x)), min_cell=5)
    ((name, body),) = model.files().items()
    (tmp_path / name).write_bytes(body)
    booster = xgboost.Booster()
    booster.load_model(tmp_path / name)
    assert_allclose(
        booster.predict(xgboost.DMatrix(x, feature_names=list(model.features))),
        model.predict(x),
        atol=1e-6,
    )
    assert json.loads(body)["learner"]["objective"]["name"] == "multi:softprob"


def test_a_value_missing_for_the_first_time_goes_with_the_larger_child():
    """Also where groups of few rows are joined: no row is in the bin of missing values."""
    x, outcomes = simulated(15, gaps=0.0)
    model = fit(x, outcomes["binary"], "binary", thirds(len(x)), min_cell=5, rounds=1, max_depth=1)
    trees = model.ensemble.trees
    left = x[:, trees.feature[0]] < trees.threshold[0]
    assert 0 < left.mean() < 1
    assert trees.missing_left[0] == (left.mean() >= 0.5)
    for seed in range(16, 40):  # both sides occur
        x, outcomes = simulated(seed, gaps=0.0)
        tree = fit(
            x, outcomes["binary"], "binary", thirds(len(x)), min_cell=5, rounds=1, max_depth=1
        ).ensemble.trees
        if tree.missing_left[0] != trees.missing_left[0]:
            return
    pytest.fail("missing values always go to one side")

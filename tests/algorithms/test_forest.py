"""`forest` against scikit-learn, lifelines and scikit-survival."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import NelsonAalenFitter
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sksurv.ensemble import ExtraSurvivalTrees
from sksurv.metrics import concordance_index_censored
from sksurv.util import Surv

from algorithms.cox_cases import public
from algorithms.forest_cases import ALL_ROWS, KINDS, fit, simulated, split, take
from fedcohort.algorithms.forest import ForestModel, union
from fedcohort.algorithms.forest.outcome import hazards
from fedcohort.data import binning
from fedcohort.data.tables import LabelledTable
from fedcohort.data.timegrid import Intervals
from fedcohort.numerics.trees.nodes import Trees
from fedcohort.protocol import DataError, NothingToLearn, SettingError, SiteFailed
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

#: Of columns of zeros and ones each has one threshold, so that all possible splits are tried.
EVERY_SPLIT = {**ALL_ROWS, "candidates": 6, "leaf": 5, "trees": 2, "depth": 4}
#: Ours less theirs, ten seeds: AUC -0.014 ± 0.010, R² -0.127 ± 0.036; the margins are 3 sd wider.
MARGIN = (0.045, 0.24)
THEIRS = {"min_samples_leaf": 5, "max_depth": 4, "random_state": 0}


# one tree -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_with_every_split_tried_a_tree_is_scikit_learns_by_gini(seed):
    table = simulated("classification", 400, 6, seed, binary=True)
    ours = fit([table], "classification", **EVERY_SPLIT)
    theirs = DecisionTreeClassifier(criterion="gini", **THEIRS).fit(table.x, table.y)
    assert_allclose(ours.predict(table.x), theirs.predict_proba(table.x)[:, 1], atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_with_every_split_tried_a_tree_of_three_classes_is_scikit_learns(seed):
    table = simulated("regression", 400, 6, seed, binary=True)
    table = table._replace(y=np.searchsorted([-0.5, 1.0], table.y).astype(float))
    ours = fit([table], "classification", levels=("a", "b", "c"), **EVERY_SPLIT)
    theirs = DecisionTreeClassifier(criterion="gini", **THEIRS).fit(table.x, table.y)
    assert_allclose(ours.predict(table.x), theirs.predict_proba(table.x), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_with_every_split_tried_a_tree_of_values_is_scikit_learns_by_squared_error(seed):
    table = simulated("regression", 400, 6, seed, binary=True)
    ours = fit([table], "regression", **EVERY_SPLIT)
    theirs = DecisionTreeRegressor(**THEIRS).fit(table.x, table.y)
    # a value is rounded to 2^-17 standard deviations
    assert_allclose(ours.predict(table.x), theirs.predict(table.x), atol=2.0**-16)


def nelson_aalen(table):
    """Return lifelines' cumulative hazard of all rows."""
    found = NelsonAalenFitter(nelson_aalen_smoothing=False)
    return found.fit(table.time, table.event)


def at(curve, times):
    return curve.cumulative_hazard_at_times(times).to_numpy()


@pytest.mark.parametrize("seed", [0])
def test_a_survival_tree_is_scikit_learns_of_martingale_residuals_with_nelson_aalen_leaves(seed):
    table = simulated("survival", 400, 6, seed, binary=True)
    ours = fit([table], "survival", time_grid="exact", **{**EVERY_SPLIT, "trees": 1})
    residual = table.event - at(nelson_aalen(table), table.time)
    theirs = DecisionTreeRegressor(**THEIRS).fit(table.x, residual)
    leaf = theirs.apply(table.x)
    times = np.unique(table.time[table.event])[::7]
    found = -np.log(ours.predict_survival(table.x, times))
    for one in np.unique(leaf):
        own = leaf == one
        expected = at(nelson_aalen(take(table, own)), times)
        assert_allclose(found[own], np.tile(expected, (own.sum(), 1)), atol=1e-9)


@given(seed=st.integers(0, 2**16), single=st.booleans())
def test_hazards_of_several_groups_are_those_of_the_time_grid_for_each(seed, single):
    rng = np.random.default_rng(seed)
    leaving = rng.integers(0, 5, (3, 6))
    deaths = rng.binomial(leaving, 0.5)
    grid = Intervals(np.arange(1.0, 7.0), np.full(6, single), 6.0)
    found = hazards(deaths, leaving, grid.single)
    for k in range(3):
        s = np.cumsum(leaving[k][::-1])[::-1].astype(float)
        assert_allclose(found[k], grid.hazard(deaths[k].astype(float), leaving[k], s), atol=1e-12)


def test_no_split_repeats_one_above_it_and_all_lie_between_those():
    table = simulated("classification", 400, 4, 0)
    trees = fit([table], "classification", **ALL_ROWS, leaf=2, trees=4, bins=8).trees
    limits = {int(root): np.array([[-np.inf, np.inf]] * 4) for root in trees.roots}
    for node in np.flatnonzero(~trees.leaf).tolist():  # parents are before their children
        own, j, t = limits[node], trees.feature[node], trees.threshold[node]
        assert own[j, 0] < t < own[j, 1]
        for child, end in ((trees.left[node], 1), (trees.right[node], 0)):
            limits[int(child)] = own.copy()
            limits[int(child)][j, end] = t
    assert len(limits) > 50


# splits of the rows -------------------------------------------------------------------


@settings(max_examples=6)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    sites=st.integers(2, 5),
    seed=st.integers(0, 2**16),
)
def test_with_all_rows_in_the_sums_the_trees_do_not_depend_on_how_rows_are_split(kind, sites, seed):
    table = simulated(kind, 120, 4, seed)
    where = np.random.default_rng(seed).integers(0, sites, 120)
    options = {**ALL_ROWS, "trees": 2, "depth": 3, "min_cell": 1}
    if kind == "survival":
        options["time_grid"] = 8
    pooled, over = (fit(parts, kind, **options) for parts in ([table], split(table, where)))
    for name, a in pooled.trees.arrays().items():
        if name != "value":
            assert_array_equal(a, over.trees.arrays()[name])
    assert_allclose(pooled.trees.value, over.trees.value, rtol=1e-12, atol=1e-12)


# accuracy -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "theirs", "margin"),
    [
        ("classification", ExtraTreesClassifier, MARGIN[0]),
        ("regression", ExtraTreesRegressor, MARGIN[1]),
    ],
)
def test_classes_and_values_are_predicted_nearly_as_well_as_by_extra_trees(kind, theirs, margin):
    """Theirs have all rows of all sites, in leaves of 5."""
    table, test = simulated(kind, 800, 6, 1), simulated(kind, 1000, 6, 2)
    ours = fit(split(table, np.arange(800) % 3), kind, trees=30).predict(test.x)
    tree = theirs(30, min_samples_leaf=5, random_state=0).fit(table.x, table.y)
    if kind == "classification":
        found = tree.predict_proba(test.x)[:, 1]
        assert roc_auc_score(test.y, ours) > roc_auc_score(test.y, found) - margin
    else:
        assert r2_score(test.y, ours) > r2_score(test.y, tree.predict(test.x)) - margin


@cache
def halves():
    table, _ = public("gbsg2")
    where = np.random.default_rng(0).permutation(len(table.x)) % 2
    return split(table, where)


@pytest.mark.parametrize("strategy", ["sums", "union"])
def test_the_c_index_on_gbsg2_is_near_that_of_scikit_survivals_extra_trees(strategy):
    """Ours less theirs, six halves: 0.018 ± 0.017, of a union 0.025 ± 0.013."""
    train, test = halves()
    parts = split(train, np.arange(len(train.x)) % 3)
    risk = fit(parts, "survival", strategy=strategy, trees=25).predict(test.x)
    ours = concordance_index_censored(test.event, test.time, risk)[0]
    theirs = ExtraSurvivalTrees(25, min_samples_leaf=10, random_state=0)
    theirs.fit(train.x, Surv.from_arrays(train.event, train.time))
    their = concordance_index_censored(test.event, test.time, theirs.predict(test.x))[0]
    assert ours > their - 0.035


# rows without a value -----------------------------------------------------------------


def test_that_a_value_is_missing_tells_the_class():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    y = (rng.random(600) < 0.5).astype(float)
    x[(y == 1) & (rng.random(600) < 0.9), 1] = np.nan
    model = fit(split(LabelledTable(x, y), np.arange(600) % 3), "classification")
    assert roc_auc_score(y, model.predict(x)) > 0.9
    assert np.isfinite(model.predict(np.full((2, 3), np.nan))).all()


# the grid -----------------------------------------------------------------------------


def thresholds(fed, bins, least):
    """Return the thresholds of each covariate."""
    first = fed.sum(binning.count_values)
    return binning.thresholds(binning.bin_edges(fed, first, bins, least))


@given(seed=st.integers(0, 2**16), bins=st.integers(2, 20), least=st.integers(1, 8))
def test_between_thresholds_lie_enough_rows_and_none_is_a_value_of_a_number(seed, bins, least):
    rng = np.random.default_rng(seed)
    x = np.c_[rng.lognormal(size=120), rng.integers(0, 5, 120), rng.random(120) < 0.03]
    x[rng.random(x.shape) < 0.1] = np.nan
    parts = split(LabelledTable(x, np.zeros(120)), np.arange(120) % 2)
    fed = local([Host(f"{k}", part, binning.STEPS) for k, part in enumerate(parts)])
    for own, cuts in zip(x.T, thresholds(fed, bins, least), strict=True):
        counts = np.bincount(np.searchsorted(cuts, own[~np.isnan(own)], side="right"))
        assert len(cuts) < bins
        assert len(cuts) == 0 or counts.min() >= least
        assert not np.isin(cuts, own).any()


# union --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_union_has_each_sites_trees_with_thresholds_of_the_grid_and_leaves_of_enough_rows(kind):
    table = simulated(kind, 300, 4, 1)
    parts = split(table, np.repeat([0, 1, 2], [180, 105, 15]))  # the last one is too small
    model = fit(parts, kind, strategy="union", trees=6)
    assert_allclose(model.weights, np.repeat([180, 105], 6) / 285 / 6)
    trees = model.trees
    fed = local([Host(f"{k}", part, binning.STEPS) for k, part in enumerate(parts)])
    grid = thresholds(fed, 32, 5)
    inner = ~trees.leaf
    for j in range(4):
        assert np.isin(trees.threshold[inner & (trees.feature == j)], grid[j]).all()
    leaves = trees.leaves(parts[0].x)[:, :6]
    assert min(np.bincount(column)[np.unique(column)].min() for column in leaves.T) >= 10


def test_a_union_learns_that_a_value_is_missing():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 2)), (rng.random(300) < 0.5).astype(float)
    x[(y == 1) & (rng.random(300) < 0.9), 1] = np.nan
    parts = split(LabelledTable(x, y), np.arange(300) % 2)
    model = fit(parts, "classification", strategy="union", trees=10)
    assert roc_auc_score(y, model.predict(x)) > 0.9
    assert np.isfinite(model.trees.threshold).all()


@pytest.mark.parametrize("name", ["left", "feature", "roots", "value", "threshold"])
def test_trees_of_a_site_that_do_not_fit_together_are_refused_and_the_site_is_named(
    name, monkeypatch
):
    parts = split(simulated("classification", 120, 4, 0), np.arange(120) % 2)
    honest = union._message

    def forged(grown, rows):
        told = honest(grown, rows)
        own = np.array(getattr(told, name))
        wrong = np.zeros_like(own) - 7 if name in ("left", "feature", "roots") else own[1:]
        return replace(told, **{name: wrong})

    monkeypatch.setattr(union, "_message", forged)
    with pytest.raises(SiteFailed, match=r"site 'site-0'[^\n]*do not fit together"):
        fit(parts, "classification", strategy="union", trees=2)


def test_a_union_without_a_site_of_enough_rows_says_so():
    parts = split(simulated("classification", 50, 4, 0), np.arange(50) % 3)
    with pytest.raises(DataError, match=r"no site has 20 rows.*strategy: sums"):
        fit(parts, "classification", strategy="union")


# refusals -----------------------------------------------------------------------------


def test_sums_of_nearly_all_rows_over_several_sites_are_refused():
    parts = split(simulated("classification", 90, 4, 0), np.arange(90) % 3)
    with pytest.raises(SettingError, match=r"'share' of method 'forest' is 1.*at most 0\.5"):
        fit(parts, "classification", **ALL_ROWS)


def test_few_records_of_a_class_or_few_deaths_are_refused():
    table = simulated("classification", 90, 4, 0)
    few = table._replace(y=(np.arange(90) < 3) * 1.0)
    with pytest.raises(NothingToLearn, match="class 1 has fewer than 5"):
        fit(split(few, np.arange(90) % 3), "classification")
    table = simulated("survival", 90, 4, 0)
    few = table._replace(event=np.arange(90) < 3)
    with pytest.raises(NothingToLearn, match="fewer than 5 deaths"):
        fit(split(few, np.arange(90) % 3), "survival")


def test_without_rows_enough_for_a_split_all_rows_have_one_prediction_and_a_warning_says_so():
    table = simulated("classification", 60, 4, 0)
    model = fit(split(table, np.arange(60) % 3), "classification")
    assert_allclose(model.predict(table.x), table.y.mean())
    assert "no split has enough rows" in model.cautions()[0]


def test_without_a_split_the_survival_is_that_of_all_rows_whatever_the_share():
    table, times = simulated("survival", 60, 4, 0), np.linspace(0, 2, 9)
    parts = split(table, np.arange(60) % 3)
    few, half = (
        fit(parts, "survival", time_grid=4, leaf=60, share=share).predict_survival(table.x, times)
        for share in (0.2, 0.5)
    )
    assert_array_equal(few, half)
    assert (few[:1] == few).all()
    assert few[0, -1] < few[0, 0]


def of_hazards(*hazards):
    """Return a forest of one tree each, with leaves below and above 0 and these curves (2, m)."""
    trees = [
        Trees(
            roots=np.zeros(1, np.int32), feature=np.array([0, -1, -1], np.int32),
            threshold=np.zeros(3, np.float32), left=np.array([1, -1, -1], np.int32),
            right=np.array([2, -1, -1], np.int32), missing_left=np.zeros(3, bool),
            value=np.concatenate([np.zeros((1, 3)), curves]),
        )
        for curves in hazards
    ]  # fmt: skip
    return ForestModel(
        features=("x",), levels=(), kind="event", strategy="sums", trees=Trees.joined(trees),
        weights=np.full(len(trees), 1 / len(trees)), times=np.arange(1.0, 4.0), known=3.0,
    )  # fmt: skip


def test_the_log_hazard_of_proportional_curves_is_that_of_their_ratio():
    base = np.array([0.1, 0.3, 0.4])
    model = of_hazards(np.outer([1.0, np.exp(1.5)], base), np.outer([1.0, np.exp(1.5)], base / 2))
    low, high = model.log_hazard(np.array([[-1.0], [1.0]]))
    assert_allclose(high - low, 1.5, rtol=1e-12)


def test_rows_that_reach_no_death_have_the_lowest_log_hazard_that_the_trees_give():
    none, some = np.zeros(3), np.array([0.0, 0.1, 0.1])
    model = of_hazards([none, some], [none, 3 * some])
    low, high = model.log_hazard(np.array([[-1.0], [1.0]]))
    assert_allclose([low, high], np.log([0.1, 0.4]), rtol=1e-12)
    assert_array_equal(of_hazards([none, none]).log_hazard(np.ones((2, 1))), [0.0, 0.0])

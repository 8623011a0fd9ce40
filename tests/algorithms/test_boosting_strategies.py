"""Strategies of `boosting`: proposals, bagging and turns beside histograms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import xgboost
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from algorithms.boosting_cases import THEIRS, fit, simulated, thirds
from fedcohort.algorithms.boosting import METHOD, xgboost_reader
from fedcohort.algorithms.boosting.growth import NO_MOVES, Shape
from fedcohort.algorithms.boosting.local import grow_trees, received
from fedcohort.algorithms.boosting.model import BoostedModel
from fedcohort.algorithms.boosting.proposals import Proposals, elected, propose
from fedcohort.algorithms.boosting.steps import Growing, moved
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.trees import histogram
from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.nodes import LEAF, Trees
from fedcohort.numerics.trees.splits import Rule
from fedcohort.protocol import Refused, Site

OUTCOMES = ("binary", "category", "continuous", "count", "survival")
EVERY = 100_000


def same(one, other):
    """Say whether two models have the same trees, bit for bit."""
    a, b = one.ensemble.trees.arrays(), other.ensemble.trees.arrays()
    own = all(np.array_equal(a[k], b[k]) for k in a)
    return own and np.array_equal(one.ensemble.cover, other.ensemble.cover)


# at one site all are the histograms' -------------------------------------------------------


@pytest.mark.parametrize("strategy", ["bagging", "cyclic", "top-s"])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_one_site_grows_the_same_trees_by_every_strategy(strategy, outcome):
    x, outcomes = simulated(1, n=200)
    given = {"rounds": 4, "max_depth": 3, "gamma": 0.1}
    whole = fit(x, outcomes[outcome], outcome, [np.arange(200)], **given)
    other = fit(
        x, outcomes[outcome], outcome, [np.arange(200)], strategy=strategy, proposals=EVERY, **given
    )
    assert same(whole, other)
    assert other.rounds == 4


def test_one_site_with_rules_grows_the_same_trees_by_every_strategy():
    x, outcomes = simulated(2, n=200)
    given = {
        "rounds": 3, "colsample": 0.5, "increasing": ("x0",), "l1": 0.3, "class_weight": "balanced",
        "interactions": (("x0", "x1"), ("x1", "x2", "x3")), "min_child_weight": 4.0,
    }  # fmt: skip
    whole, *others = (
        fit(x, outcomes["binary"], "binary", [np.arange(200)], strategy=s, proposals=EVERY, **given)
        for s in ("histogram", "bagging", "cyclic", "top-s")
    )
    assert all(same(whole, other) for other in others)


@pytest.mark.parametrize("strategy", ["bagging", "cyclic"])
def test_local_trees_of_one_site_are_further_rounds(strategy):
    x, outcomes = simulated(3, n=200)
    whole = fit(x, outcomes["category"], "category", [np.arange(200)], rounds=6)
    other = fit(
        x, outcomes["category"], "category", [np.arange(200)], rounds=2, local_trees=3,
        strategy=strategy,
    )  # fmt: skip
    assert same(whole, other)
    assert other.rounds == 2
    assert_array_equal(other.at_round(1).margins(x), whole.at_round(3).margins(x))


# proposals ----------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**20), sites=st.integers(2, 4))
def test_sites_with_equal_rows_elect_the_splits_of_the_pooled_table(seed, sites):
    """Without a penalty: λ counts once in a site's gain, and once in the pooled one."""
    x, outcomes = simulated(seed, n=80)
    many, parts = np.tile(x, (sites, 1)), np.split(np.arange(80 * sites), sites)
    y = np.tile(outcomes["continuous"], sites)
    given = {"rounds": 2, "max_depth": 3, "l2": 0.0, "min_child_weight": 0.0, "max_bins": 12}
    whole = fit(many, y, "continuous", parts, **given)
    voted = fit(many, y, "continuous", parts, strategy="top-s", proposals=EVERY, **given)
    assert_array_equal(whole.ensemble.trees.feature, voted.ensemble.trees.feature)
    assert_allclose(whole.margins(many), voted.margins(many), rtol=0, atol=1e-6)


def proposed(*splits):
    found = np.array([s[:4] for s in splits], np.int64).reshape(-1, 4)
    return Proposals(found, np.array([s[4] for s in splits], float))


def test_the_split_with_most_votes_is_elected_and_one_that_a_site_lacks_counts_nothing():
    one = proposed((0, 1, 3, 0, 5.0), (0, 0, 2, 3, 4.0), (2, 1, 1, 1, 1.0))
    other = proposed((0, 0, 2, 2, 1.5), (0, 2, 7, 1, 5.4))
    assert_array_equal(elected([one, other]), [[0, 0, 2, 1], [2, 1, 1, 1]])


def test_a_vote_for_either_side_counts_for_the_side_that_other_sites_choose():
    one, other = proposed((0, 1, 3, 0, 1.0)), proposed((0, 1, 3, 3, 9.0))
    assert_array_equal(elected([one, other]), [[0, 1, 3, 0]])


@given(seed=st.integers(0, 2**20), least=st.integers(2, 8))
def test_a_site_proposes_no_split_of_few_of_its_rows_nor_two_with_few_between(seed, least):
    rng = np.random.default_rng(seed)
    n, bins = 60, 13  # bin b > 0 has the value b - 1
    x = simulated(seed, n=n, gaps=rng.uniform(0, 0.3))[0]
    g, h = (histogram.whole(rng.uniform(low, 1, (n, 1)), 30) for low in (-1, 0))
    site = Site("a", LabelledTable(x, np.zeros(n)), started(x, g, h), (0,))
    told = propose.run(
        site, moves=NO_MOVES, asked=np.zeros((1, 2), int), ends=np.ones((1, 4, bins), bool),
        low=np.array([-np.inf]), high=np.array([np.inf]), rule=np.array([1.0, 0, 0, 0, 0]),
        monotone=np.zeros(4, int), bits=30, most=EVERY, least=least,
    ).reply  # fmt: skip
    for j in range(4):
        own = told.splits[told.splits[:, 1] == j]
        below = (x[:, [j]] < own[:, 2]).sum(axis=0)
        left = below + (own[:, 3] % 2) * np.isnan(x[:, j]).sum()
        assert (np.minimum(left, n - left) >= least).all()
        between = np.diff(np.unique(below))
        assert (between >= least).all()
    assert len(told.splits) or least > 2
    for (_, j, cut, way), vote in zip(told.splits[:5].tolist(), told.votes[:5], strict=False):
        left = np.where(np.isnan(x[:, j]), way % 2, x[:, j] < cut) > 0
        score = [float(g[rows].sum()) ** 2 / 2**30 / (h[rows].sum() + 2**30)
                 for rows in (left, ~left, left | ~left)]  # fmt: skip
        assert_allclose(vote, n * (score[0] + score[1] - score[2]))


def started(x, g, h):
    """Return what a site keeps, with gradients and hessians (n, 1)."""
    edges = np.tile(np.arange(1, 12) - 0.5, (x.shape[1], 1)).astype(np.float32)
    none = np.zeros(len(x), bool)
    return Growing(edges, np.zeros(g.shape), g, h, np.zeros(g.shape, int), ~none, none)


def test_top_s_keeps_the_rules_over_all_sites():
    x, outcomes = simulated(4)
    parts = np.split(np.arange(400), [130, 260])
    model = fit(
        x, outcomes["binary"], "binary", parts, strategy="top-s", proposals=3, min_cell=20,
        increasing=("x3",), gamma=0.5, min_child_weight=4.0,
    )  # fmt: skip
    trees = model.ensemble.trees
    assert min(np.unique(trees.leaves(x), return_counts=True)[1]) >= 20
    assert (model.ensemble.gain[~trees.leaf] >= 0.5).all()
    assert (model.ensemble.cover[trees.feature == LEAF] >= 4.0).all()
    grid = np.repeat(x[:50], 12, axis=0)
    grid[:, 3] = np.tile(np.arange(12), 50)
    assert (np.diff(model.margins(grid).reshape(50, 12), axis=1) >= 0).all()


# trees of sites -----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["bagging", "cyclic"])
@pytest.mark.parametrize("outcome", ["binary", "category", "continuous", "count"])
def test_sites_grow_the_trees_of_xgboost_on_their_own_rows(strategy, outcome):
    """XGBoost has the common bins, and starts from the common margins.

    No value is missing: where a site's node has none, XGBoost sends those of other sites right.
    """
    x, outcomes = simulated(5, gaps=0.0)
    y, weight = outcomes[outcome], np.random.default_rng(5).uniform(0.5, 2, 400)
    parts = np.split(np.arange(400), [90, 230])
    model = fit(
        x, y, outcome, parts, weight=weight, strategy=strategy, rounds=5, local_trees=2,
        max_depth=3,
    )  # fmt: skip
    pooled = xgboost.QuantileDMatrix(x, max_bin=64)
    margin = np.tile(model.ensemble.base, (400, 1)).astype(np.float32)
    zero = xgboost.DMatrix(x, base_margin=np.zeros_like(margin))
    given = {"tree_method": "hist", "max_bin": 64, "max_depth": 3, "learning_rate": 0.1,
             "nthread": 1, **THEIRS[outcome]}  # fmt: skip
    for number in range(5):
        steps = []
        for rows in parts:
            own = xgboost.QuantileDMatrix(
                x[rows], y[rows], weight=weight[rows], base_margin=margin[rows], ref=pooled,
                max_bin=64,
            )  # fmt: skip
            booster = xgboost.Booster(given, [own])
            for i in range(2):
                booster.update(own, i)
            steps.append(booster.predict(zero, output_margin=True).reshape(margin.shape))
        if strategy == "bagging":
            margin = margin + sum(len(r) / 400 * s for r, s in zip(parts, steps, strict=True))
        else:
            margin = margin + steps[number % 3]
    assert_allclose(model.margins(x), margin, rtol=0, atol=1e-5)


def test_a_site_with_few_rows_sends_trees_without_a_split_and_changes_nothing():
    x, outcomes = simulated(6)
    y = outcomes["continuous"]
    few = fit(x, y, "continuous", thirds(400), strategy="cyclic", rounds=3, min_cell=10)
    parts = few.ensemble.trees.parts()
    assert [part.stop - part.start > 1 for part in parts] == [True, True, False]
    assert few.ensemble.trees.value[parts[2]] == 0
    assert min(np.unique(few.ensemble.trees.leaves(x)[:200, 0], return_counts=True)[1]) >= 10


def test_a_model_of_several_trees_a_round_is_saved_and_read_by_xgboost():
    x, outcomes = simulated(7)
    model = fit(
        x, outcomes["category"], "category", np.split(np.arange(400), [90, 230]),
        strategy="bagging", rounds=3, local_trees=2,
    )  # fmt: skip
    assert len(model.ensemble.trees) == 3 * 3 * 2 * 3
    again = BoostedModel.restore(model.arrays(), model.meta())
    assert again.rounds == model.rounds == 3
    booster = xgboost.Booster()
    booster.load_model(bytearray(model.files()["xgboost.json"]))
    data = xgboost.DMatrix(x, feature_names=list(model.features))
    assert_allclose(booster.predict(data), model.predict(x), atol=1e-6)
    # XGBoost's first round holds the base margins
    theirs = booster.predict(data, iteration_range=(0, booster.num_boosted_rounds() - 1))
    assert_allclose(theirs, again.at_round(2).predict(x), atol=1e-6)
    read = xgboost_reader.read(model.files()["xgboost.json"], "a file").ensemble
    assert read.parallel == 6


@pytest.mark.parametrize("parallel", [0, 1.5, [2, 2]])
def test_a_number_of_trees_in_a_round_that_is_none_is_no_model(parallel):
    x, outcomes = simulated(7, n=60)
    model = fit(x, outcomes["binary"], "binary", [np.arange(60)], rounds=1)
    with pytest.raises(ValueError, match="no whole number above 0"):
        BoostedModel.restore({**model.arrays(), "parallel": np.array(parallel)}, model.meta())


def test_only_histograms_suit_a_study_that_requires_masked_sums():
    seen = {s: METHOD.configure({"strategy": s}) for s in ("histogram", "top-s", "cyclic")}
    assert [c.visible for c in seen.values()] == ["", "strategy: top-s", "strategy: cyclic"]
    assert METHOD.revealed(seen["histogram"], None) == METHOD.reveals
    assert "own trees" in METHOD.revealed(seen["cyclic"], None)


# replies of sites that lie ------------------------------------------------------------------

ASKED = {"trees": 2, "depth": 3, "ends": np.ones((1, 4, 13), bool), "farthest": 60.0}


def honest(seed=0):
    x, outcomes = simulated(seed, n=60)
    y = outcomes["binary"]
    g, h = histogram.whole((0.5 - y)[:, None], 30), histogram.whole(np.full((60, 1), 0.25), 30)
    site = Site("a", LabelledTable(x, y), started(x, g, h), (0,))
    none = np.zeros(0)
    return grow_trees.run(
        site, **ASKED, rate=0.1, rule=np.array([1.0, 0, 0, 0.5, 0]), monotone=np.zeros(4, int),
        groups=np.zeros((0, 4)), bits=30, least=1, objective="logistic", sigma=1.0,
        class_weight=none, times=none, together=False, hazard=none, squares=none,
    )  # fmt: skip


SHAPE = Shape(
    edges=np.tile(np.arange(1, 12) - 0.5, (4, 1)).astype(np.float32), depth=3, rate=0.1,
    rule=Rule.of(np.array([1.0, 0, 0, 0.5, 0]), np.zeros(4, int), 1), groups=np.zeros((0, 4), bool),
)  # fmt: skip


def test_an_honest_reply_has_no_fault():
    assert honest().fault(ASKED) == ""
    assert len(honest().moves) > 8


@given(data=st.data())
def test_trees_of_a_site_that_lies_are_refused_or_harmless(data):
    """One number is another: the reply is refused, or its trees can be walked."""
    told = honest(data.draw(st.integers(0, 3)))
    name = data.draw(st.sampled_from(["moves", "sizes"]))
    changed = getattr(told, name).copy()
    at = data.draw(st.integers(0, changed.size - 1))
    changed.flat[at] += data.draw(st.sampled_from([-(2**40), -7, -1, 1, 2, 7, 2**40]))
    told = dataclasses.replace(told, **{name: changed})
    if told.fault(ASKED):
        return
    made = [tree.made() for tree in received([told], SHAPE, 60, weighted=True)]
    ensemble = Ensemble(
        trees=Trees.joined([m[0] for m in made]), gain=told.gain, cover=told.cover,
        group=np.zeros(2, int), base=np.zeros(1), parallel=2,
    )  # fmt: skip
    ensemble.check(4)
    assert np.isfinite(ensemble.margins(np.zeros((3, 4)))).all()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda t: {"value": t.value * 1e5}, "too far"),
        (lambda t: {"cover": -t.cover}, "below 0"),
        (lambda t: {"sizes": t.sizes[:1]}, "number of trees"),
        (lambda t: {"sizes": t.sizes + 40}, "size"),
        (lambda t: {"moves": np.concatenate([t.moves[:1], t.moves[:-1]])}, "two splits"),
        (lambda t: {"moves": t.moves.astype(float)}, "whole numbers"),
        (lambda t: {"moves": t.moves + 4 * np.eye(6, dtype=int)[2]}, "does not exist"),
        (lambda t: {"moves": np.r_[t.moves[:1] * [1, 1, 1, 1, 1, 0], t.moves[1:]]}, "nodes do not"),
        (lambda t: {"gain": t.gain[:-1]}, "numbers of nodes"),
        (lambda t: {"rows": np.array([1, 2])}, "shapes"),
    ],
)
def test_a_fault_of_trees_is_named(change, fault):
    told = honest()
    assert fault in dataclasses.replace(told, **change(told)).fault(ASKED)


@pytest.mark.parametrize(
    ("splits", "fault"),
    [
        ([(1, 0, 0, 0, 1.0)], "does not exist"),
        ([(0, 0, -1, 0, 1.0)], "does not exist"),
        ([(0, 0, 2, 4, 1.0)], "does not exist"),
        ([(0, 3, 2, 0, 1.0)], "not asked for"),
        ([(0, 0, 2, 0, 1.0)] * 2, "twice"),
        ([(0, 0, b, 0, 1.0) for b in range(4)], "more splits"),
        ([(0, 0, 2, 0, -1.0)], "not above 0"),
    ],
)
def test_a_fault_of_proposals_is_named(splits, fault):
    ends = np.ones((1, 4, 13), bool)
    ends[0, 3] = False
    asked = {"ends": ends, "most": 3}
    assert proposed((0, 0, 2, 0, 1.0), (0, 0, 2, 1, 2.0)).fault(asked) == ""
    assert fault in proposed(*splits).fault(asked)


def test_sites_cannot_have_more_rows_than_they_told_before():
    told = honest()
    assert len(received([told], SHAPE, 60, weighted=True)) == 2
    more = dataclasses.replace(told, rows=np.array(10**6))
    with pytest.raises(Refused, match="had 120 before"):
        received([told, more], SHAPE, 120, weighted=True)


def test_a_site_refuses_moves_to_an_earlier_node():
    x = simulated(0, n=20)[0]
    nothing = np.zeros((20, 1), int)
    site = Site("a", LabelledTable(x, np.zeros(20)), started(x, nothing, nothing), (0,))
    with pytest.raises(Refused, match="'moves' of boosting"):
        moved(site, np.array([[0, 0, 0, 3, 0, 0]]))

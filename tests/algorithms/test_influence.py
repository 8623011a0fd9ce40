"""`influence`: values are Shapley's by brute force, and no site is paid for being there twice."""

from __future__ import annotations

import itertools
import json
import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import fedcohort as fc
from algorithms.worth_cases import BETA, LEVELS, classes, fit, grades, hosts, values
from fedcohort.algorithms.influence import InfluenceModel, shapley
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import DataError, SettingError, SiteUnavailable
from fedcohort.protocol.step import entropy
from fedcohort.runtime.local import local
from fedcohort.training.coalitions import halves

L2 = 0.01


def split(table, seed=0, held=50):
    """Return the user's rows that are trained on, and its private ones."""
    kept, private = halves(len(table.y), held, entropy(seed, "user", 0))
    return tuple(LabelledTable(table.x[rows], table.y[rows]) for rows in (kept, private))


def least_squares(tables, weights, l2=L2):
    """Return b₀ and β of the weighted mean of r²/2 plus λ/2 ‖β‖², by one call of NumPy."""
    x, y = np.vstack([t.x for t in tables]), np.concatenate([t.y for t in tables])
    w = np.concatenate([np.full(len(t.y), a) for t, a in zip(tables, weights, strict=True)])
    z = np.sqrt(w / w.sum())[:, None] * np.column_stack([np.ones(len(y)), x])
    ridge = np.sqrt(l2) * np.eye(x.shape[1] + 1)[1:]
    target = np.r_[np.sqrt(w / w.sum()) * y, np.zeros(x.shape[1])]
    return np.linalg.lstsq(np.vstack([z, ridge]), target, rcond=None)[0]


def by_orders(value, names):
    """Return Shapley's value as what a site adds to those before it, over all orders."""
    orders = list(itertools.permutations(names))
    phi = dict.fromkeys(names, 0.0)
    for order in orders:
        for i, site in enumerate(order):
            gain = value(frozenset(order[: i + 1])) - value(frozenset(order[:i]))
            phi[site] += gain / len(orders)
    return phi


def game_of(tables, seed=0, l2=L2):
    mine, private = split(tables["user"], seed)

    @cache
    def value(coalition):
        among = [mine, *(tables[s] for s in sorted(coalition))]
        beta = least_squares(among, [1.0] * len(among), l2)
        return -np.mean((private.y - beta[0] - private.x @ beta[1:]) ** 2)

    return value


SITES = {
    "user": values(40, seed=1),
    "a": values(60, seed=2),
    "b": values(25, BETA + 0.3, seed=3),
    "c": values(80, -BETA, seed=4),
    "d": values(30, seed=5, noise=3.0),
}
NAMES = ["a", "b", "c", "d"]


def told(model, what="value"):
    return {row["site"]: row[what] for row in model.contributions}


def test_values_are_those_of_all_orders_by_least_squares():
    found = fit("influence", SITES, "regression", l2=L2)
    value = game_of(SITES)
    expected = by_orders(value, NAMES)
    for site in NAMES:
        assert_allclose(told(found)[site], expected[site], rtol=1e-8, atol=1e-10)
        without = value(frozenset(NAMES)) - value(frozenset(NAMES) - {site})
        assert_allclose(told(found, "leave_one_out")[site], without, rtol=1e-8, atol=1e-10)
    assert {row["low"] for row in found.contributions} == {None}
    assert_allclose(found.loss_alone, -value(frozenset()), rtol=1e-9)
    assert_allclose(found.loss_together, -value(frozenset(NAMES)), rtol=1e-9)


def test_what_a_site_is_worth_with_and_without_another_is_that_of_the_orders():
    found = fit("influence", SITES, "regression", l2=L2)
    value = game_of(SITES)
    for row in found.redundancy:
        site, other = row["site"], row["with"]
        gains = {True: [], False: []}
        for order in itertools.permutations(NAMES):
            i = order.index(site)
            gain = value(frozenset(order[: i + 1])) - value(frozenset(order[:i]))
            gains[order.index(other) < i].append(gain)
        assert_allclose(row["value_with"], np.mean(gains[True]), rtol=1e-7, atol=1e-9)
        assert_allclose(row["value_without"], np.mean(gains[False]), rtol=1e-7, atol=1e-9)
        half = (row["value_with"] + row["value_without"]) / 2
        assert_allclose(half, told(found)[site], rtol=1e-9, atol=1e-12)
    assert len(found.redundancy) == 12


def test_a_coalitions_loss_is_that_of_scikit_learn():
    tables = {"user": classes(60, seed=1), "a": classes(90, seed=2), "b": classes(70, -BETA)}
    found = fit("influence", tables, l2=L2, use="report")
    mine, private = split(tables["user"])
    among = [mine, tables["a"], tables["b"]]
    x, y = np.vstack([t.x for t in among]), np.concatenate([t.y for t in among])
    model = LogisticRegression(C=1 / (len(y) * L2), solver="newton-cholesky", tol=1e-12)
    model.fit(x, y)
    expected = log_loss(private.y, model.predict_proba(private.x)[:, 1])
    assert_allclose(found.loss_together, expected, rtol=1e-6)
    assert_allclose(found.coefficients, model.coef_[0], rtol=1e-5)
    assert_allclose(sum(told(found).values()), found.loss_alone - found.loss_together, rtol=1e-9)


# several classes ------------------------------------------------------------------------

GRADES = {
    "user": grades(80, seed=1),
    "a": grades(90, seed=2),
    "b": grades(70, 0.5 * BETA, seed=3),
    "c": grades(60, seed=4, turned=True),
}
SEVERAL = {"outcome": "category", "l2": L2, "use": "report"}


def refitted(tables, l2=L2):
    """Return scikit-learn's softmax, of the mean log loss plus l2/2 times all K rows' squares."""
    x, y = np.vstack([t.x for t in tables]), np.concatenate([t.y for t in tables])
    model = LogisticRegression(C=1 / (len(y) * l2), solver="newton-cholesky", tol=1e-12)
    return model.fit(x, y)


def test_values_of_three_classes_are_those_of_all_orders_refitted_by_scikit_learn():
    found = fit("influence", GRADES, **SEVERAL)
    mine, private = split(GRADES["user"])

    @cache
    def value(coalition):
        model = refitted([mine, *(GRADES[s] for s in sorted(coalition))])
        return -log_loss(private.y, model.predict_proba(private.x))

    expected = by_orders(value, "abc")
    for site in "abc":
        assert_allclose(told(found)[site], expected[site], rtol=1e-6, atol=1e-8)
        without = value(frozenset("abc")) - value(frozenset("abc") - {site})
        assert_allclose(told(found, "leave_one_out")[site], without, rtol=1e-6, atol=1e-8)
    assert told(found)["c"] < 0 < told(found)["a"]
    assert_allclose(found.loss_alone, -value(frozenset()), rtol=1e-8)
    model = refitted([mine, *(GRADES[s] for s in "abc")])
    assert_allclose(found.predict(private.x), model.predict_proba(private.x), rtol=1e-6)
    rows = {(r["class"], r["covariate"]): r for r in found.summary()}
    assert [*rows] == [(c, f) for c in LEVELS[1:] for f in "uvw"]
    assert_allclose([r["coefficient"] for r in rows.values()],
                    np.ravel(model.coef_[1:] - model.coef_[0]), rtol=1e-5)  # fmt: skip
    assert rows["high", "u"]["relative_risk_ratio"] == math.exp(rows["high", "u"]["coefficient"])
    assert {r["reference"] for r in rows.values()} == {"low"}
    named = {r["name"]: r["value"] for r in found.parameters(np.zeros(0))}
    assert_allclose([*named.values()], model.intercept_[1:] - model.intercept_[0], rtol=1e-5)
    assert [*named] == ["intercept, mid", "intercept, high"]
    back = InfluenceModel.restore(found.arrays(), json.loads(json.dumps(found.meta())))
    assert_array_equal(back.predict(private.x), found.predict(private.x))


def test_which_class_is_the_first_changes_no_value():
    again = {s: LabelledTable(t.x, (t.y + 1) % 3) for s, t in GRADES.items()}
    one, other = (fit("influence", t, **SEVERAL) for t in (GRADES, again))
    for site, value in told(one).items():
        assert_allclose(told(other)[site], value, rtol=1e-9)
    x = GRADES["a"].x
    assert_allclose(other.predict(x), one.predict(x)[:, [2, 0, 1]], rtol=1e-9)


def test_a_site_without_a_class_takes_part_one_with_few_rows_of_it_does_not_and_no_such_user():
    def only(table, few):
        mid = np.flatnonzero(table.y == 1)[few:]
        kept = np.setdiff1d(np.arange(len(table.y)), mid)
        return LabelledTable(table.x[kept], table.y[kept])

    tables = {**GRADES, "a": only(GRADES["a"], 0), "b": only(GRADES["b"], 3)}
    found = fit("influence", tables, **SEVERAL)
    assert set(found.left_out) == {"b"}
    assert "fewer than 5 rows of one kind of outcome" in found.left_out["b"]
    mine, private = split(GRADES["user"])
    model = refitted([mine, tables["a"], GRADES["c"]])
    assert_allclose(found.loss_together, log_loss(private.y, model.predict_proba(private.x)),
                    rtol=1e-6)  # fmt: skip
    with pytest.raises(DataError, match=r"'user', the user, cannot tell the sums .* one kind of"):
        fit("influence", {**GRADES, "user": only(GRADES["user"], 0)}, **SEVERAL)


def test_with_no_other_site_there_is_nothing_to_value():
    found = fit("influence", {"user": SITES["user"]}, "regression", l2=L2)
    assert found.contributions == found.redundancy == []
    beta = least_squares([split(SITES["user"])[0]], [1.0])
    assert_allclose(np.r_[found.intercept, found.coefficients], beta, rtol=1e-8)


# the game alone -------------------------------------------------------------------------


def saturating(weights):
    def game(members):
        return 1 - 1 / (1 + members @ weights)

    return game


WEIGHTS = np.array([0.1, 0.2, 0.4, 0.8, 1.6, 0.4])


def drawn(game, m, seed, count=60, tolerance=0.0):
    rng = np.random.default_rng(seed)
    orders = np.stack([rng.permutation(m) for _ in range(count)])
    return shapley.drawn(game, m, orders, tolerance, 0.95)


def test_intervals_hold_the_value_in_93_of_100_seeds_and_more():
    """Of 3000 seeds 94.5 %: gains are skewed, and Student's interval takes them for normal."""
    game = saturating(WEIGHTS)
    exact = shapley.exact(game, 6)
    runs = [drawn(game, 6, seed, 100) for seed in range(100)]
    hit = np.array([(r.low <= exact.value) & (exact.value <= r.high) for r in runs])
    assert hit.mean() >= 0.93
    assert hit.mean() < 0.99  # nor are they wider than they say
    assert hit.mean(axis=0).min() >= 0.9
    mean = np.mean([r.value for r in runs], axis=0)
    assert_allclose(mean, exact.value, atol=0.005)


@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.3, 0.99])
def test_values_add_up_to_what_all_gain_also_of_orders_that_are_cut(tolerance):
    game = saturating(WEIGHTS)
    for found in (shapley.exact(game, 6), drawn(game, 6, 1, 7, tolerance)):
        assert_allclose(found.value.sum(), game(np.ones((1, 6), bool))[0], rtol=1e-12)


def test_cutting_orders_asks_for_fewer_coalitions_and_changes_values_little():
    asked = []
    game = saturating(10 * WEIGHTS)

    def counted(members):
        asked.append(len(members))
        return game(members)

    whole, all_of_them = drawn(counted, 6, 0), sum(asked)
    asked.clear()
    cut = drawn(counted, 6, 0, tolerance=0.05)
    assert sum(asked) < 0.8 * all_of_them
    assert_allclose(cut.value, whole.value, atol=0.01)


def test_symmetric_players_are_worth_the_same_and_one_that_does_nothing_is_worth_nothing():
    found = shapley.exact(saturating(np.array([0.3, 0.0, 0.3, 1.0])), 4)
    assert_allclose(found.value[0], found.value[2])
    assert_allclose(found.value[1], 0, atol=1e-15)
    assert_allclose(found.after[0, 2], found.after[2, 0])


def test_a_market_of_a_left_and_two_right_gloves_by_hand():
    # v = 1 where there is a left and a right one; Shapley: 2/3, 1/6, 1/6
    def game(members):
        return (members[:, 0] & members[:, 1:].any(axis=1)).astype(float)

    found = shapley.exact(game, 3)
    assert_allclose(found.value, [2 / 3, 1 / 6, 1 / 6])
    assert_array_equal(shapley.leave_one_out(game, 3), [1, 0, 0])
    assert_allclose(found.after[1, 2], 0, atol=1e-15)
    assert_allclose(found.before[1, 2], 1 / 3)


# orders that are drawn ------------------------------------------------------------------


def test_drawn_values_agree_with_exact_ones_and_depend_on_the_seed_alone():
    # the seed decides which rows are held back, too, so that both are fitted with each
    for seed in (0, 1):
        exact = fit("influence", SITES, "regression", seed=seed)
        given = {"coalitions": 15, "permutations": 300, "tolerance": 0.0, "level": 0.999}
        found = fit("influence", SITES, "regression", seed=seed, **given)
        again = fit("influence", SITES, "regression", seed=seed, **given)
        assert found.contributions == again.contributions
        for row in found.contributions:
            assert row["low"] <= told(exact)[row["site"]] <= row["high"]
            assert row["low"] < row["value"] < row["high"]
        assert found.found.orders == 300
        total = found.loss_alone - found.loss_together
        assert_allclose(sum(told(found).values()), total, rtol=1e-9)
    given = {"coalitions": 15, "permutations": 4}
    one, other = (fit("influence", SITES, "regression", seed=s, **given) for s in (0, 1))
    assert one.contributions != other.contributions


def test_intervals_of_fits_hold_exact_values_in_93_of_100_seeds_and_more():
    given = {"coalitions": 15, "permutations": 60, "tolerance": 0.0}
    hit = []
    for seed in range(100):
        exact = told(fit("influence", SITES, "regression", seed=seed))
        rows = fit("influence", SITES, "regression", seed=seed, **given).contributions
        hit += [row["low"] <= exact[row["site"]] <= row["high"] for row in rows]
    assert np.mean(hit) >= 0.93


def test_each_coalition_is_fitted_once_and_linear_sites_are_asked_once():
    for given in ({}, {"coalitions": 1, "permutations": 50}):
        fed = local(hosts("influence", SITES))
        fit("influence", SITES, "regression", fed=fed, **given)
        steps = [(e["step"], e["site"]) for e in map(json.loads, fed.ledger.lines)]
        assert steps.count(("own_sums", "a")) == 1
        assert fed.history[-1]["coalitions"] <= 16
        assert {site for step, site in steps if step == "judge_here"} == {"user"}


# who is paid ----------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"coalitions": 1, "permutations": 40}])
def test_a_site_that_copies_another_is_named_and_the_two_are_paid_once(given):
    one = fit("influence", SITES, "regression", **given)
    order = np.random.default_rng(0).permutation(60)
    copy = LabelledTable(SITES["a"].x[order], SITES["a"].y[order])
    two = fit("influence", {**SITES, "a2": copy}, "regression", **given)
    assert told(two, "copy_of") == dict.fromkeys("abcd", "") | {"a2": "a"}
    assert told(two)["a"] == told(two)["a2"]
    assert_allclose(told(two)["a"] + told(two)["a2"], told(one)["a"], rtol=1e-9)
    assert ("a", "a2") in two.stand_ins
    assert told(two, "leave_one_out")["a"] == 0
    assert any("'a2' and 'a' hold the same rows" in said for said in two.cautions())
    assert_allclose(two.coefficients, one.coefficients)  # they are trained with once
    assert_allclose(sum(told(two).values()), two.loss_alone - two.loss_together, rtol=1e-9)


def test_one_that_copies_another_with_changes_stands_in_for_it():
    big = values(3000, seed=7)
    near = LabelledTable(big.x[3:] + 1e-4, big.y[3:])
    tables = {"user": values(40, seed=1), "big": big, "near": near, "c": values(40, -BETA)}
    found = fit("influence", tables, "regression")
    assert set(told(found, "copy_of").values()) == {""}
    row = next(r for r in found.redundancy if (r["site"], r["with"]) == ("big", "near"))
    assert row["value_without"] > 20 * abs(row["value_with"])
    assert found.stand_ins == [("big", "near")]
    assert abs(told(found, "leave_one_out")["big"]) < 0.1 * told(found)["big"]


def test_a_site_that_says_only_what_the_user_knew_is_worth_nothing():
    """Its outcomes are those that the user's own model expects, so that they move no model."""
    beta = least_squares([split(SITES["user"])[0]], [1.0], 1e-10)
    x = values(100, seed=9).x
    null = LabelledTable(x, beta[0] + x @ beta[1:])
    found = fit("influence", {"user": SITES["user"], "null": null}, "regression", l2=1e-10)
    assert abs(told(found)["null"]) < 1e-8


@pytest.mark.parametrize("seed", range(8))
def test_flipped_labels_cost_and_are_not_trained_with(seed):
    tables = {
        "user": classes(120, seed=100 + seed),
        "alike": classes(200, seed=200 + seed),
        "flipped": classes(200, seed=400 + seed, flipped=True),
    }
    found = fit("influence", tables, seed=seed)
    assert told(found)["flipped"] < 0
    assert told(found)["flipped"] < told(found)["alike"]
    assert told(found, "weight")["flipped"] == 0
    assert [row["site"] for row in found.contributions] == ["alike", "flipped"]


# what values are used for ---------------------------------------------------------------


@pytest.mark.parametrize("use", ["select", "weight", "report"])
def test_the_model_is_that_of_the_weights(use):
    found = fit("influence", SITES, "regression", l2=L2, use=use)
    value = told(found)
    best = max(value.values())
    weight = {
        "select": {s: float(v > 0) for s, v in value.items()},
        "weight": {s: max(v, 0.0) / best for s, v in value.items()},
        "report": dict.fromkeys(value, 1.0),
    }[use]
    assert any(v < 0 for v in value.values())
    assert_allclose([told(found, "weight")[s] for s in NAMES], [weight[s] for s in NAMES])
    mine, private = split(SITES["user"])
    beta = least_squares([mine, *(SITES[s] for s in NAMES)], [1.0, *(weight[s] for s in NAMES)])
    assert_allclose(np.r_[found.intercept, found.coefficients], beta, rtol=1e-7)
    loss = np.mean((private.y - found.predict(private.x)) ** 2)
    assert_allclose(found.loss, loss, rtol=1e-9)


def test_where_no_site_helps_the_model_is_the_users_alone_and_it_is_said():
    tables = {"user": values(400, seed=1), "a": values(100, -BETA), "b": values(100, 0 * BETA)}
    for use in ("select", "weight"):
        found = fit("influence", tables, "regression", use=use, l2=L2)
        beta = least_squares([split(tables["user"])[0]], [1.0])
        assert_allclose(found.coefficients, beta[1:], rtol=1e-7)
        assert any("no other site has a value above 0" in said for said in found.cautions())


def test_private_rows_are_in_no_model():
    x, y, _ = SITES["user"]
    _, private = halves(len(y), 50, entropy(0, "user", 0))
    changed = y.copy()
    changed[private] += 7.0
    tables = {**SITES, "user": LabelledTable(x, changed)}
    one, other = (fit("influence", t, "regression", use="report") for t in (SITES, tables))
    assert_array_equal(one.coefficients, other.coefficients)
    assert other.loss > one.loss + 10


# what is told ---------------------------------------------------------------------------


def test_a_site_whose_sums_would_tell_of_few_tells_the_reason_alone():
    tables = {name: classes(60, seed=i) for i, name in enumerate(("user", "a", "b"))}
    x, y, _ = classes(80, seed=9)
    both = np.column_stack([np.arange(80) % 2 == 0, np.arange(80) % 2 == 0, x[:, 2]]).astype(float)
    both[:20, 1] = 1.0  # v is never 0 where u is 1, so one pair of values is of nobody
    tables["fine"] = LabelledTable(both, y)
    crossed = both.copy()
    crossed[[40, 42, 44], 1] = 0.0  # three rows have u = 1 and v = 0
    tables["crossed"] = LabelledTable(crossed, y)
    found = fit("influence", tables)
    assert set(found.left_out) == {"crossed"}
    assert "fewer than 5 rows have one pair of values of 'u', 'v'" in found.left_out["crossed"]
    assert set(told(found)) == {"a", "b", "fine"}
    assert set(told(fit("influence", tables, min_cell=3))) == {"a", "b", "fine", "crossed"}


def test_the_user_is_told_that_too_few_rows_are_trained_on_or_judge():
    tables = {**SITES, "user": values(14, seed=1)}
    with pytest.raises(
        DataError, match="'user', the user, cannot tell the sums of its training rows"
    ):
        fit("influence", tables, "regression")
    with pytest.raises(DataError, match="'user', the user, has fewer than 5 rows to judge models"):
        fit("influence", SITES, "regression", private_fraction=0.1)


# input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"user": ""}, "needs 'user', the site that the model is for. Sites: a, b, c, d, user"),
        ({"user": "usr"}, "setting 'user' of method 'influence': no site 'usr'. Did you mean"),
        ({"use": "rank"}, "'use' of method 'influence' is 'rank'; choose one of 'select', 'weight"),
        ({"private_fraction": 1.0}, "'private_fraction' of method 'influence' is 1.0; give"),
        ({"permutations": 1}, "'permutations' of method 'influence' is 1; give a whole number"),
        ({"tolerance": -0.1}, "'tolerance' of method 'influence' is -0.1; give a number from 0"),
        ({"coalitions": 0}, "'coalitions' of method 'influence' is 0; give a whole number from 1"),
        ({"l2": 0.0}, "'l2' of method 'influence' is 0.0; give a number above 0"),
        ({"level": 1.0}, "'level' of method 'influence' is 1.0"),
        ({"model": "logistic"}, "does not go with a continuous outcome; give 'linear' or 'poiss"),
        ({"model": "multinomial"}, "does not go with a continuous outcome; give 'linear' or 'poi"),
    ],
)
def test_a_wrong_setting_is_one_line_that_says_what_to_give(settings, said):
    with pytest.raises(SettingError, match=said) as error:
        fit("influence", SITES, "regression", **settings)
    assert "\n" not in str(error.value)


# sites ----------------------------------------------------------------------------------


def test_neither_the_order_of_sites_nor_a_missing_one_changes_the_game_of_the_others():
    first = fit("influence", SITES, "regression")
    again = fit("influence", dict(reversed(SITES.items())), "regression")
    assert first.contributions == again.contributions
    assert_array_equal(first.coefficients, again.coefficients)
    fed = local(hosts("influence", SITES), quorum=0.6, absent=lambda call, site: site == "c")
    without = fit("influence", SITES, "regression", fed=fed)
    three = fit("influence", {s: t for s, t in SITES.items() if s != "c"}, "regression")
    assert without.contributions == three.contributions


def test_a_site_that_leaves_during_the_fit_ends_it_by_name():
    tables = {"user": classes(60, seed=1), "a": classes(90, seed=2), "b": classes(70, -BETA)}
    for site in ("user", "b"):
        fed = local(
            hosts("influence", tables), quorum=0.5, absent=lambda at, s, gone=site: at and s == gone
        )
        with pytest.raises(SiteUnavailable, match=site):
            fit("influence", tables, fed=fed)
    fed = local(hosts("influence", tables), quorum=0.5, absent=lambda at, s: s == "user")
    with pytest.raises(SiteUnavailable, match="'user', the user that the model is for, did not"):
        fit("influence", tables, fed=fed)


# through the front door -----------------------------------------------------------------


def test_a_fit_of_frames_is_valued_saved_and_loaded(tmp_path):
    frames = {
        name: pd.DataFrame(t.x, columns=["u", "v", "w"]).assign(y=t.y) for name, t in SITES.items()
    }
    frames["a2"] = frames["a"]
    fed = fc.simulate(frames, outcome=fc.Continuous("y"), seed=0)
    with pytest.warns(UserWarning, match="hold the same rows"):
        fitted = fc.fit("influence", fed, user="user", coalitions=4, permutations=10)
    fitted.save(tmp_path / "model")
    back = fc.load(tmp_path / "model")
    assert isinstance(back.model, InfluenceModel)
    assert back.model.contributions == fitted.model.contributions
    assert repr(back.model.redundancy) == repr(fitted.model.redundancy)
    assert back.model.stand_ins == fitted.model.stand_ins
    assert_array_equal(back.predict(frames["a"]), fitted.predict(frames["a"]))
    assert math.isclose(
        sum(told(back.model).values()), back.model.loss_alone - back.model.loss_together
    )

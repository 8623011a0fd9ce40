"""`ndoye`: the ranking is that of scikit-learn's models, and the sites chosen are trained with."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import log_loss

import fedcohort as fc
from algorithms.worth_cases import BETA, classes, fit, grades, hosts, values
from fedcohort.algorithms.ndoye import NdoyeModel
from fedcohort.algorithms.ndoye.steps import folds, own_model
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import DataError, SettingError, SiteUnavailable
from fedcohort.runtime.local import local

L2 = 0.01


def logistic(x, y):
    # its objective is C Σ loss + ½‖β‖², ours the mean of the loss + λ/2 ‖β‖²
    return LogisticRegression(C=1 / (len(y) * L2), solver="newton-cholesky", tol=1e-12).fit(x, y)


def linear(x, y):
    return Ridge(alpha=len(y) * L2, tol=1e-12).fit(x, y)  # Σ r² + α‖β‖², ours Σ r²/2n + λ/2 ‖β‖²


def poisson(x, y):
    # the mean of deviance/2 + α/2 ‖β‖²
    return PoissonRegressor(alpha=L2, tol=1e-9, max_iter=5000).fit(x, y)


def log_losses(model, x, y):
    return log_loss(y, model.predict_proba(x), labels=model.classes_)


def squares(model, x, y):
    return np.mean((y - model.predict(x)) ** 2)


def deviances(model, x, y):
    mu = model.predict(x)
    return np.mean(np.where(y > 0, y * np.log(np.maximum(y, 1) / mu), 0.0) - (y - mu))


def counts(n, beta, seed):
    rng = np.random.default_rng((seed, n, 2))
    x = rng.normal(size=(n, 3)) * 0.5
    return LabelledTable(x, rng.poisson(np.exp(0.5 + x @ beta)).astype(float))


CASES = {
    "logistic": (classes, "classification", "", logistic, log_losses, "classes"),
    "multinomial": (grades, "classification", "category", logistic, log_losses, "grades"),
    "linear": (values, "regression", "", linear, squares, "values"),
    "poisson": (counts, "regression", "count", poisson, deviances, "counts"),
}


@pytest.mark.parametrize("model", CASES)
def test_losses_and_the_model_are_those_of_scikit_learn(model):
    """With as many folds as rows none is drawn, and sites' losses are leave-one-out's."""
    make, kind, outcome, own, loss, _ = CASES[model]
    tables = {
        "user": make(40, BETA, 1),
        "a": make(30, BETA, 2),
        "b": make(28 if model == "multinomial" else 50, 0.5 * BETA, 3),
        "c": make(32 if model == "multinomial" else 45, -BETA, 4),
    }
    found = fit("ndoye", tables, kind, outcome=outcome, l2=L2, n_folds=1000, k=1)
    x0, y0, _ = tables["user"]
    expected = {}
    for site in "abc":
        x, y, _ = tables[site]
        rest = [np.arange(len(y)) != i for i in range(len(y))]
        left = [loss(own(x[r], y[r]), x[~r], y[~r]) for r in rest]
        expected[site] = loss(own(x, y), x0, y0), np.mean(left)
    order = sorted("abc", key=lambda s: expected[s][0] - expected[s][1])
    assert found.sites == tuple(order)
    for row in found.ranking:
        assert_allclose([row["loss_on_user"], row["own_loss"]], expected[row["site"]], rtol=2e-6)
        assert_allclose(row["transfer_loss"], row["loss_on_user"] - row["own_loss"])
    chosen = [tables["user"], tables[order[0]]]
    pooled = own(np.vstack([t.x for t in chosen]), np.concatenate([t.y for t in chosen]))
    coef, intercept = np.atleast_2d(pooled.coef_), np.atleast_1d(pooled.intercept_)
    if len(coef) > 1:  # of each class less the first
        coef, intercept = coef[1:] - coef[0], intercept[1:] - intercept[0]
    assert_allclose(np.ravel(found.coefficients), np.ravel(coef), rtol=1e-5)
    assert_allclose(np.ravel(found.intercept), intercept, rtol=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_flipped_labels_are_last_and_the_users_population_is_first(seed):
    tables = {
        "user": classes(150, seed=100 + seed),
        "alike": classes(200, seed=200 + seed),
        "other": classes(200, np.array([0.0, 1.0, -1.0]), seed=300 + seed),
        "flipped": classes(200, seed=400 + seed, flipped=True),
    }
    assert fit("ndoye", tables).sites == ("alike", "other", "flipped")


def test_labels_that_are_wrong_at_random_are_not_found_as_the_page_says():
    found = []
    for seed in range(20):
        rows, rng = classes(200, seed=seed), np.random.default_rng(seed)
        wrong = np.where(rng.random(200) < 0.4, 1 - rows.y, rows.y)
        tables = {
            "user": classes(150, seed=100 + seed), "wrong": LabelledTable(rows.x, wrong),
        }  # fmt: skip
        ranking = fit("ndoye", tables, train=False).ranking
        found += [r["transfer_loss"] for r in ranking if r["site"] == "wrong"]
    assert np.mean(found) < -0.01


def test_a_site_of_few_rows_is_not_ranked_last_for_being_small():
    """The paper's reason for L̂: f_i of a small site is worse everywhere, also at home."""
    found = [
        fit(
            "ndoye",
            {
                "user": values(300, seed=seed),
                "small": values(12, seed=seed),
                "shifted": values(400, BETA + 0.5, seed=seed),
            },
            "regression",
            n_folds=12,
        )
        for seed in range(40)
    ]
    rows = [{row["site"]: row for row in one.ranking} for one in found]
    factor = np.array([[r[s]["transfer_loss"] for s in ("small", "shifted")] for r in rows])
    assert np.mean([r["small"]["loss_on_user"] for r in rows]) > 1.3  # of noise of variance 1
    assert abs(factor[:, 0].mean()) < 0.35
    assert factor[:, 1].mean() > 0.6
    assert (factor[:, 0] < factor[:, 1]).mean() > 0.75


FOUR = {
    "user": classes(150, seed=1),
    "a": classes(150, seed=2),
    "b": classes(150, 0.7 * BETA, seed=3),
    "c": classes(150, 0.2 * BETA, seed=4),
    "d": classes(150, -BETA, seed=5),
}


def test_k_a_threshold_or_neither_choose_sites_and_the_table_says_what_each_k_includes():
    ranked = fit("ndoye", FOUR, k=4)
    names = list(ranked.sites)
    assert names[-1] == "d"
    assert [r["sites"] for r in ranked.choices] == [", ".join(names[:k]) for k in range(1, 5)]
    for row in ranked.choices:
        k = row["k"]
        by_k = fit("ndoye", FOUR, k=k)
        by_threshold = fit("ndoye", FOUR, threshold=row["threshold"])
        assert by_k.sites == ranked.sites
        assert [r["site"] for r in by_k.ranking if r["chosen"]] == names[:k]
        assert by_threshold.chosen == k
        assert_array_equal(by_threshold.coefficients, by_k.coefficients)
    assert fit("ndoye", FOUR).chosen == 2
    assert [r["rank"] for r in ranked.ranking] == [1, 2, 3, 4]


def test_where_no_site_is_chosen_the_model_is_the_users_own_and_it_is_said():
    x, y, _ = FOUR["user"]
    for settings in ({"threshold": -9.0}, {"train": False}):
        fed = local(hosts("ndoye", FOUR))
        found = fit("ndoye", FOUR, l2=L2, fed=fed, **settings)
        assert_allclose(found.coefficients, logistic(x, y).coef_[0], rtol=1e-6)
        assert "no other site is trained with: the model is that of 'user' alone" in (
            found.cautions()
        )
        assert "pooled_here" not in "".join(fed.ledger.lines)
        assert len(found.ranking) == 4


def test_only_the_user_and_the_sites_chosen_are_asked_in_training():
    fed = local(hosts("ndoye", FOUR))
    chosen = set(fit("ndoye", FOUR, fed=fed, k=2).sites[:2])
    asked = [json.loads(line) for line in fed.ledger.lines]
    assert {e["site"] for e in asked if e["step"] == "pooled_here"} == {"user", *chosen}
    assert {e["site"] for e in asked if e["step"] == "judge_here"} == {"user"}
    assert {e["verb"] for e in asked if e["step"] == "pooled_here"} == {"sum"}
    assert sum(e["step"] == "own_model" for e in asked) == 5


def test_folds_hold_both_kinds_alike_and_are_the_same_in_every_call():
    y = (np.arange(53) < 10).astype(float)
    fold = folds(y, 5, True, (1, 2, 3))
    assert_array_equal(fold, folds(y, 5, True, (1, 2, 99)))
    assert (fold != folds(y, 5, True, (2, 2, 3))).any()
    assert_array_equal(np.bincount(fold[y > 0]), [2] * 5)
    assert set(np.bincount(fold)) <= {10, 11}


# what is told ---------------------------------------------------------------------------


def test_a_site_whose_model_would_tell_of_few_tells_the_reason_alone():
    x, y, _ = classes(60, seed=9)
    rare = np.column_stack([x[:, 0], np.arange(60) < 3, x[:, 2]])
    cell = np.column_stack([x[:, 0] > 0, (np.arange(60) % 3 == 0) & (y == 0), x[:, 2] > 0])
    cell[np.flatnonzero(y)[:2], 1] = True
    cell = cell.astype(float)
    far = x.copy()
    far[7, 1] = 1e4
    copied = np.column_stack([x[:, 0], x[:, 0], x[:, 2]])
    copied[3, 1] += 2.0
    odd = {
        "few": (LabelledTable(x[:8], y[:8]), "fewer than 5 rows more than coefficients"),
        "kinds": (LabelledTable(x, (np.arange(60) < 4).astype(float)), "of one kind of outcome"),
        "rare": (LabelledTable(rare, y), "differ from the most common value of 'v'"),
        "cell": (LabelledTable(cell, y), "of one kind of outcome have one value of 'v'"),
        "far": (LabelledTable(far, y), "one row is so far from the others in 'v'"),
        "copied": (LabelledTable(copied, y), "'u', 'v': the others give one of them"),
    }
    tables = {**FOUR, **{name: table for name, (table, _) in odd.items()}}
    found = fit("ndoye", tables)
    assert set(found.sites) == {"a", "b", "c", "d"}
    assert set(found.left_out) == set(odd)
    for name, (_, said) in odd.items():
        assert said in found.left_out[name]
    assert len(found.cautions()) == len(odd)
    fed = local(hosts("ndoye", tables))
    asked = {
        "law": "binomial",
        "classes": 0,
        "origin": np.zeros(3),
        "l2": L2,
        "n_folds": 5,
        "least": 5,
    }
    for name, reply in fed.gather(own_model, **asked).items():
        assert bool(reply.reason) == (name in odd)
        assert bool(reply.gamma.any()) != (name in odd)
        assert bool(reply.loss) != (name in odd)


def test_cells_are_looked_at_where_coefficients_could_tell_them():
    """With a number for each pattern, the odds in each are a ratio of counts; else they are not."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.random((90, 2)) < 0.5, rng.normal(size=90)]).astype(float)
    y = (rng.random(90) < 0.5).astype(float)
    y[(x[:, 0] == 1) & (x[:, 1] == 1)] = 0.0
    y[np.flatnonzero((x[:, 0] == 1) & (x[:, 1] == 1))[:2]] = 1.0  # 2 of u = v = 1, many of each
    patterns = LabelledTable(x * [1.0, 1.0, 0.0], y)
    found = fit("ndoye", {**FOUR, "patterns": patterns, "numbers": LabelledTable(x, y)})
    assert "one kind of outcome have one value of 'u', 'v'" in found.left_out["patterns"]
    assert "numbers" in found.sites


def test_a_column_that_does_not_vary_at_a_site_is_no_obstacle():
    x, y, _ = classes(80, seed=9)
    tables = {**FOUR, "e": LabelledTable(x * [1.0, 1.0, 0.0], y)}
    assert "e" in fit("ndoye", tables).sites


# input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"user": ""}, r"needs 'user', the site that the model is for. Sites: a, b, c, d, user"),
        ({"user": "usr"}, r"setting 'user' of method 'ndoye': no site 'usr'. Did you mean 'user'"),
        (
            {"k": 5},
            r"'k' of method 'ndoye' is 5, but only 4 other sites are ranked. Give 4 or fewer",
        ),
        ({"k": 0}, "setting 'k' of method 'ndoye' is 0; give a whole number from 1, or null"),
        ({"k": 1, "threshold": 0.1}, "two ways to choose sites; give one of them"),
        ({"threshold": float("inf")}, "setting 'threshold' of method 'ndoye' is inf"),
        ({"l2": 0.0}, "setting 'l2' of method 'ndoye' is 0.0; give a number above 0"),
        ({"n_folds": 1}, "setting 'n_folds' of method 'ndoye' is 1"),
        ({"model": "linear"}, "'linear' of method 'ndoye' does not go with a binary outcome"),
        ({"models": "linear"}, "has no setting 'models'; did you mean 'model'"),
    ],
)
def test_a_wrong_setting_is_one_line_that_says_what_to_give(settings, said):
    with pytest.raises(SettingError, match=said) as error:
        fit("ndoye", FOUR, **settings)
    assert "\n" not in str(error.value)


def test_a_user_of_too_few_rows_is_told_why():
    tables = {**FOUR, "user": classes(8, seed=1)}
    with pytest.raises(
        DataError, match="site 'user', the user, cannot tell its model: fewer than 5 rows"
    ):
        fit("ndoye", tables)


def test_a_site_that_lacks_a_class_has_no_model_of_its_own():
    tables = {s: grades(60, seed=i) for i, s in enumerate(("user", "a", "b"))}
    x, y, _ = tables["b"]
    tables["b"] = LabelledTable(x[y != 1], y[y != 1])
    found = fit("ndoye", tables, outcome="ordinal")
    assert set(found.left_out) == {"b"}
    assert "fewer than 5 rows of one kind of outcome" in found.left_out["b"]


# sites ----------------------------------------------------------------------------------


def test_neither_the_order_of_sites_nor_a_missing_one_changes_what_is_found_of_the_others():
    first = fit("ndoye", FOUR, k=2)
    again = fit("ndoye", dict(reversed(FOUR.items())), k=2)
    assert_array_equal(first.coefficients, again.coefficients)
    assert first.ranking == again.ranking
    fed = local(hosts("ndoye", FOUR), quorum=0.6, absent=lambda call, site: site == "c")
    without = fit("ndoye", FOUR, k=2, fed=fed)
    kept = {r["site"]: r["transfer_loss"] for r in without.ranking}
    assert kept == {r["site"]: r["transfer_loss"] for r in first.ranking if r["site"] != "c"}


@pytest.mark.parametrize("call", [0, 1])
def test_without_the_users_site_there_is_no_fit(call):
    fed = local(
        hosts("ndoye", FOUR), quorum=0.0, absent=lambda at, site: at == call and site == "user"
    )
    with pytest.raises(SiteUnavailable, match="user"):
        fit("ndoye", FOUR, fed=fed)


def test_a_chosen_site_that_leaves_in_training_ends_the_fit_by_name():
    gone = fit("ndoye", FOUR).sites[0]
    fed = local(hosts("ndoye", FOUR), quorum=0.3, absent=lambda at, site: at > 2 and site == gone)
    with pytest.raises(SiteUnavailable, match=f"^{gone} left during the fit"):
        fit("ndoye", FOUR, fed=fed)
    told = [json.loads(line) for line in fed.ledger.lines]
    assert {x["call"] for x in told if x["step"] == "pooled_here"} <= {2}  # none of the others'


# through the front door -----------------------------------------------------------------


def frames():
    return {
        name: pd.DataFrame(t.x, columns=["u", "v", "w"]).assign(y=t.y.astype(int))
        for name, t in FOUR.items()
    }


def test_a_fit_of_frames_is_ranked_saved_and_loaded(tmp_path):
    fed = fc.simulate(frames(), outcome=fc.Binary("y"), seed=0)
    fitted = fc.fit("ndoye", fed, user="user", k=2)
    assert fitted.model.sites[-1] == "d"
    fitted.save(tmp_path / "model")
    back = fc.load(tmp_path / "model")
    assert isinstance(back.model, NdoyeModel)
    assert back.model.ranking == fitted.model.ranking
    assert back.model.choices == fitted.model.choices
    frame = frames()["user"].drop(columns="y")
    assert_array_equal(back.predict(frame), fitted.predict(frame))
    assert list(fitted.summary.covariate) == ["u", "v", "w"]


def test_alone_and_on_one_table_the_model_needs_no_user():
    fed = fc.simulate(frames(), outcome=fc.Binary("y"), seed=0)
    pooled = fc.fit("ndoye", fed, user="user", strategy="centralised")
    assert pooled.model.ranking == []
    alone = fc.fit("ndoye", fed, user="user", strategy="isolated")
    assert set(alone.sites) == set(FOUR)


@pytest.mark.parametrize("method", ["ndoye", "influence"])
def test_a_site_with_a_covariate_that_is_the_outcome_in_all_but_one_row_tells_nothing(method):
    x, y, _ = classes(60, seed=9)
    copy = np.column_stack([x[:, :2], y + 0.5 * (np.arange(60) == 7)])
    found = fit(method, {**FOUR, "copy": LabelledTable(copy, y)})
    assert "'w' and the outcome: the others give one of them" in found.left_out["copy"]

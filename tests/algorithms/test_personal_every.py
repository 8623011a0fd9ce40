"""A model for every site in one fit: each is the one that the site would have as the user."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
import turned
from fedcohort.protocol import NotSupported, Refused, SettingError, registry
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.study.run.engine import Problem, fit_once
from fedcohort.training import personal
from fedcohort.training.networks.strategies import train_here
from fedcohort.training.personal import WAYS, Way
from fedcohort.training.personal.steps import keep_personal, tell_personal
from on_intervals import grid_of, hazard_at
from training.test_personal import GIVEN, PLAN, SEED, tables
from turned import drawn, frames

SIZES = {"north": 60, "south": 150, "east": 130, "west": 150, "up": 90, "down": 110}
FRAMES = frames(SIZES, {"west", "up", "down"})
SMALL = {"rounds": 3, "internal_epochs": 2, "own_epochs": 3, "batch_size": 40}


def fitted(user="all", way="ditto", model="logistic", tables=FRAMES, **settings):
    given = {"user": user, "model": model, "way": way, **SMALL, **settings}
    with warnings.catch_warnings(action="ignore"):
        return fc.fit("personal", turned.cohort(model, tables), **given)


@cache
def every(way="ditto", model="logistic", **settings):
    return fitted("all", way, model, **settings)


def told(fit, verb="gather"):
    lines = fit.ledger
    return set(lines.loc[lines["verb"] == verb, "step"])


@pytest.mark.parametrize("way", WAYS)
def test_each_sites_model_is_to_the_bit_that_of_a_fit_with_this_site_as_the_user(way):
    fit = every(way)
    assert sorted(fit.sites) == sorted(SIZES)
    for site in ("north", "down"):
        one, own = fitted(site, way), fit.of(site)
        blind = drawn(9, 40)
        assert_array_equal(own.model.theta, one.model.theta)
        assert_array_equal(own.predict(blind), one.predict(blind))
        for name in ("way", "user", "parts", "model", "network", "features"):
            assert getattr(own.model, name) == getattr(one.model, name)
        if way not in ("global", "cluster"):  # these tell no loss
            assert own.model.loss == one.model.loss
        if way == "apfl":
            assert own.model.alpha == one.model.alpha
    assert len(fit.history) == SMALL["rounds"]


@pytest.mark.parametrize("way", ["fedper", "fedrep"])
def test_of_a_network_each_sites_last_layer_is_its_own_and_the_others_are_all_sites(way):
    fit = every(way, hidden=(3,), optimiser="adam")
    one = fitted("east", way, hidden=(3,), optimiser="adam")
    assert_array_equal(fit.of("east").model.theta, one.model.theta)
    models = np.stack([fit.of(s).model.theta for s in SIZES])
    assert fit.of("east").model.parts == 4
    assert (np.ptp(models, axis=0) > 0).tolist() == [False] * 9 + [True] * 4


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_a_single_site_leaves_it_but_the_side_that_cluster_shows_as_ever(way):
    fit = every(way)
    assert told(fit) == ({"tell_takes"} if way == "cluster" else set())
    lines = fit.ledger
    last = lines[lines["step"].isin(["keep_personal", "keep_side", "keep_alone"])]
    assert set(last["site"]) == set(SIZES)
    shapes = {json.dumps(f["shape"]) for fields in last["fields"] for f in fields.values()}
    assert shapes <= {"[]", f"[{SMALL['rounds']}]"}  # numbers, and the losses of local by round


def test_the_loss_and_alpha_that_are_told_are_means_over_the_sites():
    fit = every("apfl")
    own = {s: fit.of(s).model for s in SIZES}
    n = sum(SIZES.values())
    assert_allclose(fit.model.loss, sum(SIZES[s] * own[s].loss for s in own) / n, rtol=1e-12)
    assert_allclose(fit.model.alpha, np.mean([m.alpha for m in own.values()]), rtol=1e-12)


def test_the_model_at_the_coordinator_predicts_nothing_and_says_where_the_others_are(tmp_path):
    fit = every()
    blind = drawn(9, 5)
    with pytest.raises(NotSupported, match="each site keeps its own model of this fit of 'perso"):
        fit.predict(blind)
    assert fit.summary.empty
    fit.save(tmp_path / "common")
    with pytest.raises(NotSupported, match="each site keeps its own"):
        fc.load(tmp_path / "common").predict(blind)
    fit.of("up").save(tmp_path / "up")
    assert_array_equal(fc.load(tmp_path / "up").predict(blind), fit.of("up").predict(blind))
    with pytest.raises(SettingError, match="no site is called 'upp'; did you mean 'up'"):
        fit.of("upp")
    with pytest.raises(SettingError, match="one model for all sites; fit it with user='all'"):
        fitted("north").of("north")


# of survival ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["ditto", "local"])
def test_a_cox_models_baseline_is_that_of_the_sites_own_rows_and_leaves_as_a_count(way):
    fit, whole = every(way, "cox"), pd.concat(FRAMES.values())
    for site in ("north", "west"):
        own, rows = fit.of(site), FRAMES[site]
        base = own.model.baseline
        risk = np.exp(own.predict(rows))
        time, event = rows["time"].to_numpy(), rows["event"]
        wanted = hazard_at(base.times, time, event, risk, grid_of(whole["time"], whole["event"]))
        assert_allclose(base.cumulative, wanted, rtol=1e-9)
        deaths = np.bincount(np.searchsorted(base.times, time), event)
        assert min(deaths[: len(base.times) - 1]) >= 5  # behind the last few deaths may be left
        curve = own.predict_survival(drawn(9, 4), [1.0, 2.0], warn=False)
        assert ((curve > 0) & (curve <= 1)).all()
    lines = fit.ledger
    kept = lines[lines["step"] == "keep_baseline"]
    assert {tuple(f) for f in kept["fields"]} == {("sites",)}
    assert "sum_risks" not in set(lines["step"])
    assert_array_equal(fit.of("east").model.theta, fitted("east", way, "cox").model.theta)


def test_a_site_without_deaths_keeps_the_common_model_and_has_no_curve():
    quiet = {**FRAMES, "up": FRAMES["up"].assign(event=0)}
    for way in ("finetune", "ditto"):
        fit = fitted("all", way, "cox", quiet)
        assert_array_equal(fit.of("up").model.theta, fit.model.common)
        assert fit.of("up").model.baseline is None
        assert fit.of("north").model.baseline is not None
        assert np.isnan(fit.of("up").model.loss)


@pytest.mark.parametrize("way", ["ditto", "fedrep", "cluster"])
def test_deepcox_too_leaves_each_site_the_model_that_it_would_have_as_the_user(way, tmp_path):
    given = {"personal": way, "rounds": 2, "hidden": (2,), "strategy": "fedadam"}
    cohort = turned.cohort("cox", FRAMES)
    with warnings.catch_warnings(action="ignore"):
        fit, one = (fc.fit("deepcox", cohort, user=user, **given) for user in ("all", "west"))
    own, rows = fit.of("west"), FRAMES["west"]
    assert_array_equal(own.model.thetas, one.model.thetas)
    moved = own.predict(rows) - one.predict(rows)  # each is relative to its own mean
    assert_allclose(moved, moved[0], atol=1e-12)
    assert_allclose(own.predict(rows).mean(), 0.0, atol=1e-12)
    whole, risk = pd.concat(FRAMES.values()), np.exp(own.predict(rows))
    grid, base = grid_of(whole["time"], whole["event"]), own.model.baseline
    wanted = hazard_at(base.times, rows["time"].to_numpy(), rows["event"], risk, grid)
    assert_allclose(base.cumulative, wanted, rtol=1e-9)
    assert told(fit) == ({"tell_takes"} if way == "cluster" else set())
    assert not {"sum_risks", "count_deaths"} & set(fit.ledger["step"])
    own.save(tmp_path / "west")
    fit.save(tmp_path / "common")
    back = fc.load(tmp_path / "west")
    assert_array_equal(
        back.predict_survival(rows, [3.0], warn=False),
        own.predict_survival(rows, [3.0], warn=False),
    )
    for common in (fit, fc.load(tmp_path / "common")):
        with pytest.raises(
            NotSupported, match="each site keeps its own model of this fit of 'deep"
        ):
            common.predict(rows)
    with pytest.raises(SettingError, match="leave out keep_rounds"):
        fc.fit("deepcox", cohort, user="all", keep_rounds=(1,), **given)


def test_of_several_classes_each_site_has_its_own_probabilities():
    rng = np.random.default_rng(3)
    three = {
        s: f.assign(yes=rng.choice(["no", "some", "much"], len(f))).drop(columns=["time", "event"])
        for s, f in FRAMES.items()
    }
    fed = fc.simulate(three, outcome=fc.Category("yes"), seed=0)
    given = {"way": "finetune", "rounds": 2}
    fit, one = (fc.fit("personal", fed, user=user, **given) for user in ("all", "east"))
    blind = three["east"].iloc[:7]
    assert_array_equal(fit.of("east").predict(blind), one.predict(blind))
    assert fit.of("east").predict(blind).shape == (7, 3)
    assert fit.of("east").model.levels == one.model.levels


NEURAL = {"logistic": "classifier", "softmax": "classifier", "linear": "regressor",
          "poisson": "regressor"}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "way"),
    [("softmax", "fedper"), ("logistic", "ditto"), ("linear", "fedrep"), ("poisson", "cluster"),
     ("linear", "apfl"), ("softmax", "finetune")],
)  # fmt: skip
def test_a_classifier_and_a_regressor_leave_each_site_the_model_of_a_fit_for_it(
    model, way, tmp_path
):
    given = {"personal": way, "rounds": 2, "hidden": (3,), "internal_epochs": 2, "own_epochs": 2}
    cohort, method = turned.cohort(model, FRAMES), NEURAL[model]
    with warnings.catch_warnings(action="ignore"):
        fit, one = (fc.fit(method, cohort, user=user, **given) for user in ("all", "west"))
    own, blind = fit.of("west"), drawn(9, 30)
    assert_array_equal(own.model.thetas, one.model.thetas)
    assert_array_equal(own.predict(blind), one.predict(blind))
    for name in ("model", "levels", "network", "features", "centre", "scale"):
        assert getattr(own.model, name) == getattr(one.model, name)
    assert told(fit) == ({"tell_takes"} if way == "cluster" else set())
    models = np.stack([fit.of(s).model.thetas[0] for s in SIZES])
    last = 4 * (3 if model == "softmax" else 1)
    if way in ("fedper", "fedrep"):
        assert (np.ptp(models, axis=0) > 0).tolist() == [False] * 9 + [True] * last
    own.save(tmp_path / "west")
    fit.save(tmp_path / "common")
    assert_array_equal(fc.load(tmp_path / "west").predict(blind), own.predict(blind))
    for common in (fit, fc.load(tmp_path / "common")):
        with pytest.raises(NotSupported, match=f"its own model of this fit of '{method}'"):
            common.predict(blind)


@pytest.mark.parametrize(("model", "way"), [("linear", "fedper"), ("cox", "ditto")])
def test_a_regression_forest_leaves_each_site_the_model_of_a_fit_for_it(model, way, tmp_path):
    given = {"personal": way, "rounds": 2, "hidden": (3,), "depth": 1, "time_grid": 3}
    cohort = turned.cohort(model, FRAMES)
    with warnings.catch_warnings(action="ignore"):
        fit, one = (
            fc.fit("regression_forest", cohort, user=user, **given) for user in ("all", "west")
        )
    own, blind = fit.of("west"), drawn(9, 30)
    assert_array_equal(own.model.thetas, one.model.thetas)
    assert_array_equal(own.model.times, one.model.times)
    assert_array_equal(own.predict(blind), one.predict(blind))
    own.save(tmp_path / "west")
    assert_array_equal(fc.load(tmp_path / "west").predict(blind), own.predict(blind))
    with pytest.raises(NotSupported, match="its own model of this fit of 'regression_forest'"):
        fit.predict(blind)


@pytest.mark.parametrize("method", ["classifier", "deepcox"])
def test_sites_that_count_by_their_own_last_layers_end_with_the_models_of_a_fit_for_each(method):
    given = {
        "personal": "fedrep", "rounds": 30, "hidden": (3,), "learning_rate": 0.05, "patience": 2,
        "lr_rule": "plateau", "lr_patience": 1, "patience_by": "count", "internal_epochs": 2,
    }  # fmt: skip
    cohort = turned.cohort("cox" if method == "deepcox" else "logistic", FRAMES)
    with warnings.catch_warnings(action="ignore"):
        fit, one = (fc.fit(method, cohort, user=user, **given) for user in ("all", "down"))
    assert_array_equal(fit.of("down").model.thetas, one.model.thetas)
    assert 2 < len(fit.history) < 30
    assert {"count_idle_own", "turn_back"} <= set(fit.ledger["step"])
    assert told(fit) == set()


def test_of_images_each_site_has_a_convolutional_network_of_its_own():
    rng = np.random.default_rng(0)
    names = [f"p{j}" for j in range(16)]

    def pictures(n, bright):
        made = pd.DataFrame(rng.normal(size=(n, 16)), columns=names)
        return made.assign(yes=(made[names[bright]] + rng.normal(size=n) > 0).astype(int))

    three = {s: pictures(60, k) for k, s in enumerate("abc")}
    fed = fc.simulate(three, outcome=fc.Binary("yes"), seed=0)
    given = {"image": (4, 4), "filters": (2,), "hidden": (3,), "rounds": 2, "personal": "fedper"}
    fit, one = (fc.fit("classifier", fed, user=user, **given) for user in ("all", "b"))
    assert_array_equal(fit.of("b").predict(three["b"]), one.predict(three["b"]))
    models = np.stack([fit.of(s).model.thetas[0] for s in three])
    assert (np.ptp(models, axis=0) > 0).sum() == 4  # the last layer: 3 weights and a bias


# limits ---------------------------------------------------------------------------------


def test_two_sites_are_enough_as_no_model_is_told():
    two = {s: FRAMES[s] for s in ("north", "south")}
    fit = fitted(tables=two)
    assert sorted(fit.sites) == ["north", "south"]
    with pytest.raises(SettingError, match="could tell the other site's model"):
        fitted("north", tables=two)


def test_a_site_named_all_kept_rounds_and_methods_for_one_site_are_refused():
    named = {"all": FRAMES["north"], "south": FRAMES["south"], "east": FRAMES["east"]}
    with pytest.raises(SettingError, match="a model for each site, but a site has this name"):
        fitted(tables=named)
    with pytest.raises(SettingError, match="leave out keep_rounds"):
        fitted(keep_rounds=(1,))


def test_every_method_with_a_user_fits_a_model_for_each_site_or_says_which_methods_do():
    able = {"personal", "deepcox", "classifier", "regressor", "regression_forest"}
    found = {m: registry.find(m) for m in registry.names()}
    users = {m for m, method in found.items() if "user" in method.settings.__dataclass_fields__}
    assert users == able | {
        "weight_erosion", "influence", "ndoye", "vae", "mcvae", "savae", "deep_clustering",
    }  # fmt: skip
    for name in users:
        ways = {"personal": "finetune"} if name not in ("personal", "weight_erosion") else {}
        ways = {k: v for k, v in ways.items() if k in found[name].settings.__dataclass_fields__}
        if name in able:
            assert found[name].own_model is not None
            assert found[name].configure({"user": "all", **ways}).every
            continue
        with pytest.raises(SettingError) as refused:
            found[name].configure({"user": "all", **ways})
        assert f"setting 'user' of method {name!r} is 'all', and this method" in str(refused.value)
        assert all(f"'{one}'" in str(refused.value) for one in able)


@pytest.mark.parametrize("method", ["deepcox", "classifier", "regressor", "regression_forest"])
def test_a_user_for_all_without_a_way_is_refused_as_no_site_would_have_an_own_model(method):
    with pytest.raises(SettingError, match="is 'all'; give a way in 'personal' too"):
        registry.find(method).configure({"user": "all"})


def test_sites_that_are_not_found_to_differ_keep_the_common_model():
    alike = frames({"a": 150, "b": 150, "c": 150, "d": 150}, set())
    fit = fitted("all", "ditto", tables=alike, monitor="loss", rounds=4, batch_size=0)
    assert fit.model.common_rounds == 4
    for site in alike:
        assert_array_equal(fit.of(site).model.theta, fit.model.common)


def test_a_site_tells_no_model_in_such_a_fit_and_keeps_none_in_another():
    data = tables("abc")
    fed = local([Host(n, t, (train_here, *personal.STEPS), SEED) for n, t in data.items()])
    asked = {"theta": np.zeros(4), "plan": PLAN.text, "rate": 0.1}
    every = Way(name="ditto", user="all", **GIVEN["ditto"])
    with pytest.raises(Refused, match="does not tell its own model: each site keeps its own"):
        fed.only(["a"]).gather(tell_personal, way=every.text, min_cell=5, **asked)
    with pytest.raises(Refused, match="keeps no own model: the model is for 'a'"):
        fed.sum(keep_personal, way=replace(every, user="a").text, **asked)


@pytest.mark.parametrize("way", ["fedrep", "ditto", "cluster", "local"])
def test_the_steps_of_such_a_fit_have_none_that_tells_a_model(way):
    method = registry.find("personal")
    asked = {s.name for s in method.asked(method.configure({"user": "all", "way": way}))}
    assert not asked & {"tell_personal", "tell_alone", "tell_side", "count_learners", "sum_risks"}
    assert asked & {"keep_personal", "keep_alone", "keep_side"}


# killed and resumed -----------------------------------------------------------------------


class Killed(BaseException):
    """Ends a fit as a signal does."""


@pytest.mark.parametrize("way", ["ditto", "fedrep"])
def test_a_fit_that_is_killed_at_any_call_gives_every_site_the_same_model(tmp_path, way):
    some = {s: FRAMES[s] for s in ("north", "south", "up")}
    cohort = turned.cohort("cox", some)
    problem = Problem(cohort.frames, cohort.dictionary, cohort.outcome)
    method, table = registry.find("personal"), {"scale": "standard", "impute": "median"}
    given = {"user": "all", "way": way, "rounds": 2, "hidden": (2,) * (way == "fedrep")}

    def fit(path, dies=10**6):
        calls = 0

        def watch(progress):
            nonlocal calls
            calls += 1
            if calls > dies:
                raise Killed

        return fit_once(problem, method, given, table, 3, journal=path, observer=watch)

    whole = fit(None)
    n = len(whole.ledger.lines) // len(some)
    assert sorted(whole.own) == sorted(some)
    for dies in {n - 3, n - 1}:
        path = tmp_path / f"{dies}.journal"
        with pytest.raises(Killed):
            fit(path, dies)
        for again in (fit(path), fit(path)):  # the second replays every call
            for site, model in whole.own.items():
                arrays = again.own[site].arrays()
                assert {k: a.tobytes() for k, a in arrays.items()} == {
                    k: a.tobytes() for k, a in model.arrays().items()
                }

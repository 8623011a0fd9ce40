"""A personalised baseline, as a notebook user fits it: of all outcomes, and of odd inputs."""

from __future__ import annotations

import dataclasses
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

import fedcohort as fc
import turned
from deployed_cases import terms_of
from fedcohort.algorithms.personal import METHOD
from fedcohort.protocol import Dp, Refused, Task
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.host import Call
from fedcohort.protocol.registry import find
from fedcohort.study.at_site.bounds import Bounds
from fedcohort.study.run.private import releases
from fedcohort.training.personal import WAYS
from fedcohort.training.personal.steps import tell_personal
from on_intervals import hazard_at
from turned import OUTCOMES, drawn, frames, seen, target

SIZES = {"north": 120, "south": 300, "east": 260, "west": 300, "up": 180, "down": 220}
FLIPPED = {"west", "up", "down"}

FRAMES = frames(SIZES, FLIPPED)


def cohort(model="logistic", frames=FRAMES):
    return turned.cohort(model, frames)


def fitted(way="finetune", model="logistic", frames=FRAMES, **settings):
    given = {"user": "north", "model": model, "way": way, "rounds": 8, **settings}
    with warnings.catch_warnings(action="ignore"):
        return fc.fit("personal", cohort(model, frames), **given)


@pytest.mark.parametrize("model", OUTCOMES)
@pytest.mark.parametrize("way", [w for w in WAYS if w not in ("global", "fedper", "fedrep")])
def test_of_every_outcome_a_personal_model_knows_what_the_mean_of_all_does_not(model, way):
    """Half of the sites are the other way round, so that the common model has no effects."""
    fit = fitted(way, model)
    blind = drawn(9, 500)
    wanted = target(model, blind)
    own, common = (np.corrcoef(seen(f, blind), wanted)[0, 1] for f in (fit, whole(model)))
    assert own > 0.3
    assert own > common + 0.05
    assert len(fit.history) == 8


def whole(model, done={}):  # noqa: B006
    return done.setdefault(model, fitted("global", model))


def hazard_of(fit, frames=FRAMES):
    """Return Breslow's H₀ of all rows at a fit's log risks, on its grid."""
    rows = pd.concat(frames.values(), ignore_index=True)
    risk = np.exp(fit.predict(rows))
    return hazard_at(fit.model.baseline.times, rows["time"].to_numpy(), rows["event"], risk)


@pytest.mark.parametrize("way", WAYS)
def test_a_cox_model_has_the_baseline_hazard_of_all_rows_at_the_users_model(way):
    fit = fitted(way, "cox", keep_rounds=(3,), rounds=5)
    blind, at = drawn(9, 40), np.linspace(0, 30, 60)
    for model in (fit.model, fit.model.at_round(3)):
        one = dataclasses.replace(fit, parts=dataclasses.replace(fit.parts, model=model))
        wanted = hazard_of(one)
        assert_allclose(model.baseline.cumulative, wanted, rtol=1e-9)
        k = np.searchsorted(model.baseline.times, at, side="right")
        alive = np.exp(-np.outer(np.exp(one.predict(blind)), np.append(0, wanted)[k]))
        alive[:, at > model.baseline.end] = np.nan
        with pytest.warns(UserWarning, match="the last time that the sites' sums cover"):
            assert_allclose(one.predict_survival(blind, at), alive, rtol=1e-9)
    back = METHOD.model.restore(fit.model.arrays(), json.loads(json.dumps(fit.model.meta())))
    x = np.zeros((2, 2))
    assert_array_equal(back.predict_survival(x, at), fit.model.predict_survival(x, at))
    three = back.at_round(3)
    assert_array_equal(three.baseline.cumulative, fit.model.at_round(3).baseline.cumulative)


def test_of_another_outcome_there_is_no_curve():
    with pytest.raises(fc.NotSupported, match="a fit of 'personal' has no predict_survival"):
        fitted().predict_survival(drawn(9, 5), [1.0])


@pytest.mark.parametrize("way", ["fedper", "fedrep"])
@pytest.mark.parametrize("model", OUTCOMES)
def test_an_own_last_layer_turns_a_common_network_round(way, model):
    fit = fitted(way, model, hidden=(4,), rounds=15)
    blind = drawn(9, 500)
    assert np.corrcoef(seen(fit, blind), target(model, blind))[0, 1] > 0.3
    assert fit.model.parts == {"cox": 4, "softmax": 15}.get(model, 5)
    assert fit.summary.empty


@pytest.mark.parametrize("way", ["fedper", "fedrep"])
def test_of_a_linear_predictor_the_intercept_is_own_and_the_coefficients_that_are_named(way):
    frames = {s: f.assign(yes=1 - f["yes"]) if s == "north" else f for s, f in FRAMES.items()}
    plain, named = fitted(way, frames=frames), fitted(way, frames=frames, own_features=["a"])
    assert (plain.model.parts, named.model.parts) == (1, 2)
    apart = plain.model.theta != plain.model.common
    assert apart.tolist() == [False, False, True]
    apart = named.model.theta != named.model.common
    assert apart.tolist() == [True, False, True]


def test_of_three_classes_a_columns_own_coefficients_are_those_of_each_class():
    named = fitted("fedper", "softmax", own_features=["a"]).model
    assert named.parts == 6
    apart = named.theta != named.common
    assert apart.tolist() == [True, False] * 3 + [True] * 3
    rows = fitted("fedper", "softmax", own_features=["a", "b"])
    assert_array_equal(rows.model.theta, fitted("local", "softmax").model.theta)
    assert {*rows.summary["class"]} == {"1", "2"}


def test_of_three_classes_each_site_keeps_a_model_of_probabilities():
    every, blind = fitted("ditto", "softmax", user="all", rounds=3), drawn(9, 30)
    one = fitted("ditto", "softmax", rounds=3)
    assert_allclose(every.of("north").predict(blind), one.predict(blind), rtol=1e-12)
    assert_allclose(every.of("west").predict(blind).sum(axis=1), np.ones(30), rtol=1e-12)
    pd.testing.assert_frame_equal(every.of("north").summary, one.summary)


def test_all_coefficients_own_is_local_and_a_linear_cox_model_without_any_is_global_and_says_so():
    both = fitted("fedper", own_features=["a", "b"]), fitted("local")
    assert_array_equal(both[0].model.theta, both[1].model.theta)
    with pytest.warns(UserWarning, match="a Cox model has no intercept, so no part is"):
        fit = fc.fit("personal", cohort("cox"), user="north", way="fedper", rounds=8)
    assert_allclose(fit.model.theta, fitted("global", "cox").model.theta, rtol=1e-12)


def test_local_to_convergence_is_the_logistic_regression_of_the_users_rows():
    fit = fitted("local", rounds=400, l2=0.0, learning_rate=1)
    exact = fc.fit("logistic", fc.simulate({"all": FRAMES["north"][["a", "b", "yes"]]},
                                           outcome=fc.Binary("yes")))  # fmt: skip
    assert_allclose(fit.predict(FRAMES["north"]), exact.predict(FRAMES["north"]), atol=2e-4)


@pytest.mark.parametrize("scope", ["isolated", "centralised"])
def test_alone_it_is_training_on_the_rows_of_one_table(scope):
    with warnings.catch_warnings(action="ignore"):
        fits = fc.fit("personal", cohort(), strategy=scope, rounds=400, l2=0.0, learning_rate=1)
    for name, fit in (fits.sites or {"": fits}).items():
        assert fit.model.way == "local"
        rows = FRAMES[name] if name else pd.concat(FRAMES.values())
        fed = fc.simulate({"all": rows[["a", "b", "yes"]]}, outcome=fc.Binary("yes"))
        exact = fc.fit("logistic", fed)
        assert_allclose(fit.predict(rows), exact.predict(rows), atol=2e-4)


def test_predictions_are_those_of_the_coefficients():
    fit = fitted("apfl", scale="none")
    rows = drawn(9, 50)
    named = {r["name"]: r["value"] for r in fit.model.parameters(np.zeros(0))}
    assert set(named) == {"intercept", "share of the own model", "loss"}
    f = named["intercept"] + rows[["a", "b"]].to_numpy() @ fit.model.coefficients
    assert_allclose(fit.predict(rows), expit(f), rtol=1e-12)
    b = fit.summary.set_index("covariate")
    assert_allclose(b.odds_ratio, np.exp(b.coefficient), rtol=1e-12)
    user = FRAMES["north"]
    f = fit.model.intercept + user[["a", "b"]].to_numpy() @ fit.model.coefficients
    own = np.mean(np.logaddexp(0, f) - user["yes"] * f)
    penalty = 0.0005 * fit.model.coefficients @ fit.model.coefficients
    assert named["loss"] == pytest.approx(own + penalty, rel=1e-10)
    assert 0 < named["share of the own model"] == fit.model.alpha < 1


@pytest.mark.parametrize("way", ["local", "global", "ditto", "cluster"])
def test_two_runs_a_saved_model_and_masked_sums_give_the_same_arrays(way, tmp_path):
    one = fitted(way, keep_rounds=[3], batch_size=40, rounds=4)
    one.save(tmp_path / "model")
    back = fc.load(tmp_path / "model")
    again = fitted(way, keep_rounds=[3], batch_size=40, rounds=4, secure_aggregation=True)
    for other in (again, back):
        for name, a in one.model.arrays().items():
            assert_array_equal(other.model.arrays()[name], a)
    assert back.model.at_round(3).theta.tolist() == one.model.kept[3].tolist()
    other = fitted(way, seed=1, batch_size=40, rounds=4)
    assert (other.model.theta != one.model.theta).any()


def test_a_round_that_was_not_kept_is_named():
    fit = fitted(keep_rounds=[3])
    assert fit.model.at_round(8) is fit.model
    assert fit.model.at_round(3).rounds == 3
    with pytest.raises(fc.NotSupported, match=r"kept the models after rounds \[3\] and 8, not"):
        fit.model.at_round(4)


def test_where_no_split_is_found_it_is_said():
    frames = {s: FRAMES[s] for s in ("north", "south", "east")}
    with pytest.warns(UserWarning, match="sites were not split: the model is the common one"):
        fit = fc.fit("personal", cohort(frames=frames), user="north", way="cluster", rounds=4)
    same = fitted("global", frames=frames, rounds=4)
    assert_array_equal(fit.model.theta, same.model.theta)


WRONG = [
    ({"user": ""}, "'user' is not given; name .*: down, east, north, south, up, west"),
    ({"user": "nord"}, "'user' is 'nord', which is no site; name .*: down, east"),
    ({"way": "maml"}, "'way' .* choose one of 'local', 'global', 'finetune'"),
    ({"model": "probit"}, "choose one of 'auto', 'logistic', 'linear', 'cox', 'poisson'"),
    ({"model": "cox"}, "model 'cox' does not go with a binary outcome; give 'logistic'"),
    ({"batch_size": 4}, "batch_size is 4, and steps on fewer than 5 rows .* tell of single ones"),
    ({"pull": -0.1}, "'pull' .* is -0.1; give a number from 0"),
    ({"alpha": 1.5}, "'alpha' .* is 1.5; give a number from 0 to 1"),
    ({"rounds": 0}, "'rounds' .* is 0; give a whole number from 1"),
    ({"min_sites": 1}, "'min_sites' .* is 1; give a whole number from 2"),
    ({"way": "fedrep", "own_epochs": 0}, "'own_epochs' .* give 1 or more for fedrep"),
    ({"warm_rounds": 0}, "'warm_rounds' .* a whole number from 1, or null"),
    ({"own_features": ["a"]}, "'own_features' .* is for way 'fedper' or 'fedrep' of a linear"),
    ({"way": "fedper", "own_features": ["a", "z"]}, "has 'z', which is no covariate; .* 'a', 'b'"),
    ({"way": "fedper", "own_features": ["a"], "hidden": (3,)}, "linear predictor; leave it out"),
    ({"learning_rate": 0}, "'learning_rate' .* a number above 0, or null"),
    ({"usr": "north"}, "no setting 'usr'; did you mean 'user'"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=[str(g) for g, _ in WRONG])
def test_a_setting_that_cannot_be_is_refused_in_one_line(given, said):
    with pytest.raises(fc.SettingError, match=said) as error:
        fc.fit("personal", cohort(), **{"user": "north", **given})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("way", WAYS)
def test_a_learning_rate_that_explodes_ends_the_fit_in_one_line(way):
    with pytest.raises(fc.FedcohortError, match=r"[Ll]ower (the )?learning.rate") as error:
        fitted(way, "linear", learning_rate=1e150)
    assert "\n" not in str(error.value)


def test_two_sites_and_a_user_of_few_rows_are_refused():
    with pytest.raises(fc.SettingError, match="needs 3 sites or more"):
        fitted(frames={s: FRAMES[s] for s in ("north", "south")})
    frames = {**FRAMES, "north": FRAMES["north"][:4]}
    with pytest.raises(fc.DataError, match="'north' has nothing to learn from"):
        fitted(frames=frames)


@pytest.mark.parametrize("model", ["logistic", "cox"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_said_to_be_revealed_and_asked_is_what_the_ledger_has(way, model):
    fit = fitted(way, model, rounds=2)
    config = METHOD.configure({"user": "north", "way": way, "rounds": 2, "model": model})
    asked = {step.name for step in METHOD.asked(config)}
    seen = set(fit.ledger["step"]) & {step.name for step in METHOD.steps}
    assert seen <= asked
    if way != "cluster":
        assert seen == asked
    own = any(fit.ledger["verb"] == "gather")
    assert own == (way != "global")
    said = METHOD.revealed(config, None)
    assert ("user" in said) == own
    assert ("baseline hazard" in said) == (model == "cox")
    assert ("all sites see the user's own model" in said) == (model == "cox" and own)


def test_without_a_baseline_no_site_is_sent_the_users_model_and_there_is_no_curve():
    fit = fitted("finetune", "cox", rounds=2, baseline=False)
    asked = METHOD.asked(METHOD.configure({"user": "north", "model": "cox", "baseline": False}))
    assert not {"count_deaths", "sum_risks", "death_cells"} & {s.name for s in asked}
    assert not {"count_deaths", "sum_risks", "death_cells"} & set(fit.ledger["step"])
    assert_array_equal(fit.model.theta, fitted("finetune", "cox", rounds=2).model.theta)
    with pytest.raises(fc.NotSupported, match="has no predict_survival"):
        fit.predict_survival(drawn(9, 5), [1.0])


def test_the_bounds_of_a_study_hold_what_its_fits_ask():
    config = METHOD.configure({"user": "north", "way": "apfl"})
    assert METHOD.bounds is not None
    held = METHOD.bounds(config, Task(kind="classification", features=("a",), outcome="binary"))
    (way,) = held["way"]
    assert json.loads(way)["user"] == "north"
    assert json.loads(way)["alpha"] == 0.5


@pytest.mark.parametrize(
    ("arm", "task", "sample"),
    [("personal, way: ditto", "regression", "diabetes"),
     ("personal, way: local", "regression", "diabetes"),
     ("personal, way: cluster", "regression", "diabetes"),
     ("deepcox, personal: finetune", "survival", "gbsg2")],
)  # fmt: skip
def test_a_study_that_names_no_user_has_no_site_tell_its_model(tmp_path, arm, task, sample):
    """A way for nobody is one that each site takes for its own."""
    for user, fine in (("", False), ("oslo", True)):
        text = f"[{{method: {arm}, user: '{user}'}}]"
        terms = terms_of(tmp_path, sample, text, task=task, bounds="[]")
        one = terms.plan.arms[0]
        config = find(one.method).configure(one.configured())
        name = getattr(config, "personal", None) or config.way
        way = config.way_by(name, ()).text
        call = Call(0, tell_personal, "gather", None, Arguments({}, ()), among=("bergen", "oslo"))
        held = Bounds(terms, "fit", one, seed=7)
        if fine:
            held.check(call, {"way": way})
        else:
            with pytest.raises(Refused, match="more than the approved study: way of tell_personal"):
                held.check(call, {"way": way})


# methods that have other models, too --------------------------------------------------


def deep(**settings):
    with warnings.catch_warnings(action="ignore"):
        return fc.fit("deepcox", cohort("cox"), rounds=3, **settings)


@pytest.mark.parametrize(
    ("way", "given"),
    [("finetune", {"own_epochs": 0}), ("ditto", {"pull": 1e300}), ("cluster", {"n_clusters": 1}),
     ("apfl", {"alpha": 0.0, "adapt_alpha": False})],
)  # fmt: skip
def test_at_its_limit_a_personal_deepcox_is_the_plain_one_to_the_bit(way, given):
    one, plain = deep(personal=way, user="north", **given), deep()
    assert_array_equal(one.model.thetas, plain.model.thetas)
    assert_array_equal(one.model.baseline.cumulative, plain.model.baseline.cumulative)


def test_a_personal_deepcox_knows_what_the_mean_of_all_does_not():
    blind = drawn(9, 500)
    seen = [
        np.corrcoef(fit.predict(blind), blind["time"].rank(ascending=False))[0, 1]
        for fit in (deep(personal="ditto", user="north", learning_rate=0.05), deep())
    ]
    assert seen[0] > 0.6 > seen[1] + 0.2


def test_a_personal_vae_is_the_plain_one_at_its_limit_and_not_before():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    x[rng.random(x.shape) < 0.2] = np.nan
    x[0] = np.nan  # a row that knows nothing
    rows = pd.DataFrame(x, columns=list("abcd")).assign(s=["u", "v", "w"] * 40)

    def theta(**settings):
        fed = fc.simulate(rows, sites="s", outcome=None)
        return fc.fit(
            "vae", fed, q=1, rounds=2, internal_epochs=2, record_kl=0, **settings
        ).model.theta

    plain = theta()
    assert_array_equal(theta(personal="finetune", user="u", own_epochs=0), plain)
    assert_array_equal(theta(personal="ditto", user="u", pull=1e300), plain)
    own = theta(personal="fedper", user="u")
    assert (own[-8:] != plain[-8:]).all()
    assert (theta(personal="finetune", user="u") != plain).any()


WRONG_OF_DEEPCOX = [
    ({"strategy": "exact"}, "does not go with strategy 'exact': it averages no models; give"),
    ({"aggregation": "median"}, "does not go with aggregation 'median', which sees models"),
    ({"patience": 3}, "does not go with a patience"),
    ({"user": ""}, "'user' is not given; name the site"),
    ({"pull": -1.0}, "'pull' of method 'deepcox' is -1.0; give a number from 0"),
    ({"personal": "fedper", "hidden": ()}, "'hidden' of method 'deepcox' is .*one width or more"),
    ({"user": "nord", "monitor": "loss"}, "'user' is 'nord', which is no site; name the site"),
]


@pytest.mark.parametrize(
    ("given", "said"), WRONG_OF_DEEPCOX, ids=[str(g) for g, _ in WRONG_OF_DEEPCOX]
)
def test_what_does_not_go_with_a_personal_deepcox_is_said_in_one_line(given, said):
    with pytest.raises(fc.SettingError, match=said) as error:
        deep(**{"personal": "ditto", "user": "north", **given})
    assert "\n" not in str(error.value)


def test_a_private_fit_tells_no_model_of_one_site():
    config = find("deepcox").configure({"personal": "ditto", "user": "north"})
    with pytest.raises(fc.SettingError, match="'personal' of method 'deepcox' is 'ditto', which"):
        releases(find("deepcox"), config, Dp(epsilon=3.0, delta=1e-5))
    config = find("deepcox").configure({"monitor": "loss"})
    with pytest.raises(fc.SettingError, match="'monitor' of method 'deepcox' is 'loss', which"):
        releases(find("deepcox"), config, Dp(epsilon=3.0, delta=1e-5))

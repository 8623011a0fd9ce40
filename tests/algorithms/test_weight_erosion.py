"""A personalised model, as a notebook user fits it: of all outcomes, and of inputs that are odd."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

import fedcohort as fc
import turned
from fedcohort.data.tables import LabelledTable
from fedcohort.models.losses import LOSSES
from on_intervals import hazard_at
from turned import OUTCOMES, drawn, frames, seen, target

SIZES = {"north": 120, "south": 300, "east": 260, "west": 300}

FRAMES = frames(SIZES, {"west"})


def cohort(model="logistic", frames=FRAMES):
    return turned.cohort(model, frames)


def fitted(model="logistic", frames=FRAMES, **settings):
    with warnings.catch_warnings(action="ignore"):
        return fc.fit(
            "weight_erosion", cohort(model, frames), **{"user": "north", "model": model, **settings}
        )


@pytest.mark.parametrize("model", OUTCOMES)
def test_of_every_outcome_the_site_that_is_the_other_way_round_loses_its_weight(model):
    fit = fitted(model)
    alpha = fit.model.alpha
    assert alpha["north"] == 1.0
    assert alpha["west"] == 0.0 < min(alpha["south"], alpha["east"])
    signs = np.sign(fit.summary.groupby("covariate").coefficient.last())
    assert (signs["a"], signs["b"]) == (1.0, -1.0)
    blind = drawn(9, 500)
    assert np.corrcoef(seen(fit, blind), target(model, blind))[0, 1] > 0.3
    assert (fit.history["alpha west"].diff().dropna() <= 0).all()
    assert set(fit.history) >= {"loss", "gradient", "alpha south", "distance south"}


@pytest.mark.parametrize("model", ["linear", "cox"])
def test_against_noise_too_the_site_that_is_the_other_way_round_loses_its_weight(model):
    """And those that agree with the user keep theirs, which distances by the gradient take."""
    of = {"visit": "full", "p_d": 0.3, "p_s": 0.0, "rounds": 8}
    fit = fitted(model, against="noise", **of)
    assert fit.model.alpha["west"] == 0.0
    assert min(fit.model.alpha["south"], fit.model.alpha["east"]) > 0.9
    assert set(fit.history) >= {"noise", "excess south", "distance south"}
    plain = fitted(model, **of)
    assert max(plain.model.alpha["south"], plain.model.alpha["east"]) < 0.7


def test_predictions_are_those_of_the_coefficients():
    fit = fitted(scale="none")
    rows = drawn(9, 50)
    named = {r["name"]: r["value"] for r in fit.model.parameters(np.zeros(0))}
    f = named.pop("intercept") + rows[["a", "b"]].to_numpy() @ fit.model.coefficients
    assert_allclose(fit.predict(rows), expit(f), rtol=1e-12)
    assert named == {f"weight of {site}": a for site, a in fit.model.alpha.items()}


def test_a_network_has_weights_of_sites_and_no_coefficients():
    fit = fitted(hidden=(3,), rounds=5)
    assert fit.summary.empty
    assert {r["name"] for r in fit.model.parameters(np.zeros(0))} == {
        f"weight of {site}" for site in SIZES
    }


def test_two_runs_a_saved_model_and_masked_sums_give_the_same_arrays(tmp_path):
    one = fitted()
    one.save(tmp_path / "model")
    back = fc.load(tmp_path / "model")
    assert back.model.alpha == one.model.alpha
    for other in (fitted(), fitted(secure_aggregation=True), back):
        assert_array_equal(other.model.theta, one.model.theta)
    assert_array_equal(fitted(seed=1).model.theta == one.model.theta, False)


@pytest.mark.parametrize("scope", ["isolated", "centralised"])
def test_alone_it_is_gradient_descent_without_weights(scope):
    fits = fitted(strategy=scope, rounds=400, visit="full", l2=0.0, user="", learning_rate=1)
    for name, fit in (fits.sites or {"": fits}).items():
        rows = FRAMES[name] if name else pd.concat(FRAMES.values())
        fed = fc.simulate({"all": rows[["a", "b", "yes"]]}, outcome=fc.Binary("yes"))
        exact = fc.fit("logistic", fed)
        assert_allclose(fit.predict(rows), exact.predict(rows), atol=2e-4)
        assert not [c for c in fit.history if c.startswith("alpha")]


def test_the_last_site_with_a_weight_is_warned_of():
    frames = {s: FRAMES[s] for s in ("north", "south", "west")}
    with pytest.warns(UserWarning, match=r"'south' was left out of \d+ of 30 rounds, in which it"):
        fc.fit("weight_erosion", cohort(frames=frames), user="north")


WRONG = [
    ({"user": ""}, "'user' is not given; name .*: east, north, south, west"),
    ({"user": "nord"}, "'user' is 'nord', which is no site; name .*: east, north, south, west"),
    ({"model": "probit"}, "choose one of 'auto', 'logistic', 'linear', 'cox', 'poisson'"),
    ({"model": "cox"}, "model 'cox' does not go with a binary outcome; give 'logistic'"),
    ({"visit": "all"}, "choose one of 'batch', 'full', 'local'"),
    ({"batch_size": 4}, "gradients of fewer than 5 rows .* would tell of single ones"),
    ({"batch_size": -1}, "'batch_size' .* is -1; give a whole number from 0"),
    ({"p_d": -0.1}, "'p_d' .* is -0.1; give a number from 0"),
    ({"p_s": "much"}, "'p_s' .* must be of type float"),
    ({"rounds": 0}, "'rounds' .* is 0; give a whole number from 1"),
    ({"hidden": (0,)}, "'hidden' .* whole numbers from 1"),
    ({"learning_rate": 0}, "'learning_rate' .* a number above 0, or null"),
    ({"usr": "north"}, "no setting 'usr'; did you mean 'user'"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=[str(g) for g, _ in WRONG])
def test_a_setting_that_cannot_be_is_refused_in_one_line(given, said):
    with pytest.raises(fc.SettingError, match=said) as error:
        fc.fit("weight_erosion", cohort(), **{"user": "north", **given})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("hidden", [(), (3,)])
def test_of_several_classes_it_predicts_a_probability_of_each_also_when_loaded(tmp_path, hidden):
    fit, blind = fitted("softmax", rounds=4, hidden=hidden), drawn(9, 50)
    assert fit.model.levels == ("0", "1", "2")
    assert_allclose(fit.predict(blind).sum(axis=1), np.ones(50), rtol=1e-12)
    fit.save(tmp_path / "model")
    assert_array_equal(fc.load(tmp_path / "model").predict(blind), fit.predict(blind))
    same = fitted("softmax", rounds=4, hidden=hidden, secure_aggregation=True)
    assert_array_equal(same.model.theta, fit.model.theta)


@pytest.mark.parametrize("method", ["weight_erosion", "personal"])
def test_a_class_of_few_rows_at_all_sites_is_refused_by_name(method):
    """Of all covariates the sums would have a part that is over these rows alone."""
    frames = {s: f.assign(grade=f["grade"].replace(2, 1)) for s, f in FRAMES.items()}
    frames["south"].loc[:2, "grade"] = 2
    with pytest.raises(fc.DataError, match="class '2' has fewer than 5 records at all sites"):
        fc.fit(method, cohort("softmax", frames), user="north")


def test_two_sites_and_a_learning_rate_that_explodes_are_refused():
    with pytest.raises(fc.SettingError, match="needs 3 sites or more"):
        fitted(frames={s: FRAMES[s] for s in ("north", "south")})
    with pytest.raises(fc.FedcohortError, match="Lower learning_rate from 1e\\+300"):
        fitted(learning_rate=1e300)


def test_a_user_of_few_rows_has_nothing_to_learn_from():
    frames = {**FRAMES, "north": FRAMES["north"][:4]}
    with pytest.raises(
        fc.DataError, match="'north' has nothing to learn from: it has fewer than 5"
    ):
        fitted(frames=frames)


@pytest.mark.parametrize("name", ["logistic", "linear", "poisson"])
def test_a_loss_s_slope_is_that_of_its_value(name):
    rng = np.random.default_rng(0)
    f, y = rng.normal(size=7), rng.integers(0, 2, 7).astype(float)
    loss = LOSSES[name](LabelledTable(np.zeros((7, 1)), y))
    value, slope = loss(f)
    for j in range(7):
        step = np.eye(7)[j] * 1e-6
        assert slope[j] == pytest.approx((loss(f + step)[0] - loss(f - step)[0]) / 2e-6, abs=1e-9)
    law = {  # of one row each, written down by hand
        "logistic": lambda f, y: -np.log(expit(f) if y else expit(-f)),
        "linear": lambda f, y: (f - y) ** 2 / 2,
        "poisson": lambda f, y: np.exp(f) - y * f,
    }[name]
    assert value == pytest.approx(np.mean([law(a, b) for a, b in zip(f, y, strict=True)]))
    at = np.array([5, 2])
    assert loss.take(at)(f[at])[0] == pytest.approx(np.mean([law(f[j], y[j]) for j in at]))


def test_a_cox_model_has_the_baseline_hazard_of_all_rows_at_its_log_risks():
    """Nelson-Aalen's sum of deaths over hazards at risk, order by order, on the fit's grid."""
    fit = fitted("cox", rounds=4)
    rows = pd.concat(FRAMES.values(), ignore_index=True)
    times, hazard = fit.model.baseline.times, np.exp(fit.predict(rows))
    wanted = hazard_at(times, rows["time"].to_numpy(), rows["event"], hazard)
    assert_allclose(fit.model.baseline.cumulative, wanted, rtol=1e-9)
    alive = np.exp(-np.outer(hazard[:9], wanted[2]))
    assert_allclose(fit.predict_survival(rows[:9], times[2:3]), alive, rtol=1e-9)
    with pytest.raises(fc.NotSupported, match="has no predict_survival"):
        fitted().predict_survival(rows[:9], times)

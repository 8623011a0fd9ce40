"""A personal last layer is switched on by the alarm, and by nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedcohort.algorithms.autoencoders import VAE
from fedcohort.algorithms.deepcox import METHOD
from fedcohort.algorithms.personal import METHOD as PERSONAL
from fedcohort.data.tables import FeatureTable, SurvivalTable
from fedcohort.models.network import Mlp, initial
from fedcohort.protocol import SettingError, Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training import heterogeneity, personal
from fedcohort.training.networks import strategies
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.networks.switching import personalise_once_apart
from fedcohort.training.personal import Way, last_layer, personalise

SEED, ROUNDS = 2, 12
NET = Mlp(inputs=3, hidden=(4,), intercept=False).spec
PLAN = Plan(network=NET, loss="cox", epochs=2, optimiser="sgd")
STEPS = (*strategies.STEPS, *heterogeneity.STEPS, *personal.STEPS)
WAY = Way(name="fedper", user="a", own=last_layer(NET))


def tables(sign):
    made = {}
    for name in "abcd":
        rng = np.random.default_rng(ord(name))
        x = rng.normal(size=(200, 3))
        eta = (sign if name in "cd" else 1.0) * (x @ [1.5, -1.0, 0.5])
        made[name] = SurvivalTable(x, rng.exponential(np.exp(-eta)), np.ones(200, bool))
    return made


def federation(data, steps=STEPS):
    return local([Host(n, t, steps, SEED) for n, t in data.items()])


def server(theta):
    return Server.at(theta, rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3)


def schedule(rounds, keep=()):
    return Schedule(rounds=rounds, learning_rate=0.3, lr_rule="constant", keep=keep)


def switched(fed, keep=(), way=WAY):
    theta = initial(NET, 1)
    return personalise_once_apart(
        fed, PLAN, schedule(ROUNDS, keep), fedavg, server, theta, way, monitor="gradient",
        min_cell=5,
    )  # fmt: skip


def test_without_an_alarm_all_have_the_common_model():
    fed = federation(tables(1.0))
    found = switched(fed)
    plain = strategies.averaging(
        federation(tables(1.0)), PLAN, schedule(ROUNDS), fedavg, server(initial(NET, 1)),
        lambda _: 0.0,
    )  # fmt: skip
    assert_allclose(found.theta, plain.theta, rtol=0, atol=0)
    assert found.rounds == ROUNDS
    assert not any(row["R"] > row["R_alarm"] for row in fed.history if "R" in row)


def test_after_an_alarm_the_user_has_a_last_layer_of_its_own():
    data = tables(-1.0)
    fed = federation(data)
    found = switched(fed, keep=(1, 10))
    alarms = [row["round"] for row in fed.history if row.get("R", 0) > row.get("R_alarm", 0)]
    assert alarms == [found.common_rounds]
    assert [row["round"] for row in fed.history if "loss" in row] == list(range(ROUNDS))
    assert found.rounds == ROUNDS
    assert sorted(found.kept) == [1, 10]
    own = WAY.mask(len(found.theta))
    assert (found.theta[own] != found.common[own]).all()
    # the same in two trainings, one after the other
    fed = federation(data)
    seen = heterogeneity.Watch(fed, PLAN, "gradient", least=5, ends=True)
    first = strategies.averaging(
        fed, PLAN, schedule(ROUNDS), fedavg, server(initial(NET, 1)), lambda _: 0.0, watch=seen
    )
    assert 0 < first.rounds < ROUNDS
    rest = personalise(
        federation(data), PLAN, schedule(ROUNDS - first.rounds), fedavg, server(first.theta), WAY,
        min_cell=5,
    )  # fmt: skip
    assert_allclose(found.common, rest.common, rtol=1e-9)
    assert_allclose(found.theta, rest.theta, rtol=1e-9)


@pytest.mark.parametrize(("names", "user"), [("abcd", "z"), ("abcd", ""), ("ab", "a")])
def test_a_user_or_a_number_of_sites_that_cannot_be_is_said_before_the_training(names, user):
    fed = federation({name: tables(1.0)[name] for name in names})
    with pytest.raises(SettingError):
        switched(fed, way=replace(WAY, user=user))
    assert not fed.ledger.lines


@pytest.mark.parametrize("way", ["local", "cluster", "global"])
def test_a_way_that_does_not_go_on_from_a_common_model_is_refused(way):
    if way == "cluster":
        with pytest.raises(SettingError, match="cannot start from a common model"):
            METHOD.configure({"monitor": "gradient", "personal": way, "user": "a"})
        with pytest.raises(SettingError, match="'personal' continues in a personal way once"):
            PERSONAL.configure({"monitor": "loss", "way": way, "user": "a"})
    else:
        with pytest.raises(SettingError):
            METHOD.configure({"monitor": "gradient", "personal": way, "user": "a"})


def test_deepcox_goes_on_with_a_personal_last_layer_where_sites_differ():
    settings = {
        "monitor": "gradient", "personal": "fedper", "user": "a", "rounds": 12, "hidden": (4,),
        "learning_rate": 0.05,
    }  # fmt: skip
    task = Task(kind="survival", features=("u", "v", "w"), seed=SEED, outcome="survival")
    models = {}
    for sign in (1.0, -1.0):
        fed = federation(tables(sign), METHOD.steps)
        models[sign] = METHOD.fit(fed, METHOD.configure(settings), task)
        common = METHOD.configure({**settings, "monitor": "none", "personal": "none", "user": ""})
        plain = METHOD.fit(federation(tables(sign), METHOD.steps), common, task)
        x = np.random.default_rng(0).normal(size=(20, 3))
        alike = np.allclose(models[sign].predict(x), plain.predict(x))
        assert alike == (sign > 0)


@pytest.mark.parametrize("way", ["finetune", "ditto", "fedrep"])
def test_a_regression_is_one_sites_own_from_the_alarm_on_and_says_since_when(way):
    settings = {"user": "a", "way": way, "rounds": 12, "monitor": "gradient", "model": "cox"}
    own = {"own_features": ("u",)} if way == "fedrep" else {}
    task = Task(kind="survival", features=("u", "v", "w"), seed=SEED, outcome="survival")
    fits = {}
    for sign in (1.0, -1.0):
        fed = federation(tables(sign), PERSONAL.steps)
        model = PERSONAL.fit(fed, PERSONAL.configure({**settings, **own}), task)
        alone = PERSONAL.configure({"user": "a", "way": "global", "rounds": 12, "model": "cox"})
        common = PERSONAL.fit(federation(tables(sign), PERSONAL.steps), alone, task)
        fits[sign] = model, common
        names = [row["name"] for row in model.parameters(np.zeros(0))]
        assert ("common rounds" in names) == (sign < 0)
        assert bool(model.cautions()) == (sign > 0)
        assert any("R" in row for row in fed.history)
    alike, common = fits[1.0]
    assert_allclose(alike.theta, common.theta, rtol=0, atol=0)
    assert alike.common_rounds == alike.rounds == 12
    apart, common = fits[-1.0]
    assert 0 < apart.common_rounds < 12
    assert np.abs(apart.theta - common.theta).max() > 0.1


@pytest.mark.parametrize("kind", ["gradient", "loss"])
def test_a_common_model_that_is_watched_is_the_same_to_the_bit(kind):
    task = Task(kind="survival", features=("u", "v", "w"), seed=SEED, outcome="survival")
    found, history = [], []
    for monitor in ("none", kind):
        fed = federation(tables(-1.0), PERSONAL.steps)
        given = {"user": "a", "way": "global", "rounds": 12, "model": "cox", "monitor": monitor}
        found.append(PERSONAL.fit(fed, PERSONAL.configure(given), task))
        history.append(fed.history)
    assert_allclose(found[0].theta, found[1].theta, rtol=0, atol=0)
    assert not found[1].cautions()
    assert not any("R" in row for row in history[0])
    assert any(row["R"] > row["R_alarm"] for row in history[1] if "R" in row)


def mixtures(shift, seed=0):
    """Return two columns of four sites, with holes; at two of them they go the other way."""
    made = {}
    for k, name in enumerate("abcd"):
        rng = np.random.default_rng((seed, k))
        z = rng.normal(size=(200, 1))
        x = z @ [[1.0, -1.0 if shift and k > 1 else 1.0, 0.5]] + 0.3 * rng.normal(size=(200, 3))
        x[rng.random(x.shape) < 0.1] = np.nan
        made[name] = FeatureTable(x)
    return made


@pytest.mark.parametrize("shift", [False, True])
def test_an_autoencoder_is_one_sites_own_from_the_alarm_on(shift):
    settings = {"q": 1, "hidden": (4,), "rounds": 15, "internal_epochs": 5, "learning_rate": 0.02}
    settings["record_kl"] = 0  # its sums are calls, and draws depend on the number of the call
    task = Task(kind="latent", features=("u", "v", "w"), seed=SEED)
    models = []
    given = {"monitor": "gradient", "personal": "finetune", "user": "a"}
    for more in ({"monitor": "gradient"}, given):
        fed = federation(mixtures(shift), VAE.steps)
        models.append(VAE.fit(fed, VAE.configure({**settings, **more}), task))
    watched, own = (model.theta for model in models)
    assert np.array_equal(own, watched) == (not shift)
    alarms = [row["R"] > row["R_alarm"] for row in fed.history if "R" in row]
    assert any(alarms) == shift

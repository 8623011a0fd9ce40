"""A personal last layer is switched on by the alarm, and by nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedcohort.algorithms.deepcox import METHOD
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.network import Mlp, initial
from fedcohort.protocol import SettingError, Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training import personal, strategies, watch
from fedcohort.training.course import Schedule
from fedcohort.training.personal import Way, last_layer, personalise
from fedcohort.training.plan import Plan
from fedcohort.training.server import Server, fedavg
from fedcohort.training.switching import personalise_once_apart

SEED, ROUNDS = 2, 12
NET = Mlp(inputs=3, hidden=(4,), intercept=False).spec
PLAN = Plan(network=NET, loss="cox", epochs=2, optimiser="sgd")
STEPS = (*strategies.STEPS, *watch.STEPS, *personal.STEPS)
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
    found = switched(federation(data), keep=(1, 10))
    assert found.rounds == ROUNDS
    assert sorted(found.kept) == [1, 10]
    own = WAY.mask(len(found.theta))
    assert (found.theta[own] != found.common[own]).all()
    # the same in two trainings, one after the other
    fed = federation(data)
    seen = watch.Watch(fed, PLAN, "gradient", least=5, ends=True)
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
        with pytest.raises(SettingError, match="does not go on from a common model"):
            METHOD.configure({"monitor": "gradient", "personal": way, "user": "a"})
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

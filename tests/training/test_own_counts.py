"""Sites with an own last layer count the rounds without a better loss of their own model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from fedcohort.data.tables import LabelledTable
from fedcohort.models.network import Mlp, initial
from fedcohort.protocol import Refused, SettingError, registry
from fedcohort.protocol.host import Host
from fedcohort.protocol.step import Site, entropy
from fedcohort.runtime.local import local
from fedcohort.training import personal
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.networks.strategies import train_here
from fedcohort.training.personal import Way, last_layer, own_counts, personalise
from fedcohort.training.personal.visits import Own
from fedcohort.training.rows import chosen

SEED, EPOCHS, OWN_EPOCHS = 5, 3, 2
NET = Mlp(inputs=3, hidden=(2,), activation="tanh").spec
PLAN = Plan(network=NET, loss="logistic", epochs=EPOCHS, optimiser="sgd", validation_fraction=0.3)
SCHEDULE = Schedule(
    rounds=60, learning_rate=2.0, lr_rule="plateau", lr_factor=0.5, lr_patience=2, patience=5,
    patience_by="count",
)  # fmt: skip
START = initial(NET, 1)
ROWS = {"a": 40, "b": 70, "c": 53}


def tables():
    """Return sites, of which c has the opposite effect."""
    made = {}
    for name, n in ROWS.items():
        rng = np.random.default_rng(ord(name))
        x = rng.normal(size=(n, 3))
        p = expit((-1.0 if name == "c" else 1.0) * x @ [1.5, -1.0, 0.5])
        made[name] = LabelledTable(x, (rng.random(n) < p).astype(float))
    return made


def federation(data, **options):
    steps = (train_here, *personal.STEPS, *own_counts.STEPS)
    return local([Host(n, t, steps, SEED) for n, t in data.items()], **options)


def trained(way, user, fed=None, schedule=SCHEDULE):
    fed = fed or federation(tables())
    epochs = OWN_EPOCHS if way == "fedrep" else 0
    given = Way(name=way, user=user, own=last_layer(NET), epochs=epochs)
    server = Server.at(START, rate=1, beta1=0, beta2=0, tau=1)
    found = personalise(fed, PLAN, schedule, fedavg, server, given, min_cell=5, seed=SEED)
    return found, fed


# the loop of the paper, in torch --------------------------------------------------------


def loss_of(theta, x, y):
    hidden = torch.tanh(x @ theta[:6].reshape(2, 3).T + theta[6:8])
    return torch.nn.functional.binary_cross_entropy_with_logits(hidden @ theta[8:10] + theta[10], y)


def descended(theta, rows, rate, epochs, free):
    theta = torch.tensor(theta)
    for _ in range(epochs):
        theta.requires_grad_()
        (slope,) = torch.autograd.grad(loss_of(theta, *rows), theta)
        theta = (theta - rate * torch.tensor(free) * slope).detach()
    return theta.numpy()


def halves(table, name):
    """Return the training and the held-out rows of a site."""
    parts = chosen(len(table.x), PLAN.validation_fraction, entropy(SEED, name, 0))
    return [(torch.tensor(table.x[i]), torch.tensor(table.y[i])) for i in parts]


def by_hand(way):
    """Return each site's model, the rates, and the mean counts, of the loop in the paper."""
    data = tables()
    parts = {s: halves(t, s) for s, t in data.items()}
    n = {s: len(train[1]) for s, (train, _) in parts.items()}
    own_part, body = np.r_[np.zeros(8), np.ones(3)], np.r_[np.ones(8), np.zeros(3)]
    common, own = START[:8], dict.fromkeys(data, START[8:])
    history, rates, means = [], [], []
    least, idle = dict.fromkeys(data, math.inf), dict.fromkeys(data, 0)
    rate, cut = SCHEDULE.learning_rate, 0
    for i in range(SCHEDULE.rounds):
        left = {}
        for s, (train, _) in parts.items():
            theta = np.r_[common, own[s]]
            if way == "fedper":
                theta = descended(theta, train, rate, EPOCHS, np.ones(11))
            else:
                theta = descended(theta, train, rate, OWN_EPOCHS, own_part)
                theta = descended(theta, train, rate, EPOCHS, body)
            left[s], own[s] = theta[:8], theta[8:]
        common = sum(n[s] * left[s] for s in n) / sum(n.values())
        history.append((common, dict(own)))
        rates.append(rate)
        for s, (_, held_out) in parts.items():
            loss = float(loss_of(torch.tensor(np.r_[common, own[s]]), *held_out))
            idle[s] = 0 if loss < least[s] else idle[s] + 1
            least[s] = min(loss, least[s])
        means.append(np.mean([*idle.values()]))
        if means[-1] >= SCHEDULE.patience:
            break
        if np.mean([min(idle[s], i - cut) for s in idle]) >= SCHEDULE.lr_patience:
            rate, cut = rate * SCHEDULE.lr_factor, i
    common, own = history[round(i - means[-1])]
    models = {s: np.r_[common, own[s]] for s in data}
    if way == "fedrep":
        models = {
            s: descended(m, parts[s][0], rates[-1], OWN_EPOCHS, own_part) for s, m in models.items()
        }
    return models, rates, means


@pytest.mark.parametrize("way", ["fedper", "fedrep"])
def test_counts_of_own_last_layers_cut_the_rate_and_end_the_training_as_the_papers_loop(way):
    models, rates, means = by_hand(way)
    assert 5 < len(rates) < SCHEDULE.rounds and len(set(rates)) > 1  # ended early, and was cut
    for user, wanted in models.items():
        found, fed = trained(way, user)
        assert_allclose([row["learning_rate"] for row in fed.history], rates, rtol=1e-12)
        assert_allclose([row["idle_rounds"] for row in fed.history], means, rtol=1e-12)
        assert_allclose(found.theta, wanted, atol=1e-9)
        assert found.rounds == len(rates)


def counted(state, at, theta=START, patience=2, name="a"):
    """Return the counts of a site's question about round `at`, and what it keeps."""
    way = Way(name="fedper", user="all", own=last_layer(NET)).text
    site = Site(name, tables()[name], state, entropy(SEED, name, 1))
    reply = own_counts.count_idle_own.run(
        site, theta=theta, plan=PLAN.text, way=way, since_cut=at, at=at, patience=patience
    )
    return reply.reply, reply.state


def turned_back(state, at, name="a"):
    way = Way(name="fedper", user="all", own=last_layer(NET)).text
    site = Site(name, tables()[name], state, entropy(SEED, name, 1))
    return own_counts.turn_back.run(site, theta=START, way=way, at=at).state.theta


def test_a_site_that_was_away_takes_back_the_part_that_it_had_in_that_round():
    state = Own(np.full(3, 1.0), np.array(0.0), np.array(1))
    _, state = counted(state, 1)
    for at in (6, 7, 8):  # it is away in rounds 2 to 5
        _, state = counted(replace(state, theta=np.full(3, float(at))), at)
    assert state.parts_at.tolist() == [6, 7, 8]  # no more than patience + 1
    assert turned_back(state, 7).tolist() == [7.0] * 3
    assert turned_back(state, 4).tolist() == [6.0] * 3  # it no longer has an earlier one
    _, early = counted(Own(np.full(3, 1.0), np.array(0.0), np.array(1)), 1)
    _, early = counted(replace(early, theta=np.full(3, 5.0)), 5, patience=2)
    assert turned_back(early, 4).tolist() == [1.0] * 3  # in round 4 it had that of round 1


def test_a_site_that_never_trained_has_the_first_own_part_and_counts_by_it():
    counts, state = counted(None, 3)
    assert_array_equal(state.theta, START[8:])
    assert (int(counts.sites), int(counts.idle)) == (1, 0)
    assert_array_equal(turned_back(None, 2), START[8:])


@pytest.mark.parametrize("step", own_counts.STEPS)
def test_a_way_without_own_parts_is_refused_at_the_site(step):
    site = Site("a", tables()["a"], None, entropy(SEED, "a", 1))
    given = {"plan": PLAN.text, "since_cut": 0, "patience": 1}
    given = given if step is own_counts.count_idle_own else {}
    with pytest.raises(Refused, match="site 'a' has no own part in the way 'ditto'"):
        step.run(site, theta=START, way=Way(name="ditto", user="all").text, at=0, **given)


def test_no_loss_leaves_a_site_and_the_counts_and_the_end_only_as_sums():
    _, fed = trained("fedrep", "all")
    lines = [line for line in fed.ledger.lines if "idle" in line or "turn_back" in line]
    assert lines and all('"verb":"sum"' in line.replace(" ", "") for line in lines)
    assert not any("held_out" in line for line in fed.ledger.lines)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"patience": 3}, "a patience, which looks at the common model; leave it out, or give pat"),
        ({"lr_rule": "plateau"}, "lr_rule 'plateau', which looks at the common model"),
        ({"patience": 3, "patience_by": "count", "personal": "ditto"}, "a patience, which looks"),
        ({"patience": 3, "patience_by": "count", "keep_rounds": (2,)}, "keep_rounds beside a pat"),
        ({"patience": 3, "patience_by": "count", "monitor": "loss"}, "plateau beside a monitor"),
    ],
)
def test_patience_that_no_own_part_decides_is_refused(settings, words):
    given = {"personal": "fedrep", "user": "a", **settings}
    with pytest.raises(SettingError, match=words):
        registry.find("classifier").configure(given)
    if "keep_rounds" not in given:
        with pytest.raises(SettingError, match=words):
            registry.find("vae").configure(given)

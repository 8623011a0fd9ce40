"""Local training is a pure function; its terms are those of the loss it claims to descend."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from fedcohort.data import tables as remembered_module
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.network import Mlp, initial
from fedcohort.training.networks.local import evaluate, train
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import chosen, rows_of

NET = Mlp(inputs=4, hidden=(5, 3), activation="tanh", intercept=False).spec
PLAN = Plan(network=NET, loss="cox", epochs=7)
ENTROPY = (0, 1, 2)


def table(n=40, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    time = np.ceil(rng.exponential(8.0, n) * np.exp(-x[:, 0]))
    return SurvivalTable(x, time, rng.random(n) < 0.6)


def train_on(data, plan=PLAN, rate=0.05, entropy=ENTROPY, theta=None):
    theta = initial(NET, 0) if theta is None else theta
    return train(theta, rows_of(data, plan, entropy), plan, rate, entropy)


def by_autograd(data, plan, rate, theta):
    """Written anew with modules, autograd and torch.optim; loops over deaths."""
    net = nn.Sequential(
        nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 1, bias=False)
    )
    net.double()
    nn.utils.vector_to_parameters(torch.from_numpy(theta.copy()), net.parameters())
    anchor = nn.utils.parameters_to_vector(net.parameters()).detach().clone()
    optimiser = torch.optim.Adam(net.parameters(), lr=rate)
    x, time = torch.from_numpy(data.x), torch.from_numpy(data.time)
    for _ in range(plan.epochs):
        f = net(x)[:, 0]
        loss = 0.0
        for j in np.flatnonzero(data.event):
            loss = loss + torch.logsumexp(f[time >= time[j]], 0) - f[j]
        weights = net[0].weight
        loss = loss / len(x) + plan.l1 * weights.abs().sum() + plan.l2 / 2 * (weights**2).sum()
        there = nn.utils.parameters_to_vector(net.parameters())
        loss = loss + plan.mu / 2 * ((there - anchor) ** 2).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy()


@pytest.mark.parametrize("terms", [{}, {"l1": 0.02, "l2": 0.1}, {"mu": 0.5}])
def test_training_is_what_autograd_and_torch_optim_do(terms):
    plan, data = replace(PLAN, **terms), table()
    theta, _ = train_on(data, plan)
    assert_allclose(theta, by_autograd(data, plan, 0.05, initial(NET, 0)), rtol=1e-9, atol=1e-11)


def test_training_is_pure_whatever_was_trained_in_between():
    plan, data, theta = replace(PLAN, batches=3), table(), initial(NET, 0)
    kept = theta.copy()
    first, loss = train_on(data, plan, theta=theta)
    train_on(table(seed=5), plan, entropy=(9, 9, 9))
    again, its_loss = train_on(data, plan, theta=theta)
    assert np.array_equal(first, again)
    assert loss == its_loss
    assert np.array_equal(theta, kept)
    other, _ = train_on(data, plan, entropy=(0, 1, 3))
    assert not np.array_equal(first, other)


def test_dropout_is_drawn_from_the_entropy():
    plan = replace(PLAN, network=Mlp(inputs=4, hidden=(8,), dropout=0.5).spec)
    theta = initial(plan.network, 0)
    a, b, c = (train_on(table(), plan, theta=theta, entropy=e)[0] for e in [(0,), (0,), (1,)])
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_the_loss_returned_is_that_of_the_vector_given():
    for batches in (1, 4):
        plan = replace(PLAN, batches=batches, l1=0.1, l2=0.1)
        rows = rows_of(table(), plan, ENTROPY)
        assert train_on(table(), plan)[1] == pytest.approx(evaluate(initial(NET, 0), rows, plan))


def test_the_proximal_term_pulls_the_model_back():
    start = initial(NET, 0)
    moved = [
        np.linalg.norm(train_on(table(), replace(PLAN, mu=mu, epochs=40))[0] - start)
        for mu in (0.0, 0.3, 3.0)
    ]
    assert moved[0] > moved[1] > moved[2]


def test_l1_makes_the_first_layer_smaller_and_leaves_the_others_free():
    free, shrunk = (train_on(table(), replace(PLAN, l1=v, epochs=60))[0] for v in (0.0, 0.2))
    assert np.abs(shrunk[:20]).sum() < 0.5 * np.abs(free[:20]).sum()


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("batches", [1, 3])
def test_a_site_without_deaths_or_rows_returns_the_model_as_it_came(n, batches):
    data = SurvivalTable(np.ones((n, 4)), np.arange(1.0, n + 1), np.zeros(n, bool))
    theta, loss = train_on(data, replace(PLAN, batches=batches))
    assert np.array_equal(theta, initial(NET, 0))
    assert loss == 0.0


def test_one_row_with_a_death_teaches_nothing_and_breaks_nothing():
    data = SurvivalTable(np.ones((1, 4)), np.ones(1), np.ones(1, bool))
    for batches in (1, 3):
        theta, _ = train_on(data, replace(PLAN, batches=batches))
        assert_allclose(theta, initial(NET, 0), rtol=0)


def test_held_out_rows_are_the_same_in_every_call_and_not_trained_on():
    trained, held_out = chosen(37, 0.2, (4, 5, 6))
    assert np.array_equal(chosen(37, 0.2, (4, 5, 999))[1], held_out)
    assert not np.array_equal(chosen(37, 0.2, (4, 6, 6))[1], held_out)
    assert len(held_out) == 7
    assert sorted([*trained, *held_out]) == list(range(37))
    plan, data = replace(PLAN, validation_fraction=0.2), table(37)
    rows = [rows_of(data, plan, (4, 5, 6), held_out=h).x.numpy() for h in (False, True)]
    assert np.array_equal(rows[0], data.x[trained])
    assert np.array_equal(rows[1], data.x[held_out])


def test_rows_are_prepared_once_and_forgotten_with_their_table():
    gc.collect()
    before = len(remembered_module._memories)
    data = table(seed=77)
    assert rows_of(data, PLAN, ENTROPY) is rows_of(data, PLAN, ENTROPY)
    other = data._replace(x=data.x + 1.0)
    assert_allclose(rows_of(other, PLAN, ENTROPY).x.numpy(), data.x + 1.0)
    assert len(remembered_module._memories) == before + 1
    del data, other
    gc.collect()
    assert len(remembered_module._memories) == before


def test_rows_on_the_cpu_are_not_copied():
    data = table()
    assert np.shares_memory(rows_of(data, PLAN, ENTROPY).x.numpy(), data.x)

"""DeepCox by rounds of local training: whole fits against loops written anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from fedcohort.algorithms.deepcox import METHOD
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.network import initial
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

SETTINGS = {"hidden": [4], "activation": "tanh", "rounds": 4, "internal_epochs": 3}
SETTINGS |= {"learning_rate": 0.05, "lr_rule": "constant", "l1": 0.001, "l2": 0.01}
SERVER = {"server_learning_rate": 0.1, "beta1": 0.8, "beta2": 0.95, "tau": 0.01, "mu": 0.7}


def sites():
    """Return three sites of unequal sizes."""
    rng = np.random.default_rng(0)
    out = {}
    for name, n in (("a", 50), ("b", 20), ("c", 35)):
        x = rng.normal(size=(n, 3))
        time = np.ceil(20 * rng.exponential(np.exp(-x[:, 0])))
        out[name] = SurvivalTable(x, time, rng.random(n) < 0.6)
    return out


def trained_at_home(table, theta, mu):
    """Return one site's parameters after its epochs, from θ."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1, bias=False)).double()
    nn.utils.vector_to_parameters(torch.from_numpy(theta.copy()), net.parameters())
    start, adam = torch.from_numpy(theta), torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(3):
        f = net(torch.from_numpy(table.x))[:, 0]
        loss = torch.zeros((), dtype=torch.float64)
        for j in np.flatnonzero(table.event):
            loss = loss + torch.logsumexp(f[table.time >= table.time[j]], 0) - f[j]
        loss = loss / len(f) + 0.001 * net[0].weight.abs().sum()
        loss = loss + 0.005 * (net[0].weight ** 2).sum()
        loss = (
            loss + mu / 2 * ((nn.utils.parameters_to_vector(net.parameters()) - start) ** 2).sum()
        )
        adam.zero_grad()
        loss.backward()
        adam.step()
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy()


def by_hand(strategy, theta, tables):
    """Return the parameters after four rounds."""
    m, v = np.zeros_like(theta), np.full_like(theta, 0.01**2)
    for _ in range(4):
        mu = 0.7 if strategy == "fedprox" else 0.0
        models = [trained_at_home(t, theta, mu) for t in tables.values()]
        mean = np.average(models, axis=0, weights=[len(t.x) for t in tables.values()])
        if strategy in ("fedavg", "fedprox"):
            theta = mean
            continue
        change = mean - theta
        m = 0.8 * m + 0.2 * change
        if strategy == "fedadam":
            v = 0.95 * v + 0.05 * change**2
        else:
            v = v - 0.05 * change**2 * np.sign(v - change**2)
        theta = theta + 0.1 * m / (np.sqrt(v) + 0.01)
    return theta


@pytest.mark.parametrize("strategy", ["fedavg", "fedprox", "fedadam", "fedyogi"])
def test_four_rounds_are_those_of_a_loop_with_autograd_and_the_papers_server_rules(strategy):
    tables = sites()
    fed = local([Host(name, table, METHOD.steps) for name, table in tables.items()])
    config = METHOD.configure(SETTINGS | SERVER | {"strategy": strategy})
    task = Task(kind="survival", features=("p", "q", "r"), seed=5)
    model = METHOD.fit(fed, config, task)
    expected = by_hand(strategy, initial(model.network, 5), tables)
    assert_allclose(model.thetas[0], expected, rtol=0, atol=1e-10)

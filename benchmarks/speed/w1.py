"""W1, "DeepCox": 8 sites × 190 rows × 70 features, a perceptron 70-8-4-1 with Cox's loss.

5 full-batch Adam steps a visit, 100 rounds of FedAvg, float64. Four ways to the same model:

plain   modules, autograd through the loss, `torch.optim.Adam`, state dictionaries averaged
flat    the arithmetic of `fedcohort.training`, as one loop over sites without anything else
local   `fedcohort.training.networks.strategies.averaging` on the local runtime, ledger and journal
        on, sums exact (`secure_aggregation: auto`)
floats  the same with sums of floats (`secure_aggregation: false`)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.losses import PartialLikelihood
from fedcohort.models.network import Mlp, initial, network
from fedcohort.protocol.host import Host
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from fedcohort.training.networks.optimisers import Adam
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.networks.strategies import STEPS, averaging

SITES, ROWS, FEATURES, EPOCHS, RATE, ROUNDS = 8, 190, 70, 5, 0.01, 100
NET = Mlp(inputs=FEATURES, hidden=(8, 4), activation="tanh", intercept=False)
PLAN = Plan(network=NET.spec, loss="cox", epochs=EPOCHS)


def tables(seed: int = 0) -> dict[str, SurvivalTable]:
    """Simulate the sites: hazards that differ by three of the features, half of them censored."""
    rng = np.random.default_rng(seed)
    out: dict[str, SurvivalTable] = {}
    for k in range(SITES):
        x = rng.uniform(size=(ROWS, FEATURES))
        hazard = np.exp(2.0 * x[:, 0] - 2.0 * x[:, 1] + x[:, 2] ** 2)
        out[f"site{k}"] = SurvivalTable(
            x, np.ceil(1000 * rng.exponential(1.0, ROWS) / hazard), rng.random(ROWS) < 0.5
        )
    return out


def plain(sites: dict[str, SurvivalTable], rounds: int) -> Array:
    """Train as most scripts do."""
    net = nn.Sequential(
        nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1, bias=False)
    ).double()
    nn.utils.vector_to_parameters(torch.from_numpy(initial(NET.spec, 0)), net.parameters())
    ready: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    for table in sites.values():
        order = np.argsort(-table.time, kind="stable")
        time = -table.time[order]
        last = torch.from_numpy(np.searchsorted(time, time, side="right") - 1)
        event = torch.from_numpy(table.event[order].astype(float))
        ready.append((torch.from_numpy(table.x[order]), last, event))
    common = {name: value.clone() for name, value in net.state_dict().items()}
    for _ in range(rounds):
        states: list[dict[str, torch.Tensor]] = []
        for x, last, event in ready:
            net.load_state_dict(common)
            adam = torch.optim.Adam(net.parameters(), lr=RATE)
            for _ in range(EPOCHS):
                adam.zero_grad()
                f = net(x).squeeze(-1)
                loss = (event * (torch.logcumsumexp(f, 0)[last] - f)).sum() / len(x)
                loss.backward()
                adam.step()
            states.append({name: value.clone() for name, value in net.state_dict().items()})
        common = {name: torch.stack([s[name] for s in states]).mean(0) for name in common}
    return torch.cat([value.ravel() for value in common.values()]).numpy()


def flat(sites: dict[str, SurvivalTable], rounds: int) -> Array:
    """Train by the package's arithmetic, without plans, steps, messages, ledger or journal."""
    net = network(NET.spec)
    ready = [(torch.from_numpy(t.x), PartialLikelihood(t.time, t.event)) for t in sites.values()]
    n = sum(len(x) for x, _ in ready)
    theta = initial(NET.spec, 0)
    for _ in range(rounds):
        total = np.zeros_like(theta)
        for x, loss in ready:
            net.load(theta)
            adam = Adam(net.theta)
            for _ in range(EPOCHS):
                net.pull(x, loss)
                adam.step(net.theta, net.grad, RATE)
            total += len(x) * net.theta.numpy()
        theta = total / n
    return theta


def runtime(sites: dict[str, SurvivalTable], rounds: int, secure: str = "auto") -> Array:
    """Train on the local runtime."""
    hosts = [Host(name, table, STEPS) for name, table in sites.items()]
    schedule = Schedule(rounds=rounds, learning_rate=RATE, lr_rule="constant")
    server = Server.at(initial(NET.spec, 0), rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal")
        fed = local(hosts, journal=journal, secure=secure)
        course = averaging(fed, PLAN, schedule, fedavg, server, lambda theta: 0.0)
        journal.close()
    assert len(fed.ledger.lines) == rounds * SITES
    return course.theta


VARIANTS: dict[str, Callable[[dict[str, SurvivalTable], int], Array]] = {
    "plain": plain,
    "flat": flat,
    "local": runtime,
    "floats": partial(runtime, secure="false"),
}

#: (numerator, denominator, what the ratio shall be).
GOALS = (("local", "flat", "<=", 1.10), ("plain", "local", ">=", 12.0))

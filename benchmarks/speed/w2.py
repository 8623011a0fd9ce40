"""W2, "TSAE": 10 sites × 204 rows × 54 binary columns, an autoencoder 54-500-500-2000-10 and back.

Stochastic descent at 0.01 with momentum 0.9, batches of 64 rows, one epoch a visit, 20 rounds of
FedAvg, float32. The autoencoder is untied: 2.6 million parameters, whose matrix products are what
`performance.md` measured; tied, the same products move half as many. Four ways to the same model:

plain    modules, `torch.optim.SGD`, state dictionaries averaged
flat     the arithmetic of `fedcohort.training`, as one loop over sites without anything else
local    `fedcohort.training.networks.strategies.averaging` on the local runtime, ledger and journal
         on, sums exact (`secure_aggregation: auto`)
threads  the same with two sites that compute at once, on threads
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedcohort.arrays import Array
from fedcohort.data.tables import FeatureTable
from fedcohort.models.autoencoder import Autoencoder
from fedcohort.models.network import initial, network
from fedcohort.models.objectives import Reconstruction
from fedcohort.protocol.host import Host
from fedcohort.protocol.step import entropy
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local, one_thread
from fedcohort.training.networks.optimisers import Momentum
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.networks.strategies import STEPS, averaging

SITES, ROWS, COLUMNS, BATCH, RATE, ROUNDS = 10, 204, 54, 64, 0.01, 20
NET = Autoencoder(inputs=COLUMNS, tied=False, output="linear")
LOSS = Reconstruction()
PLAN = Plan(
    network=NET.spec, loss=LOSS.spec, epochs=1, batch_size=BATCH, optimiser="momentum",
    dtype="float32",
)  # fmt: skip


def tables(seed: int = 0) -> dict[str, FeatureTable]:
    """Simulate the sites: five kinds of rows, each with its own chance of a 1 in every column."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(0.5, 2.0, (5, COLUMNS))
    return {
        f"site{k}": FeatureTable(
            (rng.random((ROWS, COLUMNS)) < chance[rng.integers(5, size=ROWS)]) * 1.0
        )
        for k in range(SITES)
    }


def dealt(site: str, call: int) -> list[Array]:
    """Return the rows of each batch of a visit, as `training.networks.local` draws them."""
    rng = np.random.default_rng(entropy(0, site, call))
    return [np.sort(p) for p in np.array_split(rng.permutation(ROWS), -(-ROWS // BATCH))]


def module() -> nn.Module:
    """Return the autoencoder as most scripts write it."""
    widths = (COLUMNS, 500, 500, 2000, 10, 2000, 500, 500, COLUMNS)
    layers: list[nn.Module] = []
    for k, (a, b) in enumerate(pairwise(widths)):
        layers += [nn.Linear(a, b)] + ([] if k in (3, 7) else [nn.ReLU()])
    return nn.Sequential(*layers)


def plain(sites: dict[str, FeatureTable], rounds: int) -> Array:
    """Train as most scripts do."""
    net = module()
    first = torch.from_numpy(initial(NET.spec, 0).astype(np.float32))
    nn.utils.vector_to_parameters(first, net.parameters())
    ready = {name: torch.from_numpy(table.x.astype(np.float32)) for name, table in sites.items()}
    common = {name: value.clone() for name, value in net.state_dict().items()}
    for i in range(rounds):
        states: list[dict[str, torch.Tensor]] = []
        for name, x in ready.items():
            net.load_state_dict(common)
            sgd = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9)
            for part in dealt(name, i):
                batch = x[part]
                sgd.zero_grad()
                loss = nn.functional.mse_loss(net(batch), batch)
                loss.backward()
                sgd.step()
            states.append({name: value.clone() for name, value in net.state_dict().items()})
        common = {name: torch.stack([s[name] for s in states]).mean(0) for name in common}
    return torch.cat([value.ravel() for value in common.values()]).numpy()


def flat(sites: dict[str, FeatureTable], rounds: int) -> Array:
    """Train by the package's arithmetic, without plans, steps, messages, ledger or journal."""
    net = network(NET.spec, "float32")
    ready = {name: torch.from_numpy(table.x.astype(np.float32)) for name, table in sites.items()}
    theta = initial(NET.spec, 0)
    for i in range(rounds):
        total = np.zeros_like(theta)
        for name, x in ready.items():
            net.load(theta)
            momentum = Momentum(net.theta)
            for part in dealt(name, i):
                LOSS.pull(net, x[part])
                momentum.step(net.theta, net.grad, RATE)
            total += ROWS * net.theta.numpy()
        theta = total / (SITES * ROWS)
    return theta


def runtime(sites: dict[str, FeatureTable], rounds: int, threads: int = 1) -> Array:
    """Train on the local runtime."""
    hosts = [Host(name, table, STEPS) for name, table in sites.items()]
    schedule = Schedule(rounds=rounds, learning_rate=RATE, lr_rule="constant")
    server = Server.at(initial(NET.spec, 0), rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal")
        with one_thread():
            fed = local(hosts, threads=threads, journal=journal)
            course = averaging(fed, PLAN, schedule, fedavg, server, lambda theta: 0.0)
        journal.close()
    assert len(fed.ledger.lines) == rounds * SITES
    return course.theta


VARIANTS: dict[str, Callable[[dict[str, FeatureTable], int], Array]] = {
    "plain": plain,
    "flat": flat,
    "local": runtime,
    "threads": partial(runtime, threads=2),
}

#: (numerator, denominator, what the ratio shall be).
GOALS = (("local", "flat", "<=", 1.05), ("threads", "plain", "<=", 0.6))

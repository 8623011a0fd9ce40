"""DeepCox `exact`, over sites that a split makes, is pooled training."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from fedcohort.algorithms.deepcox import METHOD
from fedcohort.data.outcome import Survival
from fedcohort.data.split import partition
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.network import initial
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.protocol.step import entropy
from fedcohort.runtime.local import local
from fedcohort.training.rows import chosen
from on_intervals import grid_of

SCENARIOS = ("iid", "unbalanced", "by-outcome", "by-feature")
FEATURES = ("x0", "x1", "x2", "x3")
STEPS = 25
SETTINGS = {"hidden": [5, 3], "activation": "tanh", "strategy": "exact", "rounds": STEPS}


def cohort(n=160, seed=0):
    """Return a frame with times that tie, and censoring at times of death."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, len(FEATURES)))
    time = np.ceil(30.0 * rng.exponential(1.0, n) * np.exp(2.0 * x[:, 0] - x[:, 1] ** 2))
    frame = pd.DataFrame(x, columns=FEATURES)
    return frame.assign(time=time, event=(rng.random(n) < 0.55).astype(int))


def table_of(frame):
    x = np.ascontiguousarray(frame[list(FEATURES)].to_numpy())
    return SurvivalTable(x, frame["time"].to_numpy(), frame["event"].to_numpy() == 1)


def fitted(frames, **settings):
    hosts = [Host(name, table_of(frame), METHOD.steps) for name, frame in frames.items()]
    fed = local(hosts)
    config = METHOD.configure(SETTINGS | settings)
    return METHOD.fit(fed, config, Task(kind="survival", features=FEATURES, seed=1)), fed.history


def moved(table):
    """Move all who leave to the ends of the protected grid's intervals."""
    times = grid_of(table.time, table.event).times
    return table._replace(time=times[np.searchsorted(times, table.time)])


def pooled(table, theta, rate, *, l1, l2, optimiser):
    """Return parameters and loss of each step: modules, autograd, torch.optim, D6.2's rate."""
    net = nn.Sequential(
        nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 1, bias=False)
    ).double()
    nn.utils.vector_to_parameters(torch.from_numpy(theta.copy()), net.parameters())
    steps = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimiser](net.parameters(), lr=rate)
    x, losses, path = torch.from_numpy(table.x), [], []
    for step in range(STEPS):
        f = net(x)[:, 0]
        loss = torch.zeros((), dtype=torch.float64)
        for j in np.flatnonzero(table.event):
            loss = loss + torch.logsumexp(f[table.time >= table.time[j]], 0) - f[j]
        first = net[0].weight
        loss = loss / len(x) + l1 * first.abs().sum() + l2 / 2 * (first**2).sum()
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(float(loss.detach()))
        path.append(nn.utils.parameters_to_vector(net.parameters()).detach().numpy().copy())
        if step and losses[-1] > losses[-2]:
            (group,) = steps.param_groups
            group["lr"] = min(group["lr"], max(group["lr"] / math.sqrt(step), 0.001))
    return path, losses


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(
    "case",
    [
        {"optimiser": "adam", "learning_rate": 0.3, "l1": 0.002, "l2": 0.01, "time_grid": "exact"},
        {
            "optimiser": "sgd",
            "learning_rate": 30.0,
            "l1": 0.0,
            "l2": 0.02,
            "time_grid": "protected",
        },
    ],
    ids=["adam on exact times", "sgd on the protected grid"],
)
def test_parameters_rates_and_losses_are_those_of_pooled_autograd_at_every_step(scenario, case):
    frame = cohort()
    frames = partition(frame, scenario, 8, seed=2, outcome=Survival("time", "event"))
    kept = list(range(1, STEPS))
    model, history = fitted(frames, keep_rounds=kept, **case)
    whole = table_of(frame)
    if case["time_grid"] == "protected":
        whole = moved(whole)
    start, terms = initial(model.network, 1), {k: case[k] for k in ("l1", "l2", "optimiser")}
    path, losses = pooled(whole, start, case["learning_rate"], **terms)
    assert history[-1]["learning_rate"] < 0.5 * case["learning_rate"]
    for k, theta in enumerate(path):
        assert_allclose(model.at_round(k + 1).thetas[0], theta, rtol=0, atol=1e-9)
    assert_allclose([row["loss"] for row in history], losses, rtol=0, atol=1e-9)


def test_the_held_out_loss_that_stops_a_training_is_the_pooled_one():
    frames = partition(cohort(), "by-outcome", 4, seed=2, outcome=Survival("time", "event"))
    settings = {"patience": 3, "learning_rate": 0.2, "rounds": 60, "time_grid": "exact"}
    model, history = fitted(frames, **settings)
    losses = [row["held_out_loss"] for row in history]
    best = int(np.argmin(losses)) + 1
    assert model.rounds == best + 3 < 60
    held = [held_out(name, frame) for name, frame in frames.items()]
    whole = SurvivalTable(*map(np.concatenate, zip(*(h[:3] for h in held), strict=True)))
    risk = model.predict(whole.x)
    loss = sum(
        np.log(np.exp(risk[whole.time >= whole.time[j]]).sum()) - risk[j]
        for j in np.flatnonzero(whole.event)
    ) / len(risk)
    assert losses[best - 1] == pytest.approx(loss, abs=1e-9)


def held_out(name, frame):
    """Return the rows that a site holds out."""
    _, rows = chosen(len(frame), 0.2, entropy(0, name, 0))
    return SurvivalTable(*(column[rows] for column in table_of(frame)[:3]))

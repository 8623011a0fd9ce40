"""Optimisers that go on between rounds: kept at a site, or averaged with the model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from fedcohort.data.tables import LabelledTable
from fedcohort.models.network import Mlp
from fedcohort.protocol.host import Host
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.local import LocalTransport, local
from fedcohort.training.networks import moments
from fedcohort.training.networks.optimisers import OPTIMISERS, Adam
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.networks.strategies import STEPS, averaging
from fedcohort.training.update_bounds import farthest, reach

ROUNDS, EPOCHS, RATE, L2 = 5, 3, 0.1, 0.01
#: No slope is 0 here: Adam would divide the rounding errors of a 0 by ε.
START = np.array([0.3, -0.2, 0.1, 0.05])
PLAN = Plan(
    network=Mlp(inputs=3, hidden=()).spec, loss="logistic", epochs=EPOCHS, optimiser="adam", l2=L2
)
THEIRS = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
}


def table(seed: int, n: int = 40) -> LabelledTable:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    y = (rng.random(n) < expit(x @ [1.5, -1.0, 0.5] + 0.3)).astype(float)
    return LabelledTable(x, y)


def trained(data: Any, plan: Plan, fed: Any = None, rounds: int = ROUNDS, **options: Any) -> Any:
    fed = fed or local([Host(n, t, STEPS, 5) for n, t in data.items()], **options)
    schedule = Schedule(rounds=rounds, learning_rate=RATE, lr_rule="constant")
    server = Server.at(START, rate=1, beta1=0, beta2=0, tau=1)
    return averaging(fed, plan, schedule, fedavg, server, lambda theta: 0.0).theta


def slope(theta: Any, table: LabelledTable) -> Any:
    """(p − y) x averaged, and λW: the intercept stands last."""
    x = np.c_[table.x, np.ones(len(table.x))]
    return x.T @ (expit(x @ theta) - table.y) / len(x) + L2 * np.r_[theta[:-1], 0.0]


class Loop:
    """The optimisers in NumPy, by their papers' formulas; the state is (m, v, t) or (b, 0, 0)."""

    def __init__(self, name: str):
        self.name, self.m, self.v, self.t = name, np.zeros(4), np.zeros(4), 0.0

    def step(self, theta: Any, g: Any) -> Any:
        if self.name == "momentum":
            self.m = 0.9 * self.m + g
            return theta - RATE * self.m
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * g
        if self.name == "adam":
            self.v = 0.999 * self.v + 0.001 * g**2
        else:
            self.v = self.v - 0.001 * np.sign(self.v - g**2) * g**2
        up, down = self.m / (1 - 0.9**self.t), np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8
        return theta - RATE * up / down


@pytest.mark.parametrize("name", THEIRS)
def test_rounds_of_one_site_that_keeps_its_optimiser_are_one_long_run_of_torch(name):
    """An exact sum rounds parameters to multiples of 2⁻²⁸; floats are summed here."""
    data = table(1)
    weight = torch.nn.Parameter(torch.from_numpy(START.copy()))
    theirs = THEIRS[name]([weight], lr=RATE)
    for _ in range(ROUNDS * EPOCHS):
        weight.grad = torch.from_numpy(slope(weight.detach().numpy(), data))
        theirs.step()
    plan = replace(PLAN, optimiser=name, optimiser_state="kept")
    found = trained({"a": data}, plan, secure="false")
    assert_allclose(found, weight.detach().numpy(), rtol=1e-12)
    assert_allclose(trained({"a": data}, plan), found, atol=1e-9)


@pytest.mark.parametrize("name", ["adam", "momentum", "yogi"])
def test_each_site_goes_on_with_its_own_moments(name):
    data = {"a": table(1), "b": table(2, 70), "c": table(3, 23)}
    theta, loops = START, {site: Loop(name) for site in data}
    for _ in range(ROUNDS):
        parts = []
        for site, loop in loops.items():
            own = theta
            for _ in range(EPOCHS):
                own = loop.step(own, slope(own, data[site]))
            parts.append(own)
        theta = np.average(parts, axis=0, weights=[len(t.x) for t in data.values()])
    plan = replace(PLAN, optimiser=name, optimiser_state="kept")
    assert_allclose(trained(data, plan, secure="false"), theta, rtol=1e-10)


@pytest.mark.parametrize("name", ["adam", "momentum", "yogi"])
@pytest.mark.parametrize("secure", ["auto", "true"])
def test_averaged_moments_are_the_mean_over_sites_by_rows(name, secure):
    """√v is averaged, and 1 − β₂ᵗ; here all sites take as many steps."""
    data = {"a": table(1), "b": table(2, 70), "c": table(3, 23)}
    weights = [len(t.x) for t in data.values()]
    theta, mean = START, Loop(name)
    for _ in range(ROUNDS):
        parts, loops = [], [Loop(name) for _ in data]
        for loop, own_table in zip(loops, data.values(), strict=True):
            loop.m, loop.v, loop.t, own = mean.m, mean.v, mean.t, theta
            for _ in range(EPOCHS):
                own = loop.step(own, slope(own, own_table))
            parts.append(own)
        theta = np.average(parts, axis=0, weights=weights)
        mean.m = np.average([one.m for one in loops], axis=0, weights=weights)
        mean.v = np.average([np.sqrt(one.v) for one in loops], axis=0, weights=weights) ** 2
        mean.t = loops[0].t
    plan = replace(PLAN, optimiser=name, optimiser_state="averaged")
    assert_allclose(trained(data, plan, secure=secure), theta, atol=1e-7)


@pytest.mark.parametrize("name", sorted(OPTIMISERS))
def test_with_equal_sites_averaged_is_kept(name):
    data = {site: table(1) for site in "abc"}
    found = [
        trained(data, replace(PLAN, optimiser=name, optimiser_state=state))
        for state in ("averaged", "kept")
    ]
    assert_allclose(*found, atol=1e-7)


def test_a_fresh_optimiser_takes_other_steps():
    kept = replace(PLAN, optimiser_state="kept")
    assert abs(trained({"a": table(1)}, kept) - trained({"a": table(1)}, PLAN)).max() > 0.01


def test_sites_of_different_numbers_of_batches_average_the_weight_of_the_bias_correction():
    plan = replace(PLAN, batch_size=10, optimiser_state="averaged")
    sent = np.concatenate([np.zeros(4), moments.begun(plan, np.zeros(4))])
    weights = []
    for n in (40, 70):
        rows = moments_rows(table(1, n), plan)
        weights.append(moments.train_averaged(sent, rows, plan, RATE, (1, 2, 3))[0][-1])
    assert_allclose(weights, [1 - 0.999 ** (EPOCHS * 4), 1 - 0.999 ** (EPOCHS * 7)], rtol=1e-9)
    held = moments._memory(np.r_[np.zeros(8), np.mean(weights)], 4, plan)
    assert EPOCHS * 4 < held.taken < EPOCHS * 7


def moments_rows(data: LabelledTable, plan: Plan) -> Any:
    from fedcohort.training.rows import rows_of

    return rows_of(data, plan, (1, 2, 3))


def test_a_site_that_was_away_goes_on_from_its_own_last_visit():
    data = {"a": table(1), "b": table(2), "c": table(3)}
    plan = replace(PLAN, optimiser_state="kept")
    away = {"quorum": 0.5, "absent": lambda call, site: site == "c" and call == 2}
    there = trained(data, plan, secure="false", **away)
    theta, loops = START, {site: Loop("adam") for site in data}
    for r in range(ROUNDS):
        parts = []
        for site, loop in loops.items():
            if r == 2 and site == "c":
                continue
            own = theta
            for _ in range(EPOCHS):
                own = loop.step(own, slope(own, data[site]))
            parts.append(own)
        theta = np.mean(parts, axis=0)
    assert_allclose(there, theta, rtol=1e-10)


def test_a_training_by_another_plan_begins_anew():
    data, plan = table(1), replace(PLAN, optimiser_state="kept")
    host = Host("a", data, STEPS, 5)
    first = trained(None, plan, local([host]))
    longer = replace(plan, l2=2 * L2)
    assert "Moments.moments" in host.state
    after = trained(None, longer, local([host]))
    assert_array_equal(after, trained({"a": data}, longer))
    assert not np.array_equal(first, after)


@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(["adam", "yogi", "yogi_started"]),
    scale=st.floats(1e-6, 1e6),
)
def test_no_gradients_and_no_mean_of_moments_move_further_than_the_bound(seed, name, scale):
    """Gradients of changing sizes; after each visit the moments are a mean of two sites'."""
    rng = np.random.default_rng(seed)
    plan = replace(PLAN, optimiser=name, optimiser_state="averaged")
    most = reach(plan, RATE, 4) * (1 + 1e-9)
    sites = [OPTIMISERS[name](torch.zeros(4).double()) for _ in range(2)]
    for _ in range(20):
        for site in sites:
            theta = torch.zeros(4).double()
            for _ in range(EPOCHS):
                grad = scale * rng.normal(size=4) * 10.0 ** rng.integers(-3, 4, 4)
                site.step(theta, torch.from_numpy(grad), RATE)
            assert float(theta.norm()) <= most
            m, root = site.moments[0].numpy(), site.moments[1].sqrt().numpy()
            assert (abs(m) <= (1 + 1e-9) * farthest(plan) * root).all()
            weight = 1 - Adam.beta2**site.taken
            assert not moments.fault(np.r_[m, root, weight], plan, farthest(plan))
        share = rng.random()
        means = [share * sites[0].moments[0] + (1 - share) * sites[1].moments[0]]
        means += [(share * sites[0].moments[1].sqrt() + (1 - share) * sites[1].moments[1].sqrt())]
        for site in sites:
            site.moments.copy_(torch.stack([means[0], means[1] ** 2]))


class Forging(LocalTransport):
    """One site answers with moments that its rows cannot give."""

    at, value = 4, 1e3

    def ask(self, call: Any, to: Any) -> Any:
        for site, reply in super().ask(call, to):
            if site == "b":
                reply = {k: a.copy() for k, a in reply.items()}
                reply["theta"][self.at] = self.value
            yield site, reply


@pytest.mark.parametrize(("at", "value"), [(4, 1e5), (8, -1e3), (12, 1e3)])
def test_moments_that_no_gradients_give_are_refused(at, value):
    """An m far above √v, a root below 0, a weight above 1."""
    data = {site: table(k) for k, site in enumerate("abcd")}
    transport = Forging([Host(n, t, STEPS, 5) for n, t in data.items()])
    transport.at, transport.value = at, value
    fed = Coordinator(transport, quorum=0.5, secure="false")
    trained(None, replace(PLAN, optimiser_state="averaged"), fed)
    assert {site for _, site in fed.missing} == {"b"}

"""Sites of very unequal sizes: honest ones go differently far in a visit, and are not liars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit

from fedcohort.data.tables import FeatureTable, LabelledTable
from fedcohort.models.autoencoder import Autoencoder
from fedcohort.models.network import Mlp, initial
from fedcohort.models.objectives import Reconstruction
from fedcohort.protocol.host import Host
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.local import LocalTransport
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.networks.strategies import STEPS, averaging
from fedcohort.training.update_bounds import pace

#: Rows by site: as 2,766 patients of ten hospitals fall by a skewed Gaussian.
SIZES = (57, 517, 786, 673, 374, 207, 101, 36, 12, 3)
NET = Autoencoder(inputs=20, widths=(30, 4), output="sigmoid")
RATES = {"sgd": 0.05, "momentum": 0.05, "adam": 0.001, "yogi": 0.001, "yogi_started": 0.001}


class Forging(LocalTransport):
    """One site, if any, answers with a model a thousand times as far away."""

    liar, times = "", 1e3

    def ask(self, call: Any, to: Any) -> Any:
        for site, reply in super().ask(call, to):
            yield (
                site,
                dict(reply) | {"theta": self.times * reply["theta"]}
                if site == self.liar
                else reply,
            )


def tables() -> dict[str, FeatureTable]:
    rng = np.random.default_rng(5)
    chance = rng.beta(0.5, 2.0, (3, 20))
    return {
        f"s{k}": FeatureTable((rng.random((n, 20)) < chance[rng.integers(3, size=n)]) * 1.0)
        for k, n in enumerate(SIZES)
    }


@pytest.mark.parametrize("liar", ["", "s6"])
@pytest.mark.parametrize("optimiser", sorted(OPTIMISERS))
def test_sites_of_3_to_800_rows_are_all_believed_and_a_liar_among_them_is_not(optimiser, liar):
    """In batches of 8 rows the largest takes a hundred steps, and the median ten."""
    transport = Forging([Host(name, table, STEPS) for name, table in tables().items()])
    transport.liar = liar
    fed = Coordinator(transport, quorum=0.5, secure="false")
    plan = Plan(
        network=NET.spec, loss=Reconstruction().spec, epochs=1, batch_size=8, optimiser=optimiser
    )
    schedule = Schedule(rounds=12, learning_rate=RATES[optimiser], lr_rule="constant")
    server = Server.at(initial(NET.spec, 0), rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3)
    averaging(fed, plan, schedule, fedavg, server, lambda theta: 0.0)
    assert {site for _, site in fed.missing} == {liar} - {""}


@pytest.mark.parametrize("rows", [1, 8, 40, 800])
def test_steps_of_momentum_are_counted_as_plain_steps_of_the_same_slope(rows):
    theta, rate = torch.zeros(1, dtype=torch.float64), 1e-3
    momentum = OPTIMISERS["momentum"](theta)
    plan = Plan(network="", loss="cox", epochs=1, batch_size=8, optimiser="momentum")
    for _ in range(plan.parts(rows)):
        momentum.step(theta, torch.ones(1, dtype=torch.float64), rate)
    found = pace({"plan": plan.text}, np.array(float(rows)))
    assert found == pytest.approx((float(-theta[0]) / rate) ** 0.75)


def one_sided():
    """Return four sites, one of which is small and has 28 of 30 rows of one class."""
    made = {}
    for name, n in {"c": 200, "h": 170, "s": 30, "v": 85}.items():
        rng = np.random.default_rng(n)
        x = rng.normal(size=(n, 6))
        y = (rng.random(n) < expit(x @ np.linspace(1.0, -1.0, 6))).astype(float)
        made[name] = LabelledTable(x, y)
    made["s"] = LabelledTable(made["s"].x + 0.5, (np.arange(30) > 1).astype(float))
    return made


def trained_in_batches(tables, forged=0.0):
    transport = Forging([Host(name, table, STEPS) for name, table in tables.items()])
    transport.liar, transport.times = ("s", forged) if forged else ("", 1.0)
    fed = Coordinator(transport, quorum=0.5, secure="false")
    plan = Plan(
        network=Mlp(inputs=6, hidden=()).spec, loss="logistic", epochs=10, batch_size=8,
        optimiser="sgd", l2=0.001,
    )  # fmt: skip
    server = Server.at(np.zeros(7), rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3)
    schedule = Schedule(rounds=25, learning_rate=0.3, lr_rule="constant")
    averaging(fed, plan, schedule, fedavg, server, lambda theta: 0.0)
    return {site for _, site in fed.missing}


def test_a_small_site_of_one_class_is_believed_where_visits_end_near_an_optimum():
    """Its 40 steps come as far as the 260 of others: lengths that end do not grow with steps."""
    assert not trained_in_batches(one_sided())
    assert trained_in_batches(one_sided(), forged=30.0) == {"s"}


def nearly_converged(forged=0.0):
    """Return who is refused where 23 rows of one class stand beside 500 others at their optimum."""
    made = {}
    for name, n in {"c": 200, "h": 170, "s": 23, "v": 130}.items():
        rng = np.random.default_rng(n)
        x = rng.normal(size=(n, 6))
        made[name] = LabelledTable(x, (rng.random(n) < expit(x @ np.ones(6))).astype(float))
    made["s"] = LabelledTable(made["s"].x, np.ones(23))
    transport = Forging([Host(name, table, STEPS) for name, table in made.items()])
    transport.liar, transport.times = ("s", forged) if forged else ("", 1.0)
    fed = Coordinator(transport, quorum=0.5, secure="false")
    plan = Plan(
        network=Mlp(inputs=6, hidden=()).spec, loss="logistic", epochs=2, optimiser="sgd", l2=0.001
    )
    server = Server.at(np.zeros(7), rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3)
    schedule = Schedule(rounds=60, learning_rate=0.5, lr_rule="constant")
    averaging(fed, plan, schedule, fedavg, server, lambda theta: 0.0)
    return {site for _, site in fed.missing}


def test_a_small_site_that_stands_against_all_others_near_their_optimum_is_believed():
    """There updates cancel in the mean by rows: its own is as much longer as it has fewer."""
    assert not nearly_converged()
    assert nearly_converged(forged=100.0) == {"s"}

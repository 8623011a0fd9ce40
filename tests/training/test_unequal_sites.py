"""Sites of very unequal sizes: honest ones go differently far in a visit, and are not liars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedcohort.data.tables import FeatureTable
from fedcohort.models.autoencoder import Autoencoder
from fedcohort.models.network import initial
from fedcohort.models.objectives import Reconstruction
from fedcohort.protocol.host import Host
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.local import LocalTransport
from fedcohort.training.course import Schedule
from fedcohort.training.optimisers import OPTIMISERS
from fedcohort.training.plan import Plan
from fedcohort.training.reach import pace
from fedcohort.training.server import Server, fedavg
from fedcohort.training.strategies import STEPS, averaging

#: Rows by site: as 2,766 patients of ten hospitals fall by a skewed Gaussian.
SIZES = (57, 517, 786, 673, 374, 207, 101, 36, 12, 3)
NET = Autoencoder(inputs=20, widths=(30, 4), output="sigmoid")
RATES = {"sgd": 0.05, "momentum": 0.05, "adam": 0.001, "yogi": 0.001}


class Forging(LocalTransport):
    """One site, if any, answers with a model a thousand times as far away."""

    liar = ""

    def ask(self, call: Any, to: Any) -> Any:
        for site, reply in super().ask(call, to):
            yield (
                site,
                dict(reply) | {"theta": 1e3 * reply["theta"]} if site == self.liar else reply,
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

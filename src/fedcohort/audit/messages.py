"""Content of one site's first message of a fit of a network, as an attacker reads it.

The attacker is the coordinator. It knows the study (θ₀, network, optimiser, learning rate η), a
site's number of training records, and each feature's range. It converts the message to a sum of
gradients, eq. (1) of `gradients`:

    gradient   what "exact" sends, and the most that a round of training can reveal:
               Σ_jk s_jk ∇f_k(x_j)
    update     what the averaging strategies, "sequential" and "ensemble" send: n θ_k after E local
               epochs; the attacker takes n (θ₀ − θ_k)/η for the gradient, which is exact after one
               step of plain descent, and distorted after E steps of Adam

In a masked sum it sees the total over sites; with differential privacy, the output of
`training.private` and a site's guard.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from fedcohort.algorithms.deepcox.settings import DeepCoxSettings
from fedcohort.algorithms.neural import NeuralModel
from fedcohort.algorithms.neural.settings import NeuralSettings
from fedcohort.arrays import Array
from fedcohort.audit.gradients import Attacked, per_record
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.models.losses import built, scaled, several
from fedcohort.models.network import initial, network
from fedcohort.privacy.mechanisms import perturb
from fedcohort.privacy.noise import Source
from fedcohort.protocol import Fitted
from fedcohort.protocol.private import Release
from fedcohort.protocol.step import Site
from fedcohort.training.networks.local import train
from fedcohort.training.networks.plan import Plan
from fedcohort.training.private import move_privately, pull_privately
from fedcohort.training.rows import rows_of

#: Strategies that show the coordinator every site's own model.
OPEN = ("sequential", "ensemble")

Settings = DeepCoxSettings | NeuralSettings
Table = SurvivalTable | LabelledTable


def plan_of(config: Settings, model: Fitted, n_features: int) -> tuple[Plan, int]:
    """Return the plan of each site, and the network's number of outputs K."""
    if isinstance(config, DeepCoxSettings):
        return config.plan(n_features), 1
    assert isinstance(model, NeuralModel)
    outputs = len(model.levels) or 1
    loss = several(outputs) if model.levels else scaled(model.model, model.centre, model.scale)
    return config.plan(n_features, loss, outputs), outputs


@dataclass(frozen=True)
class Sender:
    """How sites answer in the first round.

    Attributes
    ----------
    config : the arm's settings. plan : what is asked of a site. theta : θ₀ (P,). outputs : K.
    """

    config: Settings
    plan: Plan
    theta: Array
    outputs: int

    @classmethod
    def of(cls, config: Settings, model: Fitted, n_features: int, seed: int) -> Sender:
        """Return the sender of a fit's first round.

        model : the fitted one, for what the fit asked about the outcome before it.
        """
        plan, outputs = plan_of(config, model, n_features)
        return cls(config, plan, initial(plan.network, seed), outputs)

    def attacked(self, low: Array, high: Array) -> Attacked:
        """Return the network as the attacker knows it, with the features' ranges (p,)."""
        return Attacked(network(self.plan.network), self.theta, low, high, self.outputs)

    def gradient(self, table: Table, attacked: Attacked) -> Array:
        """Return Σ_jk s_jk ∇f_k(x_j) (P,) of the loss summed over a site's rows."""
        slopes = self.slopes(table)
        return len(table.x) * (slopes.ravel() @ per_record(attacked, table.x))

    def slopes(self, table: Table) -> Array:
        """Return the mean loss's slopes s (n,) or (n, K) at the first outputs of a site's rows."""
        return built(self.plan.loss, table)(self._outputs(table.x))[1]

    def update(self, table: Table) -> Array:
        """Return n (θ₀ − θ_k)/η (P,), after local training as the arm does it."""
        rows = rows_of(table, self.plan, (0, 0))
        moved, _ = train(self.theta, rows, self.plan, self.config.learning_rate, (0, 0, 0))
        return len(table.x) * (self.theta - moved) / self.config.learning_rate

    def noisy(
        self, table: Table, release: Release, clip: float, unit: str, source: Source
    ) -> Array:
        """Return what a private round reveals of a site, as a gradient (P,).

        Parameters
        ----------
        unit : "record": clipped gradients of random groups; "site": what training changed,
            clipped. Both with noise.
        """
        site = Site("audited", table, None, (0, 0, 0))
        if unit == "record":
            plan = replace(self.plan, batch_size=0, batches=self.config.private_batches)
            out = pull_privately.run(
                site, theta=self.theta, plan=plan.text, groups=self.config.dp_groups,
                clip=clip, sampling=release.sampling,
            )  # fmt: skip
            return _with_noise(out.reply.gradient, out.sensitivity["gradient"], release, source)
        rate = self.config.learning_rate
        out = move_privately.run(site, theta=self.theta, plan=self.plan.text, rate=rate, clip=clip)
        noisy = _with_noise(out.reply.change, out.sensitivity["change"], release, source)
        return -len(table.x) * noisy / rate

    def _outputs(self, x: Array) -> Array:
        net = network(self.plan.network)
        net.load(self.theta)
        return net.outputs(torch.from_numpy(np.require(x, np.float64, ["C", "W"])))


def _with_noise(exact: Array, sensitivity: float, release: Release, source: Source) -> Array:
    return perturb(
        source, exact, sensitivity=sensitivity, noise=release.noise, mechanism=release.mechanism
    )

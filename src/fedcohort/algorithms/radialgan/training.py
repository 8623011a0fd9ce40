"""Steps of the optimiser at a site, and the site's predictor.

A step takes some records of the site and some codes of others. First D goes up eq. (1) of
`models.radial`, then F and G go down eq. (3), both by Adam. Its state is θ, Adam's moments and the
number of steps taken.

The predictor of a site minimises, over own rows and virtual ones,

    mean loss + ½ λ₂ ‖W‖²                                                                    (1)

with the loss of `models.losses` and W the weights of the first layer, from 0 or a drawn start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from fedcohort.algorithms.radialgan.messages import Groups
from fedcohort.algorithms.radialgan.records import Records, drawn, rounded
from fedcohort.algorithms.radialgan.settings import RadialPlan
from fedcohort.arrays import Array
from fedcohort.models.losses import built, several
from fedcohort.models.network import FlatNet, initial, network
from fedcohort.models.predictor import spec_of, start_of
from fedcohort.models.radial import Losses, RadialNet
from fedcohort.numerics.survival import Baseline
from fedcohort.training.networks.optimisers import Adam

#: Most iterations of a predictor's optimiser.
ITERATIONS = 500


class Balanced(Adam):
    """Adam with β₁ = 0.5, as usual for adversarial losses (Radford et al., ICLR 2016): the opponent
    moves too, so that old slopes mislead.
    """

    beta1 = 0.5


class Player:
    """The networks of a site with their optimiser.

    Parameters
    ----------
    theta, moments, taken : θ (P,), Adam's moments (2, P) and steps.
    """

    def __init__(self, spec: str, plan: RadialPlan, theta: Array, moments: Array, taken: float):
        self.net: FlatNet = network(spec)
        self.plan = plan
        self.module = cast("RadialNet", self.net.module)
        self.net.load(theta)
        self._judge = len(theta) - self.module.size_of_judge
        self._adam = [Balanced(self.net.theta[part]) for part in self._parts]
        for adam, part in zip(self._adam, self._parts, strict=True):
            adam.moments.copy_(torch.from_numpy(moments[:, part]))
            adam.taken = taken

    @property
    def _parts(self) -> tuple[slice, slice]:
        """Places of F and G, and of D, in θ."""
        return slice(0, self._judge), slice(self._judge, None)

    @property
    def places(self) -> int:
        """Places of a code."""
        return self.module.codes

    @property
    def theta(self) -> Array:
        """A copy of θ (P,)."""
        return self.net.read()

    @property
    def moments(self) -> Array:
        """A copy of Adam's moments (2, P)."""
        return np.concatenate([adam.moments.numpy() for adam in self._adam], axis=1)

    @property
    def taken(self) -> float:
        """Number of steps."""
        return self._adam[0].taken

    def codes(self, r: Array) -> Array:
        """Return F(r) (n, d) of records (n, P)."""
        return self.net.compute(lambda m: cast("RadialNet", m).encode(torch.from_numpy(r)))

    def decoded(self, z: Array, own: Array) -> Array:
        """Return G(z) (n, P)."""
        at, places = torch.from_numpy(z), torch.from_numpy(own)
        return self.net.compute(lambda m: cast("RadialNet", m).decode(at, places))

    def judge(self, r: Array, z: Tensor, weights: Array, own: Array) -> None:
        """Take a step of D up eq. (1)."""
        given = torch.from_numpy(r), z.detach(), torch.from_numpy(weights), torch.from_numpy(own)

        def value(m: nn.Module) -> Tensor:
            return -cast("RadialNet", m).losses(*given).adversarial

        self.net.descend(value)
        self._step(1)

    def slope(self, r: Array, z: Tensor, weights: Array, own: Array) -> tuple[Array, Losses]:
        """Return the slope of eq. (3) by θ (P,), of which F and G's counts, and the losses.

        A z that requires a gradient gets its own.
        """
        given = torch.from_numpy(r), z, torch.from_numpy(weights), torch.from_numpy(own)
        found = self.module.losses(*given)
        self.module.zero_grad(set_to_none=False)
        (found.fooled + self.plan.cycle * found.cycle).backward()
        slopes = [cast("Tensor", p.grad) for p in self.module.parameters()]
        flat = torch.cat([g.reshape(-1) for g in slopes]).numpy().copy()
        return flat, Losses(*(part.detach() for part in found))

    def pulled(self, r: Array, s: Array) -> Array:
        """Return Σ sᵀ ∂F(r)/∂θ (P,) of slopes s (n, d) by the codes of records r (n, P)."""
        at, slope = torch.from_numpy(r), torch.from_numpy(s)
        self.net.descend(lambda m: (cast("RadialNet", m).encode(at) * slope).sum())
        return self.net.gradient()

    def descend(self, slope: Array) -> None:
        """Take a step of F and G down a slope (P,)."""
        self.net.grad.copy_(torch.from_numpy(slope))
        if self.plan.fixed:
            self.net.grad[: self.module.size_of_encoder] = 0.0
        self._step(0)

    def _step(self, which: int) -> None:
        part = self._parts[which]
        self._adam[which].step(self.net.theta[part], self.net.grad[part], self.plan.rate)


def play(
    player: Player, records: Records, others: Groups, binary: Sequence[Sequence[float]],
    epochs: int, rng: np.random.Generator,
) -> Array:  # fmt: skip
    """Train on own records and codes drawn from `others`; return the mean losses (3,) of the last
    pass.
    """
    n, size = len(records.r), player.plan.batch
    told = np.zeros(3)
    for _ in range(epochs):
        told = np.zeros(3)
        parts = np.array_split(rng.permutation(n), max(round(n / size), 1))
        codes = torch.from_numpy(drawn(others, size * len(parts), rng, binary))
        weights = np.full(size, 1.0 / size)
        for at, z in zip(parts, codes.split(size), strict=True):
            player.judge(records.r[at], z, weights, records.own)
            slope, losses = player.slope(records.r[at], z, weights, records.own)
            player.descend(slope)
            told += np.array([float(v) for v in losses]) / len(parts)
    return told


def virtual_rows(player: Player, own: Array, z: Array, rng: np.random.Generator) -> Array:
    """Return rounded records G(z) (n, P)."""
    return rounded(player.decoded(z, own), player.plan, rng)


def loss_and_spec(plan: RadialPlan) -> tuple[str, str]:
    """Return the name of the predictor's loss, and the spec of its network."""
    model = model_of(plan)
    outputs = plan.classes if model == "softmax" else 1
    loss = several(outputs) if model == "softmax" else model
    return loss, spec_of(model, plan.inputs, plan.predictor, plan.activation, outputs)


def model_of(plan: RadialPlan) -> str:
    """Return the predictor's model, of `models.predictor`."""
    return "cox" if not plan.classes else "logistic" if plan.classes == 2 else "softmax"


def predictor_of(table: Any, plan: RadialPlan, seed: int) -> Array:
    """Return the θ of a predictor (M,) that minimises eq. (1) over a table."""
    name, spec = loss_and_spec(plan)
    net, loss = network(spec), built(name, table)
    x = torch.from_numpy(np.array(table.x, float, order="C"))
    penalised = np.zeros(len(net.theta))
    penalised[net.first] = plan.l2

    def value(theta: Array) -> tuple[float, Array]:
        net.load(theta)
        found = net.pull(x, cast("Callable[[Array], tuple[float, Array]]", loss))
        return found + 0.5 * float(penalised @ theta**2), net.gradient() + penalised * theta

    start = start_of(spec, seed) if plan.predictor else np.zeros(len(penalised))
    return minimize(
        value, start, jac=True, method="L-BFGS-B",
        options={"maxiter": ITERATIONS, "ftol": 1e-12, "gtol": 1e-8},
    ).x  # fmt: skip


def baseline_of_rows(table: Any, theta: Array, plan: RadialPlan) -> Baseline:
    """Return Breslow's baseline hazard over the own rows of a site."""
    _, spec = loss_and_spec(plan)
    net = network(spec)
    net.load(theta)
    time, event = np.asarray(table.time, float), np.asarray(table.event, bool)
    times = np.unique(time[event])
    f = net.outputs(torch.from_numpy(np.array(table.x, float, order="C")))
    risk = np.exp(np.minimum(f, 600.0))
    s0 = np.array([risk[time >= t].sum() for t in times])
    deaths = np.array([float((time[event] == t).sum()) for t in times])
    return Baseline.breslow(times, deaths, s0)


def begun(spec: str, seed: int) -> tuple[Array, Array, float]:
    """Return θ, Adam's moments and the number of steps at the start, the same at all sites."""
    theta = initial(spec, seed)
    return theta, np.zeros((2, len(theta))), 0.0

"""Differentially private training of any torch model: noisy sums of clipped gradients.

Records (DP-SGD: Abadi et al., "Deep learning with differential privacy", CCS 2016). In each round a
site deals its records into random groups, clips each group's gradient g_k of the averaged loss to
the norm C, and sums

    G = Σ_k g_k · min(1, C/‖g_k‖)                                                         (1)

The site's guard adds the noise; with a secure sum, the site's share of it. If the loss is a sum
over records, each record is a group. Cox's partial likelihood is not; each group has its own.

Sensitivity of (1). Each record independently draws whether it is sampled (probability q) and its
group, uniformly among K; K does not depend on the table. Compare a table with and without record i,
with the same draws for the others. Only the group of i differs, by a change from one vector of norm
≤ C to another:

    ‖G − G'‖ ≤ 2C;  for groups of one record, present or absent, ‖G − G'‖ ≤ C             (2)

The others' draws have the same distribution with i and without. A mixture over them of pairs that
are (ε, δ)-close is (ε, δ)-close (joint convexity), if nobody else knows the draws. On a node they
come from the operating system's generator (`privacy.guard`). With probability 1 − q record i
changes nothing: the accountant's Poisson sampling.

Local training (DP-SGD at each site, then an average). A visit makes E noisy steps: each draws new
groups, sums (1), gets all of its noise from the site's guard, and moves by the site's optimiser.
The final model leaves the site. It is made only of noisy gradients and of what the coordinator sent
(`protocol.Noised`), so it costs E releases of (2), in a sum over sites or alone. Sites cannot share
this noise in a masked sum, because a model is not a sum of gradients. Models have equal weights,
because the numbers of records are not told.

Mini-batches are Poisson samples: with B in a pass, each takes a record with probability q/B, into
K/B groups, so that groups keep their size.

Sites (DP-FedAvg: McMahan et al., ICLR 2018): a site trains as without privacy, and its change θ_k −
θ is clipped to C. All its records together change the sum by C at most.

Computing with noisy sums costs nothing more (`training.networks.noisy` is the coordinator's part).

Revealed: `Pulled` or `Moved` with noise, or `Trained`, every round, as sums over the sites; `Left`
of each site, once a round or once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.losses import Loss
from fedcohort.models.network import network
from fedcohort.protocol import Noised, Private, Site, gathered, message, summed
from fedcohort.training.networks.local import penalise, train
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import Rows, rows_of

#: Rows whose gradients are in memory at once.
BLOCK = 4096


@message(parameters=["gradient"])
class Pulled:
    """G (P,), eq. (1)."""

    gradient: Array


@message(parameters=["change"])
class Moved:
    """θ_k − θ (P,), clipped."""

    change: Array


@message(parameters=["theta"])
class Trained:
    """θ_k (P,) after a visit's noisy steps."""

    theta: Array


@message
class Left:
    """A site's own models (1 + K, P): the last one, then those after K requested rounds."""

    thetas: Array


@dataclass(frozen=True)
class Draws:
    """Public numbers by which a site samples records in every noisy step.

    Attributes
    ----------
    groups : K; 0 makes each record a group.
    clip : C > 0.
    sampling : q.
    """

    groups: int
    clip: float
    sampling: float

    @classmethod
    def dealt(cls, groups: int, clip: float, sampling: float, batches: int) -> Draws:
        """Return the draws of each of B mini-batches of a pass."""
        return cls(-(-groups // batches), clip, sampling / batches)

    @property
    def asked(self) -> dict[str, Any]:
        """Arguments of a step."""
        return {"groups": self.groups, "clip": self.clip, "sampling": self.sampling}


class LaterMean:
    """Mean of the later half of `rounds` points, added one by one."""

    def __init__(self, rounds: int):
        self._half, self._n = rounds // 2, 0
        self._mean = np.zeros(0)

    def add(self, theta: Array) -> Array:
        """Add θ (P,); return the result if it were the last point."""
        i, self._n = self._n, self._n + 1
        late = i > self._half
        self._mean = self._mean + (theta - self._mean) / (i - self._half + 1) if late else theta
        return self._mean


# site ---------------------------------------------------------------------------------


@summed
def pull_privately(
    site: Site[Any, None], *, theta: Array, plan: str, groups: int, clip: float, sampling: float
) -> Private[Pulled]:
    """Sum clipped gradients of random groups, eq. (1).

    Parameters
    ----------
    groups, clip : see `Draws`.
    sampling : q, which the site's guard compares with the study's.
    """
    return _puller(site, plan, groups, clip, sampling)(theta)


@summed
def train_privately(
    site: Site[Any, None],
    *,
    theta: Array,
    plan: str,
    rate: float,
    groups: int,
    clip: float,
    sampling: float,
) -> Noised[Trained]:
    """Train from the common model by noisy gradients.

    Further arguments as in `pull_privately`.
    """
    return Noised(_puller(site, plan, groups, clip, sampling), visit_course)


@gathered
def leave_privately(
    site: Site[Any, None],
    *,
    theta: Array,
    plan: str,
    rate: float,
    groups: int,
    clip: float,
    sampling: float,
    rounds: int,
    keep: Array,
) -> Noised[Left]:
    """Train by noisy gradients; return this site's own models."""
    return Noised(_puller(site, plan, groups, clip, sampling), lone_course)


def _puller(
    site: Site[Any, None], plan: str, groups: int, clip: float, sampling: float
) -> Callable[[Array], Private[Pulled]]:
    """Return θ ↦ eq. (1) with new random groups, and its sensitivity, eq. (2)."""
    p = whole(Plan.of(plan))
    rows = rows_of(site.data, p, (0, 0))
    rng, n = site.rng, len(rows.x)

    def pull(theta: Array) -> Private[Pulled]:
        taken = rng.random(n) < sampling
        labels = np.where(taken, rng.integers(groups, size=n) if groups else np.arange(n), -1)
        total = clipped_sum(theta, rows, p, labels, clip)
        return Private(Pulled(total), {"gradient": (2.0 if groups else 1.0) * clip})

    return pull


def whole(plan: Plan) -> Plan:
    """Return the plan without held-out rows: their choice would depend on the number of rows."""
    return replace(plan, validation_fraction=0.0) if plan.validation_fraction else plan


def visit_course(
    *, theta: Array, plan: str, rate: float, groups: int, **_: Any
) -> Generator[Array, Pulled, Trained]:
    """Make the noisy steps of one visit."""
    return Trained((yield from _noisy_steps(theta, Plan.of(plan), rate, groups)))


def lone_course(
    *, theta: Array, plan: str, rate: float, groups: int, rounds: int, keep: Array, **_: Any
) -> Generator[Array, Pulled, Left]:
    """Make the noisy steps of `rounds` rounds; return means of the later half (`LaterMean`)."""
    mean, kept = LaterMean(rounds), dict[int, Array]()
    for i in range(rounds):
        theta = yield from _noisy_steps(theta, Plan.of(plan), rate, groups)
        kept[i + 1] = mean.add(theta)
    last = kept.get(rounds, theta)
    return Left(np.stack([last, *(kept.get(int(r), last) for r in keep)]))


def _noisy_steps(
    theta: Array, plan: Plan, rate: float, groups: int
) -> Generator[Array, Pulled, Array]:
    """Descend from θ (P,) by noisy gradients, through all mini-batches of all passes."""
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    optimiser = OPTIMISERS[plan.optimiser](net.theta)
    start = net.theta.clone() if plan.mu else None
    for _ in range(plan.epochs * plan.batches):
        pulled = yield theta
        net.load(theta)
        net.grad.copy_(torch.from_numpy(pulled.gradient / max(1, groups)))
        penalise(net, plan)
        if start is not None:
            net.grad.add_(net.theta - start, alpha=plan.mu)
        optimiser.step(net.theta, net.grad, rate)
        theta = net.read()
    return theta


@summed
def move_privately(
    site: Site[Any, None], *, theta: Array, plan: str, rate: float, clip: float
) -> Private[Moved]:
    """Train from the common model; return the change, clipped in norm."""
    p = Plan.of(plan)
    moved, _ = train(theta, rows_of(site.data, whole(p), (0, 0)), p, rate, site.entropy)
    return Private(Moved(clipped(moved - theta, clip)), {"change": clip})


def clipped(vector: Array, clip: float) -> Array:
    """Return a vector (P,), or each row of (k, P), clipped to the norm `clip`; 0 if not finite."""
    norm = np.linalg.norm(vector, axis=-1, keepdims=True)
    fine = np.isfinite(norm)
    scale = clip / np.maximum(norm, clip, where=fine, out=np.full_like(norm, np.inf))
    return np.where(fine, vector, 0.0) * scale


def clipped_sum(theta: Array, rows: Rows, plan: Plan, labels: Array, clip: float) -> Array:
    """Return eq. (1) (P,) for records with group labels (n,); −1 is in no group."""
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    outputs = net.outputs(rows.x)
    total = np.zeros(len(theta))
    for members in _blocks(labels):
        slopes = [_slope(rows.plain.take(group), outputs[group]) for group in members]
        every = torch.from_numpy(np.concatenate(members)).to(rows.x.device)
        pulls = net.pulls(rows.x[every], np.concatenate(slopes))
        starts = np.cumsum([0, *map(len, members[:-1])])
        total += clipped(np.add.reduceat(pulls, starts, axis=0), clip).sum(axis=0)
    return total


def _slope(loss: Loss, outputs: Array) -> Array:
    """Return the slope of one group's averaged loss; 0 if it carries no information."""
    return loss(outputs)[1] if loss.informative else np.zeros(outputs.shape)


def _blocks(labels: Array) -> Iterator[list[Array]]:
    """Yield groups as row numbers, in blocks of about `BLOCK` rows."""
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    cuts = np.flatnonzero(np.diff(labels[order])) + 1
    block: list[Array] = []
    held = 0
    for group in np.split(order, cuts) if len(order) else []:
        block.append(group)
        held += len(group)
        if held >= BLOCK:
            yield block
            block, held = [], 0
    if block:
        yield block


STEPS = (pull_privately, move_privately, train_privately, leave_privately)

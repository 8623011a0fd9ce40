"""Differentially private training of any torch model: noisy sums of clipped gradients.

Records (DP-SGD: Abadi et al., "Deep learning with differential privacy", CCS 2016). In each round a
site deals its records into random groups, clips each group's gradient g_k of the averaged loss to
the norm C, and sums

    G = Σ_k g_k · min(1, C/‖g_k‖)                                                         (1)

Noise is added by the site's guard; with a secure sum, its share of it. A loss that is a sum over
records has groups of one; Cox's partial likelihood is none, and each group has its own.

How much one record changes (1). Each record draws, by itself, whether it is sampled (probability q)
and its group k, uniformly among K, which is the study's number and does not depend on the table.
Give the other records of a table with and without record i the same draws. Then all groups but
that of i are the same, and that one changes from one vector of norm ≤ C to another:

    ‖G − G'‖ ≤ 2C;  for groups of one, that are there or not, ‖G − G'‖ ≤ C                (2)

Draws are independent, so that those of the others have the same law with i and without; a mixture
over them of pairs that are (ε, δ)-close is (ε, δ)-close (joint convexity), provided that nobody
else knows the draws. On a node they come from the operating system's generator (`privacy.guard`).
With probability 1 − q record i changes nothing: Poisson sampling, as the accountant has it.

Sites (DP-FedAvg: McMahan et al., ICLR 2018): a site trains as ever, and what its training changed,
θ_k − θ, is clipped to C. All its records together move the sum by C at most.

Whatever the coordinator makes of noisy sums costs nothing more. It steps by Adam, to which their
scale does not matter, and returns the mean of the later half of its points, in which noise cancels
(Polyak and Juditsky, 1992). No loss is told: the learning rate stays, and no round is best.

Revealed: `Pulled` or `Moved` with noise, every round, as sums over the sites.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.losses import Loss
from fedcohort.models.network import network
from fedcohort.protocol import Federation, Private, Site, message, summed
from fedcohort.training.course import Course, Schedule
from fedcohort.training.local import penalise, train
from fedcohort.training.optimisers import OPTIMISERS
from fedcohort.training.plan import Plan
from fedcohort.training.rows import Rows, rows_of
from fedcohort.training.server import Rule, Server

#: Rows whose gradients are in memory at once.
BLOCK = 4096


@message
class Pulled:
    """G (P,), eq. (1)."""

    gradient: Array


@message
class Moved:
    """θ_k − θ (P,), clipped."""

    change: Array


# site ---------------------------------------------------------------------------------


@summed
def pull_privately(
    site: Site[Any, None], *, theta: Array, plan: str, groups: int, clip: float, sampling: float
) -> Private[Pulled]:
    """Sum clipped gradients of random groups, eq. (1).

    Parameters
    ----------
    groups : K; 0 makes each record a group of its own.
    clip : C > 0.
    sampling : q, which the site's guard holds against the study.
    """
    p = Plan.of(plan)
    rows = rows_of(site.data, p, (0, 0))
    rng = site.rng
    n = len(rows.x)
    taken = rng.random(n) < sampling
    labels = np.where(taken, rng.integers(groups, size=n) if groups else np.arange(n), -1)
    total = clipped_sum(theta, rows, p, labels, clip)
    return Private(Pulled(total), {"gradient": (2.0 if groups else 1.0) * clip})


@summed
def move_privately(
    site: Site[Any, None], *, theta: Array, plan: str, rate: float, clip: float
) -> Private[Moved]:
    """Train from the common model; reply what that changed, clipped to the norm `clip`."""
    p = Plan.of(plan)
    moved, _ = train(theta, rows_of(site.data, p, (0, 0)), p, rate, site.entropy)
    return Private(Moved(clipped(moved - theta, clip)), {"change": clip})


def clipped(vector: Array, clip: float) -> Array:
    """Return a vector (P,), or each row of (k, P), cut to the norm `clip`; 0 if not finite."""
    norm = np.linalg.norm(vector, axis=-1, keepdims=True)
    fine = np.isfinite(norm)
    scale = clip / np.maximum(norm, clip, where=fine, out=np.full_like(norm, np.inf))
    return np.where(fine, vector, 0.0) * scale


def clipped_sum(theta: Array, rows: Rows, plan: Plan, labels: Array, clip: float) -> Array:
    """Return eq. (1) (P,) for records whose group is given (n,); −1 is none."""
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    outputs = net.outputs(rows.x)
    total = np.zeros(len(theta))
    for members in _blocks(labels):
        slopes = [_slope(rows.loss.take(group), outputs[group]) for group in members]
        every = torch.from_numpy(np.concatenate(members)).to(rows.x.device)
        pulls = net.jacobian(rows.x[every]) * np.concatenate(slopes)[:, None]
        starts = np.cumsum([0, *map(len, members[:-1])])
        total += clipped(np.add.reduceat(pulls, starts, axis=0), clip).sum(axis=0)
    return total


def _slope(loss: Loss, outputs: Array) -> Array:
    """Return the slope (n,) of one group's averaged loss; 0 where it can teach nothing."""
    return loss(outputs)[1] if loss.informative else np.zeros(len(outputs))


def _blocks(labels: Array) -> Iterator[list[Array]]:
    """Yield groups as row numbers, so many at a time as `BLOCK` rows hold."""
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


# coordinator --------------------------------------------------------------------------


def noisy_descent(
    fed: Federation,
    plan: Plan,
    schedule: Schedule,
    theta: Array,
    *,
    groups: int,
    clip: float,
    sampling: float,
) -> Course:
    """Descend by noisy sums of gradients, from θ (P,); one step a round."""
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    optimiser = OPTIMISERS[plan.optimiser](net.theta)
    expected = max(1.0, groups * len(fed.sites))

    def advance(theta: Array) -> Array:
        pulled = fed.sum(
            pull_privately, theta=theta, plan=plan.text, groups=groups, clip=clip,
            sampling=sampling,
        )  # fmt: skip
        net.load(theta)
        net.grad.copy_(torch.from_numpy(pulled.gradient / expected))
        penalise(net, plan)
        optimiser.step(net.theta, net.grad, schedule.learning_rate)
        return net.read()

    return _follow(fed, schedule, theta, advance)


def noisy_averaging(
    fed: Federation, plan: Plan, schedule: Schedule, rule: Rule, server: Server, *, clip: float
) -> Course:
    """Train by rounds of local training and a noisy mean of what they changed."""
    state = server

    def advance(theta: Array) -> Array:
        nonlocal state
        moved = fed.sum(
            move_privately, theta=theta, plan=plan.text, rate=schedule.learning_rate, clip=clip
        )
        state = rule(state, theta + moved.change / len(fed.sites))
        return state.x

    return _follow(fed, schedule, server.x, advance)


def _follow(
    fed: Federation, schedule: Schedule, theta: Array, advance: Callable[[Array], Array]
) -> Course:
    """Advance θ (P,) round by round; the result is the mean of the later half of the points."""
    half = schedule.rounds // 2
    mean, kept = theta, dict[int, Array]()
    for i in fed.rounds(schedule.rounds):
        theta = advance(theta)
        fed.record(learning_rate=schedule.learning_rate)
        mean = theta if i <= half else mean + (theta - mean) / (i - half + 1)
        if i + 1 in schedule.keep:
            kept[i + 1] = mean
    return Course(mean, schedule.rounds, kept)


STEPS = (pull_privately, move_privately)

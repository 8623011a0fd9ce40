"""A site's local training: a pure function of (parameter vector, rows, entropy).

Mini-batches, dropout and noise are drawn from the given entropy, and the optimiser starts anew, or
where a `Memory` is given goes on from it. So sites can be trained in any order, in any process, or
at once (`networks.stacks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.network import FlatNet, network
from fedcohort.training.networks.optimisers import OPTIMISERS, Optimiser
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.stacks import Stack, Stacks, single
from fedcohort.training.rows import Rows


@dataclass(frozen=True)
class Memory:
    """An optimiser's state between two visits: moments (s, P), and its number of steps t."""

    moments: Array
    taken: float

    @classmethod
    def of(cls, optimiser: Optimiser) -> Memory:
        """Return the state of an optimiser, in memory of its own."""
        return cls(optimiser.moments.cpu().numpy().copy(), optimiser.taken)

    @classmethod
    def empty(cls, plan: Plan, size: int) -> Memory:
        """Return the state before the first step, for `size` parameters."""
        return cls(np.zeros((OPTIMISERS[plan.optimiser].order, size), plan.dtype), 0.0)


def train(
    theta: Array, rows: Rows, plan: Plan, rate: float, entropy: tuple[int, ...]
) -> tuple[Array, float]:
    """Train for `plan.epochs` epochs.

    Parameters
    ----------
    theta : θ₀ (P,).
    rows : the site's own; with none, or with no death for a Cox loss, θ stays.
    rate : learning rate.
    entropy : seed of mini-batches, dropout and noise.

    Returns
    -------
    theta : θ (P,), float64; a forest's leaves are written once, after the last epoch.
    loss : mean loss with its penalty on all rows, at θ₀. For an objective with mini-batches: the
        mean over the first epoch's batches, each before its step, with noise and dropout; this
        costs no further pass.
    """
    if not rows.informative:
        return theta.astype(np.float64), 0.0
    if (stack := single(rows, plan)) is not None:
        (left,), (loss,) = stack.visit(theta, plan, rate)
        return left.copy(), float(loss)
    net, loss, _ = _trained(theta, rows, plan, rate, entropy)
    return net.read(), loss


def train_on(
    theta: Array, rows: Rows, plan: Plan, rate: float, entropy: tuple[int, ...], memory: Memory
) -> tuple[Array, float, Memory]:
    """Return the same with an optimiser that goes on from `memory`, and its new state."""
    if not rows.informative:
        return theta.astype(np.float64), 0.0, memory
    net, loss, optimiser = _trained(theta, rows, plan, rate, entropy, memory)
    return net.read(), loss, Memory.of(optimiser)


def train_times_rows(
    theta: Array, rows: Rows, plan: Plan, rate: float, entropy: tuple[int, ...]
) -> tuple[Array, float]:
    """Return n θ (P,) and the loss, with θ as in `train` and n rows.

    Of a large network it is read from the network's own memory (`FlatNet.times`), which the next
    visit in this thread overwrites.
    """
    if not rows.informative:
        return theta.astype(np.float64) * len(rows.x), 0.0
    if (stack := single(rows, plan)) is not None:
        (left,), (loss,) = stack.visit(theta, plan, rate)
        return left * len(rows.x), float(loss)
    net, loss, _ = _trained(theta, rows, plan, rate, entropy)
    return net.times(len(rows.x)), loss


def train_each(
    theta: Array,
    tables: Sequence[Rows],
    plan: Plan,
    rate: float | Array,
    entropies: Sequence[tuple[int, ...]],
) -> list[tuple[Array, float]]:
    """Return `train` of each of S tables, to the last bit; those in stacks at once.

    Parameters
    ----------
    theta : θ₀ (P,), or one for each table (S, P).
    rate : learning rate, or one for each table (S,).
    """
    one = theta.ndim == 1

    def at_once(places: list[int], stack: Stack) -> Iterable[tuple[Array, float]]:
        rates = rate if isinstance(rate, (int, float)) else rate[places, None]
        left, losses = stack.visit(theta if one else theta[places], plan, rates)
        return zip(left.copy(), losses.tolist(), strict=True)

    def by_itself(k: int) -> tuple[Array, float]:
        own = rate if isinstance(rate, (int, float)) else float(rate[k])
        return train(theta if one else theta[k], tables[k], plan, own, entropies[k])

    return Stacks.of(tables, plan).over(at_once, by_itself)


def _trained(
    theta: Array, rows: Rows, plan: Plan, rate: float, entropy: tuple[int, ...],
    memory: Memory | None = None,
) -> tuple[FlatNet, float, Optimiser]:  # fmt: skip
    """Train on informative rows; return the trained network, the loss, and the optimiser."""
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    start = net.theta.clone() if plan.mu else None
    optimiser = OPTIMISERS[plan.optimiser](net.theta)
    if memory is not None:
        optimiser.moments.copy_(torch.from_numpy(memory.moments))
        optimiser.taken = memory.taken
    parts = plan.parts(len(rows.x))
    running = parts > 1 and rows.additive
    loss = evaluate(theta, rows, plan) if parts > 1 and not running else None
    seen: list[float] = []
    for part, seed in steps(net, rows, plan, entropy):
        value = part.pull(net, seed) + penalise(net, plan)
        if running and len(seen) < min(parts, len(rows.x)):
            seen.append(value * len(part.x) / len(rows.x))
        if start is not None:
            net.grad.add_(net.theta - start, alpha=plan.mu)
        optimiser.step(net.theta, net.grad, rate)
        loss = value if loss is None else loss
    rows.settle(net)
    return net, sum(seen) if running else loss or 0.0, optimiser


def evaluate(theta: Array, rows: Rows, plan: Plan) -> float:
    """Return the mean loss of θ (P,) on all rows, with its penalty."""
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    return rows.value(net) + penalise(net, plan)


def loss_at(theta: Array, rows: Rows, plan: Plan) -> float:
    """Return the same without the penalty."""
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    return rows.value(net)


def penalise(net: FlatNet, plan: Plan) -> float:
    """Return λ₁‖W‖₁ + ½λ₂‖W‖² of the first layer's weights W; add its gradient to `net.grad`.

    The gradient of |w| at 0 is 0.
    """
    if not (plan.l1 or plan.l2):
        return 0.0
    value = 0.0
    weights, grad = net.theta[net.first], net.grad[net.first]
    if plan.l2:
        grad.add_(weights, alpha=plan.l2)
        value += 0.5 * plan.l2 * float(weights @ weights)
    if plan.l1:
        grad.add_(weights.sign(), alpha=plan.l1)
        value += plan.l1 * float(torch.abs(weights).sum())
    return value


def steps(
    net: FlatNet, rows: Rows, plan: Plan, entropy: tuple[int, ...], *, every: bool = False
) -> Iterable[tuple[Rows, int]]:
    """Return the rows of each step of a visit, in order, with a seed for dropout and noise.

    Mini-batches without information, such as a death for a Cox loss, are left out unless `every`.
    """
    batches = plan.parts(len(rows.x))
    if batches == 1 and not (net.draws or rows.draws):
        return repeat((rows, 0), plan.epochs)
    rng = np.random.default_rng(entropy)
    return (
        (part, int(rng.integers(2**31)))
        for _ in range(plan.epochs)
        for part in _dealt(rows, batches, rng, every=every)
    )


def _dealt(rows: Rows, batches: int, rng: np.random.Generator, *, every: bool) -> Iterator[Rows]:
    """Yield all rows at once, or in random parts of nearly equal size."""
    if batches == 1:
        yield rows
        return
    for part in np.array_split(rng.permutation(len(rows.x)), batches):
        batch = rows.take(np.sort(part))
        if every or batch.informative:
            yield batch

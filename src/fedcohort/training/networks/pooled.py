"""Sums of a loss that is a mean over rows: its gradient, and its value on the rows held out.

With a loss of each row, the gradient of the pooled loss is a sum over sites, for any split:

    ∇L(θ) = (1/n) Σ_k Σ_{j at k} ∇l_j(θ) + the penalty's                                    (1)

"exact" takes one optimiser step of (1) in each round, as on the pooled table.

A gradient has no bound for arbitrary data. If the model fits all sites equally well, a site's sum
grows as √n_k. If single replies are visible, ‖∇‖/√(n_k + 10) is compared between sites
(`protocol.updates`, docs/robustness.md). This does not detect a wrong direction of usual length, or
more rows claimed in all replies.

Revealed, only as sums over all sites: `Slopes` every round of "exact"; `Losses` every round with a
patience. A bound of a study asks its only site once for all rounds (`networks.alone`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.network import FlatNet, network
from fedcohort.protocol import Federation, Site, gathered, message, summed
from fedcohort.training.hazard import seed_of
from fedcohort.training.networks import alone
from fedcohort.training.networks.counts import counting
from fedcohort.training.networks.local import loss_at, penalise
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan, holds_out
from fedcohort.training.networks.schedule import Course, HeldOut, Schedule, course_of, follow
from fedcohort.training.networks.stacks import Stack, Stacks, single
from fedcohort.training.rows import Rows, rows_of
from fedcohort.training.update_bounds import length

#: Rows added to a site's own when gradients are compared; it limits the effect of single rows.
FEW = 10.0


@message(parameters=["gradient"])
class Slope:
    """A site's part in a gradient (P,), and n_k, its number of rows ()."""

    some_rows = staticmethod(holds_out)

    gradient: Array
    rows: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one site's reply; see `protocol.updates`."""
        theta: Array = asked["theta"]
        if self.gradient.shape != theta.shape or self.gradient.dtype != np.float64:
            return "a gradient of another shape or type than the model that it was sent."
        if self.rows.shape or self.rows.dtype != np.float64:
            return "rows that are not one real number."
        return "a gradient over no rows." * bool(not self.rows and self.gradient.any())

    def moved(self, asked: Mapping[str, Any]) -> float:
        """Return ‖∇‖/√(n_k + `FEW`), comparable between sites of any size."""
        return length(self.gradient) / math.sqrt(float(self.rows) + FEW)


@message(parameters=["gradient"])
class Slopes(Slope):
    """Σ_j ∇l_j (P,), the number of rows, and Σ_j l_j."""

    loss: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one site's reply; see `protocol.updates`."""
        if self.loss.shape or self.loss.dtype != np.float64:
            return "a loss that is not one real number."
        return super().fault(asked)


@message
class Losses:
    """Number of the rows held out, and the sum of their losses."""

    some_rows = True

    rows: Array
    loss: Array


def _pull_each(
    sites: Sequence[Site[Any, None]], *, theta: Array, plan: str, draw: int
) -> list[Slopes] | None:
    """Return `pull_rows` of several sites; None: no two of them fit a stack."""
    p = Plan.of(plan)
    tables = [rows_of(s.data, p, s.entropy) for s in sites]
    stacks = Stacks.of(tables, p)
    if not stacks.gains:
        return None

    def by_itself(k: int) -> Slopes:
        net = network(p.network, p.dtype, p.device)
        return _pulled(theta, tables[k], net, seed_of(sites[k], draw) if draw >= 0 else 0)

    return stacks.over(lambda _, stack: _pulled_at_once(theta, stack), by_itself)


@summed(many=_pull_each)
def pull_rows(site: Site[Any, None], *, theta: Array, plan: str, draw: int) -> Slopes:
    """Sum the gradient of the loss over the rows.

    draw : number of the step, for dropout; −1 without.
    """
    found = _pull_each([site], theta=theta, plan=plan, draw=draw)
    assert found is not None
    return found[0]


def _pulled_at_once(theta: Array, stack: Stack) -> Iterable[Slopes]:
    """Return the sums of the gradient and of the loss over the rows of each table of a stack."""
    values, slopes = stack.loss(stack.outputs(theta))
    gradients = stack.pulled(theta, slopes) * stack.rows[:, None]
    each = zip(gradients, stack.rows, stack.rows * values, strict=True)
    return (Slopes(*map(np.asarray, one)) for one in each)


def _pulled(theta: Array, rows: Rows, net: FlatNet, seed: int) -> Slopes:
    """Return the sums of the gradient and of the loss over rows, at θ (P,)."""
    net.load(theta)
    gradient, loss, n = np.zeros(len(theta)), 0.0, len(rows.x)
    size = net.block or max(n, 1)
    for k, start in enumerate(range(0, n, size)):
        part = rows if size >= n else rows.take(np.arange(start, min(start + size, n)))
        value = part.pull(net, seed + k)
        gradient += len(part.x) * net.gradient()
        loss += len(part.x) * value
    return Slopes(gradient, np.array(float(n)), np.array(loss))


@gathered(alone=True)
def descend_rows(
    site: Site[Any, None],
    *,
    theta: Array,
    plan: str,
    rounds: int,
    rate: float,
    lr_rule: str,
    keep: Array,
) -> alone.Descended:
    """Train a model on the rows of this site alone, in all rounds, and return it.

    A round is `pull_rows` and a step of `Descent`.
    """
    p = Plan.of(plan)
    rows = rows_of(site.data, p, site.entropy)
    descent, step, n = Descent(p, theta), 0, max(float(len(rows.x)), 1.0)
    draws, stack = rows.draws or descent.net.draws, single(rows, p)

    def advance(theta: Array, rate: float) -> tuple[Array, float]:
        nonlocal step
        if stack is not None:
            (total,) = _pulled_at_once(p.sent(theta), stack)
        else:
            seed = seed_of(site, step) if draws else 0
            total = _pulled(p.sent(theta), rows, descent.net, seed)
        step += 1
        return descent.step(theta, total.gradient / n, float(total.loss) / n, rate)

    return alone.descended(alone.asking(rounds, rate, lr_rule, keep), theta, advance)


@summed
def sum_losses(site: Site[Any, None], *, theta: Array, plan: str) -> Losses:
    """Sum the loss of the rows held out."""
    p = Plan.of(plan)
    rows = rows_of(site.data, p, site.entropy, held_out=True)
    n = len(rows.x)
    return Losses(np.array(float(n)), np.array(n * loss_at(theta, rows, p)))


class Descent:
    """The coordinator's optimiser of a pooled loss, from θ (P,)."""

    def __init__(self, plan: Plan, theta: Array):
        self.net, self._plan = network(plan.network, plan.dtype, plan.device), plan
        self.net.load(theta)
        self._optimiser = OPTIMISERS[plan.optimiser](self.net.theta)

    def step(self, theta: Array, gradient: Array, loss: float, rate: float) -> tuple[Array, float]:
        """Return θ after a step from θ (P,) along a gradient (P,), and the loss with penalties.

        gradient, loss : means over rows, without penalties.
        """
        self.net.load(theta)
        self.net.grad.copy_(torch.from_numpy(gradient))
        loss += penalise(self.net, self._plan)
        self._optimiser.step(self.net.theta, self.net.grad, rate)
        return self.net.read(), loss


def exact(
    fed: Federation,
    plan: Plan,
    schedule: Schedule,
    theta: Array,
    held_out: HeldOut,
    after: Callable[[Federation, Array], Array] | None = None,
    draws: bool = False,
) -> Course:
    """Minimise the pooled loss from θ (P,) by its gradient, eq. (1); one step per round.

    Parameters
    ----------
    after : called after each step with the sites that answer and θ; returns θ.
    draws : whether the loss draws random numbers, besides the network.

    A round waits for all sites: a sum without one would tell that site's gradient.

    Raises
    ------
    SiteUnavailable : too few sites are left whose replies were not refused.
    """
    if after is None and alone.can(fed, schedule):
        course = alone.at_once(fed, schedule, theta, descend_rows, plan=plan.text)
        if course is not None:
            return course
    there = fed.awaiting(len(fed.sites))
    descent, step = Descent(plan, theta), 0

    def advance(theta: Array, rate: float) -> tuple[Array, float]:
        nonlocal step, there
        draw = step if draws or descent.net.draws else -1
        total = there.sum(pull_rows, theta=plan.sent(theta), plan=plan.text, draw=draw)
        step += 1
        if there.refused:
            fed.enough(there.answered)
            there = fed.only(there.answered).awaiting()
        n = max(float(total.rows), 1.0)
        theta, loss = descent.step(theta, total.gradient / n, float(total.loss) / n, rate)
        return (theta if after is None else after(there, theta)), loss

    course = course_of(
        schedule, theta, held_out=held_out, rounds=fed.rounds, record=fed.record,
        heard=lambda: there.answered, counted=counting(fed, plan),
    )  # fmt: skip
    return follow(advance, course)


def held_out_loss(fed: Federation, plan: Plan) -> HeldOut:
    """Return a function of θ (P,): its mean loss on all sites' rows held out."""

    def loss(theta: Array) -> float:
        there = fed.only(fed.answered) if fed.refused else fed
        total = there.awaiting(len(there.sites)).sum(
            sum_losses, theta=plan.sent(theta), plan=plan.text
        )
        return float(total.loss) / max(float(total.rows), 1.0)

    return loss


STEPS = (pull_rows, sum_losses)

"""Computation of a site's own model: pure functions of (θ, rows, plan, way, draws).

Symbols and equations: see the package's header. `k` counts the visits of a site's own model. All
random draws of a visit depend on (study seed, site, k) and not on the way, so a way whose limit is
`local` draws the same as `local`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.protocol import Site, message
from fedcohort.training.networks.local import evaluate, penalise, steps, train
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.personal.ways import AFTER, BESIDE, PARTED, TAG, Way
from fedcohort.training.rows import Rows
from fedcohort.training.update_bounds import stepped

#: θ (P,) → training rows of a visit from θ; they depend on θ only if θ sets their targets.
RowsAt = Callable[[Array], Rows]


def _empty() -> Array:
    return np.zeros(0)


@message(parameters=["theta", "model", "parts"])
class Own:
    """State that a site keeps: its own model or part (m,), α (), and the number of visits k ().

    Attributes
    ----------
    model : the finished model (P,), of a fit for every site; empty before.
    loss : its loss on the site's rows (1,), or empty.
    curve : of cox, times and baseline H₀ (2, T), at f − `centre` (1,); or empty.
    streak : least loss on rows held out, and rounds since (2,); or empty (`own_counts`).
    parts_at, parts : numbers (R,) of the last rounds, and the own part after each (R, m).
    """

    theta: Array
    alpha: Array
    visits: Array
    model: Array = field(default_factory=_empty)
    loss: Array = field(default_factory=_empty)
    curve: Array = field(default_factory=_empty)
    centre: Array = field(default_factory=_empty)
    streak: Array = field(default_factory=_empty)
    parts_at: Array = field(default_factory=_empty)
    parts: Array = field(default_factory=_empty)

    @classmethod
    def finished(cls, left: Mapping[str, Array]) -> Self | None:
        """Return the state of a finished model from the arrays left at a site; None without one."""
        return cls(**left) if len(left.get("model", ())) else None


def draws(site: Site[Any, Any], k: int) -> tuple[int, ...]:
    """Return the entropy of the k-th visit of a site's own model."""
    return (*site.entropy[:2], TAG, k)


def begun(theta: Array, way: Way) -> Own:
    """Return a site's own state before its first visit, from the first θ (P,) that it receives."""
    first = theta.astype(np.float64)
    return Own(
        first[way.mask(len(first))] if way.name in PARTED else first,
        np.array(float(way.alpha)),
        np.array(0),
    )


def advanced(
    site: Site[Any, Any], own: Own, theta: Array, rows: Rows, plan: Plan, way: Way, rate: float
) -> Own:
    """Return the user's v and α after one more visit beside the common θ (P,)."""
    k = int(own.visits)
    if not rows.informative:
        return own
    if way.name == "ditto":
        v, alpha = towards(own.theta, theta, rows, plan, way.pull, rate, draws(site, k)), own.alpha
    else:
        v, alpha = mixed(own, theta, rows, plan, way, rate, draws(site, k))
    return Own(v, alpha, np.array(k + 1))


def towards(
    v: Array, theta: Array, rows: Rows, plan: Plan, pull: float, rate: float, draw: tuple[int, ...]
) -> Array:
    """Train v (P,) towards θ (P,), with eq. (3) after each step of the optimiser."""
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    at = net.theta.clone()
    net.load(v)
    part_way = rate * pull / (1.0 + rate * pull)

    def after(net_theta: Tensor) -> None:
        if part_way:
            net_theta.lerp_(at, part_way)

    return _descended(rows, plan, rate, draw, after=after)


def masked(
    theta: Array, rows: Rows, plan: Plan, held: Array, rate: float, draw: tuple[int, ...]
) -> tuple[Array, float]:
    """Train the entries of θ (P,) that are not held (P,); return θ, and the loss before."""
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    value = evaluate(theta, rows, plan)
    still = torch.from_numpy(held).to(net.theta.device)

    def before(grad: Tensor) -> None:
        grad.masked_fill_(still, 0.0)

    net.load(theta)
    own = held[stepped(held, plan).size :]  # a forest's leaves, all of them held or none
    found = _descended(rows, plan, rate, draw, before=before, settles=not own.any())
    return found, value


def _descended(
    rows: Rows,
    plan: Plan,
    rate: float,
    draw: tuple[int, ...],
    *,
    before: Callable[[Tensor], None] | None = None,
    after: Callable[[Tensor], None] | None = None,
    settles: bool = True,
) -> Array:
    """Train the loaded network; `before` changes gradients, `after` changes θ after each step.

    settles : whether what no gradient step moves is written at the end (`Rows.settle`).
    """
    net = network(plan.network, plan.dtype, plan.device)
    optimiser = OPTIMISERS[plan.optimiser](net.theta)
    for part, seed in steps(net, rows, plan, draw):
        part.pull(net, seed)
        penalise(net, plan)
        if before is not None:
            before(net.grad)
        optimiser.step(net.theta, net.grad, rate)
        if after is not None:
            after(net.theta)
    if settles:
        rows.settle(net)
    return net.read()


def mixed(
    own: Own, theta: Array, rows: Rows, plan: Plan, way: Way, rate: float, draw: tuple[int, ...]
) -> tuple[Array, Array]:
    """Train v (P,) beside u, a copy of θ (P,) that is trained as well, eqs. (4) and (5)."""
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    u = net.theta.clone()
    net.load(own.theta)
    v = net.theta.clone()
    of_u, of_v = OPTIMISERS[plan.optimiser](u), OPTIMISERS[plan.optimiser](v)
    alpha, first = float(own.alpha), True

    def pull(part: Rows, seed: int) -> None:
        part.pull(net, seed)
        penalise(net, plan)

    for part, seed in steps(net, rows, plan, draw):
        net.theta.copy_(v).mul_(alpha).add_(u, alpha=1.0 - alpha)
        pull(part, seed)
        slope = net.grad * alpha
        if way.adapt and first:
            alpha = min(1.0, max(0.0, alpha - rate * float((v - u) @ net.grad)))
        first = False
        net.theta.copy_(u)
        pull(part, seed)
        of_v.step(v, slope, rate)
        of_u.step(u, net.grad, rate)
    net.theta.copy_(v)
    return net.read(), np.array(alpha)


def with_own_part(
    own: Own, theta: Array, rows_at: RowsAt, plan: Plan, way: Way, rate: float, site: Site[Any, Any]
) -> tuple[Array, Own, float]:
    """Train the common part of θ (P,) together with this site's own part.

    Returns
    -------
    theta : (P,), the common part trained, the rest as sent.
    own : this site's part, trained.
    loss : loss of the sent common part with this site's own part.
    """
    k, held = int(own.visits), way.mask(len(theta))
    sent = theta.astype(np.float64)
    start = np.where(held, 0.0, sent)
    start[held] = own.theta
    rows = rows_at(start)
    if not rows.informative:
        return sent, own, 0.0
    alone = replace(plan, mu=0.0)
    if way.name == "fedper":
        left, loss = train(start, rows, alone, rate, draws(site, k))
    else:
        left, loss = masked(start, rows, replace(alone, epochs=way.epochs), ~held, rate,
                            (*draws(site, k), 0))  # fmt: skip
        left, _ = masked(left, rows, alone, held, rate, (*draws(site, k), 1))
    return np.where(held, sent, left), replace(own, theta=left[held], visits=np.array(k + 1)), loss


def told(
    site: Site[Any, Own | None], theta: Array, rows_at: RowsAt, plan: Plan, way: Way, rate: float
) -> tuple[Array, float]:
    """Return the user's model (P,) beside the common θ (P,), and its α; change no state."""
    alone = replace(plan, mu=0.0)
    sent = theta.astype(np.float64)
    if way.name == "global":
        return sent, 0.0
    if way.name in AFTER:
        if not way.epochs:
            return sent, 0.0
        longer = replace(alone, epochs=way.epochs)
        return train(sent, rows_at(sent), longer, rate, draws(site, 0))[0], 0.0
    own = site.state or begun(theta, way)
    if way.name in BESIDE:
        own = advanced(site, own, theta, rows_at(own.theta), plan, way, rate)
        alpha = float(own.alpha) if way.name == "apfl" else 1.0
        return (own.theta if alpha == 1.0 else alpha * own.theta + (1.0 - alpha) * sent), alpha
    held = way.mask(len(sent))
    found = sent.copy()
    found[held] = own.theta
    if way.name == "fedrep":
        of_head = replace(alone, epochs=way.epochs)
        found, _ = masked(
            found, rows_at(found), of_head, ~held, rate, (*draws(site, int(own.visits)), 0)
        )
    return found, 0.0

"""Local training of several sites at once: their visits as operations on one stack of arrays.

A visit of a perceptron on a hospital's table is hundreds of operations on a few thousand numbers,
most of whose time is the call itself. Sites with tables of one length take each step together.

A site's numbers must not depend on the sites beside it, or else another number of workers, and a
resumed run, would give other bits. So a table that fits a stack is always computed in one, alone
too; and it is filled up to one of few lengths, since products of other shapes add in another order.
A larger table, mini-batches, dropout, float32 and other devices keep `networks.local`'s own loop.

Revealed: nothing; replies are those of one site at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import get_ident
from typing import Any, TypeVar

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.loss_stacks import LossStack, order_of, stackable, stacked
from fedcohort.models.network import Mlp, shape_of
from fedcohort.models.perceptrons import Passed, Perceptron
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import Rows

R = TypeVar("R")

#: Shortest length of a stack.
SHORTEST = 16
#: Length up to which there are two lengths for each power of two, and from which there are eight.
LONG = 256
#: Most products n P of a table that is stacked, and most numbers of a stack's tables and outputs.
TABLE, ROOM = 2**20, 2**17


@lru_cache(maxsize=1024)
def length_of(rows: int) -> int:
    """Return the length to which a table is filled up: 16, 24, 32, 48, …, 256, 288, 320, and on."""
    power = SHORTEST
    while 2 * power < rows:
        power *= 2
    step = power // (8 if power >= LONG else 2)
    return power + step * max(0, -(-(rows - power) // step))


class Nets:
    """S perceptrons of one shape, with θ and ∇ (S, P) as arrays and as tensors of one memory."""

    def __init__(self, shape: Mlp, sites: int):
        self.theta, self.grad = np.zeros((2, sites, shape.size))
        self.tensors = torch.from_numpy(self.theta), torch.from_numpy(self.grad)
        self.first = slice(0, shape.sizes[0] * shape.sizes[1])
        net = Perceptron(self.theta, self.grad, shape.sizes, shape.activation, shape.intercept)
        self.forward, self.backward = net.forward, net.backward


@lru_cache(maxsize=64)
def _nets(spec: str, sites: int, thread: int) -> Nets:
    shape = shape_of(spec)
    assert shape is not None
    return Nets(shape, sites)


@dataclass(frozen=True)
class Stack:
    """Tables of sites, filled up to one length, for a network.

    Attributes
    ----------
    spec : of the network.
    x : xᵀ (S, p, n), rows in the order of the loss.
    rows : n_k (S,).
    loss : of the S sites.
    orders : by site, the order of the table's rows; None: as they are.
    kept : what is prepared from these tables, as long as they live.
    """

    spec: str
    x: Array
    rows: Array
    loss: LossStack
    orders: Sequence[Array | None]
    kept: dict[Hashable, Any] = field(
        default_factory=dict[Hashable, Any], repr=False, compare=False
    )

    @classmethod
    def of(cls, tables: Sequence[Rows], spec: str) -> Stack:
        """Return a stack of tables of one `length_of`."""
        rows, orders = [len(t.x) for t in tables], [order_of(t.loss) for t in tables]
        length = length_of(max(rows))
        x = np.empty((len(tables), tables[0].x.shape[1], length))
        for k, t in enumerate(tables):
            order = orders[k]
            x[k, :, : rows[k]] = (t.x.numpy() if order is None else t.x.numpy()[order]).T
            x[k, :, rows[k] :] = x[k, :, rows[k] - 1 : rows[k]]
        loss = stacked([t.loss for t in tables], length)
        return cls(spec, x, np.array(rows, float), loss, orders)

    @property
    def nets(self) -> Nets:
        """Networks of this thread for these sites."""
        return _nets(self.spec, len(self.x), get_ident())

    def outputs(self, theta: Array) -> Array:
        """Return f (S, n) at θ (P,)."""
        return self._passed(theta)[1].out[:, 0]

    def pulled(self, theta: Array, slopes: Array) -> Array:
        """Return Σ_j s_j ∇f(x_j) (S, P) at θ (P,) for slopes s (S, n), in memory of its own."""
        nets, passed = self._passed(theta)
        nets.backward(passed, slopes[:, None])
        return nets.grad.copy()

    def _passed(self, theta: Array) -> tuple[Nets, Passed]:
        """Return the networks at θ (P,), and their pass; the last pass of this thread is kept."""
        nets = self.nets
        nets.theta[:] = theta
        held = self.kept.get("passed")
        if held is None or held[0] != get_ident() or not np.array_equal(held[1], theta):
            held = get_ident(), theta.copy(), nets.forward(self.x)
            self.kept["passed"] = held
        return nets, held[2]

    def visit(self, theta: Array, plan: Plan, rate: float | Array) -> tuple[Array, Array]:
        """Train for `plan.epochs` epochs, as `networks.local.train` does.

        Parameters
        ----------
        theta : θ₀ (P,) or (S, P).
        rate : η, or of each site (S, 1).

        Returns
        -------
        thetas : θ (S, P), in memory that the next visit in this thread overwrites.
        losses : (S,), at θ₀.
        """
        nets = self.nets
        nets.theta[:] = theta
        start = nets.theta.copy() if plan.mu else None
        optimiser = OPTIMISERS[plan.optimiser](nets.tensors[0])
        losses = np.zeros(len(self.x))
        for epoch in range(plan.epochs):
            passed = nets.forward(self.x)
            values, slopes = self.loss(passed.out[:, 0], valued=not epoch)
            nets.backward(passed, slopes[:, None])
            if plan.l1 or plan.l2:
                values = values + penalise(nets, plan)
            if start is not None:
                nets.grad += plan.mu * (nets.theta - start)
            optimiser.step_arrays(nets.theta, nets.grad, rate)
            losses = losses if epoch else values
        return nets.theta, losses


def penalise(nets: Nets, plan: Plan) -> Array:
    """Return λ₁‖W‖₁ + ½λ₂‖W‖² (S,) of first layers' weights; add its gradient to `nets.grad`."""
    weights, grad = nets.theta[:, nets.first], nets.grad[:, nets.first]
    values = np.zeros(len(weights))
    if plan.l2:
        grad += plan.l2 * weights
        values += 0.5 * plan.l2 * np.add.reduce(weights * weights, axis=1)
    if plan.l1:
        grad += plan.l1 * np.sign(weights)
        values += plan.l1 * np.add.reduce(np.abs(weights), axis=1)
    return values


def fits(rows: Rows, plan: Plan) -> bool:
    """Return whether a table is computed in a stack; it depends on nothing but the two."""
    n = len(rows.x)
    shape = shape_of(plan.network) if plan.device == "cpu" and plan.dtype == "float64" else None
    return (
        shape is not None
        and plan.parts(n) == 1
        and stackable(rows.loss)
        and rows.informative
        and length_of(n) * shape.size <= TABLE
    )


def single(rows: Rows, plan: Plan) -> Stack | None:
    """Return the stack of one table; None if it does not fit one."""
    each = Stacks.of([rows], plan).each
    return each[0][1] if each else None


@dataclass(frozen=True)
class Stacks:
    """Tables of a call: stacks, each with the places of its tables, and the places of the rest."""

    each: Sequence[tuple[list[int], Stack]]
    rest: Sequence[int]

    @property
    def gains(self) -> bool:
        """Whether two tables share a stack; one table alone has nobody to share with."""
        tables = len(self.rest) + sum(len(places) for places, _ in self.each)
        return tables == 1 or any(len(places) > 1 for places, _ in self.each)

    def over(
        self, of_stack: Callable[[list[int], Stack], Iterable[R]], of_one: Callable[[int], R]
    ) -> list[R]:
        """Return a result of each table, in order.

        Parameters
        ----------
        of_stack : places of a stack's tables, and the stack → their results. of_one : of the rest.
        """
        found: dict[int, R] = {}
        for places, stack in self.each:
            found.update(zip(places, of_stack(places, stack), strict=True))
        found.update((k, of_one(k)) for k in self.rest)
        return [found[k] for k in sorted(found)]

    @classmethod
    def of(cls, tables: Sequence[Rows], plan: Plan) -> Stacks:
        """Return the stacks of tables, at least one; the last ones are kept with the first table.

        Stacks are of one length, and of so few tables that their arrays stay near the processor.
        """
        first, marks = tables[0], tuple(map(id, tables))
        held = first.kept.get(key := ("stacks", plan.network, len(tables) == 1))
        if held is not None and held[0] == marks and (held[1] is plan or held[1] == plan):
            return held[-1]
        found = cls._made(tables, plan)
        first.kept[key] = (marks, plan, tables[1:], found)  # their marks hold while they live
        return found

    @classmethod
    def _made(cls, tables: Sequence[Rows], plan: Plan) -> Stacks:
        fit = [k for k, t in enumerate(tables) if fits(t, plan)]
        shape = shape_of(plan.network)
        each: list[tuple[list[int], Stack]] = []
        for length in sorted({length_of(len(tables[k].x)) for k in fit}):
            assert shape is not None
            alike = [k for k in fit if length_of(len(tables[k].x)) == length]
            most = max(1, ROOM // (length * sum(shape.sizes)))
            for start in range(0, len(alike), most):
                places = alike[start : start + most]
                each.append((places, Stack.of([tables[k] for k in places], plan.network)))
        return cls(each, [k for k in range(len(tables)) if k not in set(fit)])

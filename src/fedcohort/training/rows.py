"""A site's table as training sees it: a tensor and a loss, prepared once.

Preparing (moving x to the device, sorting death times, choosing the held-out rows) costs as much
as several training steps, and the table is the same object in every call of a fit. So what was
prepared is remembered for as long as that table's outcome array lives (x, where there is none), and
no longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcohort.arrays import Array
from fedcohort.data.tables import remembered
from fedcohort.models.losses import Loss
from fedcohort.models.network import FlatNet
from fedcohort.models.objectives import Objective, loss_of
from fedcohort.training.networks.plan import Plan

#: Rows that an objective is computed of at a time: activations are held for so many.
BLOCK = 8192

_TAG = 0x68656C64


@dataclass(frozen=True)
class Rows:
    """Some rows of a table: ``x`` (n, p) on the device, and their loss."""

    x: Tensor
    loss: Loss | Objective

    @property
    def informative(self) -> bool:
        """Whether they can teach anything."""
        return self.loss.informative and len(self.x) > 0

    @property
    def draws(self) -> bool:
        """Whether their loss draws random numbers in a training step."""
        return isinstance(self.loss, Objective) and self.loss.draws

    @property
    def additive(self) -> bool:
        """Whether their averaged loss is the mean of that of their parts."""
        return isinstance(self.loss, Objective)

    @property
    def plain(self) -> Loss:
        """Return the loss, where it is a slope at the outputs.

        Raises
        ------
        TypeError : it is an objective, which has no slope of one row.
        """
        if isinstance(self.loss, Objective):
            raise TypeError("an objective has no slope at a network's outputs.")
        return self.loss

    def pull(self, net: FlatNet, seed: int = 0) -> float:
        """Write the averaged loss's ∇θ into `net.grad`; return the loss, drawn from the seed."""
        loss, x = self.loss, self.x
        if isinstance(loss, Objective):
            return net.descend(lambda module: loss(module, x, seed), seed)
        return net.pull(x, loss, seed)

    def value(self, net: FlatNet) -> float:
        """Return the averaged loss, nothing silent and without noise; 0 of rows that teach none.

        An objective is summed over blocks of `BLOCK` rows, being a mean over rows.
        """
        if not self.informative:
            return 0.0
        loss, n = self.loss, len(self.x)
        if not isinstance(loss, Objective):
            return loss(net.outputs(self.x))[0]
        if n <= BLOCK:
            return float(net.compute(lambda module: loss(module, self.x)))
        parts = [self.take(part) for part in np.array_split(np.arange(n), -(-n // BLOCK))]
        return sum(len(part.x) / n * part.value(net) for part in parts)

    def take(self, rows: Array) -> Rows:
        """Return some of these rows, given by number."""
        return Rows(self.x[torch.from_numpy(rows).to(self.x.device)], self.loss.take(rows))


def rows_of(table: Any, plan: Plan, entropy: tuple[int, ...], held_out: bool = False) -> Rows:
    """Return the rows that `plan` trains on, or those it holds out to decide when to stop."""
    fraction = plan.validation_fraction
    key = ("rows", plan.loss, plan.dtype, plan.device, fraction, held_out, entropy[:2])

    def make() -> Rows:
        part = table
        if fraction:
            rows = chosen(len(table.x), fraction, entropy)[held_out]
            part = type(table)(*(None if column is None else column[rows] for column in table))
        x = tensor(part.x, plan)
        # Where x is itself the anchor of what is remembered, nothing remembered may hold it.
        anchored = part is table and len(table) == 1 and x.dtype is torch.float64
        x = x.clone() if anchored else x
        return Rows(x, loss_of(plan.loss, part))

    return remembered(table, key, make)


def known_rows(table: Any, plan: Plan, entropy: tuple[int, ...], *, held_out: bool = False) -> Rows:
    """Return the same without the rows in which no entry of x is known."""
    rows = rows_of(table, plan, entropy, held_out)
    where = plan.dtype, plan.device, plan.validation_fraction, held_out, entropy[:2]

    def make() -> Rows:
        known = (~rows.x.isnan()).any(dim=1).cpu().numpy()
        return rows if known.all() else rows.take(np.flatnonzero(known))

    return remembered(table, ("known", plan.loss, *where), make)


def chosen(n: int, fraction: float, entropy: tuple[int, ...]) -> tuple[Array, Array]:
    """Split rows 0…n−1 of a site into those trained on and those held out, both increasing.

    Depends on (study seed, site) alone, the first two parts of `entropy`: the same in all calls.
    """
    n_held_out = round(fraction * n)
    if not n_held_out:
        return np.arange(n), np.arange(0)
    order = np.random.default_rng((*entropy[:2], _TAG)).permutation(n)
    return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])


def tensor(x: Array, plan: Plan) -> Tensor:
    """Return x (n, p) in the plan's type on its device; float64 on the CPU is not copied."""
    held = torch.from_numpy(np.require(x, np.float64, ["C", "W"]))
    return held.to(dtype=getattr(torch, plan.dtype), device=plan.device)

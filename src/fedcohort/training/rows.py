"""A site's table for training: a tensor and a loss, prepared once.

Preparing (moving x to the device, sorting death times, choosing the held-out rows) costs as much as
several training steps. So the result is kept as long as the table's outcome array lives (x, if
there is none).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcohort.arrays import Array
from fedcohort.data.tables import remembered
from fedcohort.models.losses import CrossEntropy, Loss
from fedcohort.models.network import FlatNet
from fedcohort.models.objectives import Objective, loss_of
from fedcohort.training.networks.plan import Plan

#: Rows per block of an objective; activations are in memory for one block.
BLOCK = 8192

_TAG = 0x68656C64


@dataclass(frozen=True)
class Rows:
    """Some rows of a table: ``x`` (n, p) on the device, and their loss.

    ``kept`` holds what is prepared from them, as long as they live.
    """

    x: Tensor
    loss: Loss | Objective
    kept: dict[Hashable, Any] = field(
        default_factory=dict[Hashable, Any], repr=False, compare=False
    )

    @property
    def informative(self) -> bool:
        """Whether the rows carry information for the loss."""
        return self.loss.informative and len(self.x) > 0

    def few(self, least: int) -> bool:
        """Return whether there are fewer than `least` rows, or some but fewer of one class.

        Classes are those of an outcome of several. What would tell of one site's rows alone is not
        told of these.
        """
        rare = isinstance(self.loss, CrossEntropy) and any(0 < n < least for n in self.loss.kinds)
        return rare or len(self.x) < max(least, 1)

    @property
    def draws(self) -> bool:
        """Whether the loss draws random numbers in a training step."""
        return isinstance(self.loss, Objective) and self.loss.draws

    @property
    def additive(self) -> bool:
        """Whether the mean loss is the mean of its rows' losses."""
        return isinstance(self.loss, Objective)

    @property
    def plain(self) -> Loss:
        """The loss, if it has a gradient at the outputs.

        Raises
        ------
        TypeError : it is an objective, without a gradient of one row.
        """
        if isinstance(self.loss, Objective):
            raise TypeError("an objective has no slope at a network's outputs.")
        return self.loss

    def pull(self, net: FlatNet, seed: int = 0) -> float:
        """Write the mean loss's gradient into `net.grad`; return the loss, drawn from the seed."""
        loss, x = self.loss, self.x
        if isinstance(loss, Objective):
            return loss.pull(net, x, seed)
        return net.pull(x, loss, seed)

    def value(self, net: FlatNet) -> float:
        """Return the mean loss without dropout and noise; 0 for rows without information.

        An objective is computed in blocks of `BLOCK` rows.
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

    def settle(self, net: FlatNet) -> None:
        """Write the parameters of the network that no gradient step moves, if it has such."""
        if isinstance(self.loss, Objective):
            self.loss.settle(net.module, self.x)

    def take(self, rows: Array) -> Rows:
        """Return the rows with these numbers."""
        return Rows(self.x[torch.from_numpy(rows).to(self.x.device)], self.loss.take(rows))


def rows_of(table: Any, plan: Plan, entropy: tuple[int, ...], held_out: bool = False) -> Rows:
    """Return the training rows of `plan`, or its held-out rows."""
    fraction = plan.validation_fraction
    key = ("rows", plan.loss, plan.dtype, plan.device, fraction, held_out, entropy[:2])

    def make() -> Rows:
        part = table
        if fraction:
            rows = chosen(len(table.x), fraction, entropy)[held_out]
            part = type(table)(*(None if column is None else column[rows] for column in table))
        x = tensor(part.x, plan)
        # If x is the anchor of the memory, nothing in the memory may hold it.
        anchored = part is table and len(table) == 1 and x.dtype is torch.float64
        x = x.clone() if anchored else x
        return Rows(x, loss_of(plan.loss, part))

    return remembered(table, key, make)


def known_rows(table: Any, plan: Plan, entropy: tuple[int, ...], *, held_out: bool = False) -> Rows:
    """Return the same without rows in which all entries of x are missing."""
    rows = rows_of(table, plan, entropy, held_out)
    where = plan.dtype, plan.device, plan.validation_fraction, held_out, entropy[:2]

    def make() -> Rows:
        known = (~rows.x.isnan()).any(dim=1).cpu().numpy()
        return rows if known.all() else rows.take(np.flatnonzero(known))

    return remembered(table, ("known", plan.loss, *where), make)


def chosen(n: int, fraction: float, entropy: tuple[int, ...]) -> tuple[Array, Array]:
    """Split rows 0…n−1 of a site into training and held-out rows, both increasing.

    The split depends on (study seed, site) alone, the first two parts of `entropy`.
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

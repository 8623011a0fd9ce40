"""A site's table as training sees it: a tensor and a loss, prepared once.

Preparing (moving x to the device, sorting death times, choosing the held-out rows) costs as much
as several training steps, and the table is the same object in every call of a fit. So what was
prepared is remembered for as long as that table's outcome array lives, and no longer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedcohort.arrays import Array
from fedcohort.models.losses import LOSSES, Loss
from fedcohort.training.plan import Plan

T = TypeVar("T")

_TAG = 0x68656C64


@dataclass(frozen=True)
class Rows:
    """Some rows of a table: ``x`` (n, p) on the device, and their loss."""

    x: Tensor
    loss: Loss

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
        return Rows(tensor(part.x, plan), LOSSES[plan.loss](part))

    return remembered(table, key, make)


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


@dataclass
class _Memory:
    outcome: weakref.ref[Array]
    kept: dict[Hashable, tuple[Any, Any]]


_memories: dict[int, _Memory] = {}


def remembered(table: Any, key: Hashable, make: Callable[[], T]) -> T:
    """Return what `make` gave for this table and key before, or make it now.

    The table's first outcome array is the anchor: when it is collected, so is all that was made
    from it. What `make` returns must not hold that array itself.
    """
    x, outcome, *rest = table
    memory = _memories.get(id(outcome))
    if memory is None or memory.outcome() is not outcome:
        number = id(outcome)
        gone = weakref.ref(outcome, lambda _: _memories.pop(number, None))
        memory = _memories[number] = _Memory(gone, {})
    full = (key, id(x), *map(id, rest))
    if full not in memory.kept:
        memory.kept[full] = ((x, *rest), make())
    return memory.kept[full][1]

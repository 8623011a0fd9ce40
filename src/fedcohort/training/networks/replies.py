"""Replies of a visit: a trained model with its rows and its loss, and the checks of one reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Keep, Site, message
from fedcohort.protocol.updates import count_fault
from fedcohort.training.networks import moments
from fedcohort.training.networks.local import train, train_each, train_times_rows
from fedcohort.training.networks.moments import Moments
from fedcohort.training.networks.plan import Plan, holds_out
from fedcohort.training.networks.stacks import Stacks
from fedcohort.training.networks.thinning import first_size, shortened
from fedcohort.training.rows import Rows
from fedcohort.training.update_bounds import (
    WEIGHTLESS,
    farthest,
    leap,
    length,
    misfit,
    paces,
    stepped,
)


@message(parameters=["theta"])
class Update:
    """A site's part in a mean of models: n_k θ_k (P,), n_k, n_k loss_k; see `local.train`.

    With averaged moments `theta` holds them, too (`moments`).
    """

    some_rows = staticmethod(holds_out)

    theta: Array
    rows: Array
    loss: Array

    @classmethod
    def trained(
        cls, theta: Array, rows: Rows, plan: Plan, rate: float, entropy: tuple[int, ...]
    ) -> Update:
        """Train from θ (P,); the result is in memory that the next visit overwrites."""
        n = len(rows.x)
        if moments.order_of(plan):
            left, loss = moments.train_averaged(theta, rows, plan, rate, entropy)
            scaled = n * left
        else:
            scaled, loss = train_times_rows(theta, rows, plan, rate, entropy)
        return cls(scaled, np.array(float(n)), np.array(n * loss))

    @classmethod
    def of_each(
        cls, theta: Array, tables: Sequence[Rows], plan: Plan, rate: float,
        entropies: Sequence[tuple[int, ...]],
    ) -> list[Update] | None:  # fmt: skip
        """Return the same of each table, trained at once; None: no two of them can be."""
        if moments.order_of(plan) or not Stacks.of(tables, plan).gains:
            return None
        found = train_each(theta, tables, plan, rate, entropies)
        each = zip((float(len(t.x)) for t in tables), found, strict=True)
        return [cls(left * n, np.array(n), np.array(n * loss)) for n, (left, loss) in each]

    @classmethod
    def kept(
        cls, site: Site[Any, Moments | None], theta: Array, rows: Rows, plan: Plan, rate: float,
        under: str = "",
    ) -> Keep[Update, Moments]:  # fmt: skip
        """Train from θ (P,) with a state that stays at the site.

        It is that of its optimiser, or the residual of compressed updates, or both.

        under : layers below the plan's (`moments.go_on`).
        """
        start, rest = moments.parted(theta, plan)
        left, loss, state = moments.go_on(site.state, start, rows, plan, rate, site.entropy, under)
        n = len(rows.x)
        if plan.compression != "none":
            v = left - start + state.residual
            left, residual, due = shortened(v, plan, int(rest[0]) if len(rest) else 0)
            state = replace(
                state, residual=residual, ready=np.array(float(n) if due else moments.NOTHING)
            )
        return Keep(cls(n * left, np.array(float(n)), np.array(n * loss)), state)

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""; see `protocol.updates`."""
        plan, wanted = Plan.of(asked["plan"]), asked["theta"]
        if plan.compression != "none":
            wanted = np.zeros(first_size(plan, len(moments.parted(wanted, plan)[0])))
        if why := misfit(self.theta, wanted, self.rows, self.loss):
            return why
        if not self.rows and (self.theta.any() or self.loss):
            return WEIGHTLESS
        if plan.compression != "none":
            return ""
        if moments.order_of(plan) and self.rows:
            rest = moments.parted(self.theta / self.rows, plan)[1]
            if why := moments.fault(rest, plan, farthest(plan)):
                return why
        return leap(lambda: length(stepped(self._step(asked), plan)), asked, self.rows)

    def moved(self, asked: Mapping[str, Any]) -> tuple[float, ...]:
        """Return ‖θ_k − θ‖, the same per `pace`, and n_k ‖θ_k − θ‖; see `update_bounds`."""
        far = self._length(asked)
        return (*paces(far, asked, self.rows), float(self.rows) * far)

    def _length(self, asked: Mapping[str, Any]) -> float:
        if not self.rows:
            return 0.0
        if Plan.of(asked["plan"]).compression != "none":
            return length(self.theta / self.rows)
        return length(self._step(asked))

    def _step(self, asked: Mapping[str, Any]) -> Array:
        """Return θ_k − θ (P,), without moments."""
        if not self.rows:
            return np.zeros(0)
        moved = self.theta / self.rows - asked["theta"]
        return moments.parted(moved, Plan.of(asked["plan"]))[0]


@message
class Visit:
    """The model after a site: θ (P,), and n_k, n_k loss_k; see `local.train`."""

    theta: Array
    rows: Array
    loss: Array

    @classmethod
    def trained(
        cls, theta: Array, rows: Rows, plan: Plan, rate: float, entropy: tuple[int, ...]
    ) -> Visit:
        """Train from θ (P,)."""
        return cls._of(rows, *train(theta, rows, plan, rate, entropy))

    @classmethod
    def of_each(
        cls, theta: Array, tables: Sequence[Rows], plan: Plan, rate: float,
        entropies: Sequence[tuple[int, ...]],
    ) -> list[Visit] | None:  # fmt: skip
        """Return the same of each table, trained at once; None: no two of them can be."""
        if not Stacks.of(tables, plan).gains:
            return None
        found = train_each(theta, tables, plan, rate, entropies)
        return [cls._of(rows, *one) for rows, one in zip(tables, found, strict=True)]

    @classmethod
    def _of(cls, rows: Rows, theta: Array, loss: float) -> Visit:
        n = len(rows.x)
        return cls(theta, np.array(float(n)), np.array(n * loss))

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if why := misfit(self.theta, asked["theta"], self.rows, self.loss):
            return why
        if not self.rows and ((self.theta != asked["theta"]).any() or self.loss):
            return WEIGHTLESS
        plan, moved = Plan.of(asked["plan"]), self.theta - asked["theta"]
        return leap(lambda: length(stepped(moved, plan)), asked, self.rows)

    def moved(self, asked: Mapping[str, Any]) -> tuple[float, float]:
        """Return ‖θ_k − θ‖, and the same per `pace`."""
        return paces(length(self.theta - asked["theta"]), asked, self.rows)


@message
class Member:
    """A site's own models (1 + K, P): the last first, then those after K requested rounds.

    The weight is n_k, or 0 if the rows carry no information.
    """

    thetas: Array
    weight: Array
    loss: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        wanted = np.broadcast_to(asked["theta"], (1 + len(asked["keep"]), len(asked["theta"])))
        if why := misfit(self.thetas, wanted, self.weight, self.loss):
            return why
        if why := count_fault("weight", self.weight):
            return why
        if not self.weight and ((self.thetas != wanted).any() or self.loss):
            return WEIGHTLESS

        def far() -> float:
            return max(map(length, stepped(self.thetas - wanted, Plan.of(asked["plan"]))))

        return leap(far, asked, self.weight, asked["rounds"])

    def moved(self, asked: Mapping[str, Any]) -> tuple[float, float]:
        """Return ‖θ_k − θ‖ of the last model, and the same per `pace` of one visit."""
        return paces(length(self.thetas[0] - asked["theta"]), asked, self.weight)

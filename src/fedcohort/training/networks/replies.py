"""Replies of a visit: a trained model with its rows and its loss, and the checks of one reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Keep, Site, message
from fedcohort.protocol.updates import count_fault
from fedcohort.training.networks import moments
from fedcohort.training.networks.local import train, train_times_rows
from fedcohort.training.networks.moments import Moments
from fedcohort.training.networks.plan import Plan, holds_out
from fedcohort.training.rows import Rows
from fedcohort.training.update_bounds import WEIGHTLESS, farthest, leap, length, misfit, paces


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
    def kept(
        cls, site: Site[Any, Moments | None], theta: Array, rows: Rows, plan: Plan, rate: float,
        under: str = "",
    ) -> Keep[Update, Moments]:  # fmt: skip
        """Train from θ (P,) with the site's own optimiser, whose state stays there.

        under : layers below the plan's (`moments.go_on`).
        """
        left, loss, state = moments.go_on(site.state, theta, rows, plan, rate, site.entropy, under)
        n = len(rows.x)
        return Keep(cls(n * left, np.array(float(n)), np.array(n * loss)), state)

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""; see `protocol.updates`."""
        if why := misfit(self.theta, asked["theta"], self.rows, self.loss):
            return why
        if not self.rows and (self.theta.any() or self.loss):
            return WEIGHTLESS
        plan = Plan.of(asked["plan"])
        if moments.order_of(plan) and self.rows:
            rest = moments.parted(self.theta / self.rows, plan)[1]
            if why := moments.fault(rest, plan, farthest(plan)):
                return why
        return leap(lambda: self._length(asked), asked, self.rows)

    def moved(self, asked: Mapping[str, Any]) -> tuple[float, ...]:
        """Return ‖θ_k − θ‖, the same per `pace`, and n_k ‖θ_k − θ‖; see `update_bounds`."""
        far = self._length(asked)
        return (*paces(far, asked, self.rows), float(self.rows) * far)

    def _length(self, asked: Mapping[str, Any]) -> float:
        if not self.rows:
            return 0.0
        moved = self.theta / self.rows - asked["theta"]
        return length(moments.parted(moved, Plan.of(asked["plan"]))[0])


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
        theta, loss = train(theta, rows, plan, rate, entropy)
        n = len(rows.x)
        return cls(theta, np.array(float(n)), np.array(n * loss))

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if why := misfit(self.theta, asked["theta"], self.rows, self.loss):
            return why
        if not self.rows and ((self.theta != asked["theta"]).any() or self.loss):
            return WEIGHTLESS
        return leap(lambda: self._length(asked), asked, self.rows)

    def moved(self, asked: Mapping[str, Any]) -> tuple[float, float]:
        """Return ‖θ_k − θ‖, and the same per `pace`."""
        return paces(self._length(asked), asked, self.rows)

    def _length(self, asked: Mapping[str, Any]) -> float:
        return length(self.theta - asked["theta"])


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
            return max(map(length, self.thetas - wanted))

        return leap(far, asked, self.weight, asked["rounds"])

    def moved(self, asked: Mapping[str, Any]) -> tuple[float, float]:
        """Return ‖θ_k − θ‖ of the last model, and the same per `pace` of one visit."""
        return paces(length(self.thetas[0] - asked["theta"]), asked, self.weight)

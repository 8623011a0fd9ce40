"""Rounds without a better held-out loss: each site counts its own, the coordinator averages them.

Nolte et al. 2023, section 3.5: "each client records the number of non-improving epochs
and the server averages them from all the clients so that the learning rate reduction and early
stopping can still be performed." After each round site k computes the loss of the common model on
its own held-out rows, without penalties. With b_k its rounds since its least loss, and s the rounds
since the rate was cut,

    b = Σ_k b_k / K,   b' = Σ_k min(b_k, s) / K                                            (1)

over the K sites with held-out rows. b is for `patience`, b' for the rate's (`schedule`). A site
keeps its least loss and b_k, in `Streak`. A round that it misses is not counted.

Revealed: `Counts`, each round, only as a sum over all sites. No loss leaves a site.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Federation, Keep, Site, message, summed
from fedcohort.protocol.updates import count_fault
from fedcohort.training.networks.local import loss_at
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import Rows, known_rows

#: θ (P,) and the rounds since the rate was cut → b and b', eq. (1).
Counted = Callable[[Array, int], tuple[float, float]]


@message
class Streak:
    """State that a site keeps: its least held-out loss (), and rounds since ()."""

    beside = True

    least: Array
    since: Array


@message
class Counts:
    """1 for a site with held-out rows (), its rounds without a better loss (), and since a cut."""

    sites: Array
    idle: Array
    recent: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if self.sites.shape or self.sites not in (0, 1):
            return "a number of sites other than 0 or 1."
        if why := count_fault("idle", self.idle) or count_fault("recent", self.recent):
            return why
        if self.recent > min(self.idle, asked["since_cut"]) or (self.idle and not self.sites):
            return "more rounds without a better loss than there were."
        return ""


@summed
def count_idle(
    site: Site[Any, Streak | None], *, theta: Array, plan: str, since_cut: int
) -> Keep[Counts, Streak]:
    """Count the rounds since the loss on rows held out at this site was least.

    since_cut : most rounds that `recent` counts.
    """
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy, held_out=True)
    held = site.state or Streak(np.array(math.inf), np.array(0))
    return Keep(*counted_on(rows, theta, p, held, since_cut))


def counted_on(
    rows: Rows, theta: Array, plan: Plan, held: Streak, since_cut: int
) -> tuple[Counts, Streak]:
    """Return a site's counts after the loss of θ (P,) on its held-out rows, and the next streak."""
    if not rows.informative:
        return Counts(*(np.array(0) for _ in range(3))), held
    loss = loss_at(theta, rows, plan)
    idle = 0 if loss < held.least or math.isinf(held.least) else int(held.since) + 1
    least = min(loss, float(held.least)) if math.isfinite(loss) else float(held.least)
    counts = Counts(np.array(1), np.array(idle), np.array(min(idle, since_cut)))
    return counts, Streak(np.array(least), np.array(idle))


def counting(fed: Federation, plan: Plan) -> Counted:
    """Return a function that asks all sites of a federation for b and b', eq. (1)."""

    def counted(theta: Array, since_cut: int) -> tuple[float, float]:
        total = fed.sum(count_idle, theta=plan.sent(theta), plan=plan.text, since_cut=since_cut)
        return means(total)

    return counted


def means(total: Counts) -> tuple[float, float]:
    """Return b and b', eq. (1), of the sums over sites."""
    sites = max(int(total.sites), 1)
    return float(total.idle) / sites, float(total.recent) / sites


STEPS = (count_idle,)

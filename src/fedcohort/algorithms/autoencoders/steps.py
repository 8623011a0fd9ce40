"""Site steps of variational autoencoders.

Revealed, only as sums over all sites: `Update` every round, and `HeldOut` every
round with a patience or ``lr_rule: plateau`` (or `training.networks.counts`). With a robust
aggregation, `Visit` of each site instead of `Update`.

A row without a known entry does not count. A site with no other rows returns the model that it
received, with weight 0.

See also `training.networks.entries` and `training.networks.collapse`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from fedcohort.arrays import Array
from fedcohort.models.objectives import Elbo
from fedcohort.protocol import Site, gathered, message, summed
from fedcohort.training.networks.local import evaluate
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.strategies import Update, Visit
from fedcohort.training.rows import Rows, known_rows


@message
class HeldOut:
    """n_k, and n_k times −ELBO, of the rows held out."""

    some_rows = True

    rows: Array
    loss: Array


@summed
def learn(
    site: Site[Any, Any], *, theta: Array, plan: str, rate: float, share: float = 1.0
) -> Update:
    """Train from the common model; return the site's part of the mean.

    `share` is that of β in this round.
    """
    p = Plan.of(plan)
    return Update.trained(theta, _rows(site, p, share), p, rate, site.entropy)


@gathered
def learn_seen(
    site: Site[Any, Any], *, theta: Array, plan: str, rate: float, share: float = 1.0
) -> Visit:
    """Train from the common model; return the model itself, for a robust aggregation."""
    p = Plan.of(plan)
    return Visit.trained(theta, _rows(site, p, share), p, rate, site.entropy)


def _rows(site: Site[Any, Any], plan: Plan, share: float) -> Rows:
    """Return the training rows, with a share of β in their objective."""
    rows = known_rows(site.data, plan, site.entropy)
    return replace(rows, loss=cast("Elbo", rows.loss).annealed(share))


@summed
def held_out_elbo(site: Site[Any, Any], *, theta: Array, plan: str) -> HeldOut:
    """Sum the loss of the held-out rows.

    It is −ELBO by `models.vae.Posterior.points`, without random draws.
    """
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy, held_out=True)
    n = len(rows.x)
    return HeldOut(np.array(n), np.array(n * evaluate(theta, rows, p)))


STEPS = (learn, learn_seen, held_out_elbo)

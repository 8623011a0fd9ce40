"""Training steps of a survival variational autoencoder whose β rises by rounds.

See `training.networks.collapse`, eq. (2). Without `anneal` the steps are those of
`training.networks.strategies`.

Revealed, each round: `Update`, only as a sum over sites; or, where the coordinator sees each site's
model, `Visit` of each site.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from fedcohort.arrays import Array
from fedcohort.models.objectives import SurvivalElbo
from fedcohort.protocol import Site, gathered, summed
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.strategies import Update, Visit, Visits
from fedcohort.training.rows import Rows, rows_of


@summed
def learn_annealed(
    site: Site[Any, Any], *, theta: Array, plan: str, rate: float, share: float
) -> Update:
    """Train with a share of the divergence's weight; return the site's part of the mean."""
    p = Plan.of(plan)
    return Update.trained(theta, _rows(site, p, share), p, rate, site.entropy)


@gathered
def learn_annealed_seen(
    site: Site[Any, Any], *, theta: Array, plan: str, rate: float, share: float
) -> Visit:
    """Train with a share of the divergence's weight; return the model, for a robust aggregation."""
    p = Plan.of(plan)
    return Visit.trained(theta, _rows(site, p, share), p, rate, site.entropy)


def _rows(site: Site[Any, Any], plan: Plan, share: float) -> Rows:
    rows = rows_of(site.data, plan, site.entropy)
    return replace(rows, loss=cast("SurvivalElbo", rows.loss).annealed(share))


STEPS = (learn_annealed, learn_annealed_seen)
#: Training with them.
ANNEALED = Visits(learn_annealed, learn_annealed_seen)

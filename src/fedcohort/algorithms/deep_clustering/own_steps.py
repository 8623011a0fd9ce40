"""What sites do in phase 2 where the clusters are one site's own.

The ways are those of `training.personal`. The rows of a visit aim at P of the memberships that its
start gives them (`models.dec`); of what is a site's own, f is a sum over that site's rows alone.

Revealed, only as sums over all sites: `Frequencies` and `Update` every round. The user tells
`personal.Told` at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.algorithms.deep_clustering.steps import aimed, assigned
from fedcohort.arrays import Array
from fedcohort.protocol import Keep, Site, gathered, message, summed
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.strategies import Update
from fedcohort.training.personal import Own, Told, Way
from fedcohort.training.personal.steps import told_of_own, trained_with_own
from fedcohort.training.personal.visits import RowsAt


@message
class Frequencies:
    """Σ q (k,) of a site's rows."""

    frequencies: Array

    def fault(self, asked: Any) -> str:
        """Return what is wrong with one site's reply; see `protocol.updates`."""
        fine = self.frequencies.ndim == 1 and (self.frequencies >= 0).all()
        return "" if fine else "other memberships than a number from 0 up for each cluster."


@summed
def sum_memberships(site: Site[Any, Any], *, theta: Array, plan: str) -> Frequencies:
    """Sum how far rows belong to each cluster; what is kept stays."""
    return Frequencies(assigned(site, theta, Plan.of(plan))[1].sum(axis=0))


def _own_rows(site: Site[Any, Any], plan: Plan, gamma: float) -> RowsAt:
    """Return the rows of a visit of a site's own from θ, with f of its rows alone."""
    return lambda theta: aimed(site, theta, plan, np.zeros(0), gamma)


@summed
def refine_with_own(
    site: Site[Any, Own | None],
    *,
    theta: Array,
    plan: str,
    rate: float,
    frequencies: Array,
    gamma: float,
    way: str,
) -> Keep[Update, Own]:
    """Train what is common towards sharper memberships; keep what is this site's own.

    Parameters
    ----------
    frequencies : as of `refine`, of what is common.
    """
    p, w = Plan.of(plan), Way.of(way)
    rows = aimed(site, theta, p, frequencies, gamma)
    return trained_with_own(site, theta, rows, _own_rows(site, p, gamma), p, w, rate)


@gathered
def tell_clusters(
    site: Site[Any, Own | None],
    *,
    theta: Array,
    plan: str,
    rate: float,
    way: str,
    min_cell: int,
    gamma: float,
) -> Told:
    """Tell the encoder and the centroids of the site that they are for."""
    p = Plan.of(plan)
    rows_at = _own_rows(site, p, gamma)
    return told_of_own(site, theta, rows_at, p, Way.of(way), rate, min_cell)


STEPS = (sum_memberships, refine_with_own, tell_clusters)

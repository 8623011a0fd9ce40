"""Site steps of phase 2 for personal clusters.

The ways are those of `training.personal`. The target of a visit is P of the memberships at its
start (`models.dec`); for a site's own part, f is a sum over that site's rows alone.

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
        """Return the fault of one reply, or ""."""
        fine = self.frequencies.ndim == 1 and (self.frequencies >= 0).all()
        return "" if fine else "memberships that are not one number from 0 up for each cluster."


@summed
def sum_memberships(site: Site[Any, Any], *, theta: Array, plan: str) -> Frequencies:
    """Sum the memberships of the rows in each cluster.

    The site's state stays.
    """
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
    """Train the common part towards sharper memberships; keep this site's own.

    Parameters
    ----------
    frequencies : as in `refine`, for the common part.
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
    """Return the user's encoder and centroids."""
    p = Plan.of(plan)
    rows_at = _own_rows(site, p, gamma)
    return told_of_own(site, theta, rows_at, p, Way.of(way), rate, min_cell)


STEPS = (sum_memberships, refine_with_own, tell_clusters)

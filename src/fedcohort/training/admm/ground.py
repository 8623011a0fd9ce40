"""Quantities fixed before the first round of ADMM: numbers of records, units, penalty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.classes import check_classes
from fedcohort.numerics.collinearity import scale_of
from fedcohort.protocol import DataError, Federation, NothingToLearn, SiteUnavailable, Task
from fedcohort.training.admm.settings import AdmmSettings, Penalty
from fedcohort.training.admm.smoothed import solved
from fedcohort.training.admm.steps import Totals, admm_spread


@dataclass(frozen=True, eq=False)
class Ground:
    """Quantities fixed before the first round.

    Attributes
    ----------
    rows, ones, weight : records at all sites, those with y = 1, and the sum of their weights.
    total : weight of all records, or number of sites with records.
    centre, scale : (p,) of the covariates.
    l1, l2 : (p + 1,) ≥ 0 on the standardised coordinates, the intercept first.
    """

    rows: int
    ones: int
    weight: float
    total: float
    centre: Array
    scale: Array
    l1: Array
    l2: Array

    def penalty(self, z: Array) -> float:
        """Return h at z (p + 1,)."""
        return float(self.l1 @ np.abs(z) + 0.5 * self.l2 @ z**2)

    def shrunk(self, mean: Array, rho: float, metric: Array | None = None) -> Array:
        """Return z of eq. (3) from Σ ω_j M_j s_j: soft thresholding, then the ridge's factor."""
        if metric is not None:
            return solved(metric, self.l2, rho, mean)
        size = np.maximum(rho * np.abs(mean) - self.l1, 0.0)
        return np.sign(mean) * size / (rho + self.l2)

    def below(self, e: Array, z: Array) -> float:
        """Return how far the objective may be below eq. (5)'s tangents: its last two terms."""
        free, length = self.l2 == 0, float(np.linalg.norm(z))
        bent = float(np.sum(e[~free] ** 2 / (2.0 * self.l2[~free])))
        within = float(np.linalg.norm(e[free])) * length + bent
        return min(within, float(np.linalg.norm(e)) * length)

    def unscaled(self, z: Array) -> tuple[float, Array]:
        """Return b₀ and β (p,) of z (p + 1,)."""
        beta = z[1:] / self.scale
        return float(z[0] - self.centre @ beta), beta


def check(first: Totals, loss: str, least: int) -> None:
    """Refuse tables that cannot be fitted or whose counts are too small."""
    n = int(first.rows)
    if not n:
        raise NothingToLearn("no site holds any record; check their selection.")
    if n < least:
        raise NothingToLearn(
            f"fewer than {least} records at all sites together (min_cell). Add sites or records; "
            f"or lower min_cell, if all sites agree."
        )
    if loss == "squared":
        return
    if first.others:
        raise DataError(
            "the outcome has more than two classes, but this method needs two. Give an outcome of "
            "two levels."
        )
    check_classes(n, int(first.ones), least)


def survey(
    fed: Federation, first: Totals, penalty: Penalty, config: AdmmSettings, task: Task
) -> Ground:
    """Return the scale of the covariates, and the penalties in it."""
    mean = first.x / float(first.weight)
    centre = np.zeros_like(mean) if penalty.intercept else mean
    squares = fed.sum(admm_spread, offset=task.offset, centre=centre).squares
    if missing := sorted(set(fed.sites) - set(fed.answered)):
        raise SiteUnavailable(
            f"{', '.join(missing)} left before the first round. Bring them back and --resume, or "
            f"start again without them."
        )
    sd = np.sqrt(squares / float(first.weight))
    scale = scale_of(sd, mean)
    of_intercept = float(penalty.intercept)
    return Ground(
        rows=int(first.rows),
        ones=int(first.ones),
        weight=float(first.weight),
        total=float(first.sites if config.weighting == "sites" else first.weight),
        centre=centre,
        scale=scale,
        l1=penalty.l1 * np.r_[of_intercept, 1.0 / scale],
        l2=penalty.l2 * np.r_[of_intercept, 1.0 / scale**2],
    )

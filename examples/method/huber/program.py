"""Huber's robust regression over sites, exactly that of the pooled table.

Huber, Ann. Math. Statist. 35(1), 1964. With r_i = y_i − b₀ − x_iᵀβ and s the outcome's standard
deviation,

    minimise  Σ ρ(r_i),   ρ(r) = r²/2 where |r| ≤ k s, else k s |r| − (k s)²/2             (1)

by iteratively reweighted least squares: with w_i = min(1, k s/|r_i|) at the last coefficients, the
next ones solve Σ w_i z_i z_iᵀ γ = Σ w_i z_i y_i, z = (1, x).

Revealed, only as sums over all sites: over several, what `data.exact` asks; `Products` once;
`Weighted` (1 + (p + 2)²) every round. Sites learn the coefficients of each round.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.exact import exact_sums
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import (
    Federation,
    NotConverged,
    Site,
    Task,
    message,
    summed,
)
from fedcohort.training.linear.cross_products import inverted, moments
from huber.model import HuberModel
from huber.settings import HuberSettings


@message
class Weighted:
    """Σ ρ (), and Σ w (z, y)(z, y)ᵀ (p + 2, p + 2), both about the pooled means."""

    loss: Array
    products: Array


@summed
def weighted(
    site: Site[LabelledTable, None], *, centre: Array, gamma: Array, threshold: float
) -> Weighted:
    """Sum the loss, and products of covariates and outcome with weights by the residuals."""
    x, y = site.data.x - centre[:-1], site.data.y - centre[-1]
    z = np.column_stack([np.ones(len(y)), x])
    r = np.abs(y - z @ gamma)
    loss = np.where(r <= threshold, r**2 / 2, threshold * r - threshold**2 / 2)
    weight = np.minimum(1.0, threshold / np.maximum(r, threshold))
    v = np.column_stack([z, y])
    return Weighted(np.array(loss.sum()), (v.T * weight) @ v)


def fit(fed: Federation, config: HuberSettings, task: Task) -> HuberModel:
    """Fit a robust regression on all sites that answer the first call.

    Raises
    ------
    DataError : no covariates.
    NothingToLearn : a column singles out records, or there are few (`data.exact`).
    SingularInformation : some covariates are collinear or constant; they are named.
    SiteUnavailable : a site left during the fit.
    NotConverged : the rounds are over.
    """
    sites = exact_sums(fed, task, "number")  # all checks of an exact fit; then ask `sites`
    pooled = moments(sites, task, "number")  # n, means and cross-products, checked too
    threshold = config.threshold * math.sqrt(pooled.yy / pooled.rows)
    inverted(pooled.varying, task.features)  # names collinear covariates
    gamma = np.zeros(len(task.features) + 1)
    for number in fed.rounds(config.max_rounds):
        here = sites.sum(weighted, centre=pooled.centre, gamma=gamma, threshold=threshold)
        fed.record(loss=float(here.loss) / pooled.rows)  # a row of the run's history
        last, gamma = gamma, np.linalg.solve(here.products[:-1, :-1], here.products[:-1, -1])
        if np.abs(gamma - last).max() <= config.tol * max(np.abs(gamma).max(), threshold):
            rounds = number + 1
            break
    else:
        raise NotConverged(
            f"the coefficients did not settle in {config.max_rounds} rounds. Raise max_rounds or "
            f"threshold, or scale the covariates."
        )
    return HuberModel(
        features=task.features,
        intercept=float(pooled.middle + gamma[0] - pooled.mean @ gamma[1:]),
        coefficients=gamma[1:],
        rows=int(pooled.rows),
        threshold=threshold,
        rounds=rounds,
        caution=sites.caution,
    )

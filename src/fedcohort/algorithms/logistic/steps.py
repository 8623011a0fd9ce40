"""Site steps of logistic regression. All are sums: no site's own numbers are ever seen.

Covariates are standardised by the pooled centre and scale; γ = (intercept, one coefficient for
each covariate) then counts in log odds per standard deviation.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Site, message, summed


@message
class Totals:
    """``rows`` (), those of class 1, those of neither 0 nor 1, and Σ x (p,)."""

    rows: Array
    ones: Array
    others: Array
    x: Array


@message
class Spread:
    """Σ (x − c)² (p,)."""

    squares: Array


@message
class Curvature:
    """ℓ (), its gradient (p + 1,) and information (p + 1, p + 1) at γ, the intercept first."""

    log_likelihood: Array
    score: Array
    information: Array


LabelledSite = Site[LabelledTable, None]


@summed
def totals(site: LabelledSite) -> Totals:
    """Count the records and those of class 1, and sum the covariates."""
    x, y = site.data
    return Totals(
        np.array(len(y)), np.array((y == 1).sum()), np.array((y > 1).sum()), x.sum(axis=0)
    )


@summed
def spread(site: LabelledSite, *, centre: Array) -> Spread:
    """Sum the squared distances of the covariates from their pooled mean (p,)."""
    return Spread(((site.data.x - centre) ** 2).sum(axis=0))


@summed
def curvature(site: LabelledSite, *, centre: Array, scale: Array, gamma: Array) -> Curvature:
    """Sum the log-likelihood, its slope and its curvature over all records.

    At γ (p + 1,), of covariates standardised by `centre` and `scale` (p,).
    """
    x, y = site.data
    z = np.empty((len(y), len(gamma)))
    z[:, 0] = 1.0
    np.subtract(x, centre, out=z[:, 1:])
    z[:, 1:] /= scale
    eta = z @ gamma
    mu = expit(eta)
    weight = mu * (1.0 - mu)
    value = -np.logaddexp(0.0, np.where(y == 1, -eta, eta)).sum()
    return Curvature(np.array(value), z.T @ (y - mu), (z.T * weight) @ z)


STEPS = (totals, spread, curvature)

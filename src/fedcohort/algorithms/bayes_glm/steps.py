"""Site step of expectation propagation. Its replies are sums over sites.

A site keeps the factors of its rows, which no message holds. A row's τ is at most 1/4 at any
posterior that a coordinator may choose, as its weight in a logistic regression is at any
coefficients; at a narrow posterior it is that weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.propagation import Factors, refreshed, started
from fedcohort.protocol import Keep, Refused, Site, message, summed


@message
class Projected:
    """Sums over rows, with k = p + 1: τ z zᵀ, ``precision`` (k, k), and ν z, ``shift`` (k,).

    ``squares`` (2,): Σ τ and Σ τ² of what rows count. ``evidence`` (), the rows' part of eq. (4) of
    `numerics.propagation` at the asked posterior; 0 at the start.
    """

    precision: Array
    shift: Array
    squares: Array
    evidence: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        k = 1 + len(asked["centre"])
        if self.precision.shape != (k, k) or self.shift.shape != (k,) or len(self.squares) != 2:
            return "sums of another number of covariates."
        if (np.diag(self.precision) < 0).any() or (self.squares < 0).any():
            return "a negative precision."
        return ""


@message
class Kept:
    """Factors of a site's rows, τ (n,) and ν (n,)."""

    precision: Array
    shift: Array


@summed
def project(
    site: Site[LabelledTable, Kept | None],
    *,
    centre: Array,
    scale: Array,
    share: float,
    mean: Array,
    covariance: Array,
    damping: float,
) -> Keep[Projected, Kept]:
    """Approximate each row's part of the likelihood by a Gaussian; sum these parts.

    At the posterior N(`mean`, `covariance`), (k,) and (k, k); with a mean (0,) the first factors,
    from the `share` of rows of class 1. `damping` in (0, 1] is the step from the last factors.

    Raises
    ------
    Refused : a `share`, `damping`, `scale` or `covariance` that no honest fit asks with.
    """
    why = wrong_share(scale, share, damping)
    if why := why or (wrong_posterior(scale, mean, covariance) if len(mean) else ""):
        raise Refused("posterior", f"site {site.name!r} approximates no rows {why}")
    y = np.asarray(site.data.y, float)
    z = standardised(site.data.x, centre, scale)
    evidence = 0.0
    if site.state is None or not len(mean) or len(site.state.precision) != len(y):
        now = started(y, share)
    else:
        old = Factors(site.state.precision, site.state.shift)
        new, evidence = refreshed(z, y, old, mean, covariance)
        now = old.towards(new, damping)
    tau = now.precision
    sums = Projected(
        (z * tau[:, None]).T @ z,
        now.shift @ z,
        np.array([tau.sum(), tau @ tau]),
        np.array(evidence),
    )
    return Keep(sums, Kept(tau, now.shift))


def standardised(x: Array, centre: Array, scale: Array) -> Array:
    """Return z = (1, (x − centre)/scale) (n, p + 1) of rows x (n, p)."""
    z = np.ones((len(x), 1 + len(scale)))
    z[:, 1:] = (x - centre) / scale
    return z


def wrong_share(scale: Array, share: float, damping: float) -> str:
    """Return what is wrong with the real numbers of a question, or ""."""
    if not (0.0 < share < 1.0 and 0.0 < damping <= 1.0):
        return "with a share or damping that is not between 0 and 1."
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        return "with a scale that is not above 0."
    return ""


def wrong_posterior(scale: Array, mean: Array, covariance: Array) -> str:
    """Return what is wrong with a posterior, or ""."""
    k = 1 + len(scale)
    if mean.shape != (k,) or covariance.shape != (k, k) or not np.isfinite(covariance).all():
        return "at a posterior of another number of covariates."
    if not np.allclose(covariance, covariance.T) or np.linalg.eigvalsh(covariance)[0] <= 0:
        return "at a posterior without a covariance that is positive definite."
    return ""

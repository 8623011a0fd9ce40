"""Site steps of the multivariate normal. All replies are sums over sites.

Revealed, only as sums over all sites: `Rows` once, `Expected` and then `Completed` in each round.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.imputing.disclosure import known_isolation
from fedcohort.data.prepare import Expected
from fedcohort.data.tables import FeatureTable, remembered
from fedcohort.numerics import gaussian
from fedcohort.protocol import Site, message, summed

NormalSite = Site[FeatureTable, None]


@message
class Rows:
    """Number of rows ()."""

    records: Array


@message
class Completed:
    """By chain, Σ x (M, p) and Σ x xᵀ (M, p, p) of rows with drawn missing entries."""

    total: Array
    products: Array


@summed
def count_rows(site: NormalSite) -> Rows:
    """Count the rows."""
    return Rows(np.array(len(site.data.x)))


@summed
def expected_features(site: NormalSite, *, mean: Array, precision: Array) -> Expected:
    """Sum the expectations of each row's features given its known ones."""
    x = site.data.x
    grouped = remembered(site.data, "blocks", lambda: gaussian.blocks(np.isnan(x)))
    return Expected(*gaussian.expected_sums(x, grouped, mean, precision))


@summed
def completed_sums(site: NormalSite, *, mean: Array, covariance: Array) -> Completed:
    """Draw each row's missing entries given its known ones, and sum the rows, for each chain.

    mean, covariance : of each chain (M, p) and (M, p, p).
    """
    rng, x = site.rng, site.data.x
    full = [gaussian.filled(x, m, c, rng) for m, c in zip(mean, covariance, strict=True)]
    return Completed(np.array([f.sum(axis=0) for f in full]), np.array([f.T @ f for f in full]))


#: Every step of the method.
STEPS = (known_isolation, count_rows, expected_features, completed_sums)

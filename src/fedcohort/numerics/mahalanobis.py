"""Mahalanobis distance of rows from a mean, and its share of a normal distribution.

Mahalanobis, "On the generalised distance in statistics", Proc. Natl. Inst. Sci. India 2, 1936:

    d² = (x − μ)ᵀ C⁻¹ (x − μ)                                                              (1)

which has a χ² distribution with rank C degrees of freedom for normal x. Of a covariance C without
full rank, the pseudo-inverse is used: x counts only in directions in which training rows vary.
"""

from __future__ import annotations

import numpy as np
from scipy.special import chdtr

from fedcohort.arrays import Array

#: An eigenvalue of the correlations below this share of the largest counts as 0.
FLAT = 1e-10


def squared_distance(x: Array, mean: Array, covariance: Array) -> tuple[Array, int]:
    """Return eq. (1) of rows x (n, p), (n,), and the rank of C.

    Parameters
    ----------
    mean, covariance : μ (p,) and C (p, p), with positive variances.
    """
    sd = np.sqrt(np.diag(covariance))
    values, axes = np.linalg.eigh(covariance / np.outer(sd, sd))
    kept = values > FLAT * values.max()
    z = ((np.asarray(x, float) - mean) / sd) @ axes[:, kept]
    return (z**2 / values[kept]).sum(axis=1), int(kept.sum())


def chi_squared(distance: Array, freedom: int) -> Array:
    """Return the distribution function of χ² at squared distances (n,), with values in [0, 1]."""
    return chdtr(freedom, distance)

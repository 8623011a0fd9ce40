"""Standardised differences of a variable between two groups of patients.

Austin, "Balance diagnostics …", Statistics in Medicine 28(25), 2009, eqs. (1), (2); for several
levels the multivariate form of Yang & Dalton, SAS Global Forum 2012, 335. With means m, standard
deviations s and shares p of the levels but one,

    number    d = |m₁ − m₂| / √((s₁² + s₂²)/2)                                            (1)
    levels    d = √((p₁ − p₂)ᵀ S⁻¹ (p₁ − p₂)),   S = (Σ₁ + Σ₂)/2,   Σ = diag(p) − p pᵀ      (2)

For two levels (2) is (1) with s² = p (1 − p). Which level is left out does not matter.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array


def of_means(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return d of eq. (1), from two pairs of mean and sd; NaN where neither group varies."""
    spread = math.sqrt((one[1] ** 2 + other[1] ** 2) / 2)
    return abs(one[0] - other[0]) / spread if spread > 0 else math.nan


def of_levels(one: Array, other: Array) -> float:
    """Return d of eq. (2), from the rows of each level in two groups, (k,) each.

    Levels that nobody has are left out. NaN where a group has no rows, or where one level is left,
    or where S is singular because the groups have hardly a level in common.
    """
    seen = (one + other) > 0
    if not one.sum() or not other.sum() or seen.sum() < 2:
        return math.nan
    p, q = (c[seen][1:] / c.sum() for c in (one, other))
    spread = sum(np.diag(x) - np.outer(x, x) for x in (p, q)) / 2
    scale = np.sqrt(np.diag(spread))
    if (scale == 0).any():
        return math.nan
    values, vectors = np.linalg.eigh(spread / np.outer(scale, scale))
    if values[0] <= 1e-12 * values[-1]:
        return math.nan
    away = vectors.T @ ((p - q) / scale)
    return math.sqrt(float((away**2 / values).sum()))

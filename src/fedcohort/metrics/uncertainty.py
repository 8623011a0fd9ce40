"""How sure a model with a posterior is, and how often its intervals hold the outcome.

The variance of a row's outcome is the sum of an epistemic and an aleatoric part
(`protocol.Fitted.uncertainty`); the share of the first is e/(e + a).
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv

from fedcohort.arrays import Array
from fedcohort.metrics.intervals import Interval


def epistemic_share(parts: Array) -> Array:
    """Return e/(e + a) (n,) of parts (2, n); NaN where it is not defined."""
    with np.errstate(invalid="ignore"):
        return parts[0] / parts.sum(axis=0)


def inside(y: Array, ends: Array) -> int:
    """Return how many outcomes y (n,) their intervals (n, 2) hold."""
    return int(((ends[:, 0] <= y) & (y <= ends[:, 1])).sum())


def exact_interval(count: int, n: int, level: float = 0.95) -> Interval:
    """Return the interval of a binomial share count/n, n ≥ 1.

    Clopper & Pearson, Biometrika 26, 1934: quantiles of beta distributions.
    """
    tail = (1.0 - level) / 2.0
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1.0 - tail)) if count < n else 1.0
    return Interval(low, high)

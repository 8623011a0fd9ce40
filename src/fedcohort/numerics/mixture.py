"""Quantiles by bisection, above all of a mixture of normal or Student's distributions.

The mixture of components g with weights w_g, locations m_g and scales s_g has the distribution
function F(x) = Σ w_g F₀((x − m_g)/s_g). Its p-quantile lies between the smallest and the largest
p-quantile of the components, where it is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from fedcohort.arrays import Array

#: Steps of a bisection, and weight of components that are left out, all together.
STEPS, SLIGHT = 60, 1e-12


def below(x: Array, weights: Array, means: Array, scales: Array, freedom: float) -> Array:
    """Return the probability (n,) of values below x (n,).

    Parameters
    ----------
    weights : (G,), which add to 1.
    means, scales : (G, n).
    freedom : degrees of freedom of Student's distribution; infinite for the normal.
    """
    z = (x - means) / scales
    return weights @ (ndtr(z) if np.isinf(freedom) else stdtr(freedom, z))


def quantiles(p: float, weights: Array, means: Array, scales: Array, freedom: float) -> Array:
    """Return the p-quantile (n,) of n mixtures; parameters as of `below`."""
    kept = weights > SLIGHT / len(weights)
    w, m, s = weights[kept] / weights[kept].sum(), means[kept], scales[kept]
    unit = float(ndtri(p) if np.isinf(freedom) else stdtrit(freedom, p))
    ends = m + unit * s
    low, high = ends.min(axis=0), ends.max(axis=0)
    for _ in range(STEPS):
        middle = (low + high) / 2
        if ((high - low) <= 1e-13 * np.abs(middle)).all():
            break
        less = below(middle, w, m, s, freedom) < p
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return (low + high) / 2


def increasing(function: Callable[[float], float], value: float, low: float, high: float) -> float:
    """Return x in (low, high) at which an increasing function is `value`."""
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if function(middle) < value else (low, middle)
    return (low + high) / 2.0

"""Expected calibration error and the parts of the Brier score, of groups of similar predictions.

With groups k of n_k of n records, mean prediction p̄_k and share of class 1 ȳ_k, and the share ȳ of
all records:

    ECE          Σ n_k/n |p̄_k − ȳ_k|                                                       (1)
    by chance    Σ n_k/n E|B_k/n_k − p̄_k|,   B_k ~ binomial (n_k, p̄_k)                     (2)
    reliability  Σ n_k/n (p̄_k − ȳ_k)²                                                      (3)
    resolution   Σ n_k/n (ȳ_k − ȳ)²                                                        (4)
    uncertainty  ȳ (1 − ȳ)                                                                 (5)
    within       1/n Σ_k Σ_{i∈k} (p_i − p̄_k)² − 2 (p_i − p̄_k)(y_i − ȳ_k)                   (6)
    Brier        (3) − (4) + (5) + (6)                                                     (7)

(3) to (5) are Murphy's, J. Appl. Meteorol. 12, 1973, which add up to the Brier score of predictions
that are equal within groups. (6) is the rest of predictions that are not: within-group variance
less covariance (Stephenson, Coelho, Jolliffe, Weather and Forecasting 23, 2008). It follows from
the groups and the Brier score by (7), so no sum over records is needed besides these.

(1) is the plug-in estimate of Naeini, Cooper, Hauskrecht, AAAI 2015, of groups with about equally
many records. It is too high in small tables: (2) is about its mean for predictions that are right,
by De Moivre's mean deviation of a binomial count. It is also too low by what differs within groups.

Runs on the sums of groups; nothing is revealed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

from fedcohort.arrays import Array
from fedcohort.metrics.classification import Groups


class Reliability(NamedTuple):
    """Eqs. (1) to (7), in the order of their fields; nan without records."""

    ece: float
    ece_by_chance: float
    reliability: float
    resolution: float
    uncertainty: float
    within: float
    brier: float


def reliability(groups: Groups, brier: float) -> Reliability:
    """Return the parts of the Brier score, and the calibration error, of groups of all records.

    Parameters
    ----------
    brier : of the same records.
    """
    n = np.asarray(groups.n, float)
    if not n.sum():
        return Reliability(*[np.nan] * 7)
    share = n / n.sum()
    p, y = groups.predicted, groups.observed
    mean = float(share @ y)
    gap = np.abs(p - y)
    parts = float(share @ gap**2), float(share @ (y - mean) ** 2), mean * (1.0 - mean)
    return Reliability(
        float(share @ gap),
        float(share @ mean_deviation(n, p)),
        *parts,
        brier - parts[0] + parts[1] - parts[2],
        brier,
    )


def mean_deviation(n: Array, p: Array) -> Array:
    """Return E|B/n − p| of binomial counts B of n ≥ 1 trials with probability p, (…).

    De Moivre: 2 v (1 − p) P(B = v)/n with v = ⌊n p⌋ + 1; 0 where p is 0 or 1.
    """
    p = np.clip(p, 0.0, 1.0)
    v = np.minimum(np.floor(n * p) + 1.0, n)
    log = gammaln(n + 1.0) - gammaln(v + 1.0) - gammaln(n - v + 1.0)
    return 2.0 * v * (1.0 - p) / n * np.exp(log + xlogy(v, p) + xlog1py(n - v, -p))

"""How sure a model with a posterior is, and how often its intervals hold the outcome.

The variance of a row's outcome is the sum of an epistemic and an aleatoric part
(`protocol.Fitted.uncertainty`); the share of the first is e/(e + a). The negative log predictive
density of a row is −ln p(y | x) (`Fitted.log_density`), of a value in the logarithm of its unit; of
classes it is the log loss (`classification`). An interval of a new value holds the outcome or not.
An interval of a probability, of a mean count or of a risk holds what nobody observes, so it has no
coverage: see calibration.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from scipy.special import betaincinv

from fedcohort.arrays import Array
from fedcohort.metrics.intervals import Interval
from fedcohort.protocol.errors import NotSupported
from fedcohort.protocol.method import Fitted

#: Probability of the judged intervals.
LEVEL = 0.9


def of_rows(model: Fitted, x: Array, y: Array, event: Array, *, number: bool) -> dict[str, Array]:
    """Return what a posterior tells of each row x (n, p), (n,) each, of it what the model gives.

    ``epistemic`` is the share, ``nlpd`` the negative log predictive density, and ``covered``, of
    numbers only, whether the interval of probability `LEVEL` holds the outcome, 0 or 1.

    Parameters
    ----------
    y, event : as of `Fitted.log_density`.
    """
    found: dict[str, Array] = {}
    with suppress(NotSupported):
        found["epistemic"] = epistemic_share(np.array(model.uncertainty(x)))
    with suppress(NotSupported):
        found["nlpd"] = -model.log_density(x, y, event)
    if number:
        with suppress(NotSupported):
            found["covered"] = inside(y, model.intervals(x, LEVEL)).astype(float)
    return found


def epistemic_share(parts: Array) -> Array:
    """Return e/(e + a) (n,) of parts (2, n); NaN where it is not defined."""
    with np.errstate(invalid="ignore"):
        return parts[0] / parts.sum(axis=0)


def inside(y: Array, ends: Array) -> Array:
    """Return whether intervals (n, 2) hold their outcomes y (n,)."""
    return (ends[:, 0] <= y) & (y <= ends[:, 1])


def exact_interval(count: int, n: int, level: float = 0.95) -> Interval:
    """Return the interval of a binomial share count/n, n ≥ 1.

    Clopper & Pearson, Biometrika 26, 1934: quantiles of beta distributions.
    """
    tail = (1.0 - level) / 2.0
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1.0 - tail)) if count < n else 1.0
    return Interval(low, high)

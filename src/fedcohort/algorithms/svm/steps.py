"""The site step of `svm` beside those of ADMM: a sum over the decision values of all records."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Site, message, summed


@message
class Platt:
    """ℓ (), its gradient (2,) and information (2, 2) at (shift, slope)."""

    log_likelihood: Array
    score: Array
    information: Array


@summed
def platt(
    site: Site[LabelledTable, None],
    *,
    intercept: float,
    coefficients: Array,
    targets: Array,
    at: Array,
) -> Platt:
    """Sum how well decision values tell the classes, as log odds that are linear in them.

    With the shift and slope `at` (2,), for targets (2,) of classes 0 and 1.
    """
    decision = intercept + site.data.x @ coefficients
    z = np.column_stack([np.ones(len(decision)), decision])
    target = targets[site.data.y.astype(int)]
    eta = z @ at
    p = expit(eta)
    value = target @ eta - np.logaddexp(0.0, eta).sum()
    return Platt(np.array(value), z.T @ (target - p), (z.T * (p * (1.0 - p))) @ z)


STEPS = (platt,)

"""The scale in which covariates are counted during a fit.

A standard deviation below 1e-12 of a mean is what rounding leaves of a constant: it is no scale.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array

#: A column whose standard deviation is less than this share of its mean does not vary.
CONSTANT = 1e-12


def scale_of(sd: Array, mean: Array) -> Array:
    """Return the standard deviations (p,) of columns of these means (p,); 1 of constant ones."""
    return np.where(sd > CONSTANT * np.abs(mean), sd, 1.0)

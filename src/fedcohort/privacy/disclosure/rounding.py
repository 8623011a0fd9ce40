"""Rounding of numbers made of values, so that they do not reveal how many values there are.

The exact mean of whole numbers is a fraction whose denominator reveals their number. So statistics
of values are rounded to a step of 1, 2 or 5 times a power of ten, the next from

    max(standard error / 4, 2 δ / values),   δ the unit in which values are counted          (1)

so that some sum of any similar number of values gives the same result. For a mean that is only the
origin of a fit, the step is at least

    3 √m standard errors                                                                  (2)

with m the `min_cell`. A group of c of n rows has the mean c/n and the standard error
√(c (1 − c/n))/n, so that the origin of its 0/1 column is 0 for every c < m, and for some c beyond.

A metric of one site's rows, by another party's model, is a count of these rows if the model is
constant for all but a few: of a yes/no model, AUC = ½ + ½ (c₁/n₁ − c₀/n₀). So it is rounded to a
step that m patients make,

    m / (2 n) · the power of ten from |metric| up, 1 at least                             (3)

with n the events, the rows of the smaller class, or otherwise rows.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array

#: Possible units of values: 1, 0.1, … 10⁻⁶.
DECIMALS = 6
#: Tolerance at ties and thresholds: a sum's last bits depend on the split and must not decide.
FUZZ = 1e-10


def unit(values: Array) -> float:
    """Return the largest of 1, 0.1, … in which values (n,) are whole numbers; 0 for none."""
    with np.errstate(over="ignore", invalid="ignore"):
        for d in range(DECIMALS + 1):
            scaled = values * 10.0**d
            if np.abs(scaled - np.round(scaled)).max(initial=0.0) <= 1e-9 * 10**d:
                return 10.0**-d
    return 0.0


def step(sd: float, values: int, unit: float) -> float:
    """Return the step of eq. (1); 0 if all values are equal and have no unit."""
    return round_number(max(sd / math.sqrt(values) / 4, 2 * unit / values))


def by_patients(
    value: float, rows: int, least: int, *, up: bool = False, most: float = math.inf
) -> float:
    """Return a metric of `rows` rows rounded by eq. (3); unchanged if `least` is 1 or less.

    up : round up, by one step at least: an error of 0 would reveal that all predictions tie.
    most : largest possible value of the metric; a multiple above it becomes `most`.
    """
    if least <= 1 or not rows or not math.isfinite(value):
        return value
    step = least / (2.0 * rows) * 10.0 ** max(0, math.ceil(math.log10(max(abs(value), 1.0))))
    found = step * (max(1, math.ceil(value / step - FUZZ)) if up else round(value / step))
    return min(found, most)


def origins(mean: Array, sd: Array, rows: int, min_cell: int) -> Array:
    """Return columns' means (p,), of `rows` rows, rounded by eq. (2)."""
    steps = [round_number(3 * math.sqrt(max(min_cell, 1) / rows) * s) for s in sd.tolist()]
    return np.array([rounded(m, s) for m, s in zip(mean.tolist(), steps, strict=True)], float)


def round_number(least: float) -> float:
    """Return the next of 1, 2 and 5 times a power of ten from `least`; 0 if there is none."""
    if least <= 0 or not math.isfinite(least):
        return 0.0
    least *= 1 - FUZZ
    power = 10.0 ** math.floor(math.log10(least))
    return next((k * power for k in (1, 2, 5) if k * power >= least), 10 * power)


def rounded(value: float, step: float) -> float:
    """Return the nearest multiple of `step`, without a binary tail."""
    if step <= 0:
        return value
    digits = max(0, -math.floor(math.log10(step)))
    return round(math.floor(value / step + 0.5 + FUZZ) * step, digits) + 0.0

"""What a site hides of small counts, so that nobody can work them out from the rest.

With m the `min_cell`, of k counts of a site that add up to n, which is known:

    n < m, not 0    all are hidden, and n                                                    (1)
    n ≤ k           all are hidden
    otherwise       if one is of 1 … m − 1, all up to a size v are hidden, but not 0: the    (2)
                    smallest v that takes in all of 1 … m − 1 and two different counts;
                    where no two differ, all of them, also 0

Whoever knows n, the other counts and this rule can exchange any two hidden counts that differ and
would have seen the same: each has two possible values or more. (With all of them equal and none 0,
c = n/k ≥ 2, counts with a c − 1 and a c + 1, or with k − 1 times c − 1 and a larger one, would have
shown the same.)

The exact mean of whole numbers is a fraction, and its denominator tells how many there are. So what
is computed from values is rounded to a step of 1, 2 or 5 times a power of ten, the next from

    max(standard error / 4, 2 δ / values),   δ the unit in which values are counted          (3)

which some sum of any number of values near by would have given as well.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array

#: Values are looked at for a unit of 1, 0.1, … 10⁻⁶.
DECIMALS = 6


def hidden(cells: Array, min_cell: int) -> Array:
    """Return which counts (k,) of a variable are hidden, eqs. (1), (2): bool (k,)."""
    cells = np.asarray(cells)
    n = int(cells.sum())
    if min_cell <= 1 or n == 0:
        return np.zeros(len(cells), bool)
    if n < min_cell or n <= len(cells):
        return np.ones(len(cells), bool)
    small = cells[(cells > 0) & (cells < min_cell)]
    if not len(small):
        return np.zeros(len(cells), bool)
    counts = np.unique(cells[cells > 0])
    if len(counts) == 1:
        return np.ones(len(cells), bool)
    return (cells > 0) & (cells <= max(small.max(), counts[1]))


def unit(values: Array) -> float:
    """Return the largest of 1, 0.1, … in which values (n,) are whole numbers; 0 for none."""
    with np.errstate(over="ignore", invalid="ignore"):
        for d in range(DECIMALS + 1):
            scaled = values * 10.0**d
            if np.abs(scaled - np.round(scaled)).max(initial=0.0) <= 1e-9 * 10**d:
                return 10.0**-d
    return 0.0


def step(sd: float, values: int, unit: float) -> float:
    """Return the step of eq. (3); 0 where every value is the same and has no unit."""
    least = max(sd / math.sqrt(values) / 4, 2 * unit / values)
    if least <= 0 or not math.isfinite(least):
        return 0.0
    power = 10.0 ** math.floor(math.log10(least))
    return next((k * power for k in (1, 2, 5) if k * power >= least), 10 * power)


def rounded(value: float, step: float) -> float:
    """Return the multiple of `step` that is nearest, without a binary tail."""
    if step <= 0:
        return value
    digits = max(0, -math.floor(math.log10(step)))
    return round(round(value / step) * step, digits) + 0.0

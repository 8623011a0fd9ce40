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

which some sum of any number of values near by would have given as well. Where a mean is but an
origin that a fit counts from, the step is

    3 √m standard errors                                                                  (4)

or more. A group of c of n rows has the mean c/n and the standard error √(c (1 − c/n))/n, so that
the origin of its 0/1 column is 0 for every c < m, and for some c beyond.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array

#: Values are looked at for a unit of 1, 0.1, … 10⁻⁶.
DECIMALS = 6
#: So near to a tie, or to a threshold, a sum's last bits do not decide: they depend on the split.
FUZZ = 1e-10


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
    return round_number(max(sd / math.sqrt(values) / 4, 2 * unit / values))


def origins(mean: Array, sd: Array, rows: int, min_cell: int) -> Array:
    """Return columns' means (p,), of `rows` rows, rounded by eq. (4)."""
    steps = [round_number(3 * math.sqrt(max(min_cell, 1) / rows) * s) for s in sd.tolist()]
    return np.array([rounded(m, s) for m, s in zip(mean.tolist(), steps, strict=True)], float)


def round_number(least: float) -> float:
    """Return the next of 1, 2 and 5 times a power of ten from `least`; 0 where there is none."""
    if least <= 0 or not math.isfinite(least):
        return 0.0
    least *= 1 - FUZZ
    power = 10.0 ** math.floor(math.log10(least))
    return next((k * power for k in (1, 2, 5) if k * power >= least), 10 * power)


def rounded(value: float, step: float) -> float:
    """Return the multiple of `step` that is nearest, without a binary tail."""
    if step <= 0:
        return value
    digits = max(0, -math.floor(math.log10(step)))
    return round(math.floor(value / step + 0.5 + FUZZ) * step, digits) + 0.0

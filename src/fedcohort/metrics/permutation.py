"""Importance of a column: the loss of concordance when the column is permuted.

Breiman, Mach. Learn. 45, 2001; Fisher, Rudin & Dominici, JMLR 20, 2019. With C the C-index of n
records and C_r the one after the column's r-th permutation, r = 1 … R,

    drop = C − C̄_r,     e² = Σ_i (∂C/∂m_i − mean_r ∂C_r/∂m_i)² + s²_r / R,   drop ± z e      (1)

The first term is the variance over patients (the infinitesimal jackknife of `concordance`, of the
difference, so that common parts of C and C_r cancel), the second that of the permutations.
Permuting breaks a column's correlation with others: correlated columns give impossible patients,
and share their importance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from fedcohort.arrays import Array
from fedcohort.metrics.survival.concordance import Influence

#: Most and fewest permutations of a column.
MOST, FEWEST = 10, 3


class Drop(NamedTuple):
    """The loss of concordance and its interval, eq. (1); nan without concordance."""

    value: float
    low: float
    high: float


def permutations(n_rows: int, n_columns: int, work: int, rng: np.random.Generator) -> Array:
    """Return permutations of the rows, the same for each column: (R, n_rows).

    Parameters
    ----------
    work : largest number of predictions. R is `MOST`, or as many as that allows, but at
        least `FEWEST`.
    """
    allowed = work // max(1, n_rows * n_columns)
    times = min(MOST, max(FEWEST, allowed))
    return rng.permuted(np.tile(np.arange(n_rows), (times, 1)), axis=1)


def drop(whole: Influence, permuted: Sequence[Influence], level: float = 0.95) -> Drop:
    """Return eq. (1) from the concordance of the records and of R ≥ 2 permutations."""
    lost = np.array([whole.value - p.value for p in permuted])
    slope = np.mean([whole.slope - p.slope for p in permuted], axis=0)
    value = float(lost.mean())
    error = math.sqrt(float(slope @ slope) + float(lost.var(ddof=1)) / len(lost))
    half = float(ndtri((1.0 + level) / 2.0)) * error
    return Drop(value, value - half, value + half)

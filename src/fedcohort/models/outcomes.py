"""Losses of an outcome y (n,) at a network's outputs f (n,), averaged over rows.

logistic   log(1 + e^f) − y f,   slope σ(f) − y,   y in {0, 1}                        (1)
linear     ½(f − y)²,            slope f − y                                          (2)
poisson    e^f − y f,            slope e^f − y,    without log y!                     (3)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
from scipy.special import expit

from fedcohort.arrays import Array

#: Outputs above this count as being this far up: e^600 is still a float64.
FAR = 600.0


class OutcomeLoss(ABC):
    """A loss that is a sum over rows.

    Parameters
    ----------
    y : (n,).
    """

    def __init__(self, y: Array):
        self._y = np.array(y, float)

    @property
    def informative(self) -> bool:
        """Whether there are rows."""
        return len(self._y) > 0

    @property
    def kinds(self) -> tuple[int, ...]:
        """How many rows there are; of logistic of either class, of poisson those above 0."""
        return (len(self._y),)

    def __call__(self, outputs: Array, /) -> tuple[float, Array]:
        """Return value and slope (n,) at the outputs (n,)."""
        values, slopes = self._each(np.asarray(outputs, float), self._y)
        n = max(len(self._y), 1)
        return float(values.sum()) / n, slopes / n

    def take(self, rows: Array) -> Self:
        """Return the loss of some of the rows, given by number."""
        return type(self)(self._y[rows])

    @abstractmethod
    def _each(self, f: Array, y: Array) -> tuple[Array, Array]:
        """Return the loss of each row, and its slope."""


class Logistic(OutcomeLoss):
    """Eq. (1)."""

    @property
    def kinds(self) -> tuple[int, ...]:
        """How many rows are 1, and how many 0."""
        ones = int((self._y > 0).sum())
        return ones, len(self._y) - ones

    def _each(self, f: Array, y: Array) -> tuple[Array, Array]:
        return np.logaddexp(0.0, f) - y * f, expit(f) - y


class Squares(OutcomeLoss):
    """Eq. (2)."""

    def _each(self, f: Array, y: Array) -> tuple[Array, Array]:
        return 0.5 * (f - y) ** 2, f - y


class Poisson(OutcomeLoss):
    """Eq. (3)."""

    @property
    def kinds(self) -> tuple[int, ...]:
        """How many rows are above 0."""
        return (int((self._y > 0).sum()),)

    def _each(self, f: Array, y: Array) -> tuple[Array, Array]:
        mean = np.exp(np.minimum(f, FAR))
        return mean - y * f, mean - y

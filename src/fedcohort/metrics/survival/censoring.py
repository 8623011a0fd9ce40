"""Kaplan–Meier estimates of survival and of follow-up, from counts.

Kaplan & Meier, JASA 53, 1958. On a grid t_0 < … < t_{T−1} each record falls into the cell
(t_{k−1}, t_k] of its time, or into one beyond the grid. With d_k deaths and c_k censored
records in cell k, and n_k records in cells ≥ k,

    S(t_k) = Π_{l ≤ k} (1 − d_l / n_l)                                                      (1)
    G(t_k) = Π_{l ≤ k} (1 − c_l / (n_l − d_l))                                              (2)

If a death and a censoring share a time, the death came first: (2) is scikit-survival's
convention. On the grid of all distinct times both are the estimates of the ungridded data.

Revealed: `Leavers`, only as sums over sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.message import message


@message
class Leavers:
    """Numbers of records that end in each cell of a grid: ``deaths``, ``censored`` (T+1,)."""

    deaths: Array
    censored: Array


@dataclass(frozen=True)
class Curve:
    """A right-continuous step function that is 1 before its first time.

    Attributes
    ----------
    times : (T,), strictly increasing.
    values : (T,), from each time on; the last one holds from then on.
    """

    times: Array
    values: Array

    def at(self, t: Array | float) -> Array:
        """Return the values at the times t, in the shape of t."""
        return np.r_[1.0, self.values][np.searchsorted(self.times, t, side="right")]

    def inverse_at(self, t: Array | float) -> Array:
        """Return 1/value at the times t, and 0 if the value is 0, because no weight can be
        given.
        """
        value = self.at(t)
        return np.divide(1.0, value, out=np.zeros(np.shape(value)), where=value > 0)


def leavers(time: Array, event: Array, grid: Array) -> Leavers:
    """Count the records (n,) that end in each cell of `grid` (T,), and beyond it."""
    cell = np.searchsorted(grid, time, side="left")
    died = np.asarray(event, bool)
    n = len(grid) + 1
    return Leavers(np.bincount(cell[died], minlength=n), np.bincount(cell[~died], minlength=n))


def survival(grid: Array, counts: Leavers) -> Curve:
    """Return P(T > t) on the grid, eq. (1)."""
    return Curve(grid, product_limit(counts.deaths, at_risk(counts))[:-1])


def censoring(grid: Array, counts: Leavers) -> Curve:
    """Return P(C > t) on the grid, eq. (2)."""
    return Curve(grid, product_limit(counts.censored, at_risk(counts) - counts.deaths)[:-1])


def survival_of(time: Array, event: Array) -> Curve:
    """Return the Kaplan–Meier estimate of records (n,) at all their distinct times."""
    grid = np.unique(time)
    return survival(grid, leavers(time, event, grid))


def censoring_of(time: Array, event: Array) -> Curve:
    """Return the estimate of the censoring distribution at all distinct times of records (n,)."""
    grid = np.unique(time)
    return censoring(grid, leavers(time, event, grid))


def at_risk(counts: Leavers) -> Array:
    """Return n_k (…, T+1): the records that end in cell k or later, along the last axis."""
    left = counts.deaths + counts.censored
    return np.flip(np.cumsum(np.flip(left, -1), axis=-1), -1)


def product_limit(ends: Array, risk: Array) -> Array:
    """Return Π_{l ≤ k} (1 − ends_l / risk_l) along the last axis; 0/0 counts as 0."""
    hazard = np.divide(ends, risk, out=np.zeros(np.shape(ends)), where=ends > 0)
    return np.cumprod(1.0 - hazard, axis=-1)

"""Losses of one output at the rows of several sites at once.

A loss of rows takes outputs f (S, n), with sites of fewer rows filled up to n, and returns the
value of each site (S,) and the slopes (S, n). A filled-up row repeats one of its site, and counts
nothing. No number of a site depends on the other sites. Revealed: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fedcohort.arrays import Array
from fedcohort.models.losses import (
    Logistic,
    OutcomeLoss,
    PartialLikelihood,
    Poisson,
    RiskSets,
    Squares,
)
from fedcohort.models.partial_likelihoods import PartialLikelihoods

#: Losses of a row of its own that are stacked.
OF_ROWS = (Logistic, Squares, Poisson)


class LossStack(Protocol):
    """Interface of a loss of several sites."""

    def __call__(self, f: Array, *, valued: bool = True) -> tuple[Array, Array]:
        """Return values (S,), 0 if they are not `valued`, and slopes (S, n) at f (S, n)."""
        ...


class OutcomeLosses:
    """Means over rows, of losses of one type."""

    def __init__(self, losses: Sequence[OutcomeLoss], length: int):
        self._each = losses[0].each
        self._y = np.zeros((len(losses), length))
        self._share = np.zeros_like(self._y)
        for k, loss in enumerate(losses):
            y = loss.y
            self._y[k, : len(y)], self._y[k, len(y) :] = y, y[-1]
            self._share[k, : len(y)] = 1.0 / len(y)

    def __call__(self, f: Array, *, valued: bool = True) -> tuple[Array, Array]:
        """Return values (S,) and slopes (S, n) at f (S, n)."""
        each, slopes = self._each(f, self._y)
        slopes *= self._share
        if not valued:
            return np.zeros(len(f)), slopes
        return np.add.reduce(each * self._share, axis=1), slopes


class RiskStack:
    """Risk sets of S sites on one time grid (T,).

    Parameters
    ----------
    sites : their risk sets. orders : of their rows in a stack; None: as they are. length : n.

    Attributes
    ----------
    dies : δ (S, n). real : (S, n), 1.0 for rows that are not filled up.
    """

    def __init__(self, sites: Sequence[RiskSets], orders: Sequence[Array | None], length: int):
        self._bins = np.zeros((len(sites), length), np.int64)  # filled-up rows are at no risk
        self.dies, self.real = np.zeros((2, *self._bins.shape))
        for k, (one, order) in enumerate(zip(sites, orders, strict=True)):
            n = len(one.dies)
            self._bins[k, :n] = one.bins if order is None else one.bins[order]
            self.dies[k, :n] = one.dies if order is None else one.dies[order]
            self.real[k, :n] = 1.0
        self._n_bins = len(sites[0].deaths) + 1
        self._places = (self._bins + self._n_bins * np.arange(len(sites))[:, None]).ravel()

    def s0(self, weights: Array) -> Array:
        """Return Σ_{j: t_j ≥ t} weights_j (S, T) of weights (S, n)."""
        size = len(weights), self._n_bins
        sums = np.bincount(self._places, weights.ravel(), size[0] * size[1]).reshape(size)
        return sums[:, :0:-1].cumsum(axis=1)[:, ::-1]

    def slopes(self, weights: Array, increments: Array) -> Array:
        """Return A_j weights_j − δ_j (S, n), with increments d/S_0 (T,) of all sites."""
        cumulative = np.zeros(self._n_bins)
        np.cumsum(increments, out=cumulative[1:])
        slopes = cumulative[self._bins]
        slopes *= weights
        slopes -= self.dies
        return slopes


def stackable(loss: object) -> bool:
    """Return whether a loss can be one of several."""
    return type(loss) in (PartialLikelihood, *OF_ROWS)


def order_of(loss: object) -> Array | None:
    """Return the order (n,) in which a loss's rows stand in a stack; None: as they are."""
    return loss.order if isinstance(loss, PartialLikelihood) else None


def stacked(losses: Sequence[object], length: int) -> LossStack:
    """Return losses of one type, each `stackable`, as one."""
    cox = [loss for loss in losses if isinstance(loss, PartialLikelihood)]
    if cox:
        times, events = zip(*(loss.falling for loss in cox), strict=True)
        return PartialLikelihoods(times, events, length)
    return OutcomeLosses([loss for loss in losses if isinstance(loss, OutcomeLoss)], length)

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
from fedcohort.models.losses import Logistic, OutcomeLoss, PartialLikelihood, Poisson, Squares
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

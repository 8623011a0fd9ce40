"""Cox's partial likelihoods of several sites at once, each on its own death times.

Breslow ties, eqs. (1) and (2) of `models.losses`. Rows stand in falling order of their times, so
that a risk set is the rows up to one place, and both sums are cumulative ones:

    S_0(t_j) = Σ_{i ≤ last_j} e^{f_i},   A_j = Σ_{i ≥ first_j} δ_i/S_0(t_i)                  (1)

with first_j and last_j the first and last row with the time t_j. Sites of fewer rows are filled up
at the end. No number of a site depends on the other sites. Revealed: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.arrays import Array

#: Log risks are cut to this below the largest: e^−600 is still a float64.
FAR = 600.0


def falling(time: Array) -> Array:
    """Return the order (n,) of rows by falling time."""
    return np.argsort(-time, kind="stable")


class PartialLikelihoods:
    """−ℓ(f)/n of each of S sites.

    Parameters
    ----------
    times, events : (n_k,) by site, rows in the order of `falling`, at least one.
    length : n, to which rows are filled up, at least the largest n_k.
    """

    def __init__(self, times: Sequence[Array], events: Sequence[Array], length: int):
        shape = len(times), length
        first, last = np.full(shape, length - 1), np.zeros(shape, np.int64)
        self._dies = np.zeros(shape)
        for k, (time, event) in enumerate(zip(times, events, strict=True)):
            n, rising = len(time), -time
            first[k, :n] = np.searchsorted(rising, rising, side="left")
            last[k, :n] = np.searchsorted(rising, rising, side="right") - 1
            self._dies[k, :n] = np.asarray(event, float) / n  # δ/n
        start = length * np.arange(len(times))[:, None]
        self._first = start + (length - 1 - first)  # in the sums from the last row on
        self._last = start + last

    def __call__(self, f: Array, *, valued: bool = True) -> tuple[Array, Array]:
        """Return −ℓ/n (S,) and its slopes (S, n) at log risks f (S, n).

        Parameters
        ----------
        f : of filled-up rows, that of a row of the same site.
        valued : whether the values are needed; 0 if not.
        """
        far = f - f.max(axis=1, keepdims=True)
        np.maximum(far, -FAR, out=far)
        weights = np.exp(far)
        s0 = weights.cumsum(axis=1).take(self._last)
        values = np.zeros(len(f))
        if valued:
            far -= np.log(s0)
            far *= self._dies
            values = -np.add.reduce(far, axis=1)
        np.divide(self._dies, s0, out=s0)
        slopes = s0[:, ::-1].cumsum(axis=1).take(self._first)
        slopes *= weights
        slopes -= self._dies
        return values, slopes

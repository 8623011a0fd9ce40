"""Right-censored times on a grid, and sums over risk sets.

With grid times t_0 < … < t_{T−1}, a death in (t_{k−1}, t_k] counts at t_k; a censored record is at
risk at t_k if its time is ≥ t_k. On the grid of all distinct death times this is exactly the
ungridded data; on a coarser one, the exact analysis of the records moved to the grid.

A record's slot is the last k at which it is at risk, and for a death the k at which it counts; −1:
never at risk. Sums over risk sets R(t_k) = {j : slot_j ≥ k} are one `bincount` and one reversed
cumulative sum: O(n + T), whatever the ties.

To hide single patients in consecutive sums, times are ends of intervals with enough leavers, and
all who leave in (t_{k−1}, t_k], dead or censored, are at risk until t_k (`together`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array

#: Log risks above this count as this: e^700 is still a number, and whoever has it dies at once.
LARGEST = 700.0


def slots(time: Array, event: Array, times: Array, *, together: bool = False) -> Array:
    """Return each record's slot on the grid.

    Parameters
    ----------
    time, event : (n,), time in the unit of `times`, event 0/1 or bool.
    times : (T,), strictly increasing. Deaths after the last time are censored at it.
    together : whether all who leave in an interval are at risk until its end.

    Returns
    -------
    slot : (n,) integers from −1 to T−1.
    """
    if not len(times):
        return np.full(len(time), -1)
    ceiling = np.searchsorted(times, time, side="left")
    if together:
        return np.minimum(ceiling, len(times) - 1)
    between = times[np.minimum(ceiling, len(times) - 1)] != time
    return ceiling - (between & ~dies_on_grid(time, event, times))


def dies_on_grid(time: Array, event: Array, times: Array) -> Array:
    """Return which records (n,) count as deaths: an event at or before the last time."""
    if not len(times):
        return np.zeros(len(time), bool)
    return np.asarray(event, bool) & (np.asarray(time) <= times[-1])


def spans(
    time: Array, event: Array, times: Array, entry: Array | None = None, *, together: bool = False
) -> tuple[Array | None, Array, Array]:
    """Return when records are at risk on the grid.

    Parameters
    ----------
    time, event, times, together : as for `slots`.
    entry : (n,) times after which records are at risk; None: from the start.

    Returns
    -------
    enter : (n,) the first slot of each record; None without `entry`.
    slot : (n,) its last; −1 if it is at risk at no time of the grid.
    dies : (n,) whether it dies there.
    """
    slot = slots(time, event, times, together=together)
    dies = dies_on_grid(time, event, times)
    if entry is None:
        return None, slot, dies
    enter = np.searchsorted(times, entry, side="right")
    return enter, np.where(enter > slot, -1, slot), dies


def count_at(slot: Array, n_times: int, weights: Array | None = None) -> Array:
    """Return Σ weights over the records in each slot: (T,), or (T, p) for weights (n, p).

    Records in slot −1 count nowhere.
    """
    on = slot >= 0
    slot = slot[on]
    if weights is None or weights.ndim == 1:
        values = None if weights is None else weights[on]
        return np.bincount(slot, values, minlength=n_times).astype(float)
    out = np.zeros((n_times, weights.shape[1]))
    order = np.argsort(slot, kind="stable")
    if len(order):
        ordered = slot[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        out[ordered[starts]] = np.add.reduceat(weights[on][order], starts, axis=0)
    return out


def risk_set_sums(slot: Array, n_times: int, weights: Array) -> Array:
    """Return Σ_{j ∈ R(t_k)} weights_j for each grid time: (T,) or (T, p)."""
    return np.cumsum(count_at(slot, n_times, weights)[::-1], axis=0)[::-1]


@dataclass(frozen=True)
class Baseline:
    """The baseline cumulative hazard H₀ as a step function (Breslow).

    It is known up to the last of its times; behind that it stays as it is there.

    Attributes
    ----------
    times : (T,) grid times, in the unit of the outcome; may be none.
    cumulative : (T,) H₀ at each grid time; 0 before the first.
    """

    times: Array
    cumulative: Array

    @classmethod
    def breslow(cls, times: Array, deaths: Array, s0: Array) -> Baseline:
        """H₀(t) = Σ_{t_k ≤ t} d_k / S₀(t_k), with S₀ (T,) summed at the fitted risk scores."""
        steps = np.divide(deaths, s0, out=np.zeros(len(times)), where=s0 > 0)
        return cls(np.asarray(times, float), np.cumsum(steps))

    @property
    def end(self) -> float:
        """Return the last time at which H₀ is known; 0 where none is."""
        return float(self.times.max(initial=0.0))

    def until(self, known: float, reached: float) -> Baseline:
        """Return the baseline up to a later time `known`, where H₀ has `reached` its value."""
        if known <= self.end:
            return self
        return Baseline(np.r_[self.times, known], np.r_[self.cumulative, reached])

    def at(self, t: Array) -> Array:
        """Return H₀ at the times t (m,): (m,)."""
        k = np.searchsorted(self.times, t, side="right")
        return np.r_[0.0, self.cumulative][k]

    def survival(self, risk: Array, t: Array) -> Array:
        """Return exp(−H₀(t) e^risk) for risk scores (n,) and times (m,): (n, m)."""
        hazard_ratio = np.exp(np.minimum(risk, LARGEST))
        return np.exp(-hazard_ratio[:, None] * self.at(t)[None, :])

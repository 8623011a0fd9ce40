"""Records of several strata on consecutive grids.

Each stratum has its own baseline hazard and grid; the times of all are concatenated, `sizes` (K,)
of each. Slots count within a stratum, or from the first time of the first. Sums over risk sets and
over time end with a stratum. One stratum is K = 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.survival import spans


def rows_of(stratum: Array | None, k: int) -> Array | slice:
    """Return which records are of stratum k: all, where there is one."""
    return slice(None) if stratum is None else np.flatnonzero(stratum == k)


def starts(sizes: Array) -> Array:
    """Return where each stratum's times start, (K,), from how many there are."""
    return np.cumsum(sizes) - sizes


def by_stratum(values: Array, sizes: Array) -> list[Array]:
    """Return each stratum's values, from those of all in a row."""
    return np.split(values, np.cumsum(sizes)[:-1])


def running(values: Array, sizes: Array | None) -> Array:
    """Return cumulative sums within each stratum; of one where there are no sizes (K,)."""
    if sizes is None or len(sizes) == 1:
        return np.cumsum(values, axis=0)
    return np.concatenate([np.cumsum(v, axis=0) for v in by_stratum(values, sizes)])


class Laid(NamedTuple):
    """Records' times at risk, each on its own stratum's grid.

    Attributes
    ----------
    enter : (n,) the first slot, counted within the stratum; None without entries.
    slot : (n,) the last, −1 if it is at risk at no time.
    dies : (n,) whether it dies there.
    start : start of the stratum's slots among all, (n,) or the same for all.
    stratum : (n,), or 0.
    """

    enter: Array | None
    slot: Array
    dies: Array
    start: Array | int
    stratum: Array | int

    def in_row(self, slot: Array) -> Array:
        """Return slots from 0 as they count in the row of all strata; −1 stays."""
        return np.where(slot < 0, -1, slot + self.start)


def laid(
    time: Array,
    event: Array,
    times: Array,
    sizes: Array,
    entry: Array | None = None,
    stratum: Array | None = None,
    *,
    together: bool = False,
) -> Laid:
    """Lay records on their stratum's grid.

    Parameters
    ----------
    times, sizes : as in the header.
    entry, stratum : (n,); None where there are none.
    together : as for `numerics.survival.slots`.
    """
    if stratum is None:
        return Laid(*spans(time, event, times, entry, together=together), 0, 0)
    n = len(time)
    enter = None if entry is None else np.zeros(n, np.int64)
    slot, dies = np.full(n, -1), np.zeros(n, bool)
    for k, own in enumerate(by_stratum(times, sizes)):
        at = rows_of(stratum, k)
        since = None if entry is None else entry[at]
        first, slot[at], dies[at] = spans(time[at], event[at], own, since, together=together)
        if enter is not None and first is not None:
            enter[at] = first
    return Laid(enter, slot, dies, starts(sizes)[stratum], stratum)

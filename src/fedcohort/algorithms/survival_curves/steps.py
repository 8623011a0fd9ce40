"""Site steps of survival curves: counts of deaths and censored records, and sums of their times.

Each row of a call is about one group, or all groups, and about its deaths, its censored records, or
both (leavers). On a grid t_0 < … < t_{T−1} records have places from 0 to T:

    DEATHS     place k + 1 for (t_{k−1}, t_k], place 0 for none
    CENSORED   place k + 1 for [t_k, t_{k+1}), place 0 before t_0: at the time of a death, at risk
    LEAVERS    place k for (t_{k−1}, t_k], place T after the grid

A cell is a range of places; each row has its own cells.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedcohort.algorithms.survival_curves.groups import group_of
from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.numerics.survival import dies_on_grid, slots
from fedcohort.protocol import Site, message, summed

#: Kinds of records of a row.
DEATHS, CENSORED, LEAVERS = range(3)
#: All groups together.
ANY = -1

SurvivalSite = Site[SurvivalTable, None]


@message
class Tally:
    """Records and deaths (g + 1,) by group; the last is for no group."""

    records: Array
    deaths: Array


@message
class CellCounts:
    """Records of the row's ``own`` group, and of the ``rest``, in each cell (r, m)."""

    own: Array
    rest: Array


@message
class CellTimes:
    """Σ time of the row's own group in each cell (r, m); times are cut to the grid's last."""

    total: Array


@message
class Weighted:
    """Σ weight (g,) over each group's deaths."""

    total: Array


@message
class ExactCounts:
    """Deaths (g, T) by time, and censored records (g, T + 1) by slot, the earliest first."""

    deaths: Array
    censored: Array


@summed
def group_tally(site: SurvivalSite, *, groups: int) -> Tally:
    """Count records and deaths of each group."""
    g, event = group_of(site.data.x, groups), np.asarray(site.data.event, bool)
    n = max(groups, 1) + 1
    g = np.where(g < 0, n - 1, g)
    return Tally(np.bincount(g, minlength=n), np.bincount(g[event], minlength=n))


@summed
def cell_counts(
    site: SurvivalSite, *, times: Array, groups: int, group: Array, kind: Array, edges: Array
) -> CellCounts:
    """Count deaths and censored records in wide cells of time.

    Parameters
    ----------
    group, kind : (r,), group and kind of each row.
    edges : (r, m + 1), places where cells begin and end, ascending; the last is repeated.
    """
    own: list[Array] = []
    rest: list[Array] = []
    for (place, _, mine), ends in zip(
        _rows(site.data, times, groups, group, kind), edges, strict=True
    ):
        own.append(_between(place[mine], ends, len(times)))
        rest.append(_between(place[~mine], ends, len(times)))
    return CellCounts(np.array(own, np.int64), np.array(rest, np.int64))


@summed
def cell_times(
    site: SurvivalSite, *, times: Array, groups: int, group: Array, kind: Array, edges: Array
) -> CellTimes:
    """Sum the times of deaths and censored records in cells with enough of them.

    Parameters are those of `cell_counts`.
    """
    total = [
        _between(place[mine], ends, len(times), np.minimum(time[mine], times[-1]))
        for (place, time, mine), ends in zip(
            _rows(site.data, times, groups, group, kind), edges, strict=True
        )
    ]
    return CellTimes(np.array(total, float))


@summed
def weighted_deaths(site: SurvivalSite, *, times: Array, groups: int, weight: Array) -> Weighted:
    """Sum the weights of each group's deaths; a weight depends on the interval of time.

    Parameters
    ----------
    weight : (T,), of deaths in (t_{k−1}, t_k].
    """
    g, event = group_of(site.data.x, groups), np.asarray(site.data.event, bool)
    mine = event & (g >= 0)
    w = weight[np.searchsorted(times, site.data.time[mine])]
    return Weighted(np.bincount(g[mine], w, minlength=groups))


@summed
def exact_counts(site: SurvivalSite, *, times: Array, groups: int) -> ExactCounts:
    """Count deaths and censored records at every time of death (only with the grid "exact")."""
    place, dies = _placed(site.data, times)
    g, n = group_of(site.data.x, groups), max(groups, 1)
    size = len(times) + 1
    died = [np.bincount(place[dies & (g == i)], minlength=size)[1:] for i in range(n)]
    left = [np.bincount(place[~dies & (g == i)], minlength=size) for i in range(n)]
    return ExactCounts(np.array(died, np.int64), np.array(left, np.int64))


STEPS = (group_tally, cell_counts, cell_times, weighted_deaths, exact_counts)


def _placed(table: SurvivalTable, times: Array) -> tuple[Array, Array]:
    """Return each record's place (n,) from 0 to T, and whether it dies there."""
    dies = dies_on_grid(table.time, table.event, times)
    return slots(table.time, table.event, times) + 1, dies


def _rows(
    table: SurvivalTable, times: Array, groups: int, group: Array, kind: Array
) -> Iterator[tuple[Array, Array, Array]]:
    """Yield places and times of the records of each row's kind, and whether in its group."""
    g = group_of(table.x, groups)
    place, dies = _placed(table, times)
    leaving = np.searchsorted(times, table.time)
    every = np.ones(len(g), bool)
    of_kind = {DEATHS: (place, dies), CENSORED: (place, ~dies), LEAVERS: (leaving, every)}
    for one, k in zip(group.tolist(), kind.tolist(), strict=True):
        at, chosen = of_kind[k]
        mine = (g >= 0) if one == ANY else (g == one)
        yield at[chosen], table.time[chosen], mine[chosen]


def _between(place: Array, edges: Array, n_times: int, weights: Array | None = None) -> Array:
    """Return the number of `place` (n,), or their Σ weights, in each cell (m,)."""
    at = np.bincount(place, weights, minlength=n_times + 1)
    return np.diff(np.r_[0, np.cumsum(at)][edges])

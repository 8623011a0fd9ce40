"""Places a site's records on a grid, and keeps the result as long as the site's table.

Covariates are standardised by the pooled centre (p,) and scale (p,), so β is in log hazard ratio
per standard deviation. An offset is the last column of x; the centre then is (p + 1,).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.numerics.coxph import Extra, Placed
from fedcohort.protocol import Site

SurvivalSite = Site[SurvivalTable, None]


def weights(table: SurvivalTable) -> Array:
    """Return the weight of each record (n,)."""
    return np.ones(len(table.x)) if table.weight is None else table.weight


def own_grid(table: SurvivalTable) -> tuple[Array, Array, None]:
    """Return a site's distinct times of death, their number in each stratum, and no intervals."""
    dies = np.asarray(table.event, bool)
    if table.stratum is None:
        times = np.unique(table.time[dies])
        return times, np.array([len(times)]), None
    strata = range(int(table.stratum.max(initial=0)) + 1)
    each = [np.unique(table.time[dies & (table.stratum == k)]) for k in strata]
    return np.concatenate(each), np.array([len(times) for times in each]), None


#: A table's outcome, the grid, and how its records are placed on it.
How = tuple[Array | None, ...]


class _Memory:
    """The latest placing of each table, kept as long as its x: a fit sorts a table once."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Callable[[], Array | None], How, Placed]] = {}

    def __call__(
        self,
        table: SurvivalTable,
        times: Array,
        sizes: Array,
        shared: Array | None,
        centre: Array,
        scale: Array,
    ) -> Placed:
        key, how = id(table.x), (*table[1:], times, sizes, shared, centre, scale)
        held = self._held.get(key)
        if held is not None and held[0]() is table.x and _same(held[1], how):
            return held[2]
        p = len(scale)
        x = (table.x[:, :p] - centre[:p]) / scale
        offset = table.x[:, p] - centre[p] if len(centre) > p else None
        extra = Extra(table.entry, table.weight, offset, table.stratum)
        dies = np.asarray(table.event, bool)
        if shared is not None and not len(shared):
            shared = None
        found = Placed.on(times, x, table.time, dies, extra, sizes, shared)
        alive = weakref.ref(table.x, lambda _: self._held.pop(key, None))
        self._held[key] = (alive, how, found)
        return found


def _same(these: How, those: How) -> bool:
    return all(a is b or _equal(a, b) for a, b in zip(these, those, strict=True))


def _equal(a: Array | None, b: Array | None) -> bool:
    return a is not None and b is not None and np.array_equal(a, b)


placed = _Memory()


class _Risks:
    """The latest risk weights of each placing, which two sums of a round need."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Callable[[], Placed | None], Array, Array]] = {}

    def __call__(self, records: Placed, beta: Array) -> Array:
        key = id(records)
        held = self._held.get(key)
        if held is not None and held[0]() is records and np.array_equal(held[1], beta):
            return held[2]
        found = records.risk(beta)
        found.flags.writeable = False
        alive = weakref.ref(records, lambda _: self._held.pop(key, None))
        self._held[key] = (alive, beta.copy(), found)
        return found


risks = _Risks()

"""The protected grid of some records, and a baseline hazard on it order by order."""

from __future__ import annotations

import numpy as np

from fedcohort.data.tables import SurvivalTable
from fedcohort.data.timegrid import STEPS, intervals
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local


def grid_of(time, event, rule="protected", min_cell=5):
    """Return the intervals of all records at one site: they are the same at several."""
    table = SurvivalTable(np.zeros((len(time), 1)), np.asarray(time, float), np.asarray(event) > 0)
    return intervals(local([Host("all", table, STEPS)]), rule, min_cell)


def hazard_at(times, time, event, risk, grid=None):
    """Return H₀ (m,) at some ends of intervals: each leaver is at each place of their order.

    The grid is that of the records, unless one is given.
    """
    grid, event = grid or grid_of(time, event), np.asarray(event) > 0
    at = np.searchsorted(grid.times, time)
    steps = np.zeros(len(grid.times))
    for k in np.unique(at[event]):
        here, n = at == k, 1 if grid.single[k] else (at == k).sum()
        for place in range(n):
            left = risk[at >= k].sum() - place / n * risk[here].sum()
            steps[k] += (here & event).sum() / n / left
    return np.array([steps[grid.times <= t].sum() for t in times])

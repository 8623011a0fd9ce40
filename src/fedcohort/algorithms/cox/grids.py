"""The grid of times, or one for each stratum, of which every one must bear what a single one must.

A stratum's records make risk sets of their own, so that its intervals need as many leavers as those
of a table without strata. A stratum where nobody died
has no times and is in no risk set. Revealed: `StratumSizes` once, and what `time_grid` asks, for
each stratum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.algorithms.cox.settings import CoxSettings
from fedcohort.algorithms.cox.steps import StratumSizes, stratum_sizes
from fedcohort.data.prepare.timegrid import Intervals, intervals, no_events
from fedcohort.protocol import Federation, SettingError, check_all_answered

#: Of a stratum where nobody died.
NOTHING = Intervals(np.zeros(0), np.zeros(0, bool), 0.0)


def grids(
    fed: Federation, config: CoxSettings, strata: Sequence[str], cell: int
) -> list[Intervals]:
    """Return the grid of each stratum.

    Parameters
    ----------
    strata : levels of their column; none for one stratum of all records.
    cell : leavers that an interval must have, and deaths that a stratum must, but on the grid
        "exact"; and records that must be followed beyond what is known.

    Raises
    ------
    NothingToLearn : nobody died.
    SettingError : a stratum has too few records or deaths for a grid; it is named.
    """
    if not strata:
        return [intervals(fed, config.time_grid, cell)]
    sizes = fed.sum(stratum_sizes, strata=len(strata))
    check_all_answered(fed)
    if not sizes.deaths.any():
        raise no_events(fed)
    _check_enough(sizes, config.strata, strata, 1 if config.time_grid == "exact" else cell)
    return [
        intervals(fed, config.time_grid, cell, k) if died else NOTHING
        for k, died in enumerate(sizes.deaths.tolist())
    ]


def _check_enough(sizes: StratumSizes, column: str, strata: Sequence[str], cell: int) -> None:
    few = [
        name
        for name, rows, died in zip(strata, sizes.rows, sizes.deaths, strict=True)
        if 0 < rows < cell or 0 < died < cell
    ]
    if few:
        raise SettingError(
            f"strata {column!r} has too few records or deaths for a baseline hazard of "
            f"{'its' if len(few) == 1 else 'their'} own in level {', '.join(map(repr, few))}: "
            f"{cell} of each are needed. Join levels, give the column as a feature, or set "
            f"time_grid 'exact' if the coordinator may see all risk sets."
        )

"""The grid of times, or one for each stratum, of which every one must bear what a single one must.

A stratum's records make risk sets of their own, so that its intervals need as many deaths, and its
censored records as much company, as those of a table without strata. A stratum where nobody died
has no times and is in no risk set. Revealed: `StratumSizes` once, and what `time_grid` asks, for
each stratum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.algorithms.cox.settings import CoxSettings
from fedcohort.algorithms.cox.steps import StratumSizes, stratum_sizes
from fedcohort.arrays import Array
from fedcohort.data.timegrid import time_grid
from fedcohort.protocol import Federation, NothingToLearn, SettingError, check_all_answered


def grids(fed: Federation, config: CoxSettings, strata: Sequence[str], cell: int) -> list[Array]:
    """Return the grid of each stratum, K of (T_k,).

    Parameters
    ----------
    strata : levels of their column; none for one stratum of all records.
    cell : deaths that an interval, and records that a stratum, must have; 1 if there is no rule.

    Raises
    ------
    NothingToLearn : nobody died.
    SettingError : a stratum has too few records or deaths for a grid; it is named.
    """
    if not strata:
        return [time_grid(fed, config.time_grid, cell)]
    sizes = fed.sum(stratum_sizes, strata=len(strata))
    check_all_answered(fed)
    if not sizes.deaths.any():
        raise NothingToLearn(
            f"none of the {len(fed.sites)} sites has seen an event, so there is no survival to "
            f"model. Check that the event column is 1 where the event was seen."
        )
    _check_enough(sizes, config.strata, strata, cell)
    return [
        time_grid(fed, config.time_grid, cell, k) if died else np.zeros(0)
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

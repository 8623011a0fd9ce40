"""What keeps a fit of `cox` from telling of few records (`program`).

In each interval of every grid but "exact" m records leave or more, and are summed together, dead or
not. Where an interval holds a single time, the dead tie and the censored do not: there sums over
the dead are asked for as well, where both are m or more. K calls for `RiskWeights` and one for
`RiskMoments` make K + p equations about p covariates of each of m patients: too few to solve while
K < (m − 1) p, where the K (1 + p + p²) of WebDISCO are enough in a few rounds. So m is `min_cell`,
or more where few covariates, or a path of penalties, need it for so many calls; a fit that asks on
is ended. `TrendMoments` and `Disorder` weigh whole intervals, so they are sums over m leavers, or
more.

Who enters late makes sums over an interval's leavers less those who enter at the next. Each may be
of m records, and yet combinations of two intervals be of few: of those who enter and leave with the
others but one. So with late entries a grid for all sites is refused; stratified needs none, and
its pooled baseline is then the mean of the sites' own (`OwnHazard`, once).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedcohort.algorithms.cox.likelihood import Ground
from fedcohort.algorithms.cox.settings import CoxSettings
from fedcohort.algorithms.cox.steps import StratumSizes
from fedcohort.protocol import SettingError

#: The grid is so coarse that fewer sums over risk sets than this solve for no patient; fits of up
#: to five covariates took 3 to 10.
SUMS = 12
#: And so many more for each penalty of a path, which took 2 to 4.
SUMS_PER_PENALTY = 4


def least_cell(config: CoxSettings, min_cell: int, p: int) -> int:
    """Return how many records leave together at least."""
    if config.time_grid == "exact":
        return 1
    if config.baseline == "stratified":
        return min_cell
    sums = SUMS + (SUMS_PER_PENALTY * config.path if config.penalty == "auto" else 0)
    return max(min_cell, math.ceil(sums / p) + 1)


def most_sums(config: CoxSettings, cell: int, p: int) -> float:
    """Return how many sums over risk sets a fit may ask for: too few to solve for a patient."""
    return math.inf if config.time_grid == "exact" else (cell - 1) * p - 1


def check_late(ground: Ground, config: CoxSettings) -> None:
    """Refuse a grid for all sites where records enter late.

    Raises
    ------
    SettingError : they do, and the baseline is shared on a grid other than "exact".
    """
    if ground.late and config.baseline == "shared" and config.time_grid != "exact":
        raise SettingError(
            "some records enter late, and sums over those who leave an interval, less those who "
            "enter, could show a few patients. Set baseline 'stratified', which shows no risk set, "
            "or time_grid 'exact' if the coordinator may see all of them."
        )


def check_strata(sizes: StratumSizes, column: str, strata: Sequence[str], cell: int) -> None:
    """Refuse strata with fewer than `cell` records or deaths, but none; they are named."""
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

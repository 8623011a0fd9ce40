"""Rules by which a fit of `cox` reveals nothing about few records (`program`).

On every grid but "exact", at least m records leave in each interval, and their sums do not separate
deaths from censored records. In an interval of a single time only the deaths tie: sums over deaths
are requested as well, if deaths and censored records are m or more each. K calls for `RiskWeights`
and one for `RiskMoments` give K + p equations about p covariates of each of m patients. These
cannot be solved while K < (m − 1) p; the K (1 + p + p²) equations of WebDISCO can, after a few
rounds. So m is `min_cell`, or more if few covariates or a path of penalties need more calls; a fit
that exceeds them fails. `TrendMoments` and `Disorder` weight entire intervals: sums over m or more.

With late entries, sums are over an interval's leavers less those who enter at the next. Two such
sums over m records can differ by few records. So a grid for all sites is refused. A stratified fit
needs none; its pooled baseline is then the mean of the sites' own (`OwnHazard`, once).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedcohort.algorithms.cox.likelihood import Ground
from fedcohort.algorithms.cox.settings import BayesCoxSettings, LikelihoodSettings
from fedcohort.algorithms.cox.steps import StratumSizes
from fedcohort.protocol import SettingError

#: The grid allows this many sums over risk sets; fits of up to five covariates took 3 to 10.
SUMS = 12
#: The same of a fit with a prior, which may separate who dies: then it took up to 14 with the
#: default prior, and 16 with a scale of 10.
SUMS_WITH_PRIOR = 16
#: More sums for each penalty of a path; it took 2 to 4.
SUMS_PER_PENALTY = 4


def least_cell(config: LikelihoodSettings, min_cell: int, p: int) -> int:
    """Return m, the smallest number of records that leave in one interval."""
    if config.time_grid == "exact":
        return 1
    if config.stratified:
        return min_cell
    most = SUMS_WITH_PRIOR if isinstance(config, BayesCoxSettings) else SUMS
    sums = most + SUMS_PER_PENALTY * config.tried
    return max(min_cell, math.ceil(sums / p) + 1)


def most_sums(config: LikelihoodSettings, cell: int, p: int) -> float:
    """Return the largest number of sums over risk sets that cannot be solved for a patient."""
    return math.inf if config.time_grid == "exact" else (cell - 1) * p - 1


def check_late(ground: Ground, config: LikelihoodSettings) -> None:
    """Raise `SettingError` for late entries with a shared baseline on a grid but "exact"."""
    if ground.late and not config.stratified and config.time_grid != "exact":
        raise SettingError(
            "some records enter late: sums over those who leave an interval, less those who enter, "
            "could show a few patients. Set baseline 'stratified', which shows no risk set, or "
            "time_grid 'exact' if the coordinator may see all risk sets."
        )


def check_strata(sizes: StratumSizes, column: str, strata: Sequence[str], cell: int) -> None:
    """Raise `SettingError` for strata with 1 to `cell` − 1 records or deaths; they are named."""
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

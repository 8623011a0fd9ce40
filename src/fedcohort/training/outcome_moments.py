"""Mean and standard deviation of a numeric outcome, or the unit of times, over all sites.

Revealed once, as a sum over all sites: `Moments`, or `LogTimes`.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.models.losses import SHORTEST
from fedcohort.protocol import DataError, Federation, NothingToLearn, Site, message, summed

#: What leaves a site, in plain words.
REVEALS = "once, the outcome's mean and standard deviation, from sums over sites"


@message
class Moments:
    """Number of rows, Σ y and Σ y² of the outcome."""

    rows: Array
    total: Array
    squares: Array


@summed
def sum_outcome(site: Site[LabelledTable, None]) -> Moments:
    """Sum the outcome and its square."""
    y = np.asarray(site.data.y, float)
    return Moments(np.array(len(y)), np.array(y.sum()), np.array(y @ y))


@message
class LogTimes:
    """Rows and Σ log t, with times below `SHORTEST` of the site's mean taken as that."""

    rows: Array
    logs: Array


@summed
def sum_times(site: Site[SurvivalTable, None]) -> LogTimes:
    """Count rows, and sum the logarithms of the times."""
    time = np.asarray(site.data.time, float)
    least = SHORTEST * time.mean() if len(time) else 1.0
    logs = np.log(np.maximum(time, least)).sum() if len(time) else 0.0
    return LogTimes(np.array(float(len(time))), np.array(logs))


def unit_of_times(fed: Federation) -> float:
    """Return e to the mean of the logarithms of the times of all sites."""
    told = fed.awaiting().sum(sum_times)
    return math.exp(float(told.logs) / max(float(told.rows), 1.0))


def mean_and_spread(fed: Federation, min_cell: int) -> tuple[float, float]:
    """Return the outcome's mean and standard deviation over all sites.

    Raises
    ------
    DataError : there are fewer than `min_cell` rows, with one site fewer than two.
    NothingToLearn : the outcome is constant.
    """
    told = fed.awaiting().sum(sum_outcome)
    n, least = float(told.rows), min_cell if len(fed.sites) > 1 else 1
    if n < max(least, 2):
        raise DataError(f"{n:g} rows are too few; {max(least, 2)} are needed. Add sites.")
    mean = float(told.total) / n
    spread = math.sqrt(max(float(told.squares) / n - mean**2, 0.0))
    if spread <= 1e-7 * max(abs(mean), 1e-300):
        raise NothingToLearn(
            "the outcome has the same value in all rows. Check how it is coded, or add a site."
        )
    return mean, spread


STEPS = (sum_outcome,)

"""Mean and standard deviation of a numeric outcome over all sites, asked once.

Revealed, as a sum over all sites: `Moments`.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
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

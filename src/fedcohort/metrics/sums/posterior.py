"""How sure a model with a posterior is, over sites: one sum.

The step reads ``told`` (n, k) and ``lost`` (): what `metrics.uncertainty.of_rows` tells of each
row, in its order, and the number of rows where one of these is not finite.

Revealed: `PosteriorSums`, only as a sum over sites.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed


@message
class PosteriorSums:
    """Rows, and those lost (); sums over rows of what is told (k,)."""

    rows: Array
    lost: Array
    total: Array


@summed
def sum_posterior(site: Site[Any, None]) -> PosteriorSums:
    """Sum how sure the model is: shares of variance, log densities, outcomes in their intervals."""
    told = site.data.told
    rows, lost = (np.array(float(v)) for v in (len(told), site.data.lost))
    return PosteriorSums(rows, lost, told.sum(axis=0))


STEPS = (sum_posterior,)

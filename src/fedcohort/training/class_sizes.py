"""Number of rows of each class, asked once.

Revealed, as a sum over all sites: `Sizes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Site, message, summed
from fedcohort.protocol.updates import count_fault


@message
class Sizes:
    """Number of rows of each class (K,)."""

    sizes: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if self.sizes.shape != (asked["classes"],):
            return "another number of counts than of classes."
        return count_fault("sizes", self.sizes)


@summed
def count_each_class(site: Site[LabelledTable, None], *, classes: int) -> Sizes:
    """Count the rows of each class."""
    return Sizes(np.bincount(np.asarray(site.data.y, np.int64), minlength=classes))


STEPS = (count_each_class,)

"""The one array type of the package, any NumPy array; and division that may have no result."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[Any]


def ratio(part: ArrayLike, whole: ArrayLike) -> Array:
    """Return part / whole, as shapes broadcast; nan where `whole` is not above 0."""
    above, below = np.broadcast_arrays(np.asarray(part, float), np.asarray(whole, float))
    return np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)

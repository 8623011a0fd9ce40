"""The one array type of the package, any NumPy array; a product that is not formed yet; and
division that may have no result.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[Any]


class Product(NDArrayOperatorsMixin):
    """n θ of a large θ (P,), float64, multiplied where it is read.

    An exact sum reads a few numbers at a time, so that n θ itself, 20 MB of 2.6 million, is neither
    written nor read again. Any other use makes an array of it.

    Parameters
    ----------
    theta : θ, float32 or float64; it must not change until the last use.
    n : factor.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, theta: Array, n: float):
        self._theta, self._n = theta, float(n)
        self.shape, self.size, self.ndim = theta.shape, theta.size, 1

    def read(self, start: int, out: Array) -> Array:
        """Write the numbers from `start` on into `out`, which has room for some; return it."""
        out[:] = self._theta[start : start + len(out)]
        out *= self._n
        return out

    @cached_property
    def square(self) -> float:
        """About ‖n θ‖², as its type sums it; infinite where a number is not finite."""
        with np.errstate(all="ignore"):
            found = float(self._theta.dot(self._theta)) * self._n * self._n
        return found if found == found else np.inf

    def finite(self) -> bool:
        """Return whether all numbers are finite."""
        with np.errstate(over="ignore"):
            return self.square < np.inf or bool(np.isfinite(np.asarray(self)).all())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        made = self.read(0, np.empty(self.size))
        return made if dtype is None else made.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **given: Any) -> Any:
        arrays = [np.asarray(a) if isinstance(a, Product) else a for a in inputs]
        return getattr(ufunc, method)(*arrays, **given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


def ratio(part: ArrayLike, whole: ArrayLike) -> Array:
    """Return part / whole, as shapes broadcast; nan where `whole` is not above 0."""
    above, below = np.broadcast_arrays(np.asarray(part, float), np.asarray(whole, float))
    return np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)

"""Named arrays: the only thing that leaves a site.

A message is a frozen dataclass whose fields are arrays of numbers. Adding two messages adds
them field by field; that sum is all that the verb `sum` reveals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import SiteFailed

T = TypeVar("T")

#: What may be inside an array that leaves a site: floats, integers, booleans.
DTYPES = frozenset(np.dtype(name) for name in ("f4", "f8", "i4", "i8", "u8", "b1"))


@dataclass_transform(frozen_default=True)
def message(cls: type[T]) -> type[T]:
    """Declare a message: a frozen dataclass whose fields are arrays."""
    return dataclass(frozen=True, eq=False)(cls)


def to_arrays(msg: Any) -> dict[str, Array]:
    """Return the fields of a message by name, each as an array."""
    return {name: np.asarray(getattr(msg, name)) for name in type(msg).__dataclass_fields__}


def checked(msg: Any, declared: type[Any], site: str, step: str) -> dict[str, Array]:
    """Return the arrays of a reply that is fit to leave a site.

    Raises
    ------
    SiteFailed : another message type than declared, another dtype than those in `DTYPES`,
        or a number that is not finite.
    """
    if type(msg) is not declared:
        raise SiteFailed(
            f"site {site!r} answered {step} with {type(msg).__name__}; the step declares "
            f"{declared.__name__}. Correct the step's return annotation or its return value."
        )
    arrays = to_arrays(msg)
    for name, a in arrays.items():
        if a.dtype not in DTYPES:
            raise SiteFailed(
                f"site {site!r} answered {step} with dtype {a.dtype} in field {name!r}; "
                f"only numbers may leave a site. Convert the field to float64 or int64."
            )
        if a.dtype.kind == "f" and not np.isfinite(a).all():
            raise SiteFailed(
                f"site {site!r} answered {step} with numbers that are not finite in field "
                f"{name!r}, shape {a.shape}. Check the scale of that site's data, or lower the "
                f"learning rate."
            )
    return arrays


class Total:
    """The sum of messages, added one by one so that memory does not grow with their number."""

    def __init__(self) -> None:
        self._sums: dict[str, Array] = {}

    def add(self, arrays: Mapping[str, Array], weight: float) -> None:
        """Add `weight` times one reply, field by field."""
        for name, a in arrays.items():
            a = a if weight == 1.0 else weight * a
            held = self._sums.get(name)
            if held is None:
                self._sums[name] = np.array(a, dtype=np.int64 if a.dtype.kind == "b" else None)
            elif held.shape != a.shape:
                raise SiteFailed(
                    f"field {name!r} has shape {a.shape} at one site and {held.shape} at another; "
                    f"a sum needs equal shapes. Check that all sites hold the same columns."
                )
            elif held.ndim and held.dtype == a.dtype:
                held += a
            else:
                self._sums[name] = np.asarray(held + a)

    @property
    def arrays(self) -> dict[str, Array]:
        """The sums so far, by field."""
        return self._sums

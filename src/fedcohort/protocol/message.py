"""Messages: named arrays, the only thing that leaves a site.

A message is a frozen dataclass whose fields are arrays of numbers. Two messages are added
field by field; that sum is all that the verb `sum` reveals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast, dataclass_transform, overload

import numpy as np

from fedcohort.arrays import Array, Product
from fedcohort.protocol.errors import ReplyRejected, SiteFailed

T = TypeVar("T")

#: Types of arrays that may leave a site: floats, integers, booleans.
DTYPES = frozenset(np.dtype(name) for name in ("f4", "f8", "i4", "i8", "u8", "b1"))


#: From this size on, arrays are checked, and lent, without a copy if that is safe.
LARGE = 4096

NOTHING: Mapping[str, Array] = {}

#: Fraction bits of an exact sum of a model's parameters.
PARAMETER_BITS = 28


@overload
def message(cls: type[T], /) -> type[T]: ...
@overload
def message(*, parameters: Sequence[str]) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def message(cls: type[T] | None = None, /, *, parameters: Sequence[str] = ()) -> Any:
    """Declare a message: a frozen dataclass whose fields are arrays.

    Its text shows only shapes and types, so that a log line discloses nothing.

    Parameters
    ----------
    parameters : fields of a model's parameters, or of their slopes: millions of numbers, of which
        an exact sum keeps multiples of 2^-28 below 2^35 (`secure.arithmetic.ring`).
    """

    def declare(kind: type[T]) -> type[T]:
        made = dataclass(frozen=True, eq=False, repr=False)(kind)
        setattr(made, "__repr__", _outline)  # noqa: B010 - a method of T, which a checker cannot see
        setattr(made, "__parameters_of_model__", frozenset(parameters))  # noqa: B010
        return made

    return declare if cls is None else declare(cls)


def parameters_of(declared: type[Any]) -> frozenset[str]:
    """Return the fields of a message that hold a model's parameters."""
    return getattr(declared, "__parameters_of_model__", frozenset())


def _outline(msg: Any) -> str:
    fields = (f"{k}: {a.dtype} {a.shape}" for k, a in to_arrays(msg).items())
    return f"{type(msg).__name__}({', '.join(fields)})"


def to_arrays(
    msg: Any, *, lent: bool = False, stays: Mapping[str, Array] = NOTHING
) -> dict[str, Array]:
    """Return the fields of a message by name, each as an array of its own in C order.

    Copies: site and coordinator share no memory, and arrays from a step, from the wire and from a
    journal have the same layout.

    Parameters
    ----------
    lent : whether large arrays in C order are not copied, and products (`arrays.Product`) not
        formed, for a reader who is done with them before the next step runs.
    stays : arrays that nobody can write to, by field; where a field is that array it is not copied.
    """
    found: dict[str, Array] = {}
    for name in type(msg).__dataclass_fields__:
        a = getattr(msg, name)
        if name in stays and a is stays[name] and not a.flags.writeable:
            found[name] = a
            continue
        if lent and type(a) is Product and a.size > LARGE:
            found[name] = cast("Array", a)
            continue
        keeps = lent and type(a) is np.ndarray and a.size > LARGE
        found[name] = np.asarray(a, order="C") if keeps else np.array(a, order="C")
    return found


def packed(
    msg: Any,
    declared: type[Any],
    site: str,
    step: str,
    *,
    lent: bool = False,
    stays: Mapping[str, Array] = NOTHING,
) -> dict[str, Array]:
    """Return the arrays of a message that a step made.

    Parameters
    ----------
    lent, stays : see `to_arrays`.

    Raises
    ------
    SiteFailed : the message type differs from the declared one, or a field is no array of numbers.
    ReplyRejected : a dtype is not in `DTYPES`.
    """
    if type(msg) is not declared:
        raise SiteFailed(
            f"site {site!r} answered {step} with {type(msg).__name__}; the step declares "
            f"{declared.__name__}. Correct the step's return annotation or its return value."
        )
    try:
        arrays = to_arrays(msg, lent=lent, stays=stays)
    except (TypeError, ValueError) as error:
        raise SiteFailed(
            f"site {site!r} answered {step} with a {declared.__name__} that has a field which is "
            f"no array ({type(error).__name__}). Give every field one regular array of numbers."
        ) from None
    for name, a in arrays.items():
        if a.dtype not in DTYPES:
            raise ReplyRejected(
                f"site {site!r} answered {step} with dtype {a.dtype} in field {name!r}; "
                f"only numbers may leave a site. Convert the field to float64 or int64."
            )
    return arrays


def checked(
    msg: Any,
    declared: type[Any],
    site: str,
    step: str,
    *,
    widen: bool = False,
    lent: bool = False,
) -> dict[str, Array]:
    """Return the arrays of a reply that may leave a site.

    Parameters
    ----------
    widen : return booleans and short integers as int64 for sums, so that flags sum to a count and
        no count overflows.
    lent : see `to_arrays`.

    Raises
    ------
    SiteFailed, ReplyRejected : as `packed`; the latter also for a number that is not finite.
    """
    arrays = packed(msg, declared, site, step, lent=lent)
    for name, a in arrays.items():
        if a.dtype.kind != "f":
            arrays[name] = a.astype(np.int64) if widen and a.dtype.kind in "bi" else a
        elif not all_finite(a):
            raise ReplyRejected(
                f"site {site!r} answered {step} with numbers that are not finite in field "
                f"{name!r}, shape {a.shape}. Check the scale of that site's data, or lower the "
                f"learning rate."
            )
    return arrays


def all_finite(a: Array) -> bool:
    """Return whether all numbers are finite."""
    if isinstance(a, Product):
        return a.finite()
    if not a.ndim:
        return math.isfinite(a.item())
    if a.size > LARGE and a.flags.c_contiguous:
        flat = a.ravel()
        with np.errstate(all="ignore"):
            if math.isfinite(flat.dot(flat)):  # if not, a number is infinite or the sum overflows
                return True
    return bool(np.isfinite(a).all())


class Total:
    """Sum of messages, added one by one so that memory does not grow with their number."""

    def __init__(self) -> None:
        self._sums: dict[str, Array] = {}

    def add(self, site: str, arrays: Mapping[str, Array], weight: float) -> None:
        """Add `weight` times the reply of one site, field by field.

        Raises
        ------
        SiteFailed : a field has another shape than at the sites before.
        """
        for name, a in arrays.items():
            a = a if weight == 1.0 else np.asarray(weight * a)
            held = self._sums.get(name)
            if held is None:
                self._sums[name] = np.array(a)
            elif held.shape != a.shape:
                raise SiteFailed(
                    f"field {name!r} has shape {a.shape} at site {site!r} and {held.shape} at the "
                    f"sites before it; a sum needs equal shapes. Check that all sites hold the "
                    f"same columns."
                )
            elif held.ndim and held.dtype == a.dtype:
                held += a
            else:
                self._sums[name] = np.asarray(held + a)

    @property
    def arrays(self) -> dict[str, Array]:
        """The sums so far, by field."""
        return self._sums

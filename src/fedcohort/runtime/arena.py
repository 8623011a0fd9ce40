"""Named arrays between two processes of one machine: a pipe, and memory that both see.

What goes through the pipe is a record of `protocol.wire`. Arrays of `LARGE` bytes and more are laid
into shared memory beside it, and the record says where: a model of millions of parameters is copied
once a direction, however many sites it is for. Where that memory is full they go through the pipe.

The memory is anonymous and is inherited by forking: nothing of it has a name, listens or is left
behind. Whoever writes waits until what was read before is no longer needed; see `workers`.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.wire import decode, encode

#: From so many bytes on, an array goes through shared memory.
LARGE = 2**16
_ALIGN = 64


class Arena:
    """Memory that processes share which are forked from this one.

    Parameters
    ----------
    size : bytes; the system gives them only when they are written.
    """

    def __init__(self, size: int):
        self._memory = mmap.mmap(-1, size)
        self._size, self._used = size, 0

    def clear(self) -> None:
        """Begin anew: what was laid here has been read."""
        self._used = 0

    def lay(self, a: Array) -> int | None:
        """Copy an array into the memory; return where it begins, or None where it is full."""
        start = -(-self._used // _ALIGN) * _ALIGN
        if start + a.nbytes > self._size:
            return None
        self.view(start, a.dtype.str, a.shape)[...] = a
        self._used = start + a.nbytes
        return start

    def view(self, start: int, dtype: str, shape: tuple[int, ...]) -> Array:
        """Return an array that looks into the memory."""
        return np.ndarray(shape, np.dtype(dtype), self._memory, start)


@dataclass(frozen=True)
class Laid:
    """Named arrays, the large of them laid into an arena.

    Attributes
    ----------
    names : of all, in their order.
    small : those that go with the record.
    large : by name, where each begins in the arena, its type and its shape.
    """

    names: list[str]
    small: Mapping[str, Array]
    large: Mapping[str, Any]

    @classmethod
    def of(cls, arrays: Mapping[str, Array], arena: Arena) -> Laid:
        """Lay arrays into an arena, as far as it has room."""
        small: dict[str, Array] = {}
        large: dict[str, Any] = {}
        for name, a in arrays.items():
            start = arena.lay(a) if a.nbytes >= LARGE else None
            if start is None:
                small[name] = a
            else:
                large[name] = [start, a.dtype.str, list(a.shape)]
        return cls(list(arrays), small, large)

    def record(self, meta: Mapping[str, Any]) -> bytes:
        """Return the record that tells them, with a JSON-able `meta`."""
        about = {"names": self.names, "large": self.large, "meta": dict(meta)}
        return encode(self.small, about)


def unpack(record: bytes, arena: Arena) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and the meta of a record; large arrays are read-only views."""
    small, about = decode(record)
    arrays = {
        name: small[name] if name in small else _found(arena, *about["large"][name])
        for name in about["names"]
    }
    return arrays, about["meta"]


def _found(arena: Arena, start: int, dtype: str, shape: list[int]) -> Array:
    a = arena.view(start, dtype, tuple(shape))
    a.flags.writeable = False
    return a

"""Arguments of a call: arrays, numbers and text, separated so that they can be sent.

Each site gets its own copy, as over a network: a step that changes an array
in place changes neither the coordinator's nor the next site's. The same parts give the number
of bytes sent, and the checksum by which a journal identifies a call.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.federation import PerSite, at
from fedcohort.protocol.message import DTYPES
from fedcohort.protocol.wire import Malformed

#: Largest depth of nested lists and maps.
DEPTH = 32


@dataclass(frozen=True)
class Parcel:
    """Named arguments as a list of arrays, in C order, and a tree with their positions.

    Attributes
    ----------
    arrays : every array among the arguments.
    tree : the arguments, with each array replaced by its position in `arrays`.
    text : the tree as JSON, as it is sent.
    """

    arrays: tuple[Array, ...]
    tree: Mapping[str, Any]
    text: str

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Parcel:
        """Separate the arrays of arguments from the rest.

        Raises
        ------
        TypeError : an argument cannot be sent.
        """
        arrays: list[Array] = []
        tree = {name: _apart(value, name, arrays) for name, value in arguments.items()}
        return cls(tuple(arrays), tree, json.dumps(tree, separators=(",", ":")))

    @classmethod
    def read(cls, tree: object, arrays: Sequence[Array]) -> Parcel:
        """Return a received parcel, after a check of every part of its tree.

        Raises
        ------
        Malformed : `of` does not make such a tree: another kind of node, too deep, or an array is
            missing, used twice or left over.
        """
        if type(tree) is not dict:
            raise Malformed("arguments that are no map.")
        places = iter(range(len(arrays)))
        for value in cast("dict[str, Any]", tree).values():
            _check(value, places, DEPTH)
        if next(places, None) is not None:
            raise Malformed("an array that is no argument.")
        known = cast("dict[str, Any]", tree)
        return cls(tuple(arrays), known, json.dumps(known, separators=(",", ":")))

    def open(self) -> dict[str, Any]:
        """Return the arguments, with arrays of their own."""
        held = self.arrays
        return {
            name: _together(value, held) if type(value) is dict else value
            for name, value in self.tree.items()
        }

    @cached_property
    def nbytes(self) -> int:
        """Number of bytes sent."""
        return len(self.text) + sum(a.nbytes for a in self.arrays)

    def checksum(self, mark: int) -> int:
        """Return the CRC-32 of types, shapes and contents, continued from `mark`."""
        mark = zlib.crc32(self.text.encode(), mark)
        for a in self.arrays:
            mark = zlib.crc32(f"{a.dtype.str}{a.shape}".encode(), mark)
            mark = zlib.crc32(a.data if a.size else b"", mark)
        return mark


class Arguments:
    """Arguments of one call, at each of its sites.

    Parameters
    ----------
    given : by name; a `per_site` value differs between sites.
    sites : sites of the call.
    """

    def __init__(self, given: Mapping[str, Any], sites: Sequence[str]):
        apart = any(isinstance(v, PerSite) for v in given.values())
        self._common = None if apart else Parcel.of(given)
        self._own = {s: Parcel.of(at(s, given)) for s in sites} if apart else {}

    @classmethod
    def received(cls, parcels: Mapping[str, Parcel]) -> Arguments:
        """Return the arguments from parcels, by site, of another process of this machine."""
        made = cls({}, ())
        made._common, made._own = None, dict(parcels)
        return made

    def _parcel(self, site: str) -> Parcel:
        return self._own[site] if self._common is None else self._common

    def at(self, site: str) -> dict[str, Any]:
        """Return the arguments that one site receives."""
        return self._parcel(site).open()

    @property
    def common(self) -> bool:
        """Whether all sites receive the same."""
        return self._common is not None

    def nbytes(self, site: str) -> int:
        """Number of bytes sent to one site."""
        return self._parcel(site).nbytes

    def parcel(self, site: str) -> Parcel:
        """Return the parcel of one site; it is the same object for all sites if nothing differs."""
        return self._parcel(site)

    def checksum(self, mark: int) -> int:
        """Return the CRC-32 of what all sites receive, continued from `mark`."""
        if self._common is not None:
            return self._common.checksum(mark)
        for site, parcel in self._own.items():
            mark = parcel.checksum(zlib.crc32(site.encode(), mark))
        return mark


def _check(value: Any, places: Iterator[int], depth: int) -> None:
    """Check one node of a tree; `places` counts the arrays, which must be in order."""
    if value is None or type(value) in (bool, int, float, str):
        return
    if type(value) is not dict or len(node := cast("dict[str, Any]", value)) != 1 or depth == 0:
        raise Malformed("an argument that is no node of one kind, or too deep.")
    ((kind, inner),) = node.items()
    if kind == "array" and type(inner) is int:
        if inner != next(places, None):
            raise Malformed("an argument names an array out of order.")
    elif kind in ("list", "tuple") and type(inner) is list:
        for part in cast("list[Any]", inner):
            _check(part, places, depth - 1)
    elif kind == "map" and type(inner) is dict:
        for part in cast("dict[str, Any]", inner).values():
            _check(part, places, depth - 1)
    else:
        raise Malformed("an argument of a kind that is unknown.")


def _apart(value: Any, name: str, arrays: list[Array]) -> Any:
    """Return `value` as JSON with arrays replaced by positions; append the arrays to `arrays`."""
    if isinstance(value, np.ndarray) and value.dtype in DTYPES:
        arrays.append(np.asarray(value, order="C"))
        return {"array": len(arrays) - 1}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        items = enumerate(cast("Sequence[Any]", value))
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_apart(v, f"{name}[{i}]", arrays) for i, v in items]}
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {"map": {str(k): _apart(v, f"{name}[{k!r}]", arrays) for k, v in pairs}}
    kind = str(value.dtype) if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(
        f"argument {name} is of type {kind}, which cannot be sent to a site. Send arrays of "
        f"{', '.join(sorted(d.name for d in DTYPES))}, numbers, text, and lists or maps of these."
    )


def _together(value: Any, arrays: Sequence[Array]) -> Any:
    """Undo `_apart`, copying the arrays."""
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = cast("dict[str, Any]", value).items()
    if kind == "array":
        return arrays[inner].copy()
    if kind == "map":
        return {k: _together(v, arrays) for k, v in inner.items()}
    items = [_together(v, arrays) for v in inner]
    return tuple(items) if kind == "tuple" else items

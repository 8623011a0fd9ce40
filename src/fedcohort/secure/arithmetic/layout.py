"""The place of each array of a reply in the summed vector of 64-bit words.

One-word fields come first (integers and coarse floats), then fine, then wide ones; of the last two
kinds the lowest words of all numbers, then the next, and so on. Floats are wide; in fields of more
than 4096 numbers fine; and coarse if the message declares a field of model parameters, of which
there may be millions (`protocol.message`). `ring` defines the kinds.

A layout holds names, shapes and types, never a number. A peer's layout is read strictly.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import Refused
from fedcohort.protocol.message import DTYPES, PARAMETER_BITS

#: The most numbers of a float field that is held in six words.
WIDE_FIELD = 4096
#: Words and fraction bits of a float, by kind of field.
COARSE, FINE, WIDE = (1, PARAMETER_BITS), (3, 96), (6, 128)
FLOATS = {"coarse": COARSE, "fine": FINE, "wide": WIDE}
#: Kinds of more than one word, in the order in which they stand in a vector.
_LONG = ("fine", "wide")
#: The most fields of a reply: layouts that a peer tells are kept, so they must be small.
FIELDS = 1024
_KINDS = {dtype.str[1:] for dtype in DTYPES}


@dataclass(frozen=True)
class Field:
    """One array of a reply.

    Attributes
    ----------
    dtype : of the array at the sites, as "f8".
    kind : "int", "uint", "coarse", "fine" or "wide".
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str

    @cached_property
    def size(self) -> int:
        """Numbers in the array."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Block:
    """Fields of one kind in a vector: the lowest words of all numbers, then the next, and so on.

    Attributes
    ----------
    start : of the block in the vector.
    places : its fields, with their numbers' places among all of the block.
    """

    kind: str
    start: int
    places: tuple[tuple[Field, int, int], ...]

    @cached_property
    def size(self) -> int:
        """Numbers in the block."""
        return self.places[-1][2]

    @cached_property
    def stop(self) -> int:
        """Where the block ends in the vector."""
        return self.start + self.size * FLOATS[self.kind][0]

    def of(self, vector: Array) -> Array:
        """Return the block's part of a vector: (words, numbers), the lowest words first."""
        return vector[self.start : self.stop].reshape(FLOATS[self.kind][0], self.size)

    def fields(self, x: Array) -> dict[str, Array]:
        """Return the block's numbers (m,) as arrays by field."""
        return {
            field.name: as_float(x[start:stop], field).reshape(field.shape)
            for field, start, stop in self.places
        }


@dataclass(frozen=True)
class Layout:
    """The vector of a reply: one-word fields, fine ones, wide ones.

    Attributes
    ----------
    fields : in the order of the reply.
    weighted : sites multiply by a weight, which turns integers into floats.
    """

    fields: tuple[Field, ...]
    weighted: bool = False

    @staticmethod
    def of(
        arrays: Mapping[str, Array], *, weighted: bool = False, coarse: Collection[str] = ()
    ) -> Layout:
        """Return the layout of a reply.

        Parameters
        ----------
        arrays : as `checked` returns them.
        coarse : names of the fields that hold parameters of a model; see `message`.

        Raises
        ------
        Refused : an array that does not hold numbers.
        """
        named = tuple(
            [(name, a.dtype.str[1:], a.shape, name in coarse) for name, a in arrays.items()]
        )
        return _layout(named, weighted)

    def joined(self, other: Layout, coarse: Collection[str] = ()) -> Layout:
        """Return the common layout of two replies of equal fields; whole and real give real.

        Parameters
        ----------
        coarse : as in `of`.
        """
        pairs = zip(self.fields, other.fields, strict=True)
        named = tuple(
            [
                (f.name, np.promote_types(f.dtype, g.dtype).str[1:], f.shape, f.name in coarse)
                for f, g in pairs
            ]
        )
        return _layout(named, self.weighted)

    def with_floats(self, names: Collection[str], coarse: Collection[str] = ()) -> Layout:
        """Return the layout with some whole fields made real.

        Parameters
        ----------
        coarse : as in `of`.
        """

        def dtype(f: Field) -> str:
            return "f8" if f.name in names and f.dtype[0] != "f" else f.dtype

        named = tuple([(f.name, dtype(f), f.shape, f.name in coarse) for f in self.fields])
        return _layout(named, self.weighted)

    @cached_property
    def ones(self) -> tuple[tuple[Field, int, int], ...]:
        """One-word fields, with the words between which each lies."""
        return _places([f for f in self.fields if f.kind not in _LONG])

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The fields of several words, one block for each kind that there is."""
        found: list[Block] = []
        start = self.single
        for kind in _LONG:
            if places := _places([f for f in self.fields if f.kind == kind]):
                found.append(Block(kind, start, places))
                start = found[-1].stop
        return tuple(found)

    @cached_property
    def single(self) -> int:
        """Words of the one-word fields."""
        return sum(f.size for f, _, _ in self.ones)

    @cached_property
    def words(self) -> int:
        """Length of the vector."""
        return self.blocks[-1].stop if self.blocks else self.single

    @cached_property
    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """By field, dtype and shape."""
        return {f.name: (f.dtype, f.shape) for f in self.fields}

    def to_meta(self) -> dict[str, Any]:
        """Return what `from_meta` reads, for JSON."""
        fields = [[f.name, f.dtype, list(f.shape), f.kind == "coarse"] for f in self.fields]
        return {"weighted": self.weighted, "fields": fields}

    @staticmethod
    def from_meta(meta: Any) -> Layout:
        """Return the layout that `to_meta` told.

        Raises
        ------
        Refused : it is none.
        """
        try:
            weighted, fields = meta["weighted"], meta["fields"]
            named = tuple([(name, dtype, tuple(shape), own) for name, dtype, shape, own in fields])
            sound = type(weighted) is bool and len(named) <= FIELDS
            sound = sound and all(
                type(name) is str
                and len(name) <= 256
                and len(shape) <= 32
                and dtype in _KINDS
                and all(type(n) is int and 0 <= n < 2**40 for n in shape)
                and type(own) is bool
                for name, dtype, shape, own in named
            )
        except (TypeError, ValueError, KeyError):
            sound, named, weighted = False, (), False
        if not sound or len({name for name, *_ in named}) != len(named):
            raise Refused("secure", "a masked reply's layout is malformed. Update both ends.")
        return _layout(named, weighted)


def _places(fields: Sequence[Field]) -> tuple[tuple[Field, int, int], ...]:
    places: list[tuple[Field, int, int]] = []
    start = 0
    for f in fields:
        places.append((f, start, start + f.size))
        start += f.size
    return tuple(places)


@lru_cache(256)
def _layout(named: tuple[tuple[str, str, tuple[int, ...], bool], ...], weighted: bool) -> Layout:
    fields: list[Field] = []
    for name, dtype, shape, coarse in named:
        if dtype not in _KINDS:
            raise Refused(
                "secure",
                f"field {name!r} has dtype {dtype}, which cannot be summed exactly. Convert it to "
                f"float64 or int64.",
            )
        if dtype[0] == "f" or weighted:
            long = "coarse" if coarse else "fine"
            kind = long if math.prod(shape) > WIDE_FIELD else "wide"
        else:
            kind = "uint" if dtype == "u8" else "int"
        fields.append(Field(name, shape, dtype, kind))
    return Layout(tuple(fields), weighted)


def as_float(a: Array, field: Field) -> Array:
    """Return float64 in the type that a field has at the sites: float32 or float64."""
    return a.astype(np.float32) if field.dtype == "f4" else a

"""Named arrays as whole numbers, so that a sum is exact, has no order, and can be masked.

A reply becomes one vector of 64-bit words. With n sites and x the number that a site adds:

    integers    k = x                 one word, in Z/2^64                    |Σ x| < 2^63
    coarse      k = round(2^28 x)     one word, in Z/2^64                    |Σ x| < 2^35
    fine        k = round(2^96 x)     three words, in Z/2^192, with carries  |Σ x| < 2^95
    wide        k = round(2^128 x)    six words, in Z/2^384, with carries    |Σ x| < 2^255

Negative k are in two's complement. Floats are wide; in fields of more than 4096 numbers they are
fine, and coarse where the message declares that the field holds the parameters of a model, of which
there may be millions (`protocol.message`).

Each rounding is off by at most half a unit, so the sum of n sites by at most n·2^-29, n·2^-97 or
n·2^-129 (`error`); what `decode` returns is besides rounded to a float, to within one unit in its
last place. Addition is that of a group: the words of masked vectors tell the sum and nothing else.

A site checks its own numbers against 1/n of the range, so no sum wraps around. Nothing is revealed
here: a refusal names a field and the limit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
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
_FLOATS = {"coarse": COARSE, "fine": FINE, "wide": WIDE}
#: Kinds of more than one word, in the order in which they stand in a vector.
_LONG = ("fine", "wide")
#: The most sites of a sum.
SITES = 2**15

_WORD = np.dtype("<u8")
_KINDS = {dtype.str[1:] for dtype in DTYPES}
#: A float beyond which (exclusive) the absolute value of a sum must not lie, by kind of field.
_RANGE = {"int": 2.0**63, "uint": 2.0**64} | {
    kind: 2.0 ** (64 * words - 1 - bits) for kind, (words, bits) in _FLOATS.items()
}
#: The most fields of a reply: layouts that a peer tells are kept, so they must be small.
FIELDS = 1024


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
        return self.start + self.size * _FLOATS[self.kind][0]

    def of(self, vector: Array) -> Array:
        """Return the block's part of a vector: (words, numbers), the lowest words first."""
        return vector[self.start : self.stop].reshape(_FLOATS[self.kind][0], self.size)

    def fields(self, x: Array) -> dict[str, Array]:
        """Return the block's numbers (m,) as arrays by field."""
        return {
            field.name: _as_float(x[start:stop], field).reshape(field.shape)
            for field, start, stop in self.places
        }


@dataclass(frozen=True)
class Layout:
    """Where each field of a reply stands in the vector: one-word fields, fine ones, wide ones.

    Attributes
    ----------
    fields : in the order of the reply.
    weighted : whether sites multiply by a weight, under which integers become floats.
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


def encode(arrays: Mapping[str, Array], layout: Layout, *, n: int, weight: float = 1.0) -> Array:
    """Return a reply as one vector, uint64 (layout.words,).

    Parameters
    ----------
    arrays : of the fields and shapes of `layout`.
    n : the most replies that are summed: a number may take 1/n of the range.
    weight : that the floats are multiplied by; other than 1 only with a weighted layout.

    Raises
    ------
    Refused : another field, shape or type than in the layout; a number that is not finite or is
        beyond its range.
    """
    if not 1 <= n <= SITES:
        raise Refused("secure", f"a sum of {n} replies; one of 1 to {SITES} can be formed.")
    if weight != 1.0 and not layout.weighted:
        raise Refused("secure", "a weight was given for a sum without weights.")
    found = {name: (a.dtype.str[1:], a.shape) for name, a in arrays.items()}
    if found != layout.shapes:
        raise Refused("secure", f"a reply of {_outline(found)}, not {_outline(layout.shapes)}.")
    out = np.empty(layout.words, _WORD)
    for field, start, stop in layout.ones:
        _encode_one(arrays[field.name], field, n, weight, out[start:stop])
    for block in layout.blocks:
        parts = [arrays[field.name].ravel() for field, _, _ in block.places]
        x = parts[0] if len(parts) == 1 else np.concatenate(parts, dtype=np.float64)
        if x.dtype != np.float64:
            x = x.astype(np.float64)
        if weight != 1.0:
            with np.errstate(over="ignore"):
                x = x * weight
        if x.size:
            _encode_long(x, block, n, block.of(out))
    return out


def _outline(shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name}: {dtype} {shape}" for name, (dtype, shape) in shapes.items())


def _beyond(field: Field, n: int) -> Refused:
    return Refused(
        "secure",
        f"field {field.name!r} holds a number that is not finite or is beyond "
        f"{_RANGE[field.kind] / n:.3g}, the limit of a sum over {n} sites. Scale the data, or set "
        f"privacy.secure_aggregation to false.",
    )


def _encode_one(a: Array, field: Field, n: int, weight: float, out: Array) -> None:
    """Write a one-word field."""
    if not a.size:
        return
    if field.kind == "coarse":
        with np.errstate(over="ignore"):
            x = np.multiply(a.ravel(), weight * 2.0 ** COARSE[1], dtype=np.float64)
        limit = 2.0**63 / n
        if not (x.max() < limit and x.min() > -limit):
            raise _beyond(field, n)
        out[:] = np.rint(x, out=x).astype(np.int64).view(_WORD)
        return
    most = (2**64 - 1) // n if field.kind == "uint" else (2**63 - 1) // n
    if n > 1 and (int(a.max()) > most or int(a.min()) < -most):
        raise _beyond(field, n)
    wide = a.ravel().astype(np.uint64 if field.kind == "uint" else np.int64, copy=False)
    out[:] = wide.view(_WORD)


def _encode_long(x: Array, block: Block, n: int, out: Array) -> None:
    """Write numbers of several words each: |x| first, and the sign after."""
    rest = np.abs(x)
    limit = _RANGE[block.kind] / n
    if not rest.max() < limit:
        for field, start, stop in block.places:
            if field.size and not rest[start:stop].max() < limit:
                raise _beyond(field, n)
    write(rest, _FLOATS[block.kind][1], out)
    below = x < 0.0
    if below.any():
        _negate(out, below)


def write(rest: Array, bits: int, out: Array) -> None:
    """Write numbers ≥ 0 with so many fraction bits as words (words, …), the lowest first.

    Parameters
    ----------
    rest : float64, within the range of the words; used up.
    """
    words = len(out)
    rest *= 2.0 ** (bits - 64 * (words - 1))  # exact, as are all steps before the last `rint`
    for i in range(words - 1, 0, -1):
        part = np.floor(rest)
        out[i] = part
        rest -= part
        rest *= 2.0**64
    out[0] = np.rint(rest, out=rest)


def fewest(most: float, kind: str, n: int) -> tuple[int, int] | None:
    """Return words and fraction bits that n numbers of at most |most| and their sum fit into.

    Where that is fewer words than those of the kind, the others would only repeat the sign.
    None: beyond the range of the kind, or not finite.
    """
    words, bits = _FLOATS[kind]
    if not most < _RANGE[kind] / n:
        return None
    used = -(-(bits + 2 + math.frexp(n * most)[1]) // 64)
    return max(1, min(words, used)), bits


def _negate(block: Array, where: Array) -> None:
    """Negate numbers (words, m) of a ring: all bits turned, and one added."""
    np.invert(block, out=block, where=where)
    carry = where
    for row in block:
        row += carry
        carry = carry & (row == 0)


def zeros(layout: Layout) -> Array:
    """Return the vector of a sum of no replies."""
    return np.zeros(layout.words, _WORD)


def add(total: Array, vector: Array, layout: Layout) -> Array:
    """Add a vector to a total, in place, each number in its ring; return the total."""
    total[: layout.single] += vector[: layout.single]
    for mine, its in _pairs(total, vector, layout):
        mine += its
        carry, above = (mine < its)[:-1], mine[1:]
        above += carry
        carry &= above == 0  # of numbers that are all but uniform, hardly ever: row by row then
        if carry.any():
            for i in range(1, len(above)):
                above[i] += carry[i - 1]
                carry[i] |= carry[i - 1] & (above[i] == 0)
    return total


def subtract(total: Array, vector: Array, layout: Layout) -> Array:
    """Take a vector from a total, in place, each number in its ring; return the total."""
    total[: layout.single] -= vector[: layout.single]
    for mine, its in _pairs(total, vector, layout):
        borrow, above = (mine < its)[:-1], mine[1:]
        mine -= its
        wraps = borrow & (above == 0)
        above -= borrow
        if wraps.any():
            for i in range(1, len(above)):
                wraps[i] |= wraps[i - 1] & (above[i] == 0)
                above[i] -= wraps[i - 1]
    return total


def _pairs(total: Array, vector: Array, layout: Layout) -> Iterator[tuple[Array, Array]]:
    return ((block.of(total), block.of(vector)) for block in layout.blocks)


def decode(total: Array, layout: Layout) -> dict[str, Array]:
    """Return the sum as arrays: int64 or uint64 for integers without weights, else floats.

    Raises
    ------
    Refused : a total that is no vector of this layout.
    """
    if total.dtype != _WORD or total.shape != (layout.words,):
        raise Refused("secure", f"a total of {total.size} words; its layout has {layout.words}.")
    arrays: dict[str, Array] = {field.name: total for field in layout.fields}  # their order
    for field, start, stop in layout.ones:
        a = total[start:stop]
        if field.kind == "int":
            a = a.view(np.int64).copy()
        elif field.kind == "uint":
            a = a.astype(np.uint64)
        else:
            a = _as_float(a.view(np.int64) * 2.0 ** -COARSE[1], field)
        arrays[field.name] = a.reshape(field.shape)
    for block in layout.blocks:
        x = read(block.of(total).copy(), _FLOATS[block.kind][1])
        arrays |= block.fields(x)
    return arrays


def _as_float(a: Array, field: Field) -> Array:
    return a.astype(np.float32 if field.dtype == "f4" else np.float64)


def read(block: Array, bits: int) -> Array:
    """Return numbers (words, m) with so many fraction bits as floats (m,); it uses the words up."""
    below = block[-1].view(np.int64) < 0
    if below.any():
        _negate(block, below)
    x = np.zeros(block.shape[1])
    for i, row in enumerate(block):
        x += row * 2.0 ** (64 * i - bits)
    np.negative(x, out=x, where=below)
    return x


def error(layout: Layout, n: int) -> dict[str, float]:
    """Return, by field, how far the sum of n replies may be from the exact sum.

    Before it is rounded to a float, and without the rounding of weight times reply at a site.
    """
    units = {kind: 2.0 ** -(bits + 1) for kind, (_, bits) in _FLOATS.items()}
    return {field.name: n * units.get(field.kind, 0.0) for field in layout.fields}

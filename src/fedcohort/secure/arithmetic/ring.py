"""Named arrays as whole numbers, whose sum is exact, has no order and can be masked.

A reply becomes one vector of 64-bit words. With n sites and x the number that a site adds:

    integers    k = x                 one word, in Z/2^64                    |Σ x| < 2^63
    coarse      k = round(2^28 x)     one word, in Z/2^64                    |Σ x| < 2^35
    fine        k = round(2^96 x)     three words, in Z/2^192, with carries  |Σ x| < 2^95
    wide        k = round(2^128 x)    six words, in Z/2^384, with carries    |Σ x| < 2^255

Negative k are in two's complement. `layout` chooses a field's kind.

Each rounding errs by at most half a unit, the sum of n sites by at most n·2^-29, n·2^-97 or
n·2^-129 (`error`); `decode` also rounds to a float, within one unit in its last place. Addition is
that of a group: the words of masked vectors reveal the sum and nothing else.

A site checks its own numbers against 1/n of the range, so no sum wraps around. Revealed: nothing; a
refusal names a field and the limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from fedcohort.arrays import Array, Product
from fedcohort.protocol.errors import Refused
from fedcohort.secure.arithmetic.layout import COARSE, FLOATS, Block, Field, Layout, as_float

#: The most sites of a sum.
SITES = 2**15

#: Coarse numbers that are encoded at a time: 256 KiB, which stay near the processor.
CHUNK = 2**15

_WORD = np.dtype("<u8")
#: A float whose last bit is worth one unit of a coarse number, its bits as an integer, and what a
#: number must be below in absolute value for that to hold of their sum as well.
_SHIFT = 1.5 * 2.0 ** (52 - COARSE[1])
_SHIFTED = np.float64(_SHIFT).view(np.int64)
_NEAR = _SHIFT / 3
#: A float beyond which (exclusive) the absolute value of a sum must not lie, by kind of field.
_RANGE = {"int": 2.0**63, "uint": 2.0**64} | {
    kind: 2.0 ** (64 * words - 1 - bits) for kind, (words, bits) in FLOATS.items()
}


def encode(arrays: Mapping[str, Array], layout: Layout, *, n: int, weight: float = 1.0) -> Array:
    """Return a reply as one vector, uint64 (layout.words,).

    Parameters
    ----------
    arrays : of the fields and shapes of `layout`.
    n : most replies of a sum: a number may take 1/n of the range.
    weight : factor of the floats; other than 1 only with a weighted layout.

    Raises
    ------
    Refused : another field, shape or type than in the layout; a number that is not finite or is
        beyond
        its range.
    """
    _check(arrays, layout, n, weight)
    out = np.empty(layout.words, _WORD)
    for field, start, stop in layout.ones:
        _encode_one(arrays[field.name], field, n, weight, out[start:stop])
    for block, x in _floats(arrays, layout, weight):
        _encode_long(x, block, n, block.of(out))
    return out


def collect(
    total: Array, arrays: Mapping[str, Array], layout: Layout, n: int, weight: float = 1.0
) -> Iterator[tuple[Block, Array]]:
    """Add a reply's one-word fields to a total, in place; yield the numbers (m,) of each block.

    Parameters and exceptions are those of `encode`; after an exception the total is unusable.
    """
    _check(arrays, layout, n, weight)
    for field, start, stop in layout.ones:
        _encode_one(arrays[field.name], field, n, weight, total[start:stop], onto=True)
    yield from _floats(arrays, layout, weight)


def _check(arrays: Mapping[str, Array], layout: Layout, n: int, weight: float) -> None:
    """Refuse what is no reply of a layout, or no sum that can be formed."""
    if not 1 <= n <= SITES:
        raise Refused("secure", f"a sum of {n} replies; one of 1 to {SITES} can be formed.")
    if weight != 1.0 and not layout.weighted:
        raise Refused("secure", "a weight was given for a sum without weights.")
    found = {name: (a.dtype.str[1:], a.shape) for name, a in arrays.items()}
    if found != layout.shapes:
        raise Refused("secure", f"a reply of {_outline(found)}, not {_outline(layout.shapes)}.")


def _floats(
    arrays: Mapping[str, Array], layout: Layout, weight: float
) -> Iterator[tuple[Block, Array]]:
    """Return the numbers of each block that has any, weighted."""
    for block in layout.blocks:
        parts = [arrays[field.name].ravel() for field, _, _ in block.places]
        x = parts[0] if len(parts) == 1 else np.concatenate(parts, dtype=np.float64)
        if x.dtype != np.float64:
            x = x.astype(np.float64)
        if weight != 1.0:
            with np.errstate(over="ignore"):
                x = x * weight
        if x.size:
            yield block, x


def _outline(shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name}: {dtype} {shape}" for name, (dtype, shape) in shapes.items())


def _beyond(field: Field, n: int) -> Refused:
    return Refused(
        "secure",
        f"field {field.name!r} holds a number that is not finite or is beyond "
        f"{_RANGE[field.kind] / n:.3g}, the limit of a sum over {n} sites. Scale the data, or set "
        f"privacy.secure_aggregation to false.",
    )


def _encode_one(
    a: Array, field: Field, n: int, weight: float, out: Array, *, onto: bool = False
) -> None:
    """Write a one-word field, or add it to what is there."""
    if not a.size:
        return
    if field.kind == "coarse":
        flat = a if isinstance(a, Product) else a.ravel()
        _encode_coarse(flat, field, n, weight, out.view(np.int64), onto)
        return
    most = (2**64 - 1) // n if field.kind == "uint" else (2**63 - 1) // n
    if n > 1 and (int(a.max()) > most or int(a.min()) < -most):
        raise _beyond(field, n)
    wide = a.ravel().astype(np.uint64 if field.kind == "uint" else np.int64, copy=False)
    if onto:
        out += wide.view(_WORD)
    else:
        out[:] = wide.view(_WORD)


def _encode_coarse(
    a: Array | Product, field: Field, n: int, weight: float, out: Array, onto: bool
) -> None:
    """Write coarse numbers (m,), or add them, as many at a time as the processor holds.

    Beside `_SHIFT` the last bit of a number is one unit, so adding `_SHIFT` rounds as `rint` does,
    and
    the bits of the two floats differ by k. No number exceeds the norm of all, so one product checks
    the range of all.
    """
    limit, near = 2.0**63 / n, min(_NEAR, _RANGE["coarse"] / n) ** 2 / 2
    as_given = weight == 1.0 and a.dtype == np.float64
    # a product knows about its norm: with room for how its type sums
    all_near = isinstance(a, Product) and 4.0 * a.square * weight * weight < near
    room = np.empty(min(CHUNK, a.size))
    whole = room.view(np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, a.size, CHUNK):
            here = out[start : start + CHUNK]
            x, k = room[: here.size], whole[: here.size]
            part = a.read(start, x) if isinstance(a, Product) else a[start : start + CHUNK]
            if not as_given:
                part = np.multiply(part, weight, out=x, dtype=np.float64)
            if all_near or part.dot(part) < near:
                np.add(part, _SHIFT, out=x)
                k -= _SHIFTED
            else:
                np.multiply(part, 2.0 ** COARSE[1], out=x)
                if not (x.max() < limit and x.min() > -limit):
                    raise _beyond(field, n)
                k[:] = np.rint(x, out=x).astype(np.int64)
            if onto:
                here += k
            else:
                here[:] = k


def limit(kind: str, n: int) -> float:
    """Return what a number of a field of that kind must be below, in a sum of n replies."""
    return _RANGE[kind] / n


def largest(x: Array, block: Block, n: int) -> float:
    """Return the largest |x| of a block's numbers (m,).

    Raises
    ------
    Refused : a number is not finite or is beyond its range; the field is named.
    """
    most = max(float(x.max()), -float(x.min()))
    if not most < limit(block.kind, n):
        for field, start, stop in block.places:
            if field.size and not np.abs(x[start:stop]).max() < limit(block.kind, n):
                raise _beyond(field, n)
    return most


def _encode_long(x: Array, block: Block, n: int, out: Array) -> None:
    """Write numbers of several words each: |x| first, and the sign after.

    All steps before the last `rint` are exact.
    """
    largest(x, block, n)
    words, bits = FLOATS[block.kind]
    rest = np.abs(x)
    rest *= 2.0 ** (bits - 64 * (words - 1))
    for i in range(words - 1, 0, -1):
        part = np.floor(rest)
        out[i] = part
        rest -= part
        rest *= 2.0**64
    out[0] = np.rint(rest, out=rest)
    below = x < 0.0
    if below.any():
        _negate(out, below)


def _negate(block: Array, where: Array) -> None:
    """Negate numbers (words, m) of a ring: all bits turned, and one added."""
    turn = where.astype(_WORD)
    block ^= -turn  # all bits where `where` is, and none elsewhere
    block[0] += turn
    carry = where & (block[0] == 0)
    if carry.any():  # of numbers that are all but uniform, hardly ever
        for row in block[1:]:
            row += carry
            carry = carry & (row == 0)


def zeros(layout: Layout) -> Array:
    """Return the vector of a sum of no replies."""
    return np.zeros(layout.words, _WORD)


def add(total: Array, vector: Array, layout: Layout) -> Array:
    """Add a vector to a total, in place, each number in its ring; return the total."""
    total[: layout.single] += vector[: layout.single]
    for mine, its in _pairs(total, vector, layout):
        plus(mine, its)
    return total


def plus(mine: Array, its: Array) -> None:
    """Add numbers (words, m) of a ring to others, in place."""
    mine += its
    carry, above = (mine < its)[:-1], mine[1:]
    above += carry
    carry &= above == 0  # of numbers that are all but uniform, hardly ever: row by row then
    if carry.any():
        for i in range(1, len(above)):
            above[i] += carry[i - 1]
            carry[i] |= carry[i - 1] & (above[i] == 0)


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


def decode(total: Array, layout: Layout, but: Collection[str] = ()) -> dict[str, Array]:
    """Return the sum as arrays: int64 or uint64 for integers without weights, else floats.

    Parameters
    ----------
    but : kinds of blocks that are not read.

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
            a = a.view(np.int64).astype(np.float64)
            a *= 2.0 ** -COARSE[1]
            a = as_float(a, field)
        arrays[field.name] = a.reshape(field.shape)
    for block in layout.blocks:
        if block.kind in but:
            continue
        x = read(block.of(total).copy(), FLOATS[block.kind][1])
        arrays |= block.fields(x)
    return arrays


def convert(vector: Array, layout: Layout, wanted: Layout, *, n: int = 1) -> Array:
    """Return a vector in another layout, where whole fields may be real; no number changes.

    So replies that are whole at one site and real at another have one sum in any order. Only a
    coarse
    field cannot hold every whole number.

    Parameters
    ----------
    wanted : of the same fields and shapes.
    n : most vectors of a sum.

    Raises
    ------
    Refused : other fields or shapes, a real field that would become whole, or whole numbers beyond
        the
        range of a coarse field.
    """
    kinds = {f.name: f.kind for f in layout.fields}
    if [(f.name, f.shape) for f in layout.fields] != [(f.name, f.shape) for f in wanted.fields]:
        raise Refused(
            "secure", f"a reply of {_outline(layout.shapes)}, not {_outline(wanted.shapes)}."
        )
    out = np.zeros(wanted.words, _WORD)
    given, made = _views(vector, layout), _views(out, wanted)
    for field in wanted.fields:
        was = kinds[field.name]
        if was == field.kind:
            made[field.name][...] = given[field.name]
        elif was in FLOATS or field.kind not in FLOATS:
            raise Refused("secure", f"field {field.name!r} is of kind {was}, not {field.kind}.")
        else:
            _scale(given[field.name][0], was == "int", field, n, made[field.name])
    return out


def _views(vector: Array, layout: Layout) -> dict[str, Array]:
    """Return each field's words (words, numbers) in a vector, the lowest first."""
    found = {f.name: vector[start:stop][None] for f, start, stop in layout.ones}
    for block in layout.blocks:
        words = block.of(vector)
        found |= {f.name: words[:, start:stop] for f, start, stop in block.places}
    return found


def _scale(whole: Array, signed: bool, field: Field, n: int, out: Array) -> None:
    """Write whole numbers (m,), of one word, times 2^bits as words (words, m)."""
    words, bits = FLOATS[field.kind]
    if words == 1:
        x = whole.view(np.int64) if signed else whole
        if x.size and not max(abs(int(x.max())), abs(int(x.min()))) < _RANGE[field.kind] / n:
            raise _beyond(field, n)
    above = whole.view(np.int64) >> 63 if signed else np.zeros(len(whole), np.int64)
    parts = [whole, *[above.view(_WORD)] * words]
    skip, shift = divmod(bits, 64)
    for i in range(skip, words):
        out[i] = parts[i - skip] << np.uint64(shift)
        if shift and i > skip:
            out[i] |= parts[i - skip - 1] >> np.uint64(64 - shift)


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
    """Return, by field, a bound of the error of the sum of n replies.

    It excludes the final rounding to a float and the rounding of weight times reply at a site.
    """
    units = {kind: 2.0 ** -(bits + 1) for kind, (_, bits) in FLOATS.items()}
    return {field.name: n * units.get(field.kind, 0.0) for field in layout.fields}

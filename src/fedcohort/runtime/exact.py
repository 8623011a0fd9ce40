"""Exact sums of replies that the coordinator sees: the same bits as their masked sum.

Numbers are rounded to whole units (`secure.arithmetic.ring`) and added, so neither the order of the
sites nor the runtime changes a bit. Small replies are added together once all have come (a call's
time is its number of array operations); large ones are added one by one, to bound memory.

A float x of a field with b fraction bits is written in digits of r bits that may be negative,

    2^b x = Σ_i d_i 2^(r i)  rounded to whole units,   |d_i| ≤ 2^(r−1) but for the last,

each of which is added as an int64: n digits need log₂ n bits more. Words are formed of the totals.

Revealed: nothing beyond the replies.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import Refused
from fedcohort.secure import Layout, ring

#: Replies of at most this many numbers are encoded together.
SMALL = 4096
#: Numbers of a large reply that are added at a time, which stay near the processor.
PIECE = 2**13
#: Bits of a digit, and of the last: n of them are below 2⁶³, and a digit is exact in a float.
_DIGIT, _LAST = 52, 62


class ExactTotal:
    """The exact sum of replies of equal shapes.

    Parameters
    ----------
    n : number of asked sites; a number may take 1/n of the range.
    weighted : replies are multiplied by weights, which turns integers into floats.
    coarse : fields that hold parameters of a model.
    """

    def __init__(self, n: int, *, weighted: bool, coarse: Collection[str] = ()):
        self._n, self._weighted, self._coarse = n, weighted, coarse
        self._few: list[tuple[str, Mapping[str, Array], float]] = []
        self._layout: Layout | None = None
        self._total: Array | None = None
        #: Numbers of blocks so far, (digits, m) by kind; and whether there are some in words too.
        self._digits: dict[str, Array] = {}
        self._mixed = False

    def add(self, site: str, arrays: Mapping[str, Array], weight: float) -> None:
        """Add `weight` times the reply of one site.

        Raises
        ------
        Refused : a number is beyond its range; the site and the field are named.
        """
        if self._total is None and sum(a.size for a in arrays.values()) <= SMALL:
            self._few.append((site, arrays, weight))
        else:
            self._add(site, arrays, weight)

    @property
    def arrays(self) -> dict[str, Array]:
        """The sums so far, by field."""
        few, self._few = self._few, []
        if few and self._total is None and (found := self._together(few)) is not None:
            self._few = few
            return found
        for one in few:
            self._add(*one)
        if self._layout is None or self._total is None:
            return {}
        if self._mixed:
            self._carry()
        found = ring.decode(self._total, self._layout, but=self._digits)
        for block in self._layout.blocks:
            if (digits := self._digits.get(block.kind)) is not None:
                found |= block.fields(_read(digits, block.kind, self._n))
        return found

    def _carry(self) -> None:
        """Add the digits so far to the words."""
        assert self._layout is not None
        assert self._total is not None
        for block in self._layout.blocks:
            if (digits := self._digits.pop(block.kind, None)) is not None:
                words = block.of(self._total)
                ring.plus(words, _words(digits, len(words), _width(self._n)))

    def _add(self, site: str, arrays: Mapping[str, Array], weight: float) -> None:
        """Add one reply. A field that is whole at one site and real at another is real."""
        layout = Layout.of(arrays, weighted=self._weighted, coarse=self._coarse)
        try:
            if self._layout is None or self._total is None:
                self._layout, self._total = layout, ring.zeros(layout)
            if layout == self._layout:
                for block, x in ring.collect(self._total, arrays, layout, self._n, weight):
                    self._extend(block, x)
                return
            both = self._layout.joined(layout, self._coarse)
            words = ring.encode(arrays, layout, n=self._n, weight=weight)
            words = ring.convert(words, layout, both, n=self._n)
        except Refused as error:
            raise Refused(error.code, f"site {site!r}: {error}") from None
        self._mixed = True
        if both != self._layout:
            self._carry()
            self._total = ring.convert(self._total, self._layout, both)
            self._layout = both
        ring.add(self._total, words, both)

    def _extend(self, block: ring.Block, x: Array) -> None:
        """Add the numbers of a block, (m,), digit by digit."""
        width = _width(self._n)
        used = _used(ring.largest(x, block, self._n), block.kind, self._n)
        held = self._digits.get(block.kind)
        if held is None or len(held) < used:
            more = np.zeros((used, block.size), np.int64)
            if held is not None:
                more[: len(held)] = held
            self._digits[block.kind] = held = more
        for start in range(0, block.size, PIECE):
            here = slice(start, start + PIECE)
            for i, digit in _split(x[here], ring.FLOATS[block.kind][1], used, width):
                held[i, here] += digit

    def _together(
        self, few: list[tuple[str, Mapping[str, Array], float]]
    ) -> dict[str, Array] | None:
        """Return the sum of small replies; None if one must be checked by itself."""
        first = few[0][1]
        layout = Layout.of(first, weighted=self._weighted, coarse=self._coarse)
        for _, arrays, _ in few:
            for a, b in zip(arrays.values(), first.values(), strict=True):
                if a.dtype is not b.dtype and a.dtype != b.dtype:
                    return None
        found = dict.fromkeys(first, np.empty(0))  # their order
        for field, _, _ in layout.ones:
            stack = np.array([arrays[field.name] for _, arrays, _ in few])
            if field.kind == "coarse" or not stack.size:  # a small reply has no coarse field
                return None
            most = (2**64 if field.kind == "uint" else 2**63) // self._n
            if int(stack.max()) >= most or int(stack.min()) <= -most:
                return None
            kind = np.uint64 if field.kind == "uint" else np.int64
            found[field.name] = np.asarray(stack.sum(0, dtype=kind))
        for block in layout.blocks:
            if not block.size:
                return None
            names = [field.name for field, _, _ in block.places]
            parts = [arrays[name].ravel() for _, arrays, _ in few for name in names]
            x = np.concatenate(parts, dtype=np.float64).reshape(len(few), block.size)
            if self._weighted:
                x *= np.array([weight for _, _, weight in few])[:, None]
            total = _sum(x, block.kind, self._n)
            if total is None:
                return None
            found |= block.fields(total)
        return found


def _sum(x: Array, kind: str, n: int) -> Array | None:
    """Return the exact sum of numbers (k, m) → (m,), the very floats of `ring.decode`.

    None: a number is beyond its range.
    """
    most = max(float(x.max()), -float(x.min()))
    if not most < ring.limit(kind, n):
        return None
    used = _used(most, kind, n)
    digits = np.empty((used, x.shape[1]), np.int64)
    for i, digit in _split(x, ring.FLOATS[kind][1], used, _width(n)):
        digits[i] = digit.sum(0)
    return _read(digits, kind, n)


def _width(n: int) -> int:
    """Return the bits of a digit in a sum of n replies."""
    return min(_DIGIT, _LAST - (n - 1).bit_length())


def _used(most: float, kind: str, n: int) -> int:
    """Return how many digits hold n numbers of at most |most|."""
    above = ring.FLOATS[kind][1] + math.frexp(n * most)[1] - _LAST
    return 1 + max(0, -(-above // _width(n)))


def _split(x: Array, bits: int, used: int, width: int) -> Iterator[tuple[int, Array]]:
    """Yield the digits of numbers (…,), the last first; every step but the final rounding is exact.

    Rounding to the nearest leaves at most half, so what is left is a digit that may be negative.
    """
    rest = x * 2.0 ** (bits - width * (used - 1))
    whole = np.empty_like(rest)
    for i in range(used - 1, -1, -1):
        np.rint(rest, out=whole)
        yield i, whole.astype(np.int64)
        if i:
            rest -= whole
            rest *= 2.0**width


def _read(digits: Array, kind: str, n: int) -> Array:
    """Return totals in digits (d, m) as floats (m,), the very floats of `ring.decode`."""
    width, (words, bits) = _width(n), ring.FLOATS[kind]
    held = (width * (len(digits) - 1) + 63) // 64 + 1  # the other words would repeat the sign
    out = np.empty(digits.shape[1])
    for start in range(0, len(out), PIECE):
        here = slice(start, start + PIECE)
        out[here] = ring.read(_words(digits[:, here], min(words, held), width), bits)
    return out


def _words(digits: Array, words: int, width: int) -> Array:
    """Return totals in digits (d, m), the lowest first, as words (words, m) in two's complement."""
    out = np.empty((words, digits.shape[1]), np.uint64)
    part = np.empty_like(out)
    for i, digit in enumerate(digits):
        at = part if i else out
        skip, shift = divmod(width * i, 64)
        at[:skip] = 0
        if skip < words:
            at[skip] = digit.view(np.uint64) << np.uint64(shift)
        at[skip + 1 :] = (digit >> 63).view(np.uint64)
        if shift and skip + 1 < words:
            at[skip + 1] = (digit >> np.int64(64 - shift)).view(np.uint64)
        if i:
            ring.plus(out, part)
    return out

"""Exact sums of replies that the coordinator sees: the same bits as their masked sum.

Numbers are rounded to whole units (`secure.arithmetic.ring`) and added, so neither the order of the
sites nor the runtime changes a bit. Small replies are encoded together once all have come (a call's
time is its number of array operations); large ones are added one by one, to bound memory.

Revealed: nothing beyond the replies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import Refused
from fedcohort.secure import Layout, ring

#: Replies of at most this many numbers are encoded together.
SMALL = 4096
_LOW = 2**32 - 1
_HALF = np.uint64(_LOW)
_BITS = np.uint64(32)


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
        return ring.decode(self._total, self._layout)

    def _widened(self, words: Array, layout: Layout, n: int) -> Array:
        """Convert the sum so far into a layout with a vector; return the vector in it.

        A field that is whole at one site and real at another is real; no number changes
        (`ring.convert`).
        """
        assert self._layout is not None
        assert self._total is not None
        both = self._layout.joined(layout, self._coarse)
        if both != self._layout:
            self._total = ring.convert(self._total, self._layout, both)
        self._layout = both
        return ring.convert(words, layout, both, n=n)

    def _add(self, site: str, arrays: Mapping[str, Array], weight: float) -> None:
        """Encode one reply and add it."""
        layout = Layout.of(arrays, weighted=self._weighted, coarse=self._coarse)
        try:
            if layout == self._layout and self._total is not None:
                ring.collect(self._total, arrays, layout, n=self._n, weight=weight)
                return
            words = ring.encode(arrays, layout, n=self._n, weight=weight)
            if self._layout is None or self._total is None:
                self._layout, self._total = layout, words
                return
            if layout != self._layout:
                words = self._widened(words, layout, self._n)
        except Refused as error:
            raise Refused(error.code, f"site {site!r}: {error}") from None
        ring.add(self._total, words, self._layout)

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

    None: a number is beyond its range. Half words of |x| are added with x's sign, then their
    carries,
    in as few words as hold the sum.
    """
    rest = np.abs(x)
    form = ring.fewest(float(rest.max()), kind, n)
    if form is None:
        return None
    words, bits = form
    whole = np.empty((words, *x.shape), np.uint64)
    ring.write(rest, bits, whole)
    low, high = (whole & _HALF).view(np.int64), (whole >> _BITS).view(np.int64)
    below = x < 0.0
    if below.any():
        sign = np.where(below, -1, 1)
        low *= sign
        high *= sign
    lows, highs = low.sum(1), high.sum(1)
    for i in range(words):
        if i:
            lows[i] += highs[i - 1] >> 32
        highs[i] += lows[i] >> 32
    lows &= _LOW
    highs <<= 32
    return ring.read((highs | lows).view(np.uint64), bits)

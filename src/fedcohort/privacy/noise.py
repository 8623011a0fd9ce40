"""Random words for noise: from the operating system's generator, or from a study's seed.

Both are ChaCha20 key streams (RFC 8439). A system source takes a new key from the operating system
for every request and keeps no state, so a copy of the process repeats none. A seeded source reads
one stream with the key HKDF-SHA256 (RFC 5869) of its entropy: two runs of a simulation draw the
same noise. Anyone with the seed can remove that noise, so the result must not be published as
private.

NumPy's generators are not used: enough output of a general-purpose generator reveals its past and
future.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedcohort.arrays import Array

#: Separates these keys from all others that are made of the same seed.
DOMAIN: Final = b"fedcohort noise 1"
#: Words of one key and nonce: 2^32 blocks of 64 bytes are the most that the cipher allows.
SEGMENT: Final = 2**34
#: Of a word, the bits that make the exponent of a number; 52 others make its mantissa.
_EXPONENT_BITS: Final = 12


class Source:
    """Random words; `Source.system()` or `Source.seeded(...)` makes one.

    Attributes
    ----------
    reproducible : whether its words follow from a seed: then its noise hides nothing from those
        who know the seed.
    """

    def __init__(self, key: bytes | None):
        self.reproducible = key is not None
        self._key = key
        self._segment = 0
        self._left = 0
        self._stream: CipherContext | None = None

    @classmethod
    def system(cls) -> Source:
        """Return a source keyed by the operating system's generator."""
        return cls(None)

    @classmethod
    def seeded(cls, *entropy: int | str | bytes) -> Source:
        """Return a source whose words follow from the entropy, its order and its types alone."""
        encoded = b"".join(_encoded(part) for part in entropy)
        hkdf = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=DOMAIN)
        return cls(hkdf.derive(encoded))

    def words(self, n: int) -> Array:
        """Return n words (n,), uint64, uniform and independent."""
        if self._key is None:
            return _words(_stream(os.urandom(32), 0), n)
        parts: list[Array] = []
        while n > 0:
            if self._left == 0 or self._stream is None:
                self._stream = _stream(self._key, self._segment)
                self._segment += 1
                self._left = SEGMENT
            taken = min(n, self._left)
            parts.append(_words(self._stream, taken))
            self._left -= taken
            n -= taken
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)

    def uniform(self, n: int) -> Array:
        """Return n numbers (n,), uniform in (0, 1), each with 52 random bits after its first one.

        The exponent is drawn too, so that P(U < p) is p to a relative 2^-52 for a p as small as
        2^-1000. The multiples of 2^-53 that generators usually give are too coarse for the tail of
        a noise.
        """
        words = self.words(n)
        mantissa = (words >> np.uint64(_EXPONENT_BITS)).astype(np.float64) * 2.0**-52 + 1.0
        low = words & np.uint64(2**_EXPONENT_BITS - 1)
        exponent = _trailing_zeros(low)
        rest = np.flatnonzero(low == 0)
        while rest.size:
            more = self.words(rest.size) & np.uint64(2**_EXPONENT_BITS - 1)
            exponent[rest] += _trailing_zeros(more)
            rest = rest[(more == 0) & (exponent[rest] < 1000)]
        return np.ldexp(mantissa, -1 - exponent)

    def below(self, bound: int, n: int) -> Array:
        """Return n integers (n,), int64, uniform in 0 … bound − 1, for 1 ≤ bound ≤ 2^62."""
        mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
        drawn = np.empty(n, np.int64)
        filled = 0
        while filled < n:
            words = self.words(int(1.2 * (n - filled) * (int(mask) + 1) / bound) + 8) & mask
            kept = words[words < np.uint64(bound)][: n - filled].astype(np.int64)
            drawn[filled : filled + kept.size] = kept
            filled += kept.size
        return drawn


def _encoded(part: int | str | bytes) -> bytes:
    """Return a part of the entropy with its type and length, so that two lists never give equal
    bytes.
    """
    if isinstance(part, bytes):
        kind, text = b"b", part
    elif isinstance(part, str):
        kind, text = b"s", part.encode()
    else:
        kind, text = b"i", str(int(part)).encode()
    return kind + len(text).to_bytes(8, "little") + text


def _stream(key: bytes, segment: int) -> CipherContext:
    """Return the key stream of a segment, whose number is the nonce; its blocks count from 0."""
    nonce = bytes(4) + segment.to_bytes(12, "little")
    return Cipher(ChaCha20(key, nonce), mode=None).encryptor()


def _words(stream: CipherContext, n: int) -> Array:
    return np.frombuffer(stream.update(bytes(8 * n)), "<u8")


def _trailing_zeros(low: Array) -> Array:
    """Return how many of the lowest bits are 0 (all `_EXPONENT_BITS` of a 0), int64."""
    return _ZEROS[low.astype(np.int64)]


def _zeros() -> Any:
    return np.array(
        [_EXPONENT_BITS if i == 0 else (i & -i).bit_length() - 1 for i in range(2**_EXPONENT_BITS)]
    )


_ZEROS: Final[Array] = _zeros()

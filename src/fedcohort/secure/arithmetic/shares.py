"""Shares of 16-byte secrets; any t of n restore the secret (Shamir 1979, in GF(2^128)).

A share's x is its holder's place, from 1, among a roll's members in the order of their names. Fewer
than t shares reveal nothing: the polynomial's other coefficients are drawn by the operating system,
anew for each secret.

An element is a polynomial over GF(2) modulo x^128 + x^7 + x^2 + x + 1, as 16 bytes, the highest
coefficients first. Shares equal those of package `pycryptodome`, the tests' reference. There one
product takes 10 µs, and a site among 50 needs 3300 of them per sum; here all secrets of an epoch
are computed together, by exclusive-or and shifts of whole arrays. The steps depend on places and
threshold alone, so their time reveals nothing of a secret.

    shares    f(x) at x = 1 … n, by Horner's rule; f's coefficients are words of all secrets
    secrets   f(0) = Σ w_i f(x_i), w_i = Π_{j≠i} x_j / (x_j − x_i); a product with a constant is a
              matrix of bits, so f(0) is one matrix product, modulo 2
"""

from __future__ import annotations

import secrets as system
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from fedcohort.arrays import Array
from fedcohort.secure.arithmetic.keystream import SEED
from fedcohort.secure.context import refused
from fedcohort.secure.exchange.strict import MEMBERS

#: Bytes of an element; x^128 as its rest, x^7 + x^2 + x + 1.
BYTES, _REST = 16, 0x87
_BITS = 8 * BYTES


def evaluate(coefficients: Array, n: int) -> Array:
    """Return polynomials at x = 1 … n, uint8 (n, m, 16).

    Parameters
    ----------
    coefficients : uint8 (t, m, 16), of x^0 first, for m polynomials.
    n : at most 255.
    """
    words = np.ascontiguousarray(coefficients[:, :, ::-1]).view("<u8")  # (t, m, 2), low first
    terms = np.ascontiguousarray(np.moveaxis(words, 2, 1))  # (t, 2, m)
    x = np.arange(1, n + 1, dtype=np.uint64)[:, None]
    bits = [np.where(x >> np.uint64(b) & 1, ~np.uint64(0), 0) for b in range(n.bit_length())]
    value = np.repeat(terms[-1][:, None], n, axis=1)  # (2, n, m)
    for term in terms[-2::-1]:
        value = _times(value, bits)
        value ^= term[:, None]
    out = np.ascontiguousarray(np.moveaxis(value, 0, 2))  # (n, m, 2)
    return out.view(np.uint8)[:, :, ::-1]


def _times(value: Array, bits: list[Array]) -> Array:
    """Return elements (2, n, m), the low words first, times x (n, 1), given by masks of its bits.

    x has at most 8 bits, so 7 bits exceed 128, and their remainder lies in the low word.
    """
    out, over = value & bits[0], np.zeros_like(value)
    for b, mask in enumerate(bits[1:], 1):
        out ^= (value << np.uint64(b)) & mask
        over ^= (value >> np.uint64(64 - b)) & mask
    out[1] ^= over[0]
    high = over[1]
    out[0] ^= high ^ (high << np.uint64(1)) ^ (high << np.uint64(2)) ^ (high << np.uint64(7))
    return out


def at_zero(values: Array, places: tuple[int, ...]) -> Array:
    """Return polynomials of degree below t at 0, uint8 (m, 16).

    Parameters
    ----------
    values : uint8 (m, t, 16), at `places`.
    places : t different x, from 1 to 255.
    """
    m = len(values)
    bits = np.unpackbits(values.reshape(m, -1), axis=1).astype(np.float32)
    sums = bits @ _weights(places)  # whole numbers of at most 255 · 128, exact in float32
    return np.packbits(sums.astype(np.int32) & 1, axis=1).reshape(m, BYTES)


@lru_cache(8)
def _weights(places: tuple[int, ...]) -> Array:
    """Return the matrix of bits (128 t, 128) that takes the values at `places` to that at 0."""
    above, below = [1] * len(places), [1] * len(places)
    for i, own in enumerate(places):
        for j, other in enumerate(places):
            if i != j:
                above[i] = product(above[i], other)
                below[i] = product(below[i], other ^ own)
    rows = bytearray()
    for top, bottom in zip(above, below, strict=True):
        weight = product(top, inverse(bottom))
        multiples = [weight]
        for _ in range(_BITS - 1):
            multiples.append(product(multiples[-1], 2))
        rows += b"".join(m.to_bytes(BYTES, "big") for m in reversed(multiples))
    whole = np.frombuffer(bytes(rows), np.uint8).reshape(-1, BYTES)
    return np.unpackbits(whole, axis=1).astype(np.float32)


def product(a: int, b: int) -> int:
    """Return a product of two elements, as whole numbers; its time depends on b."""
    out = 0
    while b:
        if b & 1:
            out ^= a
        a <<= 1
        if a >> _BITS:
            a ^= 1 << _BITS | _REST
        b >>= 1
    return out


def inverse(a: int) -> int:
    """Return 1/a of an element other than 0, by Euclid's steps on polynomials."""
    rest, other, out, before = a, 1 << _BITS | _REST, 1, 0
    while rest != 1:
        shift = other.bit_length() - rest.bit_length()
        if shift < 0:
            rest, other, out, before, shift = other, rest, before, out, -shift
        other ^= rest << shift
        before ^= out << shift
    return out


def split(secret: bytes | bytearray, threshold: int, n: int) -> list[bytes]:
    """Return n shares of a secret, 16 bytes each, that of x = 1 first; see `split_all`."""
    return [bytes(text) for text in split_all([secret], threshold, n)]


def split_all(secrets: Sequence[bytes | bytearray], threshold: int, n: int) -> list[bytearray]:
    """Return n texts, that of x = 1 first, of the shares of all secrets in their order.

    Raises
    ------
    Refused : a secret that is not of 16 bytes, or a threshold that is not in n/2 < t ≤ n.
    """
    for secret in secrets:
        if len(secret) != SEED:
            raise refused(f"a seed of {len(secret)} bytes; {SEED} are shared.")
    if not (2 <= n <= MEMBERS and n < 2 * threshold <= 2 * n):
        raise refused(f"a threshold of {threshold} of {n} shares; more than half are needed.")
    m = len(secrets)
    texts = b"".join([*secrets, system.token_bytes((threshold - 1) * m * SEED)])
    made = evaluate(np.frombuffer(texts, np.uint8).reshape(threshold, m, SEED), n)
    return [bytearray(own.tobytes()) for own in made]


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret from shares by their x; see `combine_all`."""
    return combine_all({x: [share] for x, share in shares.items()}, threshold)[0]


def combine_all(shares: Mapping[int, Sequence[bytes]], threshold: int) -> list[bytes]:
    """Return the secrets from their holders' shares of each, in one order, by x.

    The first t holders' shares are used.

    Raises
    ------
    Refused : fewer holders than the threshold, an x out of range, a share not of 16 bytes, or
        holders with shares of different numbers of secrets.
    """
    if not 2 <= threshold <= len(shares):
        raise refused(f"{len(shares)} shares where {threshold} are needed.")
    if any(type(x) is not int or not 1 <= x <= MEMBERS for x in shares):
        raise refused("a share of nobody: its place is out of range.")
    used = sorted(shares.items())[:threshold]
    m = len(used[0][1])
    if any(len(told) != m or any(len(s) != SEED for s in told) for _, told in used):
        raise refused(f"shares of other secrets, or that are not of {SEED} bytes.")
    texts = b"".join([told[k] for k in range(m) for _, told in used])
    values = np.frombuffer(texts, np.uint8).reshape(m, threshold, SEED)
    found = at_zero(values, tuple([x for x, _ in used])).tobytes()
    return [found[SEED * k : SEED * (k + 1)] for k in range(m)]

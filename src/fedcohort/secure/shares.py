"""Shares of 16-byte secrets, any t of n of which give the secret back (Shamir 1979, in GF(2^128)).

They have the same bytes as those of package `pycryptodome`, against which they are tested. `field`
makes and combines them. A share's x is its holder's place, from 1, among
the members of a roll in the order of their names. Fewer than t shares tell nothing of the secret:
the other coefficients of its polynomial are drawn by the operating system, anew for each secret.
"""

from __future__ import annotations

import secrets as system
from collections.abc import Mapping, Sequence

import numpy as np

from fedcohort.secure import field
from fedcohort.secure.context import refused
from fedcohort.secure.keystream import SEED
from fedcohort.secure.strict import MEMBERS


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
    made = field.evaluate(np.frombuffer(texts, np.uint8).reshape(threshold, m, SEED), n)
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
    found = field.at_zero(values, tuple([x for x, _ in used])).tobytes()
    return [found[SEED * k : SEED * (k + 1)] for k in range(m)]

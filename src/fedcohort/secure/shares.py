"""Shares of 16-byte secrets, any t of n of which give the secret back (Shamir 1979, in GF(2^128)).

Package `pycryptodome` does the arithmetic; here its inputs are checked, which it does not. A
share's x is its holder's place, from 1, among the members of a roll in the order of their names.
Fewer than t shares tell nothing of the secret.
"""

from __future__ import annotations

from collections.abc import Mapping

from Crypto.Protocol.SecretSharing import Shamir

from fedcohort.secure.keystream import SEED
from fedcohort.secure.messages import MEMBERS, refused


def split(secret: bytes | bytearray, threshold: int, n: int) -> list[bytes]:
    """Return n shares of a secret, 16 bytes each, that of x = 1 first.

    Raises
    ------
    Refused : a secret that is not of 16 bytes, or a threshold that is not in n/2 < t ≤ n.
    """
    if len(secret) != SEED:
        raise refused(f"a seed of {len(secret)} bytes; {SEED} are shared.")
    if not (2 <= n <= MEMBERS and n < 2 * threshold <= 2 * n):
        raise refused(f"a threshold of {threshold} of {n} shares; more than half are needed.")
    made = Shamir.split(threshold, n, bytes(secret), False)
    return [share for _, share in made]


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret from shares by their x; the first t of them are used.

    Raises
    ------
    Refused : fewer shares than the threshold, an x out of range, or a share not of 16 bytes.
    """
    if not 2 <= threshold <= len(shares):
        raise refused(f"{len(shares)} shares where {threshold} are needed.")
    if any(type(x) is not int or not 1 <= x <= MEMBERS for x in shares):
        raise refused("a share of nobody: its place is out of range.")
    if any(len(share) != SEED for share in shares.values()):
        raise refused(f"a share that is not of {SEED} bytes.")
    return Shamir.combine(sorted(shares.items())[:threshold], False)

"""Masks and keys from short secrets, by HKDF-SHA256 (RFC 5869) and ChaCha20 (RFC 8439).

Every primitive is of package `cryptography`. Each key has one use, named by its `info`: purpose,
roll of members, slot, and pair of sites. So no two masks share a keystream, and ChaCha20 may start
at nonce and counter 0; its 32-bit counter limits a mask to 2^38 bytes.

Revealed: nothing. Python cannot guarantee that every copy of a secret leaves memory.
"""

from __future__ import annotations

import secrets

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedcohort.arrays import Array
from fedcohort.secure.context import refused

#: Bytes of a seed that is shared among the members, and of a key.
SEED, KEY = 16, 32


def fresh_seed() -> bytearray:
    """Return 16 bytes of the operating system's generator, in memory that can be overwritten."""
    return bytearray(secrets.token_bytes(SEED))


def erase(secret: bytearray) -> None:
    """Overwrite a secret in place."""
    secret[:] = bytes(len(secret))


def derive(secret: bytes | bytearray, salt: bytes, *info: bytes | str, size: int = KEY) -> bytes:
    """Return a key for one purpose, HKDF-SHA256(secret, salt, info).

    Parameters
    ----------
    secret : at least 16 bytes.
    info : parts that name the purpose, each preceded by its length.

    Raises
    ------
    Refused : a shorter secret.
    """
    if len(secret) < SEED:
        raise refused(f"a seed of {len(secret)} bytes; masks come from at least {SEED}.")
    parts = [part.encode() if isinstance(part, str) else part for part in info]
    text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return HKDF(hashes.SHA256(), size, salt, text).derive(bytes(secret))


def mask(key: bytes, words: int) -> Array:
    """Return a mask, uint64 (words,): the ChaCha20 keystream of a key.

    Raises
    ------
    Refused : a key that is not of 32 bytes, or too many words.
    """
    if len(key) != KEY:
        raise refused(f"a mask key of {len(key)} bytes; it has {KEY}.")
    if not 0 <= words <= 2**35:
        raise refused(f"a mask of {words} words; it has at most 2^35.")
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    out = np.zeros(words, "<u8")
    if words:
        octets = out.data.cast("B")
        stream.update_into(octets, octets)
    return out


def private_key(seed: bytes | bytearray, salt: bytes) -> X25519PrivateKey:
    """Return the X25519 key that a seed stands for.

    Parameters
    ----------
    salt : the context's; the members are not known yet.
    """
    return X25519PrivateKey.from_private_bytes(derive(seed, salt, "x25519"))


def public_bytes(key: X25519PrivateKey) -> bytes:
    """Return a public key, 32 bytes."""
    return key.public_key().public_bytes_raw()


def agree(key: X25519PrivateKey, other: bytes, name: str) -> bytes:
    """Return the secret that a private key shares with the public key of `name`, 32 bytes.

    Raises
    ------
    Refused : a public key of small order or of a wrong length.
    """
    try:
        return key.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise refused(
            f"the public key of site {name!r} is not sound. Leave the site out."
        ) from None

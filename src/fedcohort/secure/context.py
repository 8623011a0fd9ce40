"""The context that binds keys, masks and signatures of masked sums; sites' identities.

A digest is SHA-256 of the canonical JSON of its parts, equal at all sites and the coordinator. A
site's identity is an Ed25519 key (RFC 8032). Every kit holds its public half, under the network's
signature; the private half never leaves the site.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedcohort.protocol.errors import Refused

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def refused(text: str) -> Refused:
    """Return the error of this package."""
    return Refused("secure", text)


def digest(*parts: Any) -> str:
    """Return a SHA-256 digest, in hex, of JSON-able parts."""
    return hashlib.sha256(canonical(parts)).hexdigest()


def settled_as(run: str, session: str, question: str) -> str:
    """Return the key under which a site notes that it signed the sum of a question."""
    return digest("question", run, session, question)


def canonical(value: Any) -> bytes:
    """Return the one text of a JSON-able value."""
    return _CANONICAL(value).encode()


@dataclass(frozen=True)
class Context:
    """The scope of keys and masks, which are useless in any other.

    Attributes
    ----------
    run, session, history : of the calls, as in their requests.
    roster : pinned public identity keys of all sites of the study, by name.
    """

    run: str
    session: str
    history: str
    roster: Mapping[str, bytes]

    @cached_property
    def mark(self) -> str:
        """The digest of all of it."""
        roster = {name: key.hex() for name, key in self.roster.items()}
        return digest("fedcohort secure sum 1", self.run, self.session, self.history, roster)

    @cached_property
    def salt(self) -> bytes:
        """The same as bytes, for keys that are made before the members are known."""
        return bytes.fromhex(self.mark)


class Identity:
    """A site's signing key.

    Attributes
    ----------
    public : the public key, 32 bytes.
    """

    def __init__(self, key: Ed25519PrivateKey):
        self._key = key
        self.public = key.public_key().public_bytes_raw()

    @staticmethod
    def new() -> Identity:
        """Return a new identity, from the operating system's generator."""
        return Identity(Ed25519PrivateKey.generate())

    @staticmethod
    def from_bytes(private: bytes) -> Identity:
        """Return the identity of a private key, 32 bytes.

        Raises
        ------
        Refused : another length.
        """
        try:
            return Identity(Ed25519PrivateKey.from_private_bytes(private))
        except ValueError:
            raise refused(f"an identity key of {len(private)} bytes; it has 32.") from None

    def to_bytes(self) -> bytes:
        """Return the private key, 32 bytes: for a file that only the site can read."""
        return self._key.private_bytes_raw()

    def sign(self, text: bytes) -> bytes:
        """Return the signature of a text, 64 bytes."""
        return self._key.sign(text)


def verify(public: bytes, text: bytes, signature: bytes) -> bool:
    """Return whether a signature of a text is by the owner of a public key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True

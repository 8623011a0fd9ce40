"""A site's identity in masked sums: an Ed25519 key (RFC 8032), whose public half all sites pin.

The public key is in every kit, under the network's signature; the private one leaves no site.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedcohort.secure.context import refused


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

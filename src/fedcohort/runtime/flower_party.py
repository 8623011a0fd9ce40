"""What Flower needs of a kit, and who is at the other end of a connection.

A site's node is known to Flower by a public key. Here that is the key of the site's certificate, so
a kit for Flower holds nothing that other kits do not, a renewed certificate is a renewed node, and
a certificate that was taken back opens nothing. The key signs Flower's time stamps (ISO 8601,
ECDSA with SHA-256), TLS's transcripts and our own; no text of one kind can be one of another.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedcohort.protocol.errors import InputError


class Party(Protocol):
    """What this engine needs of a kit."""

    @property
    def name(self) -> str:
        """The party's name."""
        ...

    @property
    def address(self) -> str:
        """Where the coordinator is reached: host:port."""
        ...

    @property
    def coordinator(self) -> str:
        """The coordinator's name, which its certificate must be for."""
        ...

    @property
    def sites(self) -> Sequence[str]:
        """Names of all sites."""
        ...

    @property
    def revoked(self) -> Collection[str]:
        """Fingerprints (SHA-256, hex) of certificates that are good no longer."""
        ...

    @property
    def root(self) -> Path:
        """The authority's certificate."""
        ...

    @property
    def certificate(self) -> Path:
        """The party's own."""
        ...

    @property
    def key(self) -> Path:
        """The key of that."""
        ...


@dataclass(frozen=True)
class Peer:
    """Who is at the other end, by the certificate that TLS has verified.

    Attributes
    ----------
    key : its public key in the form in which Flower compares keys (PEM).
    """

    name: str
    role: str
    fingerprint: str
    key: bytes

    @classmethod
    def of(cls, der: bytes) -> Peer:
        """Read a certificate."""
        found = x509.load_der_x509_certificate(der)
        return cls(
            name=_attribute(found, NameOID.COMMON_NAME),
            role=_attribute(found, NameOID.UNSTRUCTURED_NAME),
            fingerprint=found.fingerprint(hashes.SHA256()).hex(),
            key=found.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
        )


def private_key(kit: Party) -> ec.EllipticCurvePrivateKey:
    """Read a party's private key.

    Raises
    ------
    InputError : the file holds no key of the kind that Flower's nodes have.
    """
    try:
        key = serialization.load_pem_private_key(kit.key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        raise InputError(f"{kit.key}: no readable private key. Ask for a new kit.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{kit.key}: a key of another kind than Flower's. Ask for a new kit.")
    return key


def client_tls(kit: Party) -> ssl.SSLContext:
    """Return a party's TLS towards the coordinator: only the network's own authority counts.

    The certificate must be for the coordinator's name (`named`), at whatever address it is reached.

    Raises
    ------
    InputError : a file of the kit cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(kit.root)
        context.load_cert_chain(kit.certificate, kit.key)
    except (OSError, ssl.SSLError):
        raise InputError(f"{kit.certificate.parent}: certificates or key cannot be used.") from None
    return context


def named(kit: Party) -> dict[str, str]:
    """Return what makes httpx look for the coordinator's name in its certificate."""
    return {"sni_hostname": kit.coordinator}


def direct(kit: Party) -> bool:
    """Return whether the coordinator is on this computer, so that no proxy is asked."""
    return kit.address.rpartition(":")[0].strip("[]") in ("127.0.0.1", "localhost", "::1")


def _attribute(found: x509.Certificate, oid: x509.ObjectIdentifier) -> str:
    """Return the single attribute of this kind, or an empty text."""
    values = found.subject.get_attributes_for_oid(oid)
    return str(values[0].value) if len(values) == 1 else ""

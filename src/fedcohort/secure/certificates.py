"""Certificates of a network: one authority, one certificate per party, X.509 v3 (RFC 5280).

Keys on P-256, signatures ECDSA with SHA-256. The authority's certificate has the network's name; a
party's has its name as CN, its organisation as O and its role as `unstructuredName` (NVIDIA FLARE's
layout, so that one file serves an engine's TLS and our channel). The coordinator's also names its
hosts. A certificate is valid from one day before it was made, to tolerate wrong clocks.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, cast, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcohort.protocol.errors import InputError, Refused

Role = Literal["coordinator", "site", "lead", "steward"]
ROLES: tuple[Role, ...] = get_args(Role)

#: Default validity of a party's certificate, and of an authority's.
DAYS, AUTHORITY_DAYS = 397, 3650

#: How much earlier than now a new certificate is good, for clocks that are behind.
EARLIER = timedelta(days=1)

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_ECDSA = ec.ECDSA(hashes.SHA256())


def checked_name(name: str, what: str) -> str:
    """Return the name of a network or a party, if it is one.

    Raises
    ------
    InputError : other characters than a-z, 0-9 and '-', or more than 40 of them.
    """
    if not is_name(name):
        raise InputError(
            f"{what} {name[:60]!r}: a name has up to 40 of a-z, 0-9 and '-', and neither begins "
            "nor ends with '-'."
        )
    return name


def is_name(name: str) -> bool:
    """Return whether a text may name a network or a party."""
    return _NAME.fullmatch(name) is not None


def now() -> datetime:
    """Return the time, with its zone."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Certificate:
    """What a certificate says; `text` is its PEM, `fingerprint` the SHA-256 of its DER form."""

    name: str
    organisation: str
    role: str
    since: datetime
    until: datetime
    fingerprint: str
    text: str = field(repr=False)
    hosts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str | bytes) -> Certificate:
        """Read one certificate in PEM form.

        Raises
        ------
        Refused : "untrusted", if it is none.
        """
        raw = _load(text)
        try:
            hosts = raw.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            names = (
                *hosts.get_values_for_type(x509.DNSName),
                *map(str, hosts.get_values_for_type(x509.IPAddress)),
            )
        except (x509.ExtensionNotFound, ValueError):
            names = ()
        return cls(
            name=_attribute(raw.subject, NameOID.COMMON_NAME),
            organisation=_attribute(raw.subject, NameOID.ORGANIZATION_NAME),
            role=_attribute(raw.subject, NameOID.UNSTRUCTURED_NAME),
            since=raw.not_valid_before_utc,
            until=raw.not_valid_after_utc,
            fingerprint=raw.fingerprint(hashes.SHA256()).hex(),
            text=raw.public_bytes(serialization.Encoding.PEM).decode(),
            hosts=names,
        )

    def issued(self, text: str | bytes) -> bool:
        """Return whether this authority's key signed a certificate."""
        root, raw = _load(self.text), _load(text)
        try:
            raw.verify_directly_issued_by(root)
            basic = raw.extensions.get_extension_for_class(x509.BasicConstraints).value
        except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
            return False
        return not basic.ca and _is_p256(raw.public_key())

    def signed(self, signature: bytes, content: bytes) -> bool:
        """Return whether this certificate's key made the signature of some bytes."""
        key = _load(self.text).public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        try:
            key.verify(signature, content, _ECDSA)
        except InvalidSignature:
            return False
        return True

    def matches(self, key: Key) -> bool:
        """Return whether a private key is this certificate's."""
        return _public(_load(self.text).public_key()) == _public(key.raw.public_key())


@dataclass(frozen=True)
class Key:
    """A party's private key; its text is written to files of its owner alone."""

    raw: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def new(cls) -> Key:
        """Draw a key from the operating system's generator."""
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def parse(cls, text: str | bytes) -> Key:
        """Read a key in PEM form.

        Raises
        ------
        Refused : "key", where it is none on P-256.
        """
        try:
            raw = serialization.load_pem_private_key(_bytes(text), password=None)
        except (ValueError, TypeError):
            raise Refused("key", "the file holds no readable private key.") from None
        if not isinstance(raw, ec.EllipticCurvePrivateKey) or raw.curve.name != "secp256r1":
            raise Refused("key", "the private key is not on the curve P-256.")
        return cls(raw)

    @property
    def text(self) -> str:
        """The key in PEM form (PKCS #8), not encrypted."""
        return self.raw.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    def sign(self, content: bytes) -> bytes:
        """Sign some bytes: ECDSA with SHA-256, in DER form."""
        return self.raw.sign(content, _ECDSA)


def authority(network: str, key: Key, at: datetime, days: int = AUTHORITY_DAYS) -> Certificate:
    """Make the certificate of a network's authority, which signs itself."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, network)])
    builder = (
        _builder(name, name, key, key, at, at + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
    )
    return _signed(builder, key)


def issue(
    root: Certificate,
    root_key: Key,
    key: Key,
    *,
    name: str,
    organisation: str,
    role: Role,
    at: datetime,
    days: int = DAYS,
    hosts: Iterable[str] = (),
) -> Certificate:
    """Make a party's certificate, which ends with the authority's at the latest."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
            x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, role),
        ]
    )
    until = min(at + timedelta(days=days), root.until)
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role == "coordinator":
        uses.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
    names = [_host(host) for host in dict.fromkeys(hosts)] or [x509.DNSName(name)]
    builder = (
        _builder(subject, _load(root.text).subject, key, root_key, at, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    return _signed(builder, root_key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: Key,
    signer: Key,
    at: datetime,
    until: datetime,
) -> x509.CertificateBuilder:
    """Return the common part of the authority's certificate and a party's."""
    public, signers = key.raw.public_key(), signer.raw.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - EARLIER)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signers), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    """Return a key's permitted use: signing certificates, or signing as a party."""
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: Key) -> Certificate:
    """Sign a certificate."""
    raw = builder.sign(key.raw, hashes.SHA256())
    return Certificate.parse(raw.public_bytes(serialization.Encoding.PEM))


def _host(host: str) -> x509.GeneralName:
    """Return a host as a certificate names it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _load(text: str | bytes) -> x509.Certificate:
    """Read one certificate, and nothing beside it."""
    raw = _bytes(text)
    if raw.count(b"-----BEGIN") != 1 or len(raw) > 8192:
        raise Refused("untrusted", "there is no single certificate where one must be.")
    try:
        found = x509.load_pem_x509_certificate(raw)
        found.subject  # noqa: B018 - parts are read late, and may be malformed
        found.extensions  # noqa: B018
        found.public_key()
    except Exception:
        raise Refused("untrusted", "the certificate cannot be read.") from None
    return found


def _attribute(name: x509.Name, oid: x509.ObjectIdentifier) -> str:
    """Return the only attribute of this kind; "" if there is none, or several."""
    found = name.get_attributes_for_oid(oid)
    return str(found[0].value) if len(found) == 1 else ""


def _is_p256(key: object) -> bool:
    """Return whether a public key is of the one kind that we use."""
    return isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1"


def _public(key: object) -> bytes:
    """Return a public key's bytes."""
    return cast(ec.EllipticCurvePublicKey, key).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _bytes(text: str | bytes) -> bytes:
    """Return a text's bytes."""
    return text.encode() if isinstance(text, str) else text

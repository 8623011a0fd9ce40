"""TLS between the parties of a network, the same under every engine.

TLS 1.3 (RFC 8446) with certificates both ways, of the network's own authority alone; the operating
system's authorities are not read.

Revealed: certificates (names, organisation, role), and addresses, times and lengths to a network.
No text of this module holds anything that a peer wrote.
"""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, Self

from fedcohort.protocol.errors import InputError, Refused, SiteUnavailable

#: OpenSSL's X509_V_ERR_… → (code, fault of a certificate).
_VERIFY = {
    9: ("not yet valid", "is not valid yet: compare the clocks of both computers"),
    10: ("expired", "has expired by this computer's clock"),
    **dict.fromkeys((2, 7, 18, 19, 20, 21, 24), ("untrusted", "is not of this network")),
    26: ("role", "is not for this use"),
    62: ("name", "is not the coordinator's. Compare 'address' in kit.toml"),
}

#: Alert of a peer → (code, its verdict on our certificate).
_ALERTS = {
    "CERTIFICATE_EXPIRED": ("expired", "has expired by the clock there"),
    "CERTIFICATE_REVOKED": ("revoked", "is revoked"),
    "UNKNOWN_CA": ("untrusted", "is not of its network"),
    "DECRYPT_ERROR": ("untrusted", "is not of its network"),
    "BAD_CERTIFICATE": ("untrusted", "is not accepted"),
    "UNSUPPORTED_CERTIFICATE": ("role", "is not for this use"),
    "CERTIFICATE_UNKNOWN": ("untrusted", "is not accepted"),
    "CERTIFICATE_REQUIRED": ("untrusted", "is missing"),
}
_UNKNOWN = ("untrusted", "is not accepted")
#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME.
_NO_DATES = 0x200000


class Credentials(Protocol):
    """What an engine needs of a kit."""

    @property
    def name(self) -> str:
        """The party, as in its certificate."""
        ...

    @property
    def network(self) -> str:
        """The network."""
        ...

    @property
    def address(self) -> str:
        """Where the coordinator is: "host:port"."""
        ...

    @property
    def coordinator(self) -> str:
        """The coordinator, as in its certificate."""
        ...

    @property
    def sites(self) -> tuple[str, ...]:
        """All sites of the network."""
        ...

    @property
    def revoked(self) -> frozenset[str]:
        """Fingerprints (SHA-256, hex) of certificates that are good no longer."""
        ...

    @property
    def root(self) -> Path:
        """Certificate of the network's authority, PEM."""
        ...

    @property
    def certificate(self) -> Path:
        """The party's certificate, PEM."""
        ...

    @property
    def key(self) -> Path:
        """Its private key, PEM."""
        ...


@dataclass(frozen=True)
class Peer:
    """Who is at the other end, by the certificate that TLS has verified.

    Attributes
    ----------
    name, role : as in it, or empty.
    fingerprint : its SHA-256, in hex.
    der : all of it.
    """

    name: str
    role: str
    fingerprint: str
    der: bytes

    @classmethod
    def of(cls, sock: ssl.SSLSocket | ssl.SSLObject) -> Self:
        """Read the certificate at the other end of a connection."""
        der = sock.getpeercert(binary_form=True) or b""
        subject: Any = (sock.getpeercert() or {}).get("subject", ())

        def single(key: str) -> str:
            values = [value for part in subject for name, value in part if name == key]
            return values[0] if len(values) == 1 else ""

        role = single("unstructuredName")
        return cls(single("commonName"), role, sha256(der).hexdigest(), der)


def host_port(address: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[host]:port".

    Raises
    ------
    InputError : it is neither.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"address {address!r} is not of the form host:port.")
    return host.strip("[]"), int(port)


def context(kit: Credentials, *, server: bool, dates: bool = True) -> ssl.SSLContext:
    """Return the rules of a TLS connection: 1.3, both certificates of the network's authority.

    The connecting side checks the coordinator's name, at whatever address.

    Parameters
    ----------
    dates : certificates must be valid by this computer's clock; False only to find out whether the
        clock is wrong.

    Raises
    ------
    InputError : a certificate or key cannot be read.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    if not dates:
        made.verify_flags = ssl.VerifyFlags(made.verify_flags | _NO_DATES)
    if server:
        made.num_tickets = 0
    try:
        made.load_verify_locations(kit.root)
        made.load_cert_chain(kit.certificate, kit.key)
    except (OSError, ssl.SSLError):
        raise InputError(
            f"certificate and key of {kit.name!r} cannot be read, or do not belong together: "
            f"{kit.root.name}, {kit.certificate.name} and {kit.key.name} are needed, in PEM form."
        ) from None
    return made


def listener(address: str, host: str | None = None) -> socket.socket:
    """Return a socket that listens on the port of "host:port", on its host or on another one.

    Raises
    ------
    InputError : the host is not of this computer, or the port is in use.
    """
    own, port = host_port(address)
    host = host or own
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # the protocol is named because asyncio sends without delay only where it is
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            if os.name == "posix":
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((host, port))
            made.listen(128)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port} ({reason(error)}). Is another coordinator running, "
            "or is that no address of this computer? '--listen HOST' takes one of its own, or "
            "0.0.0.0."
        ) from None
    return made


def flaw(error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    """Return code and words for a fault of a certificate shown here."""
    return _VERIFY.get(error.verify_code, _UNKNOWN)


def alert(error: ssl.SSLError) -> tuple[str, str] | None:
    """Return code and words for the other side's verdict on our certificate; None: it gave none."""
    said = error.reason or ""
    if "ALERT" not in said:
        return None
    return next((words for name, words in _ALERTS.items() if said.endswith(name)), _UNKNOWN)


def hung_up(error: ssl.SSLError) -> bool:
    """Return whether the other side went without a word."""
    return isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)


def no_connection(error: ssl.SSLError, kit: Credentials) -> Refused | SiteUnavailable:
    """Return why a party has no connection to the coordinator."""
    at = "{}:{}".format(*host_port(kit.address))
    if isinstance(error, ssl.SSLCertVerificationError):
        code, text = flaw(error)
        if code == "untrusted":
            text = (
                f"is not of the network {kit.network!r}: this kit is of another network, or "
                "something between the two opens TLS connections"
            )
        return Refused(code, f"the certificate at {at} {text}.")
    if (told := alert(error)) is not None:
        code, text = told
        return Refused(
            code, f"the coordinator at {at} refuses the certificate of {kit.name!r}: it {text}."
        )
    if hung_up(error):
        return SiteUnavailable(f"{at} hung up; is the coordinator being started?")
    return Refused("not TLS", f"what listens at {at} does not speak TLS 1.3: no coordinator.")


def reason(error: OSError) -> str:
    """Return the operating system's text for an error number; nothing of ours."""
    return (error.strerror or type(error).__name__).lower()

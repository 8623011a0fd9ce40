"""The TLS underneath FLARE's connections: who may connect, how long that may take, and why not.

TLS 1.3 (RFC 8446) with certificates both ways, both of the network's own authority and of no
other: the operating system's list of authorities is not read. A site accepts one name alone at the
other end, the coordinator's. FLARE 2.9's own TCP driver shakes hands in the thread that accepts
connections, so that one client that connects and stays silent keeps all others out; here each
handshake has its own thread and `HANDSHAKE` seconds in all.

The coordinator speaks first, one line: `fedcohort/1 welcome`, or why not. With TLS 1.3 a client's
handshake ends before the server has seen its certificate, so this line, or the alert in its place,
is what tells a site whether it was accepted.

Revealed: certificates (names, organisation, role), and what TLS shows to a network: addresses,
times and lengths.
"""

from __future__ import annotations

import socket
import ssl
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from fedcohort.protocol.errors import InputError, Refused, SiteUnavailable

#: Seconds for a whole TLS handshake, and to reach a host.
HANDSHAKE = 10.0

_HELLO = b"fedcohort/1 "

#: OpenSSL's X509_V_ERR_… → (code, what is wrong with a certificate).
_VERIFY = {
    9: ("not yet valid", "is not valid yet: compare the clocks of both computers"),
    10: ("expired", "has expired"),
    **dict.fromkeys((2, 7, 18, 19, 20, 21, 24), ("untrusted", "is not of this network")),
    26: ("role", "is not for this use"),
}

#: Alert that a peer sent → (code, what it says of the certificate it was shown).
_ALERTS = {
    "CERTIFICATE_EXPIRED": ("expired", "has expired"),
    "CERTIFICATE_REVOKED": ("revoked", "is revoked"),
    "UNKNOWN_CA": ("untrusted", "is not of its network"),
    "DECRYPT_ERROR": ("untrusted", "is not of its network"),
    "BAD_CERTIFICATE": ("untrusted", "is not accepted"),
    "UNSUPPORTED_CERTIFICATE": ("role", "is not for this use"),
    "CERTIFICATE_UNKNOWN": ("untrusted", "is not accepted"),
    "CERTIFICATE_REQUIRED": ("untrusted", "is missing"),
}

#: Why the coordinator turns away a peer whose certificate is in order.
_TURNED_AWAY = {
    "taken": "the coordinator already is in touch with a running node of the name {name!r}. Stop "
    "that one first; if this is the only one, its kit is in use elsewhere.",
    "revoked": "the certificate of {name!r} is revoked. Ask who runs the network for a new kit.",
    "unknown": "the coordinator does not know the site {name!r}: its kit is older than this one. "
    "Give it the new one, and start it again.",
}


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


def context(kit: Credentials, *, server: bool) -> ssl.SSLContext:
    """Return the rules of a TLS connection: 1.3, both certificates of the network's authority.

    Raises
    ------
    InputError : a certificate or key cannot be read.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False  # the coordinator's name is checked, wherever it is reached
    made.verify_mode = ssl.CERT_REQUIRED
    made.minimum_version = ssl.TLSVersion.TLSv1_3
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


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a host's address and on no other.

    Raises
    ------
    InputError : the address is not of this computer, or the port is in use.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port} ({_reason(error)}). Is another coordinator running, "
            "or is that no address of this computer? 'listen' takes another one."
        ) from None
    made.settimeout(0.5)
    return made


def name_of(sock: ssl.SSLSocket) -> str:
    """Return the common name in the peer's certificate, or ""."""
    return _subject(sock, "commonName")


def role_of(sock: ssl.SSLSocket) -> str:
    """Return the role in the peer's certificate, or ""."""
    return _subject(sock, "unstructuredName")


def _subject(sock: ssl.SSLSocket, key: str) -> str:
    found: Any = (sock.getpeercert() or {}).get("subject", ())
    values = [value for part in found for name, value in part if name == key]
    return values[0] if len(values) == 1 else ""


def accept(sock: socket.socket, rules: ssl.SSLContext) -> ssl.SSLSocket:
    """Shake hands with who connected.

    Raises
    ------
    Refused : why not; the text does not name the peer, whom nothing vouches for.
    """
    sock.settimeout(HANDSHAKE)
    tls = rules.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
    try:
        _shake(tls)
    except Refused:
        tls.close()
        raise
    return tls


def _shake(tls: ssl.SSLSocket) -> None:
    try:
        tls.do_handshake()
    except ssl.SSLCertVerificationError as error:
        code, text = _VERIFY.get(error.verify_code, ("untrusted", "is not accepted"))
        raise Refused(code, f"its certificate {text}.") from None
    except ssl.SSLError as error:
        raise _no_handshake(error) from None
    except TimeoutError:
        raise Refused("slow", f"no TLS handshake within {HANDSHAKE:g} s.") from None
    except OSError:
        raise Refused("hung up", "it hung up during the TLS handshake.") from None


def _no_handshake(error: ssl.SSLError) -> Refused:
    reason = error.reason or ""
    if "ALERT" in reason:
        _, text = _alert(reason)
        return Refused("hung up", f"it hung up: to it, the coordinator's certificate {text}.")
    if "NOT_RETURN_A_CERTIFICATE" in reason:
        return Refused("no certificate", "it showed no certificate.")
    if "PROTOCOL" in reason or "VERSION_TOO_LOW" in reason:
        return Refused("old TLS", "it does not speak TLS 1.3.")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return Refused("hung up", "it hung up during the TLS handshake.")
    return Refused("not TLS", "it does not speak TLS.")


def _alert(reason: str) -> tuple[str, str]:
    for alert, meaning in _ALERTS.items():
        if reason.endswith(alert):
            return meaning
    return "untrusted", "is not accepted"


def greet(sock: ssl.SSLSocket, word: str) -> None:
    """Tell who connected whether it is welcome."""
    sock.sendall(_HELLO + word.encode() + b"\n")


def dial(kit: Credentials, rules: ssl.SSLContext, timeout: float = HANDSHAKE) -> ssl.SSLSocket:
    """Connect to the coordinator, and wait until it has said that this party is welcome.

    Raises
    ------
    SiteUnavailable : the coordinator cannot be reached now.
    Refused : one of the two does not accept the other, and trying again will not help.
    """
    host, port = host_port(kit.address)
    at = f"{host}:{port}"
    raw = _reach(host, port, timeout)
    try:
        raw.settimeout(timeout)
        tls = rules.wrap_socket(raw, do_handshake_on_connect=False)
        raw = tls
        tls.do_handshake()
        if name_of(tls) != kit.coordinator:
            raise Refused(
                "name",
                f"{at} has the certificate of {name_of(tls)!r}, not of the coordinator "
                f"{kit.coordinator!r}. Compare 'address' in kit.toml.",
            )
        _read_greeting(tls, kit)
    except ssl.SSLCertVerificationError as error:
        raw.close()
        code, text = _VERIFY.get(error.verify_code, ("untrusted", "is not accepted"))
        if code == "untrusted":
            text = (
                f"is not of the network {kit.network!r}: this kit is of another network, or "
                "something between the two opens TLS connections"
            )
        raise Refused(code, f"the certificate at {at} {text}.") from None
    except ssl.SSLError as error:
        raw.close()
        raise _not_accepted(error, kit, at) from None
    except TimeoutError:
        raw.close()
        raise SiteUnavailable(f"{at} does not answer: no greeting within {timeout:g} s.") from None
    except OSError:
        raw.close()
        raise SiteUnavailable(f"{at} hung up; is the coordinator being started?") from None
    except Refused:
        raw.close()
        raise
    return tls


def _reach(host: str, port: int, timeout: float) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout=timeout)
    except socket.gaierror:
        text = f"no computer of the name {host} is known here"
    except TimeoutError:
        text = f"{host}:{port} does not answer within {timeout:g} s (a firewall?)"
    except ConnectionRefusedError:
        text = f"nothing listens at {host}:{port}"
    except OSError as error:
        text = f"{host}:{port} cannot be reached ({_reason(error)})"
    raise SiteUnavailable(f"{text}; is the coordinator started, and its address in kit.toml right?")


def _not_accepted(error: ssl.SSLError, kit: Credentials, at: str) -> Refused | SiteUnavailable:
    reason = error.reason or ""
    if "ALERT" in reason:
        code, text = _alert(reason)
        return Refused(
            code, f"the coordinator at {at} refuses the certificate of {kit.name!r}: it {text}."
        )
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return SiteUnavailable(f"{at} hung up; is the coordinator being started?")
    return Refused("not TLS", f"what listens at {at} does not speak TLS 1.3: no coordinator.")


def _read_greeting(tls: ssl.SSLSocket, kit: Credentials) -> None:
    line = b""
    while not line.endswith(b"\n") and len(line) < 64:
        got = tls.recv(64 - len(line))
        if not got:
            raise ConnectionResetError
        line += got
    word = line[len(_HELLO) : -1].decode("ascii", "replace")
    if not line.startswith(_HELLO):
        raise Refused(
            "version", f"{kit.address} is no coordinator of a version that fits this one."
        )
    if word != "welcome":
        text = _TURNED_AWAY.get(word, "the coordinator turns {name!r} away; its log says why.")
        raise Refused(word if word in _TURNED_AWAY else "refused", text.format(name=kit.name))


def preflight(kit: Credentials, timeout: float = 5.0) -> str | None:
    """Connect to the coordinator once; return why that may succeed later, or None.

    Raises
    ------
    Refused : it will not succeed later: "untrusted", "expired", "not yet valid", "name", "role",
        "revoked", "taken", "version" or "not TLS".
    """
    try:
        dial(kit, context(kit, server=False), timeout).close()
    except SiteUnavailable as error:
        return str(error)
    return None


def fingerprint(sock: ssl.SSLSocket) -> str:
    """Return SHA-256 of the peer's certificate in DER form, in hex."""
    return sha256(sock.getpeercert(binary_form=True) or b"").hexdigest()


def _reason(error: OSError) -> str:
    """Return what the operating system says: a fixed text for a number, nothing of ours."""
    return (error.strerror or type(error).__name__).lower()

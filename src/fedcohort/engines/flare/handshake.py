"""Connection of a party to the coordinator over FLARE: TLS handshakes, and one line of greeting.

A site accepts one name at the other end, the coordinator's. FLARE 2.9's own TCP driver shakes hands
in the accepting thread, so one silent client blocks all others; here each handshake has its own
thread and `HANDSHAKE` seconds in all.

The coordinator speaks first, one line: `fedcohort/1 welcome`, or why not. In TLS 1.3 a client's
handshake ends before the server has seen its certificate, so this line, or an alert instead of it,
tells a site whether it was accepted.

Revealed: as by `tls`, and whether a site is expected.
"""

from __future__ import annotations

import socket
import ssl

from fedcohort.engines import tls
from fedcohort.engines.tls import Credentials, Peer
from fedcohort.protocol.errors import Refused, SiteUnavailable

#: Seconds for a whole TLS handshake, and to reach a host.
HANDSHAKE = 10.0

_HELLO = b"fedcohort/1 "

#: Reasons to refuse a peer with a valid certificate.
_TURNED_AWAY = {
    "taken": "the coordinator already is in touch with a running node of the name {name!r}. Stop "
    "that one first; if this is the only one, its kit is in use elsewhere.",
    "revoked": "the certificate of {name!r} is revoked. Ask who runs the network for a new kit.",
    "unknown": "the coordinator does not know the site {name!r}: its kit is older than this one. "
    "Give it the new one, and start it again.",
}


def accept(sock: socket.socket, rules: ssl.SSLContext) -> ssl.SSLSocket:
    """Shake hands with who connected.

    Raises
    ------
    Refused : why not; the text does not name the peer, whom nothing vouches for.
    """
    sock.settimeout(HANDSHAKE)
    secured = rules.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
    try:
        secured.do_handshake()
    except OSError as error:
        secured.close()
        raise _no_handshake(error) from None
    return secured


def _no_handshake(error: OSError) -> Refused:
    if isinstance(error, TimeoutError):
        return Refused("slow", f"no TLS handshake within {HANDSHAKE:g} s.")
    if isinstance(error, ssl.SSLCertVerificationError):
        code, text = tls.flaw(error)
        return Refused(code, f"its certificate {text}.")
    if not isinstance(error, ssl.SSLError) or tls.hung_up(error):
        return Refused("hung up", "it hung up during the TLS handshake.")
    if (told := tls.alert(error)) is not None:
        return Refused("hung up", f"it hung up: to it, the coordinator's certificate {told[1]}.")
    reason = error.reason or ""
    if "NOT_RETURN_A_CERTIFICATE" in reason:
        return Refused("no certificate", "it showed no certificate.")
    if "PROTOCOL" in reason or "VERSION_TOO_LOW" in reason:
        return Refused("old TLS", "it does not speak TLS 1.3.")
    return Refused("not TLS", "it does not speak TLS.")


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
    host, port = tls.host_port(kit.address)
    at = f"{host}:{port}"
    sock = _reach(host, port, timeout)
    try:
        sock.settimeout(timeout)
        sock = secured = rules.wrap_socket(sock, do_handshake_on_connect=False)
        secured.do_handshake()
        found = Peer.of(secured).name
        if found != kit.coordinator:
            raise Refused(
                "name",
                f"{at} has the certificate of {found!r}, not of the coordinator "
                f"{kit.coordinator!r}. Compare 'address' in kit.toml.",
            )
        _read_greeting(secured, kit)
        return secured
    except BaseException as error:
        sock.close()
        if isinstance(error, ssl.SSLError):
            raise tls.no_connection(error, kit) from None
        if isinstance(error, TimeoutError):
            raise SiteUnavailable(
                f"{at} does not answer: no greeting within {timeout:g} s."
            ) from None
        if isinstance(error, OSError):
            raise SiteUnavailable(f"{at} hung up; is the coordinator being started?") from None
        raise


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
        text = f"{host}:{port} cannot be reached ({tls.reason(error)})"
    raise SiteUnavailable(f"{text}; is the coordinator started, and its address in kit.toml right?")


def _read_greeting(sock: ssl.SSLSocket, kit: Credentials) -> None:
    line = b""
    while not line.endswith(b"\n") and len(line) < 64:
        got = sock.recv(64 - len(line))
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


def preflight(kit: Credentials, timeout: float = 5.0, *, dates: bool = True) -> str | None:
    """Connect to the coordinator once; return why a later try may succeed, None if this one did.

    Parameters
    ----------
    dates : see `tls.context`.

    Raises
    ------
    Refused : a later try fails too: "untrusted", "expired", "not yet valid", "name", "role",
        "revoked",
        "taken", "version" or "not TLS".
    """
    try:
        dial(kit, tls.context(kit, server=False, dates=dates), timeout).close()
    except SiteUnavailable as error:
        return str(error)
    return None

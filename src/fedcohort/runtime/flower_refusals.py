"""What is said to a party that the coordinator does not let in, and how to try that beforehand.

TLS 1.3 lets a client finish before the server has looked at its certificate, and Python's server
then closes without a word; what was wrong stands in the coordinator's log (`flower_hub`), and each
party checks its own kit when it reads it.

Revealed: nothing that a peer wrote is repeated.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpx

from fedcohort.protocol.errors import Refused
from fedcohort.runtime.flower_party import Party, client_tls, direct, named

#: Statuses of HTTP.
OK, UNAUTHORIZED, FORBIDDEN, TOO_LONG = 200, 401, 403, 413


def preflight(kit: Party, timeout: float) -> str | None:
    """Try once to reach the coordinator; return why that may succeed later, or None.

    Raises
    ------
    Refused : it will not succeed later: a certificate is expired, or of another network.
    """
    try:
        near = direct(kit)
        with httpx.Client(verify=client_tls(kit), timeout=timeout, trust_env=not near) as client:
            client.get(f"https://{kit.address}/people", extensions=named(kit))
    except httpx.HTTPError as error:
        line = why(error, kit)
        for code, (_, text) in _TLS.items():
            if text in line:
                raise Refused(code, line) from None
        return line
    return None


#: Our word → what OpenSSL says (of the coordinator's certificate, or in an alert of the
#: coordinator), and what we say of it.
_TLS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "expired": (("certificate has expired", "ALERT_CERTIFICATE_EXPIRED", "not yet valid"),
                "a certificate is expired or not yet valid"),
    "name": (("hostname mismatch", "ip address mismatch"),
             "the certificate there is not the coordinator's"),
    "untrusted": (("self-signed", "self signed", "unable to get", "ALERT_UNKNOWN_CA",
                   "ALERT_CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "signature failure",
                   "ALERT_DECRYPT_ERROR", "invalid CA"),
                  "a certificate is not of the same network"),
}  # fmt: skip


def why(error: Exception, kit: Party) -> str:
    """Return one line for what went wrong; nothing that a peer wrote is in it."""
    where = f"the coordinator at {kit.address}"
    if isinstance(error, httpx.HTTPStatusError):
        return status_text(error.response.status_code, where)
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, ssl.SSLError):
            said = f"{link} {getattr(link, 'verify_message', '')}".lower()
            for words, text in _TLS.values():
                if any(word.lower() in said for word in words):
                    return f"{where}: {text}."
            return f"{where}: TLS failed."
        link = link.__cause__ or link.__context__
    if isinstance(error, httpx.TimeoutException):
        return f"{where} did not answer in time."
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return f"{where} closed the connection: it ended, or does not accept this certificate."
    if isinstance(error, httpx.TransportError):
        return f"{where} cannot be reached."
    return f"{where}: {type(error).__name__}."


def status_text(status: int, where: str) -> str:
    """Return one line for an answer that is none."""
    if status == FORBIDDEN:
        return f"{where} accepts no site or person with this certificate, or not any more."
    if status == UNAUTHORIZED:
        return f"{where} does not know this site's node, or begins anew."
    if status == TOO_LONG:
        return f"{where} takes no message as long as this."
    return f"{where} answered with status {status}."

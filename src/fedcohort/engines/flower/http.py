"""HTTPS connection to the coordinator over Flower, its error messages, and a first request.

TLS 1.3 lets a client finish before the server has checked its certificate, and Python's server then
closes without a message. The reason is in the coordinator's log (`flower.hub`); each party checks
its own kit when it reads it.

Revealed: as by `tls`; nothing that a peer wrote is repeated.
"""

from __future__ import annotations

import ssl

import httpx

from fedcohort.engines import tls
from fedcohort.engines.tls import Credentials
from fedcohort.protocol.errors import Refused, SiteUnavailable

#: Statuses of HTTP.
OK, UNAUTHORIZED, FORBIDDEN, TOO_LONG = 200, 401, 403, 413


def client(kit: Credentials, timeout: float, *, dates: bool = True) -> httpx.Client:
    """Return a client for the coordinator, whose requests name the coordinator (`named`).

    A coordinator on this computer is reached without the environment's proxy.

    Raises
    ------
    InputError : a file of the kit cannot be used.
    """
    rules = tls.context(kit, server=False, dates=dates)
    rules.check_hostname = True  # the coordinator's name, see `named`
    host, _ = tls.host_port(kit.address)
    near = host in ("127.0.0.1", "localhost", "::1")
    return httpx.Client(
        base_url=f"https://{kit.address}", verify=rules, timeout=timeout, trust_env=not near
    )


def named(kit: Credentials) -> dict[str, str]:
    """Return the httpx option that checks the certificate for the coordinator's name."""
    return {"sni_hostname": kit.coordinator}


def preflight(kit: Credentials, timeout: float = 5.0, *, dates: bool = True) -> str | None:
    """Try to reach the coordinator once; return why a later try may succeed, None if this one did.

    Parameters
    ----------
    dates : see `tls.context`.

    Raises
    ------
    Refused : a later try fails too: a certificate is expired, or of another network.
    """
    try:
        with client(kit, timeout, dates=dates) as http:
            http.get("/people", extensions=named(kit))
    except httpx.HTTPError as error:
        found = why(error, kit)
        if isinstance(found, Refused):
            raise found from None
        return str(found)
    return None


def why(error: Exception, kit: Credentials) -> Refused | SiteUnavailable:
    """Return the error in one line, without anything that a peer wrote."""
    where = f"the coordinator at {kit.address}"
    if isinstance(error, httpx.HTTPStatusError):
        return SiteUnavailable(status_text(error.response.status_code, where))
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, ssl.SSLError):
            return tls.no_connection(link, kit)
        link = link.__cause__ or link.__context__
    if isinstance(error, httpx.TimeoutException):
        return SiteUnavailable(f"{where} did not answer in time.")
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return SiteUnavailable(
            f"{where} closed the connection: it ended, or does not accept this certificate."
        )
    if isinstance(error, httpx.TransportError):
        return SiteUnavailable(f"{where} cannot be reached.")
    return SiteUnavailable(f"{where}: {type(error).__name__}.")


def status_text(status: int, where: str) -> str:
    """Return one line for an answer that is none."""
    if status == FORBIDDEN:
        return f"{where} accepts no site or person with this certificate, or not any more."
    if status == UNAUTHORIZED:
        return f"{where} does not know this site's node, or begins anew."
    if status == TOO_LONG:
        return f"{where} takes no message as long as this."
    return f"{where} answered with status {status}."

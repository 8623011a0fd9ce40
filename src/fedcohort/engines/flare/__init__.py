"""NVIDIA FLARE as an engine: bytes between the coordinator and its sites and people.

FLARE 2.9 has three layers: jobs, cells, and the communication interface underneath (F3:
`Communicator`), which names endpoints, checks their names against certificates, frames messages and
keeps connections. This adapter uses F3 alone. Jobs cost 70 ms and a 200 MB process at each site and
end when one site's process dies; cells forward messages between sites, decode a payload as its
sender asks (FOBS), and exist once by name in a process. F3's headers and payload are:

    {"kind": "ask",   "id": 16 random bytes}                    request
    {"kind": "reply", "id": the same, "code": "" | "failed" | "large" | "none"}    reply

A reply counts only from the endpoint that was asked. Nothing is forwarded; everything else is
dropped. Parties connect outwards to the coordinator, over mutual TLS (`engines.tls`, `handshake`,
`driver`), and reconnect within two seconds. A lost connection ends all waits on it at once.

Revealed to the engine: names, addresses, times and lengths; the layer above seals the bytes.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence

from nvflare.fuel.f3.communicator import Mode

from fedcohort.engines import tls
from fedcohort.engines.flare.connection import SEVERAL, Door
from fedcohort.engines.flare.end import End
from fedcohort.engines.flare.handshake import preflight
from fedcohort.engines.tls import Credentials
from fedcohort.protocol.errors import InputError
from fedcohort.protocol.line import CARRIED, Answering, Silence

__all__ = ["Hub", "Spoke", "preflight"]


class Hub:
    """The coordinator's end.

    Parameters
    ----------
    on_request : answers what sites and people ask; called in several threads.
    listen : host or address to listen on, if it is not the one in the kit.
    cap : bytes of the largest message.
    """

    def __init__(
        self,
        kit: Credentials,
        on_request: Answering,
        log: logging.Logger,
        *,
        listen: str | None = None,
        cap: int = CARRIED,
    ):
        self._kit, self._log, self._cap, self._listen = kit, log, cap, listen
        self._end = End(kit, kit.coordinator, on_request, log, cap)
        self.line = _Line(self._end)
        self.address: tuple[str, int] | None = None

    def start(self) -> None:
        """Listen, on one address of this computer.

        Raises
        ------
        InputError : the address or a file cannot be used.
        """
        rules = tls.context(self._kit, server=True)
        listening = tls.listener(self._kit.address, self._listen)
        listening.settimeout(0.5)
        found: tuple[str, int] = listening.getsockname()[:2]
        self.address = found
        door = Door(self._kit, rules, self._cap, self._log, listening)
        self._end.start(Mode.PASSIVE, door, *found)
        self._log.info("listening on %s:%d.", *found)

    def stop(self) -> None:
        """Close all connections and stop listening."""
        self._end.stop()


class _Line:
    """See `fedcohort.protocol.line.Line`."""

    def __init__(self, end: End):
        self._end = end
        self._sites = tuple(sorted(end.kit.sites))

    @property
    def sites(self) -> Sequence[str]:
        return self._sites

    @property
    def connected(self) -> frozenset[str]:
        return self._end.connected.intersection(self._sites)

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        if strange := sorted(set(requests).difference(self._sites)):
            raise InputError(f"{strange[0]!r} is no site of the network {self._end.kit.network!r}.")
        return self._end.ask(requests, timeout)


class Spoke:
    """A site's or a person's end.

    Parameters
    ----------
    on_request : a site's answers to the coordinator; None for people, who may be connected several
        times at once.
    cap : bytes of the largest message.
    """

    def __init__(
        self,
        kit: Credentials,
        on_request: Answering | None,
        log: logging.Logger,
        *,
        cap: int = CARRIED,
    ):
        self._kit, self._log, self._cap = kit, log, cap
        name = kit.name if kit.name in kit.sites else kit.name + SEVERAL + secrets.token_hex(8)
        self._end = End(kit, name, on_request, log, cap)

    @property
    def connected(self) -> bool:
        """Whether the coordinator can be reached now."""
        return self._kit.coordinator in self._end.connected

    def start(self) -> None:
        """Connect, and connect again whenever the connection is lost; does not wait for it.

        Raises
        ------
        InputError : a file or the address cannot be used.
        """
        door = Door(self._kit, tls.context(self._kit, server=False), self._cap, self._log)
        self._end.start(Mode.ACTIVE, door, *tls.host_port(self._kit.address))

    def stop(self) -> None:
        """Close the connection."""
        self._end.stop()

    def ask(self, blob: bytes, timeout: float) -> bytes | Silence:
        """Ask the coordinator, after waiting for a connection; `timeout` is for both."""
        until = time.monotonic() + timeout
        with self._end.changed:
            self._end.changed.wait_for(lambda: self.connected, timeout)
        left = max(until - time.monotonic(), 0)
        return dict(self._end.ask({self._kit.coordinator: blob}, left))[self._kit.coordinator]

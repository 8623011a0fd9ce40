"""A driver for FLARE's communication interface (F3, nvflare 2.9): accepts peers, or connects.

One connection per site: a newer one is accepted only if the older gives no sign of life within
`PROOF` seconds. So a crashed node is replaced at once, and a node started twice is told so while
the first goes on.

Revealed: nothing; names and addresses of peers stay in the log.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
import time
from collections.abc import Generator
from typing import Any

from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers.base_driver import BaseDriver
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo
from nvflare.fuel.f3.drivers.driver_params import DriverCap

from fedcohort.engines.flare import handshake
from fedcohort.engines.flare.connection import Door, TlsConnection
from fedcohort.engines.tls import Peer
from fedcohort.protocol.errors import Refused, SiteUnavailable

SCHEME = "fedcohort"

#: Seconds between two tries to connect: first, at most, and after a refusal.
AGAIN, AGAIN_AT_MOST, AGAIN_REFUSED = 0.2, 2.0, 10.0

#: Seconds for which a second connection of a site is turned away without a line in the log: a node
#: that lost its connection looks for the reason while its engine comes through.
YOUNG = 5.0

#: Handshakes under way: in all, and of one address.
SHAKING, SHAKING_EACH = 256, 32


class Turnstile:
    """Counts handshakes under way, so that strangers cannot have a thread each without end."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def passing(self, host: str) -> Generator[bool]:
        """Hold a place for one handshake; gives whether there was one."""
        with self._lock:
            mine = self._of.get(host, 0)
            free = mine < SHAKING_EACH and sum(self._of.values()) < SHAKING
            if free:
                self._of[host] = mine + 1
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    self._of[host] -= 1
                    if not self._of[host]:
                        del self._of[host]


class TlsDriver(BaseDriver):
    """Connections of one party: the coordinator's listening socket, or a way to the coordinator."""

    def __init__(self, door: Door):
        super().__init__()
        self._door = door
        self._turnstile = Turnstile()
        self._latest: dict[str, TlsConnection] = {}
        self._naming = threading.Lock()
        self._stopped = False

    @staticmethod
    def supported_transports() -> list[str]:
        """See FLARE's `Driver`."""
        return [SCHEME]

    @staticmethod
    def capabilities() -> dict[str, Any]:
        """See FLARE's `Driver`; signs of life are the connection's own matter."""
        return {DriverCap.SEND_HEARTBEAT.value: False, DriverCap.SUPPORT_SSL.value: True}

    @staticmethod
    def get_urls(scheme: str, resources: dict[str, Any]) -> tuple[str, str]:
        """See FLARE's `Driver`; there are no listeners but the coordinator's."""
        raise CommError(CommError.NOT_SUPPORTED, "no listener of its own choice")

    def close_connection(self, conn: Connection) -> None:
        """See FLARE's `BaseDriver`; takes turns with handshakes, which FLARE does not."""
        with self._door.changing:
            super().close_connection(conn)

    def shutdown(self) -> None:
        """See FLARE's `Driver`."""
        self._stopped = True
        self.close_all()
        if self._door.listening is not None:
            with contextlib.suppress(OSError):
                self._door.listening.shutdown(socket.SHUT_RDWR)
            self._door.listening.close()

    def listen(self, connector: ConnectorInfo) -> None:
        """Let peers in until the end; each has its own thread from its first byte on."""
        self.connector = connector
        listening = self._door.listening
        assert listening is not None
        while not self._stopped:
            try:
                sock, address = listening.accept()
            except TimeoutError:
                continue
            except OSError:
                if not self._stopped:  # out of file descriptors, most likely
                    self._door.log.error("the coordinator cannot accept a connection now.")
                    connector.stopped.wait(0.5)
                continue
            threading.Thread(
                target=self._serve, args=(sock, address, connector), name="flare-peer", daemon=True
            ).start()

    def _serve(self, sock: socket.socket, address: Any, connector: ConnectorInfo) -> None:
        try:
            with self._turnstile.passing(address[0]) as free:
                if not free:
                    raise Refused("busy", "too many TLS handshakes of this address at once.")
                secured = sock = handshake.accept(sock, self._door.rules)
                conn = self._admit(secured, connector)
        except Refused as why:
            self._door.refuse(address, why)
            sock.close()
        except OSError:
            sock.close()
        else:
            self._run(conn)

    def _admit(self, sock: ssl.SSLSocket, connector: ConnectorInfo) -> TlsConnection:
        peer = Peer.of(sock)
        name = peer.name
        if peer.fingerprint in self._door.kit.revoked:
            handshake.greet(sock, "revoked")
            raise Refused("revoked", f"the certificate of {name!r} is revoked.")
        if peer.role == "site" and name not in self._door.kit.sites:
            handshake.greet(sock, "unknown")
            raise Refused("unknown", f"the site {name!r} is not in the coordinator's kit.")
        if name in self._door.kit.sites and not self._replaceable(name):
            handshake.greet(sock, "taken")
            if self._young(name):
                raise ConnectionAbortedError
            raise Refused("taken", f"another process is connected as {name!r} and lives.")
        handshake.greet(sock, "welcome")
        return TlsConnection(sock, connector, self._door)

    def _replaceable(self, name: str) -> bool:
        with self._naming:
            older = self._latest.get(name)
        if older is None or older.done.is_set():
            return True
        if older.lives():
            return False
        older.close()
        older.done.wait(1.0)
        return True

    def _young(self, name: str) -> bool:
        """Return whether a site has just connected: it may still be trying a second way."""
        with self._naming:
            older = self._latest.get(name)
        return older is not None and time.monotonic() - older.since < YOUNG

    def _run(self, conn: TlsConnection) -> None:
        with self._naming:
            self._latest[conn.peer] = conn
        self.add_connection(conn)
        try:
            if self._stopped:
                conn.close()
            conn.read_loop()
        finally:
            with self._naming:
                if self._latest.get(conn.peer) is conn:
                    del self._latest[conn.peer]
            self.close_connection(conn)

    def connect(self, connector: ConnectorInfo) -> None:
        """Connect, and connect again whenever the connection is lost, until the end."""
        self.connector = connector
        door, pause, said = self._door, AGAIN, ""
        while not connector.stopped.is_set():
            try:
                sock = handshake.dial(door.kit, door.rules)
            except (Refused, SiteUnavailable) as why:
                if str(why) != said:
                    door.log.warning("no connection to the coordinator: %s", why)
                said = str(why)
                pause = min(2 * pause, AGAIN_AT_MOST)
                wait = AGAIN_REFUSED if isinstance(why, Refused) else pause
            else:
                self._run(TlsConnection(sock, connector, door))
                pause, wait, said = AGAIN, AGAIN, ""
            # parties that lost the coordinator together do not come back all at once
            connector.stopped.wait(wait * random.uniform(0.8, 1.2))

"""A connection of FLARE's communication interface (F3, nvflare 2.9), on the TLS of `tls`.

FLARE's frames: 16 bytes (length, length of headers, type, …), msgpack headers, payload. Checks on
each before FLARE reads it:

* unexpected types, frames before FLARE's handshake, a second handshake, and sizes above the cap end
  the connection, before memory is taken; memory grows only as bytes arrive;
* the name in FLARE's handshake must be the certificate's (FLARE checks that again);
* unanswered requests are counted: those above `UNANSWERED`, or above twice the cap in bytes, are
  read and dropped;
* after `QUIET` seconds without a byte the peer is asked for a sign of life; after `DEAD` seconds
  the connection is closed (cut networks, stopped processes, sleeping computers).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo, Mode
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix

from fedcohort.engines.flare.stream import Stream
from fedcohort.engines.tls import Credentials, Peer
from fedcohort.protocol.errors import Refused
from fedcohort.secure.channel import RateLimit

#: Seconds: without a byte until a sign of life is asked for; until the connection is given up; for
#: an older connection to prove that it lives; without progress in sending.
QUIET, DEAD, PROOF, STUCK = 5.0, 20.0, 2.0, 20.0

#: Bytes of a frame that is no message, of a message's headers, and read at once when dropping.
CONTROL, HEADERS, SCRATCH = 4096, 4096, 65536

#: Requests of one peer that may wait for their answers.
UNANSWERED = 16

#: What stands behind the name of a party that may be connected several times, before a random part.
SEVERAL = "~"


def party(endpoint: str) -> str:
    """Return an endpoint's party: the name in the certificate."""
    return endpoint.partition(SEVERAL)[0]


@dataclass
class Door:
    """One party's side of its connections.

    Attributes
    ----------
    cap : bytes of the largest message.
    listening : the coordinator's socket; None at sites and people.
    """

    kit: Credentials
    rules: ssl.SSLContext
    cap: int
    log: logging.Logger
    listening: socket.socket | None = None
    changing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._quiet = RateLimit(self.log.warning)

    def refuse(self, address: tuple[str, int], why: Refused) -> None:
        """Log who was refused and why."""
        self._quiet(f"refused {address[0]} ({why.code}): {why}")


class Violation(Exception):
    """A peer sent what it may not send; the text holds numbers alone."""


class TlsConnection(Connection):
    """A connection whose peer's name is known from its certificate."""

    def __init__(self, sock: ssl.SSLSocket, connector: ConnectorInfo, door: Door):
        super().__init__(connector)
        self.peer = Peer.of(sock).name
        self.address: tuple[str, int] = sock.getpeername()[:2]
        self.done = threading.Event()
        self.since = self.heard = time.monotonic()
        self._local: tuple[str, int] = sock.getsockname()[:2]
        self._door = door
        self._stream = Stream(sock)
        self._greeted = False
        self._signed = self.heard
        self._owed: list[int] = []
        self._owing = threading.Lock()

    def get_conn_properties(self) -> dict[str, str]:
        """See FLARE's `Connection`."""
        return {
            DriverParams.PEER_ADDR.value: "{}:{}".format(*self.address),
            DriverParams.LOCAL_ADDR.value: "{}:{}".format(*self._local),
            DriverParams.PEER_CN.value: self.peer,
        }

    def close(self) -> None:
        """See FLARE's `Connection`; the socket is given back when `read_loop` ends."""
        self._stream.shut()

    def send_frame(self, frame: Any) -> None:
        """See FLARE's `Connection`."""
        try:
            self._stream.send(memoryview(frame), STUCK)
        except TimeoutError:
            self.close()  # part of a frame may be sent: the rest would be unreadable
            raise CommError(CommError.TIMEOUT, f"{self.name} takes nothing") from None
        except ConnectionError:
            raise CommError(CommError.CLOSED, f"{self.name} is closed") from None

    def read_loop(self) -> None:
        """Hand FLARE one frame after the other until the connection ends."""
        try:
            while self._read_frame():
                pass
        except Violation as error:
            self._door.refuse(self.address, Refused("malformed", f"{self.peer!r}: {error}."))
        except TimeoutError:
            self._door.log.info("no sign of life from %s; connection closed.", self.peer)
        finally:
            self._stream.release()
            self.done.set()

    def _read_frame(self) -> bool:
        head = memoryview(bytearray(PREFIX_LEN))
        if not self._fill(head):
            return False
        prefix = Prefix.from_bytes(head)  # pyright: ignore[reportArgumentType]
        self._check(prefix)
        rest = prefix.length - PREFIX_LEN
        if prefix.type == Types.DATA and not self._room(rest):
            self._door.log.warning("%s: too many requests without answer; one dropped.", self.peer)
            return self._skip(rest)
        # numpy's memory is not touched before bytes arrive; slices of it are no copies
        room: Any = np.empty(prefix.length, np.uint8)
        frame = memoryview(room)
        frame[:PREFIX_LEN] = head
        if not self._fill(frame[PREFIX_LEN:]):
            return False
        self._dispatch(prefix, frame)
        return True

    def _check(self, prefix: Prefix) -> None:
        first = Types.HELLO if self.connector.mode == Mode.PASSIVE else Types.READY
        allowed = (Types.DATA, Types.PING, Types.PONG) if self._greeted else (first,)
        if prefix.type not in allowed:
            raise Violation(f"a frame of type {prefix.type} where none may be")
        most = self._door.cap + HEADERS if prefix.type == Types.DATA else CONTROL
        if prefix.length > most + PREFIX_LEN:
            raise Violation(f"a frame of {prefix.length} bytes, more than {most}")
        if prefix.header_len > min(HEADERS, prefix.length - PREFIX_LEN):
            raise Violation(f"a frame of {prefix.length} bytes, {prefix.header_len} of headers")

    def _dispatch(self, prefix: Prefix, frame: memoryview) -> None:
        if prefix.type in (Types.HELLO, Types.READY):
            self._check_name(frame)
            self._greeted = True
            with self._door.changing:
                self.process_frame(frame)
        elif prefix.type == Types.PING:
            self._sign(Types.PONG)
        elif prefix.type == Types.DATA:
            self.process_frame(frame)

    def _check_name(self, frame: memoryview) -> None:
        try:
            claimed = msgpack.unpackb(frame[PREFIX_LEN:])[HandshakeKeys.ENDPOINT_NAME]
            named, _, rest = str(claimed).partition(SEVERAL)
        except Exception:
            raise Violation("a greeting without a name") from None
        one = self.connector.mode == Mode.ACTIVE or self.peer in self._door.kit.sites
        if named != self.peer or bool(rest) == one or len(rest) > 32:
            raise Violation("its certificate is of another name than it claims")

    def _fill(self, into: memoryview) -> bool:
        while into:
            try:
                got = self._stream.receive(into, QUIET)
            except TimeoutError:
                now = time.monotonic()
                if now - self.heard > DEAD:
                    raise
                self._sign(Types.PING)
                continue
            if not got:
                return False
            self.heard = time.monotonic()
            if self.heard - self._signed > QUIET:
                self._sign(Types.PONG)  # who sends for long must hear that it arrives
            into = into[got:]
        return True

    def _skip(self, length: int) -> bool:
        scratch = memoryview(bytearray(SCRATCH))
        while length:
            part = scratch[: min(length, SCRATCH)]
            if not self._fill(part):
                return False
            length -= len(part)
        return True

    def _sign(self, kind: int) -> None:
        """Send a sign of life, or ask for one, unless something is being sent anyway."""
        self._signed = time.monotonic()
        sfm: Any = getattr(self.frame_receiver, "conn", None)
        if self._greeted and sfm is not None and not sfm.get_send_stall_seconds():
            with contextlib.suppress(CommError):
                sfm.send_heartbeat(kind)

    def lives(self) -> bool:
        """Ask for a sign of life; return whether one came within `PROOF` seconds."""
        before, until = self.heard, time.monotonic() + PROOF
        threading.Thread(target=self._sign, args=(Types.PING,), daemon=True).start()
        while time.monotonic() < until:
            if self.done.wait(0.02):
                return False
            if self.heard > before:
                return True
        return False

    def take(self, length: int) -> None:
        """Count a request that is to be answered."""
        with self._owing:
            self._owed.append(length)

    def give(self, length: int) -> None:
        """Count a request no longer."""
        with self._owing:
            self._owed.remove(length)

    def _room(self, length: int) -> bool:
        with self._owing:
            return not self._owed or (
                len(self._owed) < UNANSWERED and sum(self._owed) + length <= 2 * self._door.cap
            )

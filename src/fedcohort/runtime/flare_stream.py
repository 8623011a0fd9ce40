"""What is below FLARE in a TLS connection: its bytes, and how many may try to connect.

Revealed: nothing by this module; addresses of those who were refused stay in the log.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import threading
import time
from collections.abc import Generator

from fedcohort.protocol.errors import Refused

#: Seconds between two lines about the same address refused for the same reason.
REPEAT = 60.0

#: Handshakes under way: in all, and of one address.
SHAKING, SHAKING_EACH = 256, 32


class Refusals:
    """Says who was refused and why, once a minute for each address and reason."""

    def __init__(self, log: logging.Logger):
        self._log = log
        self._last: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def note(self, address: tuple[str, int], why: Refused) -> None:
        """Log one line, unless the same was said within a minute."""
        key, now = (address[0], why.code), time.monotonic()
        with self._lock:
            if now - self._last.get(key, -REPEAT) < REPEAT:
                return
            if len(self._last) > 1000:
                self._last.clear()
            self._last[key] = now
        self._log.warning("refused %s:%d (%s): %s", *address[:2], why.code, why)


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


class Stream:
    """Bytes over TLS, both ways at once.

    OpenSSL allows one call at a time on a connection, and a reader that waits would keep writers
    out: so the socket does not block, calls take turns, and waiting is done between turns.
    """

    def __init__(self, sock: ssl.SSLSocket):
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._turn = threading.Lock()
        self._fd = sock.fileno()
        self.closed = False

    def receive(self, into: memoryview, seconds: float) -> int:
        """Read some bytes; 0 at the end.

        Raises
        ------
        TimeoutError : nothing came.
        """
        while True:
            with self._turn:
                if self.closed:
                    return 0
                try:
                    return self._sock.recv_into(into)
                except ssl.SSLWantReadError:
                    event = select.POLLIN
                except ssl.SSLWantWriteError:
                    event = select.POLLOUT
                except OSError:
                    return 0
            self._wait(event, seconds)

    def send(self, data: memoryview, patience: float) -> None:
        """Write all bytes.

        Raises
        ------
        TimeoutError : the other side took nothing for `patience` seconds.
        ConnectionError : the connection is closed.
        """
        while data:
            with self._turn:
                if self.closed:
                    raise ConnectionAbortedError
                try:
                    data = data[self._sock.send(data) :]
                    continue
                except ssl.SSLWantReadError:
                    event = select.POLLIN
                except ssl.SSLWantWriteError:
                    event = select.POLLOUT
                except OSError:
                    raise ConnectionAbortedError from None
            self._wait(event, patience)

    def _wait(self, event: int, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._fd, event)
        if not poll.poll(seconds * 1000):
            raise TimeoutError

    def shut(self) -> None:
        """End the connection; whoever waits for it wakes. `release` must follow."""
        with self._turn:
            if not self.closed:
                self.closed = True
                with contextlib.suppress(OSError):
                    # not SSLSocket's: it would let a reader see what is still encrypted
                    socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def release(self) -> None:
        """Give back the socket, once its reader has ended."""
        self.shut()
        self._sock.close()

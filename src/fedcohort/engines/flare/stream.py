"""What is below FLARE in a TLS connection: its bytes, both ways at once.

Revealed: nothing by this module.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading


class Stream:
    """Bytes over TLS, both ways at once.

    OpenSSL allows one call at a time on a connection, and a waiting reader would block writers: the
    socket does not block, calls take turns, and waits fall between turns.
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
                    # not SSLSocket's, which would show encrypted bytes to a reader
                    socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def release(self) -> None:
        """Give back the socket, once its reader has ended."""
        self.shut()
        self._sock.close()

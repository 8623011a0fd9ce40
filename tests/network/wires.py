"""A TCP wire between a site and the coordinator that can be cut, and held in either direction.

It forwards bytes and knows nothing of what they mean: all of it is TLS. Holding stops one
direction while both ends keep their connection, so that a fault can be placed exactly: with
replies held, a site has answered a call and the coordinator does not know; with requests held, the
coordinator has asked, and the site does not know.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Self

UP, DOWN = "replies", "requests"  # site → coordinator, coordinator → site


class Wire:
    """Listens on a free port of the loopback and forwards each connection to `target`.

    Attributes
    ----------
    address : where to connect to.
    passed : bytes so far, by direction.
    waiting : bytes that a held direction has received and not given on.
    lag : seconds that each piece is late, in each direction.
    slow : seconds that 64 KiB take, in each direction.
    """

    def __init__(self, target: tuple[str, int]):
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address: tuple[str, int] = self._listener.getsockname()
        self.passed = {UP: 0, DOWN: 0}
        self.waiting = {UP: 0, DOWN: 0}
        self.lag = self.slow = 0.0
        self._flows = {UP: threading.Event(), DOWN: threading.Event()}
        for flow in self._flows.values():
            flow.set()
        self._whole = threading.Event()
        self._whole.set()
        self._closed = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._stranded: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    # what a test does --------------------------------------------------------------------

    def hold(self, direction: str) -> None:
        """Give nothing on in one direction; what comes waits."""
        self._flows[direction].clear()

    def release(self) -> None:
        """Give on again what waits, in both directions."""
        for flow in self._flows.values():
            flow.set()

    def strand(self) -> None:
        """Give nothing more on over the connections that there are, and close none of them."""
        with self._lock:
            self._stranded |= self._pairs

    def cut(self) -> None:
        """Close all connections, and each new one at once, until `mend`."""
        self._whole.clear()
        self._drop()

    def mend(self) -> None:
        """Take connections again."""
        self._whole.set()

    def close(self) -> None:
        """Close everything."""
        self._closed = True
        self.release()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # how it works ------------------------------------------------------------------------

    def _drop(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                if not self._whole.is_set():
                    raise OSError
                far = socket.create_connection(self._target, timeout=5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (near, far)
            with self._lock:
                self._pairs.add(pair)
            threading.Thread(target=self._carry, args=(pair, near, far, UP), daemon=True).start()
            threading.Thread(target=self._carry, args=(pair, far, near, DOWN), daemon=True).start()

    def _carry(
        self,
        pair: tuple[socket.socket, socket.socket],
        source: socket.socket,
        sink: socket.socket,
        direction: str,
    ) -> None:
        flow = self._flows[direction]
        try:
            while blob := source.recv(1 << 16):
                if self.lag:
                    time.sleep(self.lag)
                if not flow.is_set():
                    self.waiting[direction] += len(blob)
                    self._wait(flow, pair)
                    self.waiting[direction] -= len(blob)
                if pair in self._stranded:
                    continue
                time.sleep(self.slow * len(blob) / (1 << 16))
                self.passed[direction] += len(blob)
                sink.sendall(blob)
        except OSError:
            pass
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:  # an engine's connection is of no use with one direction
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _wait(self, flow: threading.Event, pair: tuple[socket.socket, socket.socket]) -> None:
        while not flow.wait(0.02):
            if pair not in self._pairs:
                raise OSError
        if pair not in self._pairs:
            raise OSError


def free_port() -> int:
    """Return a port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(true: Callable[[], object], seconds: float = 15.0, what: str = "in vain") -> None:
    """Wait until something is true.

    Raises
    ------
    TimeoutError : it is not within `seconds`; `what` says what was waited for.
    """
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)

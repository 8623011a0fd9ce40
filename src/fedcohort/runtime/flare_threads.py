"""Threads for FLARE's connections, in the place of its pools, which keep a process from ending.

Revealed: nothing by this module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Inline:
    """In the place of FLARE's pool of 100 threads: handles a frame in the thread that read it.

    What takes long is handed on by the receiver; so frames keep their order, and a peer that sends
    faster than it is served waits.
    """

    def submit(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run now."""
        function(*arguments)

    def shutdown(self, wait: bool = True) -> None:
        """Nothing to end."""


class Daemons:
    """Threads that are reused, and that do not keep a process from ending."""

    def __init__(self, name: str):
        self._name = name
        self._todo: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._idle = 0
        self._over = False
        self._ready = threading.Condition()

    def submit(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run soon, in a thread of its own."""
        with self._ready:
            if self._idle > len(self._todo):
                self._todo.append((function, arguments))
                self._ready.notify()
                return
        threading.Thread(
            target=self._work, args=(function, arguments), name=self._name, daemon=True
        ).start()

    def shutdown(self, wait: bool = True) -> None:
        """Let idle threads leave; what still runs is not waited for."""
        with self._ready:
            self._over = True
            self._ready.notify_all()

    def _work(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        while True:
            function(*arguments)
            del function, arguments
            with self._ready:
                self._idle += 1
                self._ready.wait_for(lambda: bool(self._todo) or self._over, timeout=30.0)
                self._idle -= 1
                if not self._todo:
                    return
                function, arguments = self._todo.pop(0)

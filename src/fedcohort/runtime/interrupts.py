"""Ctrl-C, which a terminal sends to every process: the parent ends, and ends its workers.

Python raises `KeyboardInterrupt` at any place in the main thread. In a callback (weak reference,
finaliser, ctypes, fork) the interpreter prints and drops it, and the program goes on. `kept` raises
it again.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

#: Seconds after which an interrupt that was dropped is sent again.
AGAIN = 0.05


class Interrupt(KeyboardInterrupt):
    """An interrupt that is sent again if it is dropped before the program has ended by it."""

    def __init__(self, watch: _Watch):
        super().__init__()
        self._watch = watch

    def __del__(self) -> None:
        if self._watch.open:
            threading.Timer(AGAIN, self._watch.send).start()


class _Watch:
    """Whether the program still has to hear of its interrupts."""

    open = True

    def came(self, number: int, frame: Any) -> None:
        """Handle the signal."""
        raise Interrupt(self)

    def send(self) -> None:
        """Interrupt the main thread, also where it waits."""
        if not self.open:
            return
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main()


@contextmanager
def kept() -> Generator[None]:
    """Lose no interrupt of the main thread within this block.

    A process that was started to ignore interrupts (a shell's background job) ignores them.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    watch, told = _Watch(), sys.unraisablehook

    def tell(dropped: Any) -> None:
        if dropped.exc_type is not Interrupt:  # that one comes again
            told(dropped)

    signal.signal(signal.SIGINT, watch.came)
    sys.unraisablehook = tell
    try:
        yield
    finally:
        watch.open = False
        sys.unraisablehook = told
        if signal.getsignal(signal.SIGINT) == watch.came:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def later() -> Generator[None]:
    """Delay interrupts, also those of processes started meanwhile; see `ignored`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignored() -> None:
    """Ignore interrupts in this worker process; its parent ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

"""Ctrl-C, which a terminal sends to every process of a group: the parent ends, workers are ended.

Python raises `KeyboardInterrupt` wherever the main thread is. Inside a callback (of a weak
reference, a finaliser, ctypes, a fork) the interpreter prints and drops it, and the program goes on
as if nobody had asked it to end. `kept` raises it again.
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
    """See that no interrupt of the main thread is lost within this block.

    A process that was started to ignore interrupts, as a shell starts jobs in the background,
    ignores them.
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
    """Let interrupts wait, and those of processes that are started meanwhile; see `ignored`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignored() -> None:
    """Ignore interrupts in this process, a worker: whoever started it ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

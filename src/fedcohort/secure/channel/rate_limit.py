"""A log that nobody can flood."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

Log = Callable[[str], None]


#: So many different lines a minute, and seconds within which none is said twice.
LINES, APART = 30, 60.0


class RateLimit:
    """A log that says the same line once a minute, and few lines a minute in all."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic):
        self._log, self._clock = log, clock
        self._said: OrderedDict[str, float] = OrderedDict()
        self._since, self._lines = clock(), 0
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        """Say a line, unless it was said within the last minute."""
        at = self._clock()
        with self._lock:
            last = self._said.get(text)
            if last is not None and at - last < APART:
                return
            if at - self._since >= APART:
                self._since, self._lines = at, 0
            self._lines += 1
            if self._lines > LINES + 1:
                return
            if self._lines > LINES:
                text = "more lines of this kind within this minute are not written."
            self._said[text] = at
            self._said.move_to_end(text)
            while len(self._said) > 64:
                self._said.popitem(last=False)
        self._log(text)

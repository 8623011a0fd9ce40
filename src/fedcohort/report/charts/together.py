"""The figures of a page, drawn by two processes.

A drawing is a pure function of its specification, and Vega draws one at a time in a process. Within
`together` a figure leaves a comment as its place, and its specifications wait in a queue. A second
process takes them from the front as soon as there are `ENOUGH`; at the end this process takes the
others from the back, and `completed` puts the figures in their places. Who drew what changes no
byte. Where the second process does not start or ends early, this one draws its part too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Thread

from fedcohort.report.charts import render, vega
from fedcohort.report.markup import Markup

#: Drawings from which a second process is worth its start, 0.4 s.
ENOUGH = 16
#: A figure's place. A user's text cannot hold one, because its `<` is escaped.
_PLACE = re.compile(r"<!--figure (\d+)-->")


class Figures:
    """The figures of one page, and the queue of their drawings."""

    def __init__(self) -> None:
        self._made: list[Callable[[], Markup]] = []
        self._waiting: deque[str] = deque()
        self._asked: set[str] = set()
        self._helper: subprocess.Popen[str] | None = None
        self._thread: Thread | None = None

    def place(self, specs: Sequence[str], made: Callable[[], Markup]) -> Markup:
        """Return the place of a figure that is made once its specifications are drawn."""
        new = [s for s in dict.fromkeys(specs) if s not in self._asked and not render.is_kept(s)]
        self._asked.update(new)
        self._waiting.extend(new)
        self._made.append(made)
        if len(self._asked) >= ENOUGH and self._thread is None and (os.cpu_count() or 1) > 1:
            self._thread = Thread(target=self._help, daemon=True)
            with suppress(OSError):  # no second process: this one draws all
                self._helper = _started()
                self._thread.start()
        return Markup(f"<!--figure {len(self._made) - 1}-->")

    def completed(self, page: str) -> str:
        """Return the page with its figures, all drawn."""
        self._draw()
        if self._helper is not None and self._thread is not None:
            self._thread.join()
            self._draw()  # what the second process left
        return _PLACE.sub(lambda m: self._made[int(m[1])](), page)

    def close(self) -> None:
        """End the second process."""
        self._waiting.clear()
        if self._helper is not None and self._thread is not None:
            self._helper.kill()
            self._thread.join()
            with self._helper:  # closes its pipes and waits for its end
                pass

    def _draw(self) -> None:
        """Draw from the back of the queue until it is empty."""
        with suppress(IndexError):
            while True:
                render.drawn(self._waiting.pop())

    def _help(self) -> None:
        """Have the second process draw from the front of the queue."""
        helper = self._helper
        assert helper is not None and helper.stdin is not None and helper.stdout is not None
        with suppress(IndexError):
            while True:
                spec = self._waiting.popleft()
                try:
                    helper.stdin.write(json.dumps([render.VEGA_LITE, spec]) + "\n")
                    helper.stdin.flush()
                    render.keep(spec, json.loads(helper.stdout.readline()))
                except (OSError, ValueError):  # it ended
                    self._waiting.append(spec)
                    return


_open: ContextVar[Figures | None] = ContextVar("figures", default=None)


def current() -> Figures | None:
    """Return the figures of the page that is being made; None outside `together`."""
    return _open.get()


@contextmanager
def together() -> Iterator[Figures]:
    """Collect the figures that are made within; the page is `completed` before the end."""
    figures = Figures()
    token = _open.set(figures)
    try:
        yield figures
    finally:
        _open.reset(token)
        figures.close()


def _started() -> subprocess.Popen[str]:
    """Start the second process: no module beside `vega.py` hides one that it loads."""
    return subprocess.Popen(
        [sys.executable, "-P", str(Path(vega.__file__))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        encoding="utf-8", env={**os.environ, "PYTHONUTF8": "1"},
    )  # fmt: skip

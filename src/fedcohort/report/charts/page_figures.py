"""The figures of a page, drawn by two processes.

A drawing is a pure function of its specification, and Vega draws one at a time in a process. Within
`together` a figure leaves a comment as its place, and its specifications wait in a queue. The
helper's process takes them from the front as they come; at the end this process takes the others
from the back, and `completed` puts the figures in their places. Who drew what changes no byte.
Where the helper has ended, this process draws its part too.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from queue import SimpleQueue
from threading import Thread

from fedcohort.report.charts import render
from fedcohort.report.helper import Helper
from fedcohort.report.markup import Markup

#: A figure's place. A user's text cannot hold one, because its `<` is escaped.
_PLACE = re.compile(r"<!--figure (\d+)-->")


class Figures:
    """The figures of one page, and the queue of their drawings."""

    def __init__(self, helper: Helper):
        self._made: list[Callable[[], Markup]] = []
        self._asked: set[str] = set()
        self._waiting: deque[str] = deque()
        self._more: SimpleQueue[bool] = SimpleQueue()  # True for each that waits, False at the end
        self._helper = helper
        self._thread = Thread(target=self._help, daemon=True)
        self._thread.start()

    def place(self, specs: Sequence[str], made: Callable[[], Markup]) -> Markup:
        """Return the place of a figure that is made once its specifications are drawn."""
        for spec in specs:
            if spec not in self._asked and not render.is_kept(spec):
                self._asked.add(spec)
                self._waiting.append(spec)
                self._more.put(True)
        self._made.append(made)
        return Markup(f"<!--figure {len(self._made) - 1}-->")

    def completed(self, page: str) -> str:
        """Return the page with its figures, all drawn."""
        self._draw()
        self._more.put(False)
        self._thread.join()
        self._draw()  # what the helper left
        return _PLACE.sub(lambda m: self._made[int(m[1])](), page)

    def close(self) -> None:
        """Draw no more."""
        self._waiting.clear()
        self._more.put(False)
        if self._thread.is_alive():
            self._helper.kill()
            self._thread.join()

    def _draw(self) -> None:
        """Draw from the back of the queue until it is empty."""
        with suppress(IndexError):
            while True:
                render.drawn(self._waiting.pop())

    def _help(self) -> None:
        """Have the helper draw from the front of the queue."""
        while self._more.get() and self._helper.there:
            try:
                spec = self._waiting.popleft()
            except IndexError:  # drawn here
                return
            if (text := self._helper.svg(spec)) is None:
                self._waiting.append(spec)
                return
            render.keep(spec, text)


_open: ContextVar[Figures | None] = ContextVar("figures", default=None)


def current() -> Figures | None:
    """Return the figures of the page that is being made; None outside `together`."""
    return _open.get()


@contextmanager
def together(helper: Helper | None) -> Generator[None]:
    """Collect the figures that are made within, if there is a helper to draw some."""
    if helper is None or not helper.there:
        yield
        return
    figures = Figures(helper)
    token = _open.set(figures)
    try:
        yield
    finally:
        _open.reset(token)
        figures.close()

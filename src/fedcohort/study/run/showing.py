"""Progress of a fit or a study in Python: what is done of all, and the time left.

Nothing is shown in the first 2 s, and nothing in a log unless it is asked for. In a notebook one
display is updated, on a terminal one line; a log gets a line at each tenth of the way. If the share
done rose from a to s in t seconds, t (1 − s)/(s − a) are left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from fedcohort.runtime.coordinator import Progress

if TYPE_CHECKING:
    from fedcohort.study.run.runner import Event

#: Seconds without a display, and between two updates of it.
PATIENCE, APART = 2.0, 0.2

Clock = Callable[[], float]
Observer = Callable[[Progress], None]


class Display(Protocol):
    """Where one line is shown and replaced."""

    def show(self, text: str, share: float) -> None:
        """Show a line; `share` of the way is done."""
        ...

    def close(self) -> None:
        """Take the line away, where that is possible."""
        ...


class Line:
    """What is done of all, shown from `PATIENCE` on.

    Parameters
    ----------
    name : of what runs.
    unit : what is counted, such as "rounds".
    display : None shows nothing.
    """

    def __init__(self, name: str, unit: str, display: Display | None, clock: Clock):
        self._name, self._unit, self._display, self._clock = name, unit, display, clock
        self._began = self._last = clock()

    def tell(self, done: int, of: int, before: int = 0) -> None:
        """Take note of what is done; a total of 0 is unknown.

        Parameters
        ----------
        before : of what is done, how much was done when the line began, by a run that is resumed.
        """
        now = self._clock()
        if self._display is None or now - self._began < PATIENCE or now - self._last < APART:
            return
        self._last, share = now, done / of if of else 0.0
        text = f"{self._name}: {done}{f' of {of}' if of else ''} {self._unit}"
        if of and done > before:
            text += f", {lasting((now - self._began) * (of - done) / (done - before))} left"
        self._display.show(text, share)

    def close(self) -> None:
        """End the display."""
        if self._display is not None:
            self._display.close()


def lasting(seconds: float) -> str:
    """Return a time in words: "40 s", "3 min", "2.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def line(
    name: str, unit: str, asked: bool | None, clock: Clock = time.monotonic
) -> Generator[Line]:
    """Yield the line of something that runs.

    Parameters
    ----------
    asked : show it; None: on a terminal and in a notebook alone.
    """
    made = Line(name, unit, display(asked), clock)
    try:
        yield made
    finally:
        made.close()


def display(asked: bool | None) -> Display | None:
    """Return where progress is shown; None for nowhere."""
    if asked is False:
        return None
    if (shown := _notebook()) is not None:
        return Notebook(shown)
    if sys.stderr is not None and sys.stderr.isatty():
        return Terminal()
    return Log() if asked else None


def _notebook() -> Any:
    """Return IPython's function `display` where this process runs a notebook; None elsewhere."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return None
    return ipython.display.display


class Notebook:
    """One display of a notebook's cell, updated."""

    def __init__(self, shown: Callable[..., Any]):
        self._shown = shown
        self._handle: Any = None

    def show(self, text: str, share: float) -> None:
        """See `Display`."""
        self._put(text)

    def close(self) -> None:
        """See `Display`."""
        if self._handle is not None:
            self._put("")

    def _put(self, text: str) -> None:
        data = {"text/plain": text}
        if self._handle is None:
            self._handle = self._shown(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


class Terminal:
    """One line of a terminal, with a bar; rich is loaded when it is first shown."""

    def __init__(self) -> None:
        self._bar: Any = None

    def show(self, text: str, share: float) -> None:
        """See `Display`."""
        if self._bar is None:
            from rich.console import Console
            from rich.markup import escape
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(), TextColumn("{task.description}"))
            self._escape = escape
            self._bar = Bar(
                *columns, console=Console(stderr=True), transient=True, auto_refresh=False
            )
            self._task = self._bar.add_task("", total=1.0)
            self._bar.start()
        self._bar.update(self._task, completed=share, description=self._escape(text))
        self._bar.refresh()

    def close(self) -> None:
        """See `Display`."""
        if self._bar is not None:
            self._bar.stop()


class Log:
    """A line of a log at each tenth of the way."""

    def __init__(self) -> None:
        self._tenth = -1

    def show(self, text: str, share: float) -> None:
        """See `Display`."""
        if (tenth := int(10 * share)) > self._tenth:
            self._tenth = tenth
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """See `Display`."""


def of_calls(shown: Line, part: int = 0, parts: int = 1) -> Observer:
    """Return an observer of one of several fits that run one after the other."""

    def observe(call: Progress) -> None:
        done = max(call.round, 0) + 1
        shown.tell(part * call.rounds + min(done, call.rounds or done), parts * call.rounds)

    return observe


def of_pieces(shown: Line) -> Callable[[Event], None]:
    """Return what a study tells of its fits; a resumed one begins with those that are finished."""
    before: list[int] = []

    def tell(event: Event) -> None:
        before[:] = before or [event.done - (event.rounds is None)]
        shown.tell(event.done, event.total, before[0])

    return tell

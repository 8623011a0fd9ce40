"""Clock offset between two parties, from one question and its answer (Cristian, 1989).

The asker reads its clock w on sending and measures the time d until the answer with a monotonic
clock. The answer holds the other's clock t, read between w and w + d:

    offset = w + d/2 − t,   error at most d/2

A positive offset: the asker's clock is ahead. Neither clock is taken for the right one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Offset of clocks, in seconds, above which people are told.
ALLOWED = 60.0
#: No clock is farther off than this, in seconds.
_MOST = 1e11


@dataclass(frozen=True)
class Offset:
    """How far a clock is ahead of another's, in seconds, and by how much that may be wrong."""

    seconds: float
    bound: float

    @property
    def wrong(self) -> bool:
        """Whether the offset exceeds the limit whatever the error of measurement."""
        return abs(self.seconds) - self.bound > ALLOWED

    @property
    def text(self) -> str:
        """Say it: "3 h 0 min ahead of"."""
        return f"{spell(abs(self.seconds))} {'ahead of' if self.seconds > 0 else 'behind'}"


def measured(ask: Callable[[], object], wall: Callable[[], float] = time.time) -> Offset | None:
    """Return how far this clock is ahead of another party's.

    Parameters
    ----------
    ask : returns the other's clock in seconds since 1970; anything else is no answer.
    """
    sent, began = wall(), time.monotonic()
    theirs = number(ask())
    half = (time.monotonic() - began) / 2
    return None if theirs is None else Offset(sent + half - theirs, half)


def number(value: object) -> float | None:
    """Return a peer's number of seconds, if it is one that a clock can have."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) <= _MOST else None  # no NaN either, nor a huge integer


def received(values: Any) -> Offset | None:
    """Return the offset that a peer tells as [seconds, bound]; None for anything else."""
    if not isinstance(values, list) or len(values) != 2:  # pyright: ignore[reportUnknownArgumentType]
        return None
    seconds, bound = map(number, values)  # pyright: ignore[reportUnknownArgumentType]
    return None if seconds is None or bound is None or bound < 0 else Offset(seconds, bound)


def spell(seconds: float) -> str:
    """Return a span of time as people say it: "41 s", "3 h 0 min", "730 days"."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{round(minutes / 1440)} days"

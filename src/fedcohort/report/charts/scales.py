"""Places of numbers on an axis, and the room of texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from fedcohort.report.charts.theme import TEXT

Domain = tuple[float, float]

#: What a decade of a log axis may be divided into, the coarsest first.
_DECADES = (
    (1,),
    (1, 3),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
)

#: Widths of letters in a wide sans serif, in parts of the text's size.
_NARROW, _WIDE = frozenset("iljtfrI.,:;'|!()[] ’‘-"), frozenset("mwMW@%—→−")


def around(values: Iterable[float], margin: float = 0.06) -> Domain:
    """Return a domain that holds all values, with a margin; finite whatever the values are."""
    finite = [v for v in values if math.isfinite(v)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    room = margin * (high - low) or max(abs(low) * margin, 1e-6)
    return low - room, high + room


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about n round numbers in [low, high]."""
    raw = (high - low) / max(about, 1)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def several_ticks(low: float, high: float, about: int = 5, *, whole: bool = False) -> list[float]:
    """Return `ticks`, at least two of them: one number alone gives no scale.

    Parameters
    ----------
    whole : allow only whole numbers; if there are no two, there may be fewer.
    """
    found: list[float] = []
    for more in range(about, 4 * about + 1):
        found = ticks(low, high, more)
        found = [t for t in found if t == int(t)] if whole else found
        if len(found) > 1:
            break
    return found


def log_ticks(low: float, high: float, least: int = 4) -> list[float]:
    """Return round numbers in [low, high] of the coarsest division that gives at least so many.

    Where all divisions give fewer than three, they are evenly spaced.
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for parts in _DECADES:
        marks = (float(f"{m}e{k}") for k in decades for m in parts)
        found = [t for t in marks if low <= t <= high]
        if len(found) >= least:
            break
    return found if len(found) >= min(least, 3) else ticks(low, high, least)


def tick_format(values: Sequence[float]) -> str:
    """Return the d3 format of ticks: with equally many decimals where they are evenly spaced."""
    short = [f"{v:g}" for v in values]
    if any("e" in s for s in short):
        return "~g"
    if len({round(b - a, 9) for a, b in pairwise(values)}) != 1:
        return ".6~f"
    digits = max(len(s.partition(".")[2]) for s in short)
    return f"{',' if max(map(abs, values)) >= 10_000 else ''}.{digits}f"


def text_width(text: str, size: float = TEXT) -> float:
    """Return about how many pixels a text takes; rather too many than too few."""
    return size * sum(
        0.37 if c in _NARROW else 0.92 if c in _WIDE else 0.7 if c.isupper() else 0.61 for c in text
    )


def wrapped(text: str, room: float, lines: int = 2) -> list[str]:
    """Return a text in at most n lines of a width in pixels; an ellipsis ends a cut text."""
    out: list[str] = []
    for word in text.split() or [""]:
        if out and text_width(f"{out[-1]} {word}") <= room:
            out[-1] += f" {word}"
        elif len(out) < lines:
            out.append(word)
        else:
            out[-1] += f" {word}"
            break
    return [_cut(line, room) for line in out]


def _cut(text: str, room: float) -> str:
    """Return a text cut to its room."""
    if text_width(text) <= room:
        return text
    while text and text_width(text + "…") > room:
        text = text[:-1]
    return text.rstrip() + "…"

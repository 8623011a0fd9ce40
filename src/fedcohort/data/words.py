"""Parts of error messages: nearest names, row numbers, levels as text."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.arrays import Array

_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")

_DIVIDED = re.compile(r"[,;|\t\n\r\"]")

#: Last word of a text.
_WORD = re.compile(r"[^\W_]+$")

#: A message names at most this many rows.
ROWS_NAMED = 5


def near_name(name: str, known: Iterable[str]) -> str | None:
    """Return the nearest of the known names, or None if none is near.

    Known names with a separator or a quote are skipped: they are lines that were not divided.
    """
    whole = [k for k in map(str, known) if not _DIVIDED.search(k)]
    if near := difflib.get_close_matches(str(name), whole, n=1):
        return near[0]
    small = {k.casefold(): k for k in reversed(whole)}
    return next(map(small.get, difflib.get_close_matches(str(name).casefold(), small, n=1)), None)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?" for the nearest known name, or ""."""
    near = near_name(name, known)
    return f" Did you mean {near!r}?" if near else ""


def known_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the message that there is no `kind` called `name`, with the nearest or the known
    names.
    """
    known = [str(k) for k in known]
    hint = nearest(str(name), known)
    shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return f"no {kind} {name!r}.{hint}" if hint else f"no {kind} {name!r}; there are {shown}."


def rows(bad: Array) -> str:
    """Return the first row numbers (from 1) where `bad` (n,) holds, and how many there are."""
    where = np.flatnonzero(bad) + 1
    named = ", ".join(str(i) for i in where[:ROWS_NAMED])
    if len(where) == 1:
        return f"row {named}"
    return f"rows {named}" + (f", … ({len(where)} rows)" if len(where) > ROWS_NAMED else "")


def first_of(names: Sequence[str], most: int = ROWS_NAMED) -> str:
    """Return the first `most` names, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def level_text(value: Any) -> str:
    """Return a level as text: 2, 2.0, "2" and "2.0" are the same level; "007" and 7 differ."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    text = str(value)
    whole = _WHOLE.fullmatch(text) if text.endswith("0") else None
    return text if whole is None else whole[1]


def in_folder(folder: Path) -> list[str]:
    """Return the files of a folder that may be tables, or an example of a name."""
    files = [p.as_posix() for p in sorted(folder.iterdir()) if p.suffix]
    return files or [f"{folder.as_posix()}/x.csv"]


def by_site(files: Sequence[str]) -> str:
    """Return the advice to name files of one site each with {site}."""
    start = _WORD.sub("", _common(files))
    end = _WORD.sub("", _common([f[::-1] for f in files]))[::-1]
    if "/" in end or "." not in end or not all(len(f) > len(start + end) for f in files):
        start, end = f"{Path(files[0]).parent.as_posix()}/", Path(files[0]).suffix
    return (
        f"Give '{start}{{site}}{end}' in quotes if each file holds one site: {{site}} stands for "
        f"the site's name. Otherwise give one file."
    )


def _common(texts: Sequence[str]) -> str:
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in alike)


def sorted_levels(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the levels among `values`: numbers by size, then text by alphabet."""

    def key(text: str) -> tuple[int, float, str]:
        try:
            return (0, float(text), text)
        except ValueError:
            return (1, 0.0, text)

    return tuple(sorted({level_text(v) for v in values}, key=key))

"""How this package's data errors speak: nearest names, row numbers, levels as text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from fedcohort.arrays import Array

_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")

#: A message names at most this many rows.
ROWS_NAMED = 5


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?" for the nearest known name, or nothing."""
    near = difflib.get_close_matches(str(name), [str(k) for k in known], n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def known_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Say that there is no `kind` called `name`, and what the nearest or the known ones are."""
    known = [str(k) for k in known]
    hint = nearest(str(name), known)
    shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return f"no {kind} {name!r}.{hint}" if hint else f"no {kind} {name!r}; there are {shown}."


def rows(bad: Array) -> str:
    """Name the data rows (from 1) where `bad` (n,) holds: a handful, then how many in all."""
    where = np.flatnonzero(bad) + 1
    named = ", ".join(str(i) for i in where[:ROWS_NAMED])
    if len(where) == 1:
        return f"row {named}"
    return f"rows {named}" + (f", … ({len(where)} rows)" if len(where) > ROWS_NAMED else "")


def level_text(value: Any) -> str:
    """Return a level as text: 2, 2.0, "2" and "2.0" are the same level; "007" is another than 7."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    text = str(value)
    whole = _WHOLE.fullmatch(text) if text.endswith("0") else None
    return text if whole is None else whole[1]

"""Cells of the CSV files that this package writes: none of them is a formula to a spreadsheet.

A spreadsheet runs a cell that begins with = + - @, a tab or a carriage return. Such a text gets an
apostrophe in front, which spreadsheets take for "this is text"; a number stays a number.
"""

from __future__ import annotations

import re
from typing import Any

_RUN = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def harmless(value: Any) -> Any:
    """Return a cell as it may be written: a text that a spreadsheet would run as `'text`."""
    return f"'{value}" if isinstance(value, str) and _is_run(value) else value


def as_given(cell: str) -> str:
    """Return the text that `harmless` was given."""
    return cell[1:] if cell.startswith("'") and _is_run(cell[1:]) else cell


def _is_run(text: str) -> bool:
    run = text.startswith(_RUN) or text.lstrip().startswith(_RUN)
    return run and _NUMBER.fullmatch(text) is None

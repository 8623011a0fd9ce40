"""Cells of CSV files: no formulas in those that are written, decimal commas in those that are read.

A spreadsheet runs a cell that begins with = + - @, a tab or a carriage return. Such a text gets an
apostrophe in front, which spreadsheets take for "this is text"; a number stays a number.

A comma may mark decimals (3,5) or thousands (1,234). It is a decimal comma for certain where the
digits behind it are not three, or where those before it begin with 0 or are more than three, and
where there is a point before it (1.234,5). A column's commas are read as decimal ones where

    some cell is certain, and no cell has a decimal point or can only have a comma of thousands

Otherwise its cells stay as they are, for the checks to name. Nothing is revealed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+,[0-9]+")
#: A comma of decimals, or of thousands.
DOUBTFUL = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
#: A number, with one comma or point at most.
UNGROUPED = r"[+-]?\d+([.,]\d+)?"
#: A number with the sign of a detection limit before it.
LIMITED = re.compile(rf"[<>≤≥~]=?\s*{UNGROUPED}.*")
_POINT = re.compile(r"[+-]?[0-9,]*\.[0-9]+([eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3}){2,}")


def with_commas(cells: Iterable[Any]) -> Mapping[str, float]:
    """Return the numbers that a column's cells with decimal commas are; none where it is in doubt.

    cells : the column's distinct ones, texts without blanks at their ends.
    """
    found: dict[str, float] = {}
    certain = False
    for cell in cells:
        if isinstance(cell, float) and not cell.is_integer():
            return {}
        if not isinstance(cell, str):
            continue
        if _GROUPED.fullmatch(cell) or _COMMA.fullmatch(cell):
            certain |= DOUBTFUL.fullmatch(cell) is None
            found[cell] = float(cell.replace(".", "").replace(",", "."))
        elif _POINT.fullmatch(cell) or _THOUSANDS.fullmatch(cell):
            return {}
    return found if certain else {}


def looks_like_number(cell: str) -> bool:
    """Return whether a text is a number but for its commas, whichever they are."""
    forms = (_COMMA, _GROUPED, _POINT, _THOUSANDS)
    return any(c.isdigit() for c in cell) and any(form.fullmatch(cell) for form in forms)


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


def is_nearly_number(text: str) -> bool:
    """Return whether a text is a number but for its commas, or for the sign of a limit."""
    return looks_like_number(text) or LIMITED.fullmatch(text) is not None

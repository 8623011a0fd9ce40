"""Cells of CSV files: decimal commas when reading, no formulas when writing.

A comma may mark decimals (3,5) or thousands (1,234). It must be a decimal comma if the digits
behind it are not three, if those before it begin with 0 or are more than three, or if there is a
point before it (1.234,5). Commas of a column are read as decimal commas if

    some cell must have a decimal comma, and no cell has a decimal point or two commas

Otherwise the cells stay as they are, and the checks name them. Nothing is revealed.

A spreadsheet runs a cell that begins with = + - @, a tab or a carriage return. Such a text is
written behind an apostrophe, which marks text in spreadsheets; a number stays a number.
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
    """Return the value of each cell with a decimal comma; empty if the commas are ambiguous.

    cells : distinct cells of one column, texts without blanks at their ends.
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
    """Return whether a text is a number with commas of either kind."""
    forms = (_COMMA, _GROUPED, _POINT, _THOUSANDS)
    return any(c.isdigit() for c in cell) and any(form.fullmatch(cell) for form in forms)


_RUN = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def harmless(value: Any) -> Any:
    """Return a cell that is safe to write: a text that a spreadsheet would run becomes `'text`."""
    return f"'{value}" if isinstance(value, str) and _is_run(value) else value


def as_given(cell: str) -> str:
    """Return the text that `harmless` was given."""
    return cell[1:] if cell.startswith("'") and _is_run(cell[1:]) else cell


def _is_run(text: str) -> bool:
    run = text.startswith(_RUN) or text.lstrip().startswith(_RUN)
    return run and _NUMBER.fullmatch(text) is None


def is_nearly_number(text: str) -> bool:
    """Return whether a text is a number with commas, or with the sign of a detection limit."""
    return looks_like_number(text) or LIMITED.fullmatch(text) is not None

"""Remedies for cells that do not fit their column, chosen by the form of the cell.

Patterns recognise the forms. No cell is kept or quoted.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.read.csvcells import DOUBTFUL, LIMITED, UNGROUPED
from fedcohort.data.variable import Variable

_DECIMALS = "Write decimals with a point, and thousands without a mark."
_FORMS: Mapping[str, re.Pattern[str]] = {
    "A comma may mark decimals or thousands: write decimals with a point, and thousands without a "
    "mark.": DOUBTFUL,
    _DECIMALS: re.compile(
        r"[+-]?\d{1,3}(([ .'’]\d{3})+|\d*),\d+|[+-]?\d{1,3}(([,'’]\d{3})+|( \d{3})+)(\.\d+)?"
    ),
    "Take the sign of a detection limit out of the cell; empty it, or give the limit.": LIMITED,
    "Take units out of the cells; a column's unit stands in the dictionary.": re.compile(
        rf"{UNGROUPED}\s*[a-zA-Zµμ%°][\w\s/%°µμ.*^²³-]*"
    ),
}  # fmt: skip
_POINT = re.compile(r"[+-]?\d+\.\d+")
#: Most rows with a decimal point that a remedy names.
NAMED = 5
_DATES = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}.*|\d{8}")

OTHER_LEVEL = "Correct them, or add the level to the dictionary."
SPELLING = (
    "They differ from a known level in capitals, accents or blanks alone; write them as the "
    "dictionary does."
)


def number_remedies(column: pd.Series, broken: Array, otherwise: str) -> dict[str, Array]:
    """Return remedy → rows (n,), for cells that are no numbers."""

    def remedy(cell: Any) -> str:
        text = str(cell).strip() if isinstance(cell, str) else ""
        return next((say for say, form in _FORMS.items() if form.fullmatch(text)), otherwise)

    found = _by_remedy(column, broken, remedy)
    if _DECIMALS in found and (points := _with_points(column, broken, found[_DECIMALS])):
        found = {points if say == _DECIMALS else say: rows for say, rows in found.items()}
    return found


def _with_points(column: pd.Series, broken: Array, commas: Array) -> str:
    """Return the remedy if most cells have a decimal comma and a few a point, or "".

    Decimal commas of a column are read if no cell has a point (`read.csvcells`).
    """
    cells = column.to_numpy(object)
    at = [i for i in np.flatnonzero(~np.asarray(broken)) if _POINT.fullmatch(str(cells[i]).strip())]
    if not 0 < len(at) < int(commas.sum()):
        return ""
    named = ", ".join(str(i + 1) for i in at[:NAMED]) + ", …" * (len(at) > NAMED)
    return (
        f"These have decimal commas, and row{'s' * (len(at) > 1)} {named} a decimal point: write "
        f"all cells of a column alike."
    )


def date_remedies(column: pd.Series, broken: Array) -> dict[str, Array]:
    """Return remedy → rows (n,), for cells that are no dates."""

    def remedy(cell: Any) -> str:
        if isinstance(cell, str) and _DATES.fullmatch(cell.strip()):
            return "Write dates as 2015-01-31: other forms leave open which number is the month."
        return "Write dates as 2015-01-31, and empty the others."

    return _by_remedy(column, broken, remedy)


def level_remedies(column: pd.Series, broken: Array, variable: Variable) -> dict[str, Array]:
    """Return remedy → rows (n,), for cells that are no known level."""
    known = {_bare(level) for level in variable.levels}

    def remedy(cell: Any) -> str:
        return SPELLING if _bare(str(cell)) in known else OTHER_LEVEL

    return _by_remedy(column, broken, remedy)


def _bare(text: str) -> str:
    """Return a text without capitals, blanks and accents, to compare spellings."""
    split = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in split if not (unicodedata.combining(c) or c.isspace()))


def _by_remedy(column: pd.Series, broken: Array, remedy: Callable[[Any], str]) -> dict[str, Array]:
    """Divide the broken rows by remedy; equal cells are looked at once."""
    at = np.flatnonzero(broken)
    codes, distinct = pd.factorize(column.to_numpy(object)[at])
    said = np.array([remedy(cell) for cell in distinct], object)
    found: dict[str, Array] = {}
    for text in dict.fromkeys(said):
        found[text] = np.zeros(len(column), bool)
        found[text][at[said[codes] == text]] = True
    return found

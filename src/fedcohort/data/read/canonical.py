"""Conversion of a table from any source to one form, so that results do not depend on the source.

CSV has text alone, SQLite no dates and no booleans, pandas no whole number beside a missing one.
The dictionary's type of a column decides its form:

    number, integer, time     float64; texts that are numbers are converted, with decimal commas if
                              the column's commas are unambiguous (`csvcells`)
    binary, event             float64 with 0 and 1; true and false are 1 and 0
    levels, text, identifier  text (`level_text`), without spaces at its ends
    date                      datetime64[us] without a zone, from dates or ISO text (2015-01-31)

Missing are empty cells, the usual texts for them (`MISSING`) and the dictionary's missing codes;
a level of the dictionary is never missing. A cell that cannot be converted stays as it is, and the
checks name it. Nothing is revealed.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import column_of
from fedcohort.data.on_disk import DATE, on_disk
from fedcohort.data.read.csvcells import with_commas
from fedcohort.data.variable import Variable
from fedcohort.data.words import level_text, rows
from fedcohort.protocol.errors import DataError

#: Texts that stand for a missing value, as in pandas' CSV reader.
MISSING = frozenset(
    ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
     "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"]
)  # fmt: skip

#: From this number on, a float cannot hold every whole number.
EXACT = 2**53

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity)", re.I)
_INTEGER = re.compile(r"[+-]?[0-9]+").fullmatch
_CODE = re.compile(r"[+-]?0[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.,]+)?( ?(Z|[+-][0-9]{2}:?[0-9]{0,2}))?")
_ODD = re.compile(rf"^\s|\s$|\.0+$|^({'|'.join(map(re.escape, MISSING))})$", re.MULTILINE)
_TRUTH = {"true": 1.0, "false": 0.0}


def canonical(frame: pd.DataFrame, dictionary: Dictionary) -> pd.DataFrame:
    """Return a table in the form that its dictionary gives it; see the header.

    Columns that the dictionary does not contain are made `plain`. Rows keep their order. Columns
    that are already in form are not copied. A frame on disk is in form.

    Raises
    ------
    DataError : a cell is a list or another object that is no single value.
    """
    return frame if on_disk(frame) else _with(frame, dictionary.variables)


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table in the form that its cells give it, without a dictionary; raises as
    `canonical`.

    A column holds numbers if all its cells are numbers, dates if all are dates, and text otherwise.
    Text such as 007, and whole numbers that a float cannot hold, stay text.
    """
    return _with(frame, {})


def texts(column: pd.Series) -> pd.Series | Array:
    """Return a column (n,) as text, NaN if missing: 2, 2.0 and "2" are the same.

    Raises
    ------
    TypeError : a cell is no single value.
    """
    return _texts(column, Variable("", "text"))


def is_text(variable: Variable) -> bool:
    """Return whether a column's cells are read as text."""
    return variable.coded or variable.identifier or variable.type in ("category", "text")


def _with(frame: pd.DataFrame, known: Mapping[str, Variable]) -> pd.DataFrame:
    """Return the table with every column in form, and its header as text without outer spaces.

    Raises
    ------
    DataError : a cell is no single value. An unknown column is named by its position, because
        without a header line the first patient stands there.
    """
    names = [str(c).strip() for c in frame.columns]
    out = frame
    for i, name in enumerate(names):
        column = frame.iloc[:, i]
        try:
            found = _column(column, known.get(name))
        except TypeError:
            which = repr(name) if name in known else str(i + 1)
            raise DataError(
                f"column {which} holds lists or other objects. Give each cell one value."
            ) from None
        if found is not column:
            out = frame.copy(deep=False) if out is frame else out
            if found.dtype == object:  # as it is: pandas would look for dates in an array
                found = pd.Series(found, out.index, dtype=object)
            out.isetitem(i, cast("Any", found))
    if names != list(frame.columns):
        out = frame.copy(deep=False) if out is frame else out
        out.columns = pd.Index(names, dtype=object)
    return out


def _column(column: pd.Series, variable: Variable | None) -> pd.Series | Array:
    if variable is None:
        return _any(column)
    if is_text(variable):
        return _texts(column, variable)
    if variable.type == "date":
        return _dates(column, variable.missing)
    return _numbers(column, variable)


def _any(column: pd.Series) -> pd.Series | Array:
    """Return a column that no dictionary describes, in the form that fits all its cells."""
    kind = column.dtype.kind
    if kind in "bf" or (kind in "iu" and (column.abs() < EXACT).all()):
        return _numbers(column, Variable(""))
    if kind == "M":
        return _dates(column, ())
    filled = [v for v in map(_spoken, _distinct(column)[1]) if v is not None]
    if not filled:
        return np.full(len(column), np.nan)
    commas = with_commas(filled)
    if all(v in commas or _is_plain_number(v) for v in filled):
        return _numbers(column, Variable("", "binary"))
    if all(_date(v) is not None for v in filled):
        return _dates(column, ())
    return _texts(column, Variable("", "text"))


def _is_plain_number(cell: Any) -> bool:
    """Return whether a cell is a number, but no code such as 007 and not too long for a float."""
    if isinstance(cell, str) and _CODE.fullmatch(cell):
        return False
    number = _number(cell, truth=True)
    whole = isinstance(cell, (int, np.integer)) or (isinstance(cell, str) and _INTEGER(cell))
    return number is not None and not (whole and abs(number) >= EXACT)


# numbers ------------------------------------------------------------------------------


def _numbers(column: pd.Series, variable: Variable) -> pd.Series | Array:
    """Return a column of numbers as float64; other cells stay, and make it `object`."""
    kind = column.dtype.kind
    missing = [x for x in map(_float, variable.missing) if x is not None]
    if kind in "biuf" and not isinstance(column.dtype, pd.CategoricalDtype):
        if column.dtype != np.float64 or not isinstance(column.dtype, np.dtype):
            values = column.to_numpy(np.float64, na_value=np.nan)
            values = values if values.flags.writeable else values.copy()
        else:
            values = column.to_numpy()
            if not any((values == code).any() for code in missing):
                return column
            values = values.copy()
        for code in missing:
            values[values == code] = np.nan
        return values
    if kind in "mM":
        return column
    truth = variable.type in ("binary", "event")
    codes, distinct = _distinct(column)
    cells = [_spoken(value, variable.missing) for value in distinct]
    commas = with_commas(cells)
    found: list[Any] = []
    for value, cell in zip(distinct, cells, strict=True):
        number = None if cell is None else commas.get(cell, _number(cell, truth=truth))
        if cell is None or (number is not None and number in missing):
            found.append(np.nan)
        else:
            found.append(value if number is None else number)
    good = all(isinstance(v, float) for v in found)
    return _take(found, codes, np.nan, np.dtype(np.float64 if good else object))


def _number(cell: Any, *, truth: bool) -> float | None:
    if isinstance(cell, (bool, np.bool_)):
        return float(cell) if truth else None
    if isinstance(cell, (int, float, np.integer, np.floating, Decimal)):
        try:
            return float(cell)
        except OverflowError:
            return math.inf if cell > 0 else -math.inf
    if isinstance(cell, str):
        return _TRUTH.get(cell.lower(), _float(cell)) if truth else _float(cell)
    return None


def _float(text: str) -> float | None:
    """Return a text as the nearest float, or None if it is no number."""
    return float(text) if _NUMBER.fullmatch(text) else None


# texts --------------------------------------------------------------------------------


def _texts(column: pd.Series, variable: Variable) -> pd.Series | Array:
    codes, distinct = _distinct(column)
    levels = set(variable.levels)
    if _are_in_form(distinct, variable.missing):
        found = distinct
    else:
        found = [_text(value, variable.missing, levels) for value in distinct]
    same = column.dtype == object and all(a is b for a, b in zip(found, distinct, strict=True))
    if same and all(type(v) is float for v in column.array[codes < 0]):
        return column
    return _take([np.nan if v is None else v for v in found], codes, np.nan, np.dtype(object))


def _are_in_form(cells: list[Any], missing: Sequence[str]) -> bool:
    """Return whether all cells are texts that `_text` does not change, by one search."""
    try:
        lines = "\n".join(cells)
    except TypeError:
        return False
    return _ODD.search(lines) is None and not set(missing).intersection(cells)


def _text(value: Any, missing: Sequence[str], levels: set[str]) -> str | None:
    """Return a cell as text, or None if it stands for a missing value."""
    if isinstance(value, (bool, np.bool_)):
        return str(value) if not levels or str(value) in levels else str(int(value))
    if isinstance(value, Decimal):
        value = float(value)
    elif isinstance(value, (datetime.date, np.datetime64)):
        stamp = pd.Timestamp(value)
        return str(stamp.date()) if stamp == stamp.normalize() else str(stamp)
    text = level_text(value.strip() if isinstance(value, str) else value)
    if text in levels:
        return text
    return None if text in MISSING or text in missing else text


# dates --------------------------------------------------------------------------------


def _dates(column: pd.Series, missing: Sequence[str]) -> pd.Series | Array:
    """Return a column of dates as `DATE`; other cells stay, and make it `object`."""
    empty = [day for day in map(_date, missing) if day is not None]
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert(None)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "M":
        none = column.isin(empty).to_numpy() if empty else np.zeros(0, bool)
        if column.dtype == DATE and not none.any():
            return column
        days = column.to_numpy(DATE, copy=True)
        days[np.flatnonzero(none)] = np.datetime64("NaT")
        return days
    codes, distinct = _distinct(column)
    cells = [_spoken(value, missing) for value in distinct]
    days = [None if cell is None else _date(cell) for cell in cells]
    kept = [d is None and c is not None for c, d in zip(cells, days, strict=True)]
    days = [None if day in empty else day for day in days]
    if not any(kept):
        table = np.array([np.datetime64("NaT") if d is None else d for d in days], DATE)
        return _take(table, codes, np.datetime64("NaT"), DATE)
    mixed = [
        value if keep else np.nan if day is None else pd.Timestamp(day)
        for value, keep, day in zip(distinct, kept, days, strict=True)
    ]
    return _take(mixed, codes, np.nan, np.dtype(object))


def _date(value: Any) -> np.datetime64 | None:
    """Return a cell as a date and time (in UTC if it has a zone), or None if it is none."""
    text = isinstance(value, str) and _DATE.fullmatch(value) is not None
    if not text and not isinstance(value, (datetime.date, np.datetime64)):
        return None
    try:
        stamp = pd.Timestamp(value)
        stamp = stamp.tz_convert(None) if stamp.tzinfo is not None else stamp
        return stamp.as_unit("us").to_datetime64()
    except (ValueError, OverflowError):
        return None


# cells --------------------------------------------------------------------------------


def _spoken(value: Any, missing: Sequence[str] = ()) -> Any:
    """Return a cell without spaces at its ends, or None if it stands for a missing value."""
    if isinstance(value, str):
        value = value.strip()
        return None if value in MISSING or level_text(value) in missing else value
    if missing and level_text(value) in missing:
        return None
    return value


def _distinct(column: pd.Series) -> tuple[Array, list[Any]]:
    """Return each row's position (n,) among the distinct cells, −1 if missing, and these cells."""
    codes, distinct = cast("tuple[Array, Any]", pd.factorize(column))
    return codes, list(cast("Iterable[Any]", distinct))


def _take(distinct: Any, codes: Array, missing: Any, dtype: np.dtype[Any]) -> Array:
    table = np.empty(len(distinct) + 1, dtype)
    table[:-1] = distinct
    table[-1] = missing
    return table[codes]


def site_names(frame: pd.DataFrame, column: str, where: str) -> Array:
    """Return each row's site as text (n,): 2, 2.0 and "2" are one site.

    Raises
    ------
    DataError : there is no such column, or rows have no site.
    """
    try:
        names = pd.Series(texts(column_of(frame, column)))
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    except TypeError:
        raise DataError(
            f"{where}: column {column!r} holds lists or other objects. Give each cell one value."
        ) from None
    missing = names.isna().to_numpy()
    if missing.any():
        raise DataError(
            f"{where}: no site in column {column!r}, {rows(missing)}. Name one, or drop the row."
        )
    return names.to_numpy(object)

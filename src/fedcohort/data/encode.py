"""Columns of a table as numbers and level codes, by the dictionary alone.

This is the first half of every design. It is also a view of its own, which federated preprocessing
uses before there is a design. A date `since` another date, or a day, becomes the time between them
in its unit. If a table lacks all columns of a view (`modalities`), they are missing in every row.
Nothing is revealed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self, cast

import numpy as np
import pandas as pd

from fedcohort import mapped
from fedcohort.arrays import Array
from fedcohort.data.variable import DURATIONS, Variable, columns_by_view, lacking
from fedcohort.data.words import level_text, nearest, rows
from fedcohort.protocol.errors import DataError
from fedcohort.protocol.views import view


class Encoded(NamedTuple):
    """A table's columns: ``numbers`` (n,) each, NaN if missing; ``codes`` (n,) each, −1 if missing.

    Columns of floats are the table's own, not copies: do not change them.
    """

    numbers: tuple[Array, ...]
    codes: tuple[Array, ...]


class Unfit(NamedTuple):
    """Cells of one column that cannot be read: ``rows`` (n,) bool, and an error in ``line``."""

    column: str
    rows: Array
    line: str


@view("encoding")
@dataclass(frozen=True)
class Encoding:
    """View that reads `variables`; see `Encoded`."""

    variables: tuple[Variable, ...]

    @cached_property
    def numeric(self) -> tuple[Variable, ...]:
        """Variables that become columns of numbers, in order."""
        return tuple(v for v in self.variables if not v.coded)

    @cached_property
    def coded(self) -> tuple[Variable, ...]:
        """Variables that become columns of codes, in order."""
        return tuple(v for v in self.variables if v.coded)

    @property
    def spec(self) -> str:
        """JSON text that determines the view."""
        return self._text

    @classmethod
    def from_spec(cls, text: str) -> Self:
        """Rebuild a view from `spec`, with what it needs of each variable."""
        known: list[Variable] = []
        for name, kind, levels, *more in json.loads(text)["encoding"]:
            start, unit, group = (*more, "", "", "")[:3]
            known.append(Variable(name, kind, tuple(levels), since=start, unit=unit, view=group))
        return cls(tuple(known))

    def __call__(self, frame: pd.DataFrame, /) -> Encoded:
        """Return the table's numbers and codes.

        Raises
        ------
        DataError : a column is missing, unless its whole view is; or it holds no number where one
            is expected, or an unknown level. The message names columns and row numbers.
        """
        gone, n = self.lacking(frame), len(frame)
        return Encoded(
            tuple(
                np.full(n, np.nan) if v.view in gone else _released(number_column(frame, v))
                for v in self.numeric
            ),
            tuple(
                np.full(n, -1, np.int64) if v.view in gone else code_column(frame, v)
                for v in self.coded
            ),
        )

    def many(self, frames: Sequence[pd.DataFrame]) -> list[Encoded] | None:
        """Return the result of each of several tables, read as one; None: read them one by one."""
        whole = joined(frames, self.variables)
        if whole is None:
            return None
        found = self(whole)
        ends = np.cumsum([len(frame) for frame in frames])[:-1]
        parts = [[np.split(a, ends) for a in arrays] for arrays in found]
        return [Encoded(*(tuple(a[i].copy() for a in arrays) for arrays in parts))
                for i in range(len(frames))]  # fmt: skip

    def lacking(self, frame: pd.DataFrame) -> frozenset[str]:
        """Return the views without any column in a table."""
        return lacking(self._views, frame.columns)

    def unfit(self, frame: pd.DataFrame) -> list[Unfit]:
        """Return every cell that the view cannot read, column by column.

        Raises
        ------
        DataError : a column is missing, or holds dates where numbers are expected.
        """
        gone = self.lacking(frame)
        return [
            one
            for v in self.variables
            if v.view not in gone
            for one in (read_codes if v.coded else read_numbers)(frame, v)[1]
        ]

    @cached_property
    def _views(self) -> dict[str, list[str]]:
        return columns_by_view(self.variables)

    @cached_property
    def _text(self) -> str:
        plain = [[v.name, v.type, list(v.levels), *_more(v)] for v in self.variables]
        return json.dumps({"encoding": plain}, ensure_ascii=False, separators=(",", ":"))


def _more(v: Variable) -> tuple[str, ...]:
    """Return the further entries of a variable in a view's text; none for most."""
    since = (v.since, v.unit) if v.since else ("", "")
    return (*since, v.view) if v.view else since if v.since else ()


def joined(frames: Sequence[pd.DataFrame], read: Sequence[Variable]) -> pd.DataFrame | None:
    """Return several tables as one, if each cell that is read has the same value there.

    So all have the same columns of the same types; numbers are stored as numbers, and levels as
    text. None otherwise.
    """
    first, types = frames[0], frames[0].dtypes.tolist()
    for frame in frames[1:]:
        if not (frame.columns.equals(first.columns) and frame.dtypes.tolist() == types):
            return None
    if not first.columns.is_unique or any(v.since for v in read):
        return None
    whole = pd.concat(list(frames), ignore_index=True)
    for v in read:
        if v.name not in first.columns:
            continue
        column = whole[v.name]
        plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf"
        text = v.coded and pd.api.types.infer_dtype(column) in ("string", "categorical", "empty")
        if not (plain or text):
            return None
    return whole


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return one column.

    Raises
    ------
    DataError : there is no column of that name, or more than one.
    """
    if name not in frame.columns:
        hint = nearest(name, map(str, frame.columns))
        raise DataError(f"there is no column {name!r} among {frame.shape[1]} columns.{hint}")
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise DataError(
            f"{column.shape[1]} columns are called {name!r}; rename or drop all but one."
        )
    return column


def number_column(frame: pd.DataFrame, variable: Variable) -> Array:
    """Return a column as floats (n,), NaN if missing; a date as the time `since` another.

    Raises
    ------
    DataError : text, an infinite number, or anything but 0 and 1 in a binary column.
    """
    return _fit(*read_numbers(frame, variable))


def code_column(frame: pd.DataFrame, variable: Variable) -> Array:
    """Return a column as positions in the variable's levels (n,), −1 if missing.

    Raises
    ------
    DataError : a level is not in the dictionary.
    """
    return _fit(*read_codes(frame, variable))


def numbers(column: pd.Series, name: str) -> Array:
    """Return a column as floats (n,), NaN if missing.

    Raises
    ------
    DataError : some rows hold no number.
    """
    return _fit(*_numbers(column, name))


def read_numbers(frame: pd.DataFrame, variable: Variable) -> tuple[Array, list[Unfit]]:
    """Return a column as floats (n,), NaN if missing or unreadable, and the unreadable cells.

    Raises
    ------
    DataError : there is no such column, or it holds dates where numbers are expected.
    """
    name = variable.name
    if variable.since:
        return _durations(frame, variable)
    values, unfit = _numbers(column_of(frame, name), name)
    if (bad := np.isinf(values)).any():
        unfit.append(
            Unfit(name, bad, f"column {name!r} is infinite in {rows(bad)}. Leave a missing value "
                  f"empty.")
        )  # fmt: skip
        values = np.where(bad, np.nan, values)
    if variable.type == "binary":
        bad = ~np.isnan(values) & (values != 0) & (values != 1)
        if bad.any():
            unfit.append(
                Unfit(name, bad, f"column {name!r} is binary, and neither 0 nor 1 in {rows(bad)}. "
                      f"Recode it, or declare its type in the dictionary.")
            )  # fmt: skip
    return values, unfit


def offset_column(frame: pd.DataFrame, name: str) -> Array:
    """Return the column of an offset (n,).

    Raises
    ------
    DataError : there is no such column, or some rows hold no finite number.
    """
    return _fit(*read_offset(frame, name))


def read_offset(frame: pd.DataFrame, name: str) -> tuple[Array, list[Unfit]]:
    """Return an offset's column (n,), and the cells without a finite number.

    Raises
    ------
    DataError : there is no such column, or it holds dates.
    """
    values, unfit = _numbers(_role_column(frame, name, "offset"), name)
    bad = ~np.isfinite(values)
    for one in unfit:
        bad &= ~one.rows
    if bad.any():
        line = (
            f"column {name!r}, the offset, is missing or infinite in {rows(bad)}. Complete or "
            f"drop them."
        )
        unfit.append(Unfit(name, bad, line))
    return values, unfit


def _role_column(frame: pd.DataFrame, name: str, role: str) -> pd.Series:
    """Return the column of an offset or of strata.

    Raises
    ------
    DataError : there is none, or several.
    """
    if name in frame.columns:
        return column_of(frame, name)
    hint = nearest(name, map(str, frame.columns))
    raise DataError(
        f"there is no column {name!r} among {frame.shape[1]} columns. It is the {role}, which the "
        f"model needs besides its covariates.{hint}"
    )


def stratum_column(frame: pd.DataFrame, variable: Variable) -> Array:
    """Return the number of each row's level (n,), of a column of strata.

    Raises
    ------
    DataError : there is no such column, or some rows have no level, or an unknown one.
    """
    return _fit(*read_stratum(frame, variable))


def read_stratum(frame: pd.DataFrame, variable: Variable) -> tuple[Array, list[Unfit]]:
    """Return the number of each row's level (n,), and the cells without a known level.

    Raises
    ------
    DataError : there is no such column.
    """
    name = variable.name
    _role_column(frame, name, "strata")
    codes, unfit = read_codes(frame, variable)
    bad = codes < 0
    for one in unfit:
        bad &= ~one.rows
    if bad.any():
        line = f"column {name!r}, the strata, is missing in {rows(bad)}. Complete or drop them."
        unfit.append(Unfit(name, bad, line))
    return codes, unfit


def read_codes(frame: pd.DataFrame, variable: Variable) -> tuple[Array, list[Unfit]]:
    """Return a column as level positions (n,), −1 if missing, and the cells with an unknown level.

    Raises
    ------
    DataError : there is no such column.
    """
    name = variable.name
    codes, uniques = cast("tuple[Array, Sequence[Any]]", pd.factorize(column_of(frame, name)))
    known = {level: i for i, level in enumerate(variable.levels)}
    position = np.array([known.get(level_text(u), -2) for u in uniques] + [-1], np.int64)
    found = position[codes]
    if not (bad := found == -2).any():
        return found, []
    line = (
        f"column {name!r} has a level outside the {len(known)} that the dictionary knows, in "
        f"{rows(bad)}. Correct them, or add the level to the dictionary and refit."
    )
    return np.where(bad, -1, found), [Unfit(name, bad, line)]


def _fit(values: Array, unfit: list[Unfit]) -> Array:
    """Return `values` if every cell could be read; raise the first error otherwise."""
    if unfit:
        raise DataError(unfit[0].line)
    return values


def _released(values: Array) -> Array:
    """Return a column after its pages are released, if it is in a scratch file."""
    mapped.release(values)
    return values


def _numbers(column: pd.Series, name: str) -> tuple[Array, list[Unfit]]:
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return column.to_numpy(np.float64), []
    missing = column.isna().to_numpy()
    if column.dtype.kind in "mM":
        raise DataError(f"column {name!r} holds dates. Give it as a number of days or years.")
    parsed = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    if not (bad := np.isnan(parsed) & ~missing).any():
        return parsed, []
    line = f"column {name!r} holds no number in {rows(bad)}. Correct or empty them."
    return parsed, [Unfit(name, bad, line)]


def _durations(frame: pd.DataFrame, variable: Variable) -> tuple[Array, list[Unfit]]:
    """Return the time from `since` to the date in the variable's unit (n,), NaN if unknown."""
    end, unfit = _days(column_of(frame, variable.name), variable.name)
    if variable.since_day is not None:
        start = float(np.datetime64(variable.since_day, "D").astype(np.int64))
    else:
        start, more = _days(column_of(frame, variable.since), variable.since)
        unfit += more
    return (end - start) / DURATIONS[variable.unit], unfit


def _days(column: pd.Series, name: str) -> tuple[Array, list[Unfit]]:
    """Return dates as days since 1970 (n,), NaN if missing, and the unreadable cells."""
    missing = column.isna().to_numpy()
    if column.dtype.kind == "M":
        dates, bad = column, np.zeros(len(column), bool)
    else:
        dates = pd.to_datetime(column.astype("string"), errors="coerce", format="ISO8601")
        bad = dates.isna().to_numpy() & ~missing
    seconds = dates.to_numpy("datetime64[us]").astype(np.int64) / 1e6
    days = np.where(missing | bad, np.nan, seconds / 86_400.0)
    if not bad.any():
        return days, []
    line = f"column {name!r} holds no date in {rows(bad)}. Write dates as 2015-01-31."
    return days, [Unfit(name, bad, line)]

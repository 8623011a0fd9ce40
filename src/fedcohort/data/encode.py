"""Columns of a table as numbers and level codes, by the dictionary alone.

This is the first half of every design, and a view of its own: federated preprocessing looks at
sites through it. It needs nothing but the dictionary, so it is the same before and after a fit.
Nothing is revealed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Variable
from fedcohort.data.words import level_text, nearest, rows
from fedcohort.protocol.errors import DataError


class Encoded(NamedTuple):
    """A table's columns: ``numbers`` (n, c), NaN if missing; ``codes`` (n, k), −1 if missing."""

    numbers: Array
    codes: Array


@dataclass(frozen=True)
class Encoding:
    """The view that reads `variables`; see `Encoded`."""

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

    def __call__(self, frame: pd.DataFrame, /) -> Encoded:
        """Return the table's numbers and codes.

        Raises
        ------
        DataError : a column is missing, holds no number where one belongs, or a level that the
            dictionary does not know; columns and row numbers are named.
        """
        numbers = np.empty((len(frame), len(self.numeric)))
        codes = np.empty((len(frame), len(self.coded)), np.int64)
        for j, v in enumerate(self.numeric):
            numbers[:, j] = number_column(frame, v)
        for j, v in enumerate(self.coded):
            codes[:, j] = code_column(frame, v)
        return Encoded(numbers, codes)

    @cached_property
    def _text(self) -> str:
        plain = [[v.name, v.type, list(v.levels)] for v in self.variables]
        return json.dumps({"encoding": plain}, ensure_ascii=False, separators=(",", ":"))


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return one column.

    Raises
    ------
    DataError : there is none of that name, or more than one.
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
    """Return a column as floats (n,), NaN where missing.

    Raises
    ------
    DataError : text, an infinite number, or anything but 0 and 1 in a binary column.
    """
    name = variable.name
    values = numbers(column_of(frame, name), name)
    if (bad := np.isinf(values)).any():
        raise DataError(f"column {name!r} is infinite in {rows(bad)}. Leave a missing value empty.")
    if variable.type == "binary":
        bad = ~np.isnan(values) & (values != 0) & (values != 1)
        if bad.any():
            raise DataError(
                f"column {name!r} is binary, and neither 0 nor 1 in {rows(bad)}. Recode it, or "
                f"declare its type in the dictionary."
            )
    return values


def numbers(column: pd.Series, name: str) -> Array:
    """Return a column as floats (n,), NaN where missing.

    Raises
    ------
    DataError : some rows hold no number.
    """
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return column.to_numpy(np.float64)
    missing = column.isna().to_numpy()
    if column.dtype.kind in "mM":
        raise DataError(f"column {name!r} holds dates. Give it as a number of days or years.")
    parsed = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    if (bad := np.isnan(parsed) & ~missing).any():
        raise DataError(f"column {name!r} holds no number in {rows(bad)}. Correct or empty them.")
    return parsed


def code_column(frame: pd.DataFrame, variable: Variable) -> Array:
    """Return a column as positions in the variable's levels (n,), −1 where missing.

    Raises
    ------
    DataError : a level that the dictionary does not know.
    """
    column = column_of(frame, variable.name)
    codes, uniques = cast("tuple[Array, Sequence[Any]]", pd.factorize(column))
    known = {level: i for i, level in enumerate(variable.levels)}
    position = np.array([known.get(level_text(u), -2) for u in uniques] + [-1], np.int64)
    found = position[codes]
    if (bad := found == -2).any():
        raise DataError(
            f"column {variable.name!r} has a level outside the {len(known)} that the dictionary "
            f"knows, in {rows(bad)}. Correct them, or add the level to the dictionary and refit."
        )
    return found

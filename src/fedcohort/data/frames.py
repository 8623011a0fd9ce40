"""The door for tables in memory: pandas frames pass, Polars and others are converted.

One table with a column of sites becomes one table a site.
"""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import pandas as pd

from fedcohort.data.checks import check_column
from fedcohort.data.words import rows
from fedcohort.protocol.errors import DataError


def as_pandas(frame: Any) -> pd.DataFrame:
    """Return a table as a pandas frame with rows numbered from 0.

    Raises
    ------
    DataError : it is no table that narwhals knows.
    """
    if not isinstance(frame, pd.DataFrame):
        try:
            frame = nw.from_native(frame, eager_only=True).to_pandas()
        except TypeError:
            kind = type(frame).__name__
            raise DataError(f"a pandas or Polars frame is expected, not {kind}.") from None
    return frame.reset_index(drop=True)


def by_column(frame: pd.DataFrame, column: str, where: str) -> dict[str, pd.DataFrame]:
    """Return one table for each value of the site column, without that column, sorted by name.

    Raises
    ------
    DataError : there is no such column, or rows without a site.
    """
    check_column(frame, column, where)
    missing = frame[column].isna().to_numpy()
    if missing.any():
        raise DataError(f"{where}: no site in column {column!r}, {rows(missing)}.")
    names = frame[column].astype(str)
    rest = frame.drop(columns=[column])
    return {
        str(name): rest[(names == name).to_numpy()].reset_index(drop=True)
        for name in sorted(names.unique())
    }

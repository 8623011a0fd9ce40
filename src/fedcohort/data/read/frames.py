"""Conversion of tables in memory, Arrow tables and Parquet files to pandas frames.

Polars and other frames are converted. Whole numbers and dates of Arrow stay exact. One table with
a column of sites becomes one table per site. Nothing is revealed.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from fedcohort.data import on_disk
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, columns_of
from fedcohort.data.read import large
from fedcohort.data.read.canonical import site_names
from fedcohort.data.read.csvfile import require_file
from fedcohort.protocol.errors import DataError


def read_parquet(
    path: Path, known: Dictionary | None = None, some: Collection[str] = ()
) -> pd.DataFrame:
    """Read one Parquet file, in batches if it is larger than memory (`large`).

    some : columns to keep besides those of the dictionary, as text, if it is read in batches.

    Raises
    ------
    DataError : there is no such file, it is not Parquet, or pyarrow is not installed.
    """
    require_file(path)
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            f"{path}: Parquet needs pyarrow, which is not installed: pip install "
            f'"fedcohort[parquet]"'
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            names = tuple(map(str, file.schema_arrow.names))
            table = large.Table(str(path), file.metadata.num_rows, names, partial(_batches, path))
            if not large.is_large(table, known, some):
                return from_arrow(file.read())
        return large.read(table, known, some)
    except (pa.ArrowException, OSError, ValueError) as error:
        kind = type(error).__name__
        raise DataError(f"{path} cannot be read as Parquet ({kind}). Is the file whole?") from None


@contextmanager
def _batches(path: Path, names: list[str], rows: int) -> Generator[Iterator[pd.DataFrame]]:
    """Yield the batches of a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        found = file.iter_batches(batch_size=rows, columns=names, use_threads=False)
        yield (from_arrow(pa.Table.from_batches([batch])) for batch in found)


def from_arrow(table: Any) -> pd.DataFrame:
    """Return a pyarrow table as a frame.

    Columns of whole numbers stay whole if values are missing, and dates are no objects. A nameless
    index that pandas wrote is left out.
    """
    import pyarrow as pa

    index = [c for c in table.column_names if c.startswith("__index_level_")]
    whole = {
        getattr(pa, name.lower())(): getattr(pd, f"{name}Dtype")()
        for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    }
    keep = [i for i, c in enumerate(table.column_names) if c not in index]
    return table.select(keep).to_pandas(
        types_mapper=whole.get, date_as_object=False, ignore_metadata=True
    )


def as_pandas(frame: Any) -> pd.DataFrame:
    """Return a table as a pandas frame with rows numbered from 0.

    Raises
    ------
    DataError : the object is no table that narwhals supports, or pyarrow is not installed.
    """
    if isinstance(frame, pd.DataFrame):
        return on_disk.numbered(frame)
    try:
        return from_arrow(nw.from_native(frame, eager_only=True).to_arrow())
    except TypeError:
        kind = type(frame).__name__
        raise DataError(f"a pandas or Polars frame is expected, not {kind}.") from None
    except ImportError:
        raise DataError(
            "frames other than pandas' need pyarrow, which is not installed: pip install "
            '"fedcohort[parquet]"'
        ) from None


def by_column(frame: pd.DataFrame, column: str, where: str) -> dict[str, pd.DataFrame]:
    """Return one table per value of the site column, without that column, sorted by name.

    Raises
    ------
    DataError : there is no such column, or rows have no site.
    """
    names = site_names(frame, column, where)
    rest = on_disk.without(frame, [column])
    return {str(n): on_disk.taken(rest, names == n) for n in np.unique(names)}


def without(dictionary: Dictionary, column: str | None) -> Dictionary:
    """Return a dictionary without the site column, which the sites' tables do not have."""
    variables = {k: v for k, v in dictionary.variables.items() if k != column}
    return replace(dictionary, variables=variables)


def without_marked(
    dictionary: Dictionary, marked: Iterable[str], outcome: Outcome | None
) -> Dictionary:
    """Return a dictionary without columns of a marked outcome that the study does not name.

    Clusters made from an outcome would reveal it, and seem to predict it.
    """
    for name in marked:
        dictionary = dictionary if name in columns_of(outcome) else without(dictionary, name)
    return dictionary

"""Arrow tables and Parquet files as pandas frames, with whole numbers and dates kept exact.

Nothing is revealed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from fedcohort.data.csvfile import require_file
from fedcohort.protocol.errors import DataError


def read_parquet(path: Path) -> pd.DataFrame:
    """Read one Parquet file.

    Raises
    ------
    DataError : no such file; it is no Parquet; or pyarrow is not installed.
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
            return from_arrow(file.read())
    except (pa.ArrowException, OSError, ValueError) as error:
        kind = type(error).__name__
        raise DataError(f"{path} cannot be read as Parquet ({kind}). Is the file whole?") from None


def from_arrow(table: Any) -> pd.DataFrame:
    """Return a pyarrow table as a frame.

    Whole numbers stay whole beside missing ones, dates are no objects, and an index that pandas
    wrote beside the columns is left out unless it has a name.
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

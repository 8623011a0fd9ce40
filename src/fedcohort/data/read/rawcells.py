"""The cells of a CSV file as they are written, so that a file can be written anew cell by cell.

The form is that of `csvform`; empty lines are left out, as `csvfile` does. Nothing is revealed.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

from fedcohort.data.read import csvform
from fedcohort.data.read.csvfile import UNPACK, require_file
from fedcohort.protocol.errors import DataError

#: Suffixes of files that are no CSV.
OTHERS = (".parquet", ".pq", ".zip", ".xlsx", ".xls", ".ods")


class Cells(NamedTuple):
    """Names of the columns, rows of cells as texts, and what separates them."""

    header: list[str]
    rows: list[list[str]]
    separator: str


def raw_cells(path: Path) -> Cells:
    """Return the cells of a CSV file; short rows are filled with empty cells.

    Raises
    ------
    DataError : there is no such file, it is empty, or no CSV.
    """
    require_file(path)
    suffix = path.suffix.lower()
    if suffix in OTHERS:
        raise DataError(f"{path}: only the cells of a CSV file can be kept. Save it as CSV.")
    form = csvform.form_of(path)
    unpack = UNPACK.get(suffix)
    if unpack is None:
        body = path.read_bytes()
    else:
        with unpack(path) as file:
            body = file.read()
    try:
        text = body.decode(form.encoding)
    except UnicodeDecodeError:
        text = body.decode(form.western.encoding, "replace")
    read = csv.reader(io.StringIO(text, newline=""), delimiter=form.separator)
    found = [row for row in list(read)[form.skipped :] if row]
    if not found:
        raise DataError(f"{path} is empty. Its first line must name the columns.")
    header, *rows = found
    wide = [[*row, *[""] * (len(header) - len(row))] for row in rows]
    return Cells([name.strip() for name in header], wide, form.separator)

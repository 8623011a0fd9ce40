"""Reader of CSV files with one header line, compressed or not, in any form of `csvform`.

Texts, levels, identifiers and dates of the dictionary are read as text, so that leading zeros
survive. Numbers are rounded to the nearest float: pandas' fast parser does so up to 15 digits;
its slower parser is used if the file shows more. Nothing is revealed.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pandas as pd

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.read import csvform
from fedcohort.data.read.canonical import EXACT, MISSING, is_text
from fedcohort.data.read.csvform import WESTERN, Form
from fedcohort.data.words import by_site, in_folder, nearest
from fedcohort.protocol.errors import DataError

#: Rows that are looked at before the file is read.
HEAD = 1000

#: A compressed file may unpack to this many bytes, or to this many times its size if that is more.
UNPACKED, RATIO = 1 << 30, 100

PANDAS_2 = pd.__version__.startswith("2.")

#: Bytes read at each of `PLACES` in a file, to find long numbers.
GLANCE, PLACES = 1 << 16, 8

_LONG = re.compile(rb"[0-9.]{17}|[0-9][eE][+-]?0*([89]|[1-9][0-9])")
_CODE = re.compile(r"[+-]?0[0-9]+")
_WHOLE = re.compile(r"[+-]?[0-9]{16,}")


def read_csv(
    path: Path, dictionary: Dictionary | None = None, texts: Collection[str] = ()
) -> pd.DataFrame:
    """Read one table with its header unchanged; empty cells are missing values.

    Parameters
    ----------
    dictionary : says which columns are text. Without it, a column is text if codes such as 007
        stand in its first rows.
    texts : further columns to read as text, such as that of the site.

    Raises
    ------
    DataError : the file does not exist, is empty or no text, or its rows differ in length.
    """
    require_file(path)
    if path.suffix.lower() in (".xls", ".xlsx", ".ods"):
        raise DataError(f"{path} is a spreadsheet. Save it as CSV in UTF-8.")
    _check_first_bytes(path)
    _check_unpacked(path)
    form = _parsed(path, Form(), lambda: csvform.form_of(path))
    try:
        return _table(path, form, dictionary, texts)
    except UnicodeDecodeError:
        return _table(path, form.western, dictionary, texts)


def _table(
    path: Path, form: Form, dictionary: Dictionary | None, texts: Collection[str]
) -> pd.DataFrame:
    """Read one table of known form; raises as `read_csv`, and UnicodeDecodeError if it is not
    UTF-8.
    """
    names = _parsed(path, form, lambda: _names(path, form))
    head = _parsed(
        path, form, lambda: _read(path, form, nrows=HEAD, dtype=object, keep_default_na=False)
    )
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise DataError(
            f"{path} has one column, whose name holds a semicolon, tab or bar, and its rows hold "
            f"none. Save it with commas between the columns."
        )
    kinds: dict[Any, Any] = {}
    empty: dict[Any, Collection[str]] = {}
    for name, (key, cells) in zip(names, head.items(), strict=True):
        kinds[key], empty[key] = _kind(name, cells, dictionary, texts)
    options: dict[str, Any] = {"na_values": empty, "keep_default_na": False}
    if form.encoding.startswith("utf-16") or _has_long_numbers(path):
        options["float_precision"] = "round_trip"
    frame = _parsed(path, form, lambda: _with_numbers(path, form, kinds, options))
    frame.columns = pd.Index(names, dtype=object)
    return frame


def require_file(path: Path, *, table: bool = True) -> None:
    """Check that a file exists.

    Parameters
    ----------
    table : whether it is a table; several tables can be named with {site}.

    Raises
    ------
    DataError : it does not exist. The message gives the nearest name, or how to name several files.
    """
    if path.is_file():
        return
    if table and path.is_dir():
        raise DataError(f"{path} is a folder. {by_site(in_folder(path))}")
    if table and any(mark in path.name for mark in "*?["):
        files = [p.as_posix() for p in sorted(path.parent.glob(path.name)) if p.is_file()]
        if files:
            raise DataError(f"{path} stands for several files. {by_site(files)}")
    beside = (p.name for p in path.parent.glob("*") if p.is_file())
    raise DataError(f"there is no file {path}.{nearest(path.name, beside)}")


def _check_first_bytes(path: Path) -> None:
    """Check that a file is no database, Parquet file or spreadsheet with another suffix.

    Raises
    ------
    DataError : it is one; the message says how to read it.
    """
    with path.open("rb") as file:
        head = file.read(20)
        file.seek(-min(4, path.stat().st_size), 2)
        tail = file.read()
    if head.startswith(b"SQLite format 3\0"):
        raise DataError(f"{path} is an SQLite database. Give sqlite:///{path} and a query.")
    if head[8:12] == b"DUCK" and b"\0" in head:
        raise DataError(f"{path} is a DuckDB database. Give duckdb:///{path} and a query.")
    if head.startswith(b"PAR1") and tail == b"PAR1":
        raise DataError(f"{path} is a Parquet file. Let its name end in .parquet.")
    if head.startswith((b"PK\3\4", b"\xd0\xcf\x11\xe0")) and path.suffix.lower() != ".zip":
        raise DataError(f"{path} is a spreadsheet or a zip archive. Save it as CSV in UTF-8.")


def _check_unpacked(path: Path) -> None:
    """Check that a compressed file does not unpack to far more than its size.

    Raises
    ------
    DataError : it does, or it is damaged.
    """
    unpack = UNPACK.get(path.suffix.lower())
    most = max(UNPACKED, RATIO * path.stat().st_size)
    if unpack is None:
        return
    try:
        with unpack(path) as file:
            size = 0
            while size <= most and (part := file.read(1 << 20)):
                size += len(part)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, LookupError,
            RuntimeError, NotImplementedError) as error:  # fmt: skip
        kind = type(error).__name__
        raise DataError(f"{path} cannot be read ({kind}). Is the file whole?") from None
    if size > most:
        raise DataError(
            f"{path} has {path.stat().st_size:,} bytes and unpacks to more than {most:,}. If it is "
            f"what it should be, unpack it and give the file within."
        )


def _in_zip(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return archive.open(archive.namelist()[0])


#: How files are unpacked, by suffix.
UNPACK: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zip": _in_zip,
}  # fmt: skip


def _kind(
    name: str, cells: pd.Series, dictionary: Dictionary | None, texts: Collection[str]
) -> tuple[type | None, Collection[str]]:
    """Return how to read a column: the cells' type, None to infer it, and its missing values."""
    variable = dictionary.variables.get(name) if dictionary is not None else None
    if variable is None:
        filled = cells.dropna()
        codes = any(_CODE.fullmatch(c) or _is_long(c) for c in filled)
        return (object if codes or name in texts else None), MISSING
    if name in texts or is_text(variable):
        return object, MISSING - set(variable.levels)
    return (object if variable.type == "date" else float), MISSING | set(variable.missing)


def _is_long(cell: str) -> bool:
    return _WHOLE.fullmatch(cell) is not None and abs(int(cell[:20])) >= EXACT


def _with_numbers(
    path: Path, form: Form, kinds: dict[Any, Any], options: dict[str, Any]
) -> pd.DataFrame:
    """Read a file; a column that should be numbers stays text if a cell is no number."""
    try:
        return _read(path, form, dtype={k: v for k, v in kinds.items() if v is not None}, **options)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError):
        raise
    except ValueError:
        texts = {k: v for k, v in kinds.items() if v is object}
        return _read(path, form, dtype=texts, **options)


def _read(path: Path, form: Form, **options: Any) -> pd.DataFrame:
    """Call pandas' reader, with an error for rows longer than the header.

    Copy-on-write, as from pandas 3 on, keeps columns as separate arrays and saves a second copy.
    """
    separate = pd.option_context("mode.copy_on_write", True) if PANDAS_2 else nullcontext()
    with warnings.catch_warnings(), separate:
        warnings.simplefilter("error", pd.errors.ParserWarning)
        warnings.simplefilter("ignore", pd.errors.DtypeWarning)
        return cast("pd.DataFrame", pd.read_csv(path, index_col=False, **form.options, **options))


def _names(path: Path, form: Form) -> list[str]:
    """Return the header; repeated names stay, and an empty name gets a number."""
    cells = _read(path, form, header=None, nrows=1, dtype=object, keep_default_na=False).iloc[0]
    return [str(c).strip() or f"Unnamed: {i}" for i, c in enumerate(cells)]


def _parsed(path: Path, form: Form, read: Callable[[], Any]) -> Any:
    """Return the result of `read`.

    Raises
    ------
    DataError : the file is no CSV; the message quotes none of it.
    UnicodeDecodeError : the file is not UTF-8, and may have another encoding.
    """
    try:
        return read()
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty. Its first line must name the columns.") from None
    except UnicodeDecodeError:
        if form.encoding == "utf-8":
            raise
        known = "UTF-8, UTF-16 nor Windows-1252" if form.encoding == WESTERN else "whole UTF-16"
        wrong = "neither" if form.encoding == WESTERN else "no"
        raise DataError(f"{path} is {wrong} {known} text. Save it as CSV in UTF-8.") from None
    except pd.errors.ParserWarning:
        raise DataError(_too_long(path, form)) from None
    except pd.errors.ParserError as error:
        line = re.search(r"line (\d+)", str(error))
        at = f", line {line.group(1)}," if line else ""
        raise DataError(
            f"{path}{at} does not fit the header. Check separators and quotes."
        ) from None
    except (OSError, EOFError, ValueError) as error:
        kind = type(error).__name__
        raise DataError(f"{path} cannot be read ({kind}). Is the file whole?") from None


def _too_long(path: Path, form: Form) -> str:
    """Return an error text with the first row that has more cells than the header."""
    try:
        row = csvform.first_longer(path, form)
    except (OSError, ValueError, csv.Error):
        row = 0
    at = f": row {row} is the first" if row else ""
    commas = ", and quotes around numbers with decimal commas" * (form.separator == ",")
    return (
        f"{path} has rows with more cells than its header names{at}. Check separators and quotes"
        f"{commas}."
    )


def _has_long_numbers(path: Path) -> bool:
    """Return whether a file may hold numbers beyond 15 digits, by suffix and samples."""
    if path.suffix.lower() not in (".csv", ".txt", ".tsv"):
        return True
    size = path.stat().st_size
    with path.open("rb") as file:
        for place in range(PLACES):
            file.seek(place * max(size - GLANCE, 0) // (PLACES - 1))
            if _LONG.search(file.read(GLANCE)):
                return True
    return False

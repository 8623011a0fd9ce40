"""Reader of one database query, through SQLAlchemy: SQLite, DuckDB, and others with a driver.

The query is one SELECT (or WITH … SELECT), and all its effects are rolled back. SQLite and DuckDB
files are opened read-only, DuckDB without access to other files or the network. A URL never holds
a password: it holds `${NAME}`, which is read from that environment variable. So no study file,
error or result can show it. Errors name tables and columns of the query, and no cell.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

import numpy as np
import pandas as pd

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.read import large
from fedcohort.data.read.csvfile import require_file
from fedcohort.protocol.errors import DataError

_URL = re.compile(r"[A-Za-z][\w+.-]*://")
_PASSWORD = re.compile(r"[A-Za-z][\w+.-]*://[^:/]*:([^@]*)@")
_MASKED = re.compile(r"(?<=://)([^:/]*):(.*)@")
_OPTION = re.compile(r"(?<=[?&])([^=&]*)=([^&]*)")
_FILE = re.compile(r"(?:sqlite|duckdb)(?:\+\w+)?:///([^?]+)")
_MISSING = re.compile(r"Catalog|Binder|Undefined|no such|does(?: not|n't) exist")
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_SECRET = re.compile(r"pass|pwd|token|secret|key|credential", re.IGNORECASE)
_QUOTED = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$", re.DOTALL
)
_UNKNOWN = re.compile(
    r"no such (?:table|column): (\S+)"
    r"|(?:table|column|relation|view)\W+(?:with name )?[\"'`]?([\w.]+)",
    re.IGNORECASE,
)


def is_url(source: str) -> bool:
    """Return whether a study's source is a database URL."""
    return _URL.match(source) is not None


def database_file(url: str) -> str | None:
    """Return the file in a URL of SQLite or DuckDB, or None."""
    match = _FILE.match(url)
    return None if match is None or match.group(1) == ":memory:" else match.group(1)


def masked(source: str) -> str:
    """Return a source in which *** replaces the secrets of a URL."""
    if not is_url(source):
        return source
    main, mark, options = source.partition("?")
    if mark and "@" in options and not _MASKED.search(main):  # a password may hold a "?"
        main, mark, options = source, "", ""
    main = _MASKED.sub(lambda m: f"{m[1]}:{_mask(m[2])}@", main)
    return main + _OPTION.sub(_option, mark + options)


def _option(match: re.Match[str]) -> str:
    key, value = match.groups()
    secret = _SECRET.search(unquote_plus(key)) or _SECRET.search(unquote_plus(value))
    return f"{key}={_mask(value) if secret else value}"


def _mask(text: str) -> str:
    return text if _VARIABLE.fullmatch(text) else "***"


def problem_of_url(url: str) -> str | None:
    """Return what is wrong with a URL, without quoting it; None if it holds no secret."""
    password = _PASSWORD.match(url)
    given = [password.group(1)] if password else []
    options = parse_qsl(url.partition("?")[2], keep_blank_values=True)
    given += [v for k, v in options if _SECRET.search(k) or _SECRET.search(v)]
    if any(not _VARIABLE.fullmatch(v) for v in given):
        return (
            "the URL holds a password. Write ${NAME} in its place, and set that environment "
            "variable when you run."
        )
    if url.count("${") > len(given):
        return "in a URL, ${NAME} can only stand in place of a password."
    return None


def problem_of_query(query: str) -> str | None:
    """Return what is wrong with a query; None if it is one SELECT."""
    bare = _QUOTED.sub(" ", query).strip().rstrip(";").strip()
    if not re.match(r"(select|with)\b", bare, re.IGNORECASE) or ";" in bare:
        return "expected one SELECT (or WITH … SELECT) statement."
    return None


def read_sql(
    url: str,
    query: str,
    base: Path,
    known: Dictionary | None = None,
    some: Collection[str] = (),
) -> pd.DataFrame:
    """Return the rows of a query, with cells of plain Python types.

    With a dictionary the rows are counted first; a table larger than memory is read in batches and
    returned in the dictionary's form (`large`). It needs an order that does not change.

    Parameters
    ----------
    url : in SQLAlchemy's form; a relative path of SQLite or DuckDB starts at `base`.
    some : as in `large.read`.

    Raises
    ------
    DataError : the URL holds a password, the query is no SELECT or fails, or the database or its
        driver is missing.
    """
    for problem in (problem_of_url(url), problem_of_query(query)):
        if problem:
            raise DataError(f"a database as source: {problem}")
    table = None if known is None else _counted(url, query, base)
    if table is not None and large.is_large(table, known, some):
        return large.read(table, known, some)
    with _asked(url, query, base) as result:
        names, rows = _names(result), result.fetchall()
    return _frame(names, rows)


@contextmanager
def _asked(url: str, query: str, base: Path) -> Generator[Any]:
    """Yield the result of a query, whose rows come as they are fetched.

    Raises
    ------
    DataError : the query fails, or the database or its driver is missing.
    """
    engine = _engine(url, base)
    try:
        with engine.connect() as connection:
            streamed = connection.execution_options(stream_results=True)
            yield streamed.exec_driver_sql(query)
    except (DataError, MemoryError):
        raise
    except Exception as error:
        raise DataError(_said(url, query, getattr(error, "orig", None) or error)) from None
    finally:
        engine.dispose()


def _names(result: Any) -> list[str]:
    return [str(n) for n in result.keys()]  # noqa: SIM118 - a result is no mapping


def _counted(url: str, query: str, base: Path) -> large.Table | None:
    """Return what is known of a query's table before it is read; None if it cannot be counted."""
    inner = f"FROM ({query.strip().rstrip(';')}\n) AS counted"
    try:
        with _asked(url, f"SELECT COUNT(*) {inner}", base) as result:
            rows = int(result.scalar())
        with _asked(url, f"SELECT * {inner} WHERE 1 = 0", base) as result:
            names = tuple(_names(result))
    except DataError:
        return None
    return large.Table(url, rows, names, partial(_batches, url, query, base))


@contextmanager
def _batches(
    url: str, query: str, base: Path, names: list[str], rows: int
) -> Generator[Iterator[pd.DataFrame]]:
    """Yield the batches of a query."""
    with _asked(url, query, base) as result:
        found = _names(result)
        parts = iter(lambda: result.fetchmany(rows), [])
        yield (_frame(found, part)[names] for part in parts)


def _frame(names: list[str], fetched: Sequence[Any]) -> pd.DataFrame:
    """Return rows with cells of plain Python types."""
    rows = [tuple(row) for row in fetched]
    cells = np.empty((len(names), len(rows)), object)
    for i, column in enumerate(zip(*rows, strict=True)):
        cells[i] = column
    frame = pd.DataFrame({i: pd.Series(c, dtype=object) for i, c in enumerate(cells)})
    frame.columns = pd.Index(names, dtype=object)
    return frame


def _engine(url: str, base: Path) -> Any:
    """Return a read-only engine.

    Raises
    ------
    DataError : SQLAlchemy, the dialect, its driver, the file or an environment variable is missing.
    """
    try:
        import sqlalchemy
        from sqlalchemy import exc
    except ImportError:
        raise DataError(
            f"{url}: a database needs SQLAlchemy, which is not installed: pip install "
            f'"fedcohort[sql]"'
        ) from None
    try:
        parts = sqlalchemy.make_url(url)
    except (exc.ArgumentError, ValueError):
        raise DataError(
            "the URL of the database cannot be read; expected, for example, sqlite:///cohort.db"
        ) from None
    options: dict[str, Any] = {"poolclass": sqlalchemy.NullPool}
    dialect = parts.get_backend_name()
    if dialect in ("sqlite", "duckdb"):
        if parts.database in (None, "", ":memory:"):
            raise DataError(f"{url}: expected a file, such as {dialect}:///cohort.db")
        path = base / parts.database
        require_file(path, table=False)
        parts = parts.set(database=str(path))
        if dialect == "sqlite":
            address = f"{path.resolve().as_uri()}?mode=ro"
            options["creator"] = lambda: sqlite3.connect(address, uri=True)
        else:
            settings = {"enable_external_access": "false", "lock_configuration": "true"}
            options["connect_args"] = {"read_only": True, "config": settings}
    if isinstance(parts.password, str):
        parts = parts.set(password=_secret(url, parts.password))
    query = {k: _secret(url, v) if isinstance(v, str) else v for k, v in parts.query.items()}
    try:
        return sqlalchemy.create_engine(parts.set(query=query), **options)
    except exc.NoSuchModuleError:
        extra = ': pip install "fedcohort[sql]"' if dialect == "duckdb" else "."
        raise DataError(f"{url}: no driver for {dialect!r} is installed{extra}") from None
    except ImportError as error:
        raise DataError(
            f"{url}: the driver {error.name!r} is not installed: pip install {error.name}"
        ) from None


def _secret(url: str, text: str) -> str:
    """Return a text, or what the environment variable holds that it names."""
    variable = _VARIABLE.fullmatch(text)
    if variable is None:
        return text
    name = variable.group(1)
    if name not in os.environ:
        raise DataError(
            f"{url}: the environment variable {name} is not set. Set it, and run again."
        )
    return os.environ[name]


def _said(url: str, query: str, cause: Exception) -> str:
    """Return one line on a failed query; it names only words of the query."""
    said = f"{url}: the query failed ({type(cause).__name__})"
    match = _UNKNOWN.search(str(cause))
    name = next((n for n in match.groups() if n), "").strip("\"'`!.,;") if match else ""
    words = set(re.findall(r"[\w.]+", query))
    if name in words:
        absent = _MISSING.search(f"{type(cause).__name__}: {cause}")
        hint = "Is there such a table or column?" if absent else "Do the types fit?"
        return f"{said}: look at {name!r}. {hint}"
    return f"{said}. Try it in the database's own client."

"""Arrays in scratch files, for tables larger than memory, and the rule that says which these are.

A table is read, checked and prepared in parts of its rows. Its numbers are written to a scratch
file and mapped into memory read-only, so the system can drop their pages and read them again. Sums
of rows walk such an array in blocks and release each block's pages.

A scratch file is in the folder for temporary files (TMPDIR) and is readable by its owner alone. It
has no name, so it is gone when the process ends, however it ends.

`FEDCOHORT_MEMORY` (such as 4GB) is the memory that a table and its working copies may take; a
larger one is read in parts. By default it is half of the memory that is free. Nothing is revealed.
"""

from __future__ import annotations

import itertools
import mmap
import os
import re
import resource
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from fedcohort.arrays import Array

R = TypeVar("R")

#: The setting, and the forms that it has.
SETTING = "FEDCOHORT_MEMORY"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
#: Copies of a table that its fit has at one time, of 8 bytes a cell.
COPIES = 5
#: Cells of a block.
CELLS = 1 << 22
#: Fewest rows of a block: below it, sums over a block could be refused as sums over few rows.
FEWEST = 1024
#: Limits of memory of the group of processes, in bytes; "max" or absent for none.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class _Map(mmap.mmap):
    """A mapped scratch file."""


class Writer:
    """A scratch file that takes numbers of 8 bytes (rows, columns), in rows or in columns.

    Parameters
    ----------
    by_column : whether a column's numbers are consecutive in the file, else a row's.
    """

    def __init__(self, rows: int, columns: int, *, by_column: bool = False):
        self._shape = (columns, rows) if by_column else (rows, columns)
        self._by_column = by_column
        self._file = tempfile.TemporaryFile(prefix="fedcohort-")  # noqa: SIM115 - until it is mapped
        self.at = 0

    def append(self, *columns: Array) -> None:
        """Write some rows: one array (m, columns), or with `by_column` one (m,) a column.

        Raises
        ------
        OSError : no space is left.
        """
        if not self._by_column:
            (rows,) = columns
            self._write(rows, self.at * self._shape[1])
        else:
            for j, column in enumerate(columns):
                self._write(column, j * self._shape[1] + self.at)
        self.at += len(columns[0]) if columns else 0

    def _write(self, numbers: Array, place: int) -> None:
        if not numbers.size:
            return
        left, at = memoryview(np.ascontiguousarray(numbers).tobytes()), 8 * place
        while len(left):
            done = os.pwrite(self._file.fileno(), left, at)
            left, at = left[done:], at + done

    def finished(self) -> Array:
        """Return the numbers, float64, (rows, columns) or (columns, rows).

        Rows that were not written are left out.
        """
        if not self._by_column:
            self._shape = self.at, self._shape[1]
        size = 8 * self._shape[0] * self._shape[1]
        with self._file:
            if not size:
                return np.zeros(self._shape)
            held = _Map(self._file.fileno(), size, access=mmap.ACCESS_READ)
        return np.frombuffer(held, np.float64).reshape(self._shape)


def is_mapped(array: Any) -> bool:
    """Return whether an array is (part of) a scratch file."""
    return _map_of(array) is not None


def _map_of(array: Any) -> _Map | None:
    while isinstance(array, np.ndarray):
        array = cast("Any", array).base
    if isinstance(array, memoryview):
        array = array.obj
    return array if isinstance(array, _Map) else None


def release(array: Any) -> None:
    """Release the pages of an array's scratch file, if it is in one; they are read again."""
    held = _map_of(array)
    if held is not None and hasattr(mmap, "MADV_DONTNEED"):
        held.madvise(mmap.MADV_DONTNEED)


def release_all(table: Any) -> None:
    """Release the pages of a table's scratch files."""
    for array in _arrays(table):
        release(array)


def block_rows(columns: int) -> int:
    """Return the number of rows of a block of that many columns."""
    return max(FEWEST, CELLS // max(columns, 1))


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield blocks of rows of nearly equal size, so that none has few."""
    ends = np.linspace(0, rows, max(1, -(-rows // block_rows(columns))) + 1).astype(int).tolist()
    for first, end in itertools.pairwise(ends):
        yield slice(first, end)


def walked(x: Array) -> Iterator[slice]:
    """Yield the rows of x (n, p) in blocks, and release each; all at once if it is in memory."""
    if not is_mapped(x):
        yield slice(0, len(x))
        return
    for part in blocks(len(x), x[:1].size):
        yield part
        release(x)


def each(columns: Iterable[Array]) -> Iterator[Array]:
    """Yield columns; release each one's pages after its use."""
    for column in columns:
        yield column
        release(column)


def table_rows(table: Any) -> int:
    """Return the number of rows of a table of arrays, a tuple, if some are mapped; 0 otherwise."""
    arrays = list(_arrays(table))
    return len(arrays[0]) if any(map(is_mapped, arrays)) else 0


def _arrays(table: Any) -> Iterator[Array]:
    if isinstance(table, np.ndarray):
        yield table
    elif isinstance(table, tuple):
        for part in cast("tuple[Any, ...]", table):
            yield from _arrays(part)


def in_blocks(table: Any, run: Callable[[Any], R], said: Callable[[str], None]) -> Iterator[R]:
    """Yield the results of `run` on blocks of a table's rows, and release each block's pages.

    A block for which there is not enough memory is halved, and `said` gets one line on it.
    """
    arrays = list(_arrays(table))
    rows, at = len(arrays[0]), 0
    most = block_rows(sum(a[:1].size for a in arrays))
    most = -(-rows // -(-rows // most))
    while at < rows:
        end = rows if rows - at < most + FEWEST else at + most
        try:
            found = run(_part(table, slice(at, end)))
        except MemoryError:
            if most <= FEWEST:
                raise
            most = max(FEWEST, most // 2)
            said(f"a block of {end - at} rows does not fit into memory; blocks of {most} are tried")
            continue
        yield found
        at = end
        release_all(table)


def _part(table: Any, rows: slice) -> Any:
    """Return some rows of a table of arrays."""
    if isinstance(table, np.ndarray):
        return table[rows]
    if not isinstance(table, tuple):
        return table
    parts = [_part(part, rows) for part in cast("tuple[Any, ...]", table)]
    kind = cast("Any", type(table))
    return kind(*parts) if hasattr(kind, "_fields") else tuple(parts)


def is_large(rows: int, columns: int) -> bool:
    """Return whether a table is to be read in parts."""
    return 8 * COPIES * rows * columns > allowed()


def allowed() -> float:
    """Return the bytes that a table and its copies may take.

    Raises
    ------
    ValueError : the setting is no size.
    """
    text = os.environ.get(SETTING, "").strip()
    if not text:
        return free() / 2
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{SETTING} is {text!r}. Give a size such as 500MB or 4GB.")
    return float(found[1]) * 1024.0 ** _POWERS[found[2].upper()]


def free() -> float:
    """Return the bytes of memory that this process may still take; inf if that is unknown."""
    found = [float("inf")]
    for path in _LIMITS:
        text = path.read_text().strip() if path.is_file() else ""
        found += [float(text)] if text.isdigit() else []
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft = resource.getrlimit(kind)[0]
        found += [float(soft)] if soft != resource.RLIM_INFINITY else []
    memory = Path("/proc/meminfo")
    if memory.is_file() and (free := re.search(r"MemAvailable:\s+(\d+)", memory.read_text())):
        found.append(1024.0 * float(free[1]))
    return min(found)

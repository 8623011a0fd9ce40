"""Data frames whose numbers are in scratch files: tables larger than memory.

Such a frame is one as any other: each column is an array of its own, and numbers and dates are
mapped from a scratch file (`fedcohort.mapped`). Texts are categories, of which a row takes a few
bytes. Code that goes column by column takes memory for one column. Whole copies are made here:
`taken` and `stacked` write them to another scratch file, where the frame has one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from fedcohort import mapped
from fedcohort.arrays import Array
from fedcohort.protocol.errors import DataError

#: Form of dates, in microseconds: nanoseconds end in the year 2262.
DATE = np.dtype("datetime64[us]")


class Columns:
    """Columns of a table that is read in parts, in the order of the table.

    Parameters
    ----------
    kinds : by name "f" for a number, "M" for a date, or "O" for text.
    """

    def __init__(self, rows: int, kinds: Mapping[str, str]):
        self._kinds = kinds
        self._fixed = [name for name, kind in kinds.items() if kind != "O"]
        self._numbers = mapped.Writer(rows, len(self._fixed), by_column=True)
        self._codes: dict[str, list[Array]] = {n: [] for n, kind in kinds.items() if kind == "O"}
        self._levels: dict[str, dict[str, int]] = {name: {} for name in self._codes}

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self._numbers.at

    def add(self, part: pd.DataFrame) -> None:
        """Add some rows, in the form of the dictionary.

        Raises
        ------
        DataError : no space is left for the scratch file.
        """
        for name in self._codes:
            codes, found = cast("tuple[Array, Any]", pd.factorize(part[name]))
            known = self._levels[name]
            place = [known.setdefault(str(v), len(known)) for v in found]
            self._codes[name].append(np.array([*place, -1], np.int32)[codes])
        fixed = [part[name].to_numpy().view(np.int64) for name in self._fixed]
        with _room():
            self._numbers.append(*fixed)
        if not fixed:
            self._numbers.at += len(part)

    def frame(self) -> pd.DataFrame:
        """Return the table."""
        numbers = dict(zip(self._fixed, self._numbers.finished(), strict=True))
        found: dict[str, Any] = {}
        for name, kind in self._kinds.items():
            if kind != "O":
                found[name] = numbers[name].view(DATE) if kind == "M" else numbers[name]
                continue
            codes = np.concatenate([np.zeros(0, np.int32), *self._codes.pop(name)])
            levels = pd.Index(list(self._levels[name]), dtype=object)
            found[name] = pd.Categorical.from_codes(cast("Any", codes), categories=levels)
        return framed(found, self.rows)


class _room:
    """Turn an error of a full disk into a `DataError`."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, OSError):
            raise DataError(
                f"a table larger than memory cannot be written to a scratch file "
                f"({error.strerror}). Set TMPDIR to a folder with more room."
            ) from None


def framed(columns: Mapping[str, Any], rows: int) -> pd.DataFrame:
    """Return a frame of these arrays, none of them copied."""
    frame = pd.DataFrame(dict(columns), index=pd.RangeIndex(rows), copy=False)
    frame.columns = pd.Index(list(columns), dtype=object)
    return frame


def on_disk(frame: pd.DataFrame) -> bool:
    """Return whether numbers of a frame are in a scratch file."""
    return any(mapped.is_mapped(column) for column in _fixed(frame))


def _fixed(frame: pd.DataFrame) -> Iterator[Array]:
    """Yield the columns of numbers and dates."""
    for i, kind in enumerate(frame.dtypes):
        if isinstance(kind, np.dtype) and kind.kind in "fM":
            yield frame.iloc[:, i].to_numpy()


def release(frame: pd.DataFrame) -> None:
    """Release the pages of a frame's scratch files; they are read again."""
    for column in _fixed(frame):
        mapped.release(column)


def selected(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return some columns, in the order of `names`; those of a frame on disk are not copied."""
    kept = list(names)
    if not on_disk(frame):
        return frame[kept]
    return framed({name: frame[name].array for name in kept}, len(frame))


def without(frame: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    """Return the other columns; those of a frame on disk are not copied."""
    if not on_disk(frame):  # which may have a name twice
        return frame.drop(columns=list(names), errors="ignore")
    return selected(frame, [name for name in frame.columns if name not in names])


def parts(frame: pd.DataFrame) -> Iterator[slice]:
    """Yield blocks of a frame's rows; release each one's pages."""
    for rows in mapped.blocks(len(frame), frame.shape[1]):
        yield rows
        release(frame)


def stored(rows: int, columns: int, blocks: Iterator[Array]) -> Array:
    """Return an array (rows, columns) in a scratch file, from its blocks of rows."""
    out = mapped.Writer(rows, columns)
    for block in blocks:
        with _room():
            out.append(block)
    return out.finished()


def numbered(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with its rows numbered from 0; one on disk is not copied."""
    if isinstance(frame.index, pd.RangeIndex) and on_disk(frame):
        return framed({name: frame[name].array for name in frame.columns}, len(frame))
    return frame.reset_index(drop=True)


def taken(frame: pd.DataFrame, rows: Array) -> pd.DataFrame:
    """Return some rows, numbered from 0.

    rows : their positions, or a mask (n,).
    """
    if not on_disk(frame):
        some = frame[rows] if rows.dtype == bool else frame.iloc[rows]
        return some.reset_index(drop=True)
    at = np.flatnonzero(rows) if rows.dtype == bool else rows
    return _copied(list(map(str, frame.columns)), [(frame, at)])


def stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of several frames, one after the other, numbered from 0."""
    if not any(map(on_disk, frames)):
        return pd.concat(frames, ignore_index=True)
    if len(frames) == 1:
        return numbered(frames[0])
    names = list(dict.fromkeys(str(c) for frame in frames for c in frame.columns))
    return _copied(names, [(frame, np.arange(len(frame))) for frame in frames])


def _copied(names: Sequence[str], pieces: Sequence[tuple[pd.DataFrame, Array]]) -> pd.DataFrame:
    """Return rows of frames in a new scratch file, column by column."""
    rows = sum(len(at) for _, at in pieces)
    found: dict[str, Any] = {}
    fixed: list[tuple[str, bool]] = []
    whole = mapped.Writer(len(names), rows)
    for name in names:
        columns = [f[name] if name in f.columns else None for f, _ in pieces]
        known = [c for c in columns if c is not None]
        kinds = {c.dtype.kind if isinstance(c.dtype, np.dtype) else "O" for c in known}
        if kinds <= {"f"} or kinds == {"M"}:
            dates = kinds == {"M"}
            empty = np.datetime64("NaT") if dates else np.nan
            values = [
                np.full(len(at), empty, DATE if dates else np.float64)
                if c is None
                else c.to_numpy()[at]
                for c, (_, at) in zip(columns, pieces, strict=True)
            ]
            with _room():
                whole.append(np.concatenate(values).view(np.float64)[None])
            fixed.append((name, dates))
            found[name] = None
        else:
            values = [
                pd.Series(np.nan, range(len(at)), dtype=object) if c is None else c.iloc[at]
                for c, (_, at) in zip(columns, pieces, strict=True)
            ]
            found[name] = _joined(values)
        for frame, _ in pieces:
            release(frame)
    numbers = whole.finished()
    for i, (name, dates) in enumerate(fixed):
        found[name] = numbers[i].view(DATE) if dates else numbers[i]
    return framed(found, rows)


def _joined(values: Sequence[pd.Series]) -> Any:
    """Return columns of text, one after the other."""
    if all(isinstance(v.dtype, pd.CategoricalDtype) for v in values):
        from pandas.api.types import union_categoricals

        return values[0].array if len(values) == 1 else union_categoricals(list(values))
    return pd.concat(values, ignore_index=True).to_numpy(object)

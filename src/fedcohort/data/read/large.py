"""Reader of Parquet files and queries whose table is larger than memory, in batches of rows.

A batch is brought into the form of the dictionary (`canonical`), and its columns are added to a
frame on disk (`data.on_disk`). Only columns of the dictionary, and that of the site, are kept. A
batch for which there is not enough memory is read again in half as many rows. A cell that the
dictionary does not allow ends the reading with the first finding of `data.check`, by its row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fedcohort import mapped
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.on_disk import DATE, Columns
from fedcohort.data.read.canonical import canonical, is_text, texts
from fedcohort.protocol.errors import DataError

#: Fewest rows of a batch.
LEAST = 256


@dataclass(frozen=True)
class Table:
    """A table that can be read in batches.

    Attributes
    ----------
    where : its name in errors.
    rows, names : number of rows, and the columns.
    opened : (names, number of rows of a batch) → context of an iterator over frames of the columns,
        of at most that many rows each.
    """

    where: str
    rows: int
    names: tuple[str, ...]
    opened: Callable[[list[str], int], AbstractContextManager[Iterator[pd.DataFrame]]]


def is_large(table: Table, known: Dictionary | None, some: Collection[str]) -> bool:
    """Return whether a table is to be read in batches.

    Raises
    ------
    DataError : the setting of the memory is no size.
    """
    kept = [n for n in table.names if known is None or n.strip() in known or n in some]
    try:
        return mapped.is_large(table.rows, len(kept))
    except ValueError as error:
        raise DataError(str(error)) from None


def read(table: Table, known: Dictionary | None, some: Collection[str]) -> pd.DataFrame:
    """Return a table on disk, in the form of its dictionary.

    some : further columns to keep, as text.

    Raises
    ------
    DataError : there is no dictionary; a cell breaks it; the table changed meanwhile; there is no
        room for the scratch file.
    """
    size = f"{table.rows:,} rows of {len(table.names)} columns are more than the memory for them"
    if known is None:
        raise DataError(
            f"{table.where}: {size}, and only a table with a dictionary is read in batches. Name "
            f"one; 'fedcohort init' drafts it from a part of the rows. Or give more memory "
            f"({mapped.SETTING})."
        )
    kept = [n for n in table.names if n.strip() in known or n in some]
    if len(set(map(str.strip, kept))) < len(kept):
        raise DataError(f"{table.where}: two columns have the same name; rename or drop one.")
    if not kept:
        raise DataError(
            f"{table.where}: none of its {len(table.names)} columns is in the dictionary."
        )
    batch = mapped.block_rows(len(kept))
    while True:
        try:
            return _read(table, kept, batch, known)
        except MemoryError:
            if batch <= LEAST:
                raise DataError(
                    f"{table.where}: there is not enough memory for {LEAST} rows. Read fewer "
                    f"columns, or use a computer with more memory."
                ) from None
        batch = max(LEAST, batch // 2)
        warnings.warn(
            f"{table.where}: a batch of rows does not fit into memory; the table is read again in "
            f"batches of {batch:,} rows.",
            stacklevel=2,
        )


def _read(table: Table, names: list[str], batch: int, known: Dictionary) -> pd.DataFrame:
    """Return a table on disk, read in batches of that many rows."""
    kinds = {n.strip(): _kind(n.strip(), known) for n in names}
    out = Columns(table.rows, kinds)
    with table.opened(names, batch) as parts:
        for part in parts:
            if out.rows + len(part) > table.rows:
                break
            out.add(_formed(part, table.where, known, kinds, out.rows))
        else:
            if out.rows == table.rows:
                return out.frame()
    raise DataError(f"{table.where}: the number of rows changed during reading. Start again.")


def _kind(name: str, known: Dictionary) -> str:
    if name not in known or is_text(known[name]):
        return "O"
    return "M" if known[name].type == "date" else "f"


def _formed(
    part: pd.DataFrame, where: str, known: Dictionary, kinds: Mapping[str, str], before: int
) -> pd.DataFrame:
    """Return a batch in form.

    before : number of rows before it.
    """
    named = part.set_axis([str(c).strip() for c in part.columns], axis=1)
    described = [c for c in named.columns if c in known]
    formed = canonical(named[described], known)
    for name, kind in kinds.items():
        if name not in known:
            formed[name] = pd.Series(texts(named[name]), formed.index, dtype=object)
        elif kind != "O" and formed[name].dtype != (DATE if kind == "M" else np.float64):
            _raise(formed, where, known, before)
    return formed


def _raise(formed: pd.DataFrame, where: str, known: Dictionary, before: int) -> None:
    """Raise the first finding on the cells of a batch."""
    from fedcohort.data.check import Sheet, errors, examine

    rows = np.arange(before + 1, before + 1 + len(formed))
    here = replace(known, variables={n: known[n] for n in formed.columns if n in known})
    found = errors(examine([Sheet(formed, where, rows=rows)], here, natural=False, warnings=False))
    line = found[0].line if found else f"{where}: a column breaks its type in the dictionary."
    raise DataError(line)

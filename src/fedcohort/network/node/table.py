"""A site's table, opened for one study: read, checked against the study's dictionary, counted.

Only the columns of the study's dictionary are kept. A missing, unreadable or unfit table gives one
line of columns and rule names. Messages of parsers and databases are never passed on, here or to
the log: they may quote a cell, a header that is a patient, or a path. At the site,
`fedcohort data check` shows more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from fedcohort.data.check import with_outcome
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.on_disk import on_disk, selected
from fedcohort.data.read import sources
from fedcohort.data.read.canonical import plain
from fedcohort.data.read.dictionaries import read_dictionary
from fedcohort.data.read.sql import is_url, read_sql
from fedcohort.data.variable import Variable, columns_by_view, lacking
from fedcohort.network.state.cohorts import digests
from fedcohort.network.state.policy import DataSource
from fedcohort.protocol.errors import FedcohortError, Refused
from fedcohort.study.at_site.table import SiteTable, Unfit
from fedcohort.study.file.terms import Terms

#: What a site's own dictionary and the study's must say alike of a column.
ALIKE = ("type", "unit", "levels", "missing", "since")
_LOOK = "At the site, `fedcohort data check` says more."


def open_table(
    terms: Terms, site: str, data: DataSource, min_rows: int, key: bytes = b""
) -> SiteTable:
    """Return a site's table, checked for a study.

    Parameters
    ----------
    key : secret of the cohort ledger; with it rows carry their marks.

    Raises
    ------
    Refused : "data" (missing or unreadable), "dictionary" (the site's own differs), "unfit"
        (columns
        and rules) or "rows" (fewer than the site's minimum; their number stays here).
    """
    _check_dictionary(terms.dictionary, data)
    frame, source = _read(terms, data)
    try:
        table = SiteTable.of(terms, site, frame)
    except Unfit as error:
        raise Refused(
            "unfit", f"its table does not fit the study: {said(error)}. {_LOOK}"
        ) from None
    except Exception as error:
        raise Refused(
            "unfit", f"its table cannot be checked ({type(error).__name__}). {_LOOK}"
        ) from None
    if len(table.frame) < min_rows:
        raise Refused("rows", f"the study finds too few rows; this site allows {min_rows} or more.")
    if not key:
        return table
    if len(source) != len(frame):
        raise Refused("data", f"its data source gave other rows when it was read again. {_LOOK}")
    marks = digests(_who(source, data), key)
    return replace(table, marks=tuple(marks[i] for i in table.places.tolist()))


def said(error: Unfit) -> str:
    """Return the unmet columns and rules."""
    return "; ".join(
        f"column {column!r} breaks the rule {rule!r}" if column else f"rule {rule!r} is broken"
        for column, rule in error.faults
    )


def digest(table: SiteTable) -> str:
    """Return a digest of a table's rows, by which the node recognises them."""
    mark = hashlib.sha256("\0".join(map(str, table.frame.columns)).encode())
    mark.update(pd.util.hash_pandas_object(table.frame, index=False).to_numpy().tobytes())
    return mark.hexdigest()


def _read(terms: Terms, data: DataSource) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the columns that a study names, and all columns, whose form no study chooses.

    Raises
    ------
    Refused : the source is missing, or cannot be read.
    """
    if not is_url(data.source) and not (data.base / data.source).is_file():
        raise Refused("data", "its data file is missing. Is [data] source in node.toml right?")
    known = with_outcome(terms.dictionary, terms.outcome)
    try:
        if is_url(data.source):  # asked once: a database may give its rows in any order
            whole = read_sql(data.source, data.query, data.base, known, _own(data))
            frame = sources.in_memory(whole, known).frames
        else:
            frame = sources.load(data.source, data.base, dictionary=known, texts=_own(data)).frames
            whole = frame
            if not (isinstance(frame, pd.DataFrame) and on_disk(frame)):
                whole = sources.load(data.source, data.base).frames
        assert isinstance(frame, pd.DataFrame)
        assert isinstance(whole, pd.DataFrame)
        if on_disk(frame):
            return selected(frame, [c for c in frame.columns if c in known]), whole
        return frame.loc[:, [str(c).strip() in known for c in frame.columns]], whole
    except Exception as error:
        kind = "" if isinstance(error, FedcohortError) else f" ({type(error).__name__})"
        raise Refused("data", f"its data source cannot be read{kind}. {_LOOK}") from None


def _own(data: DataSource) -> list[str]:
    """Return the site's own identifiers."""
    if data.dictionary is None:
        return []
    own = read_dictionary(data.base / data.dictionary)
    return [v.name for v in own.variables.values() if v.identifier]


def _who(source: pd.DataFrame, data: DataSource) -> pd.DataFrame:
    """Return the columns that say who a patient is: the site's own identifiers, or all."""
    named = _own(data)
    some = source.loc[:, [str(c).strip() in named for c in source.columns]]
    if not on_disk(source):
        return some if some.shape[1] else source
    if not some.shape[1]:
        raise Refused(
            "data",
            "its table is larger than memory, and is then known by identifiers alone. Mark one in "
            "the site's own dictionary ([data] dictionary in node.toml).",
        )
    return plain(some)


def _check_dictionary(asked: Dictionary, data: DataSource) -> None:
    """Check that the site's own dictionary, if any, agrees on each column.

    It may lack a view of the study as a whole, as the site's table may.

    Raises
    ------
    Refused : the first column that differs, and in what; no value of either.
    """
    if data.dictionary is None:
        return
    try:
        own = read_dictionary(data.base / data.dictionary).variables
    except Exception:
        raise Refused(
            "data", "its own dictionary cannot be read. Is [data] dictionary in node.toml right?"
        ) from None
    gone = lacking(columns_by_view(asked.variables.values()), own)
    for name, variable in asked.variables.items():
        if variable.view in gone:
            continue
        if (wrong := _differs(variable, own)) is not None:
            raise Refused(
                "dictionary",
                f"column {name!r} of the study {wrong} in this site's own dictionary.",
            )


def _differs(asked: Variable, own: Mapping[str, Variable]) -> str | None:
    """Return how a site's dictionary differs in one column; None if it does not."""
    here = own.get(asked.name)
    if here is None:
        return "is not"
    for key in ALIKE:
        if getattr(here, key) != getattr(asked, key):
            return f"has another {key!r}"
    return None

"""A table in the form that the checks use."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.check.findings import ERROR, Finding, rows_of
from fedcohort.data.on_disk import taken, without
from fedcohort.data.read.canonical import site_names

#: If more than half of a site column's names have fewer rows than this, the names may be patients'.
#: Then findings do not show a name with fewer rows.
FEW = 5
#: Findings show this many characters of a site's name.
LONGEST = 80


@dataclass(frozen=True)
class Sheet:
    """One table.

    Attributes
    ----------
    frame : (n rows), in the form of `canonical`, without the site column.
    name : its name in findings: a file, or a site.
    site : its site, or each row's site (n,); None if it is not yet divided into sites.
    rows : (n,) row number from 1 of each row of `frame`; None if no row was left out.
    left_out : number of rows that were left out.
    site_at : position of the site column in the table.
    """

    frame: pd.DataFrame
    name: str
    site: str | Array | None = None
    rows: Array | None = None
    left_out: int = 0
    site_at: int | None = None

    @classmethod
    def by_column(
        cls, frame: pd.DataFrame, name: str, column: str, known: Collection[str]
    ) -> Sheet:
        """Return a table of several sites, which a column names.

        known : columns of the dictionary. If none is in the table, the header is wrong; another
            check reports it.

        Raises
        ------
        DataError : there is no such column, or rows have no site.
        """
        names = [str(c) for c in frame.columns]
        if known and not {column, *known} & set(names):
            return cls(frame, name)
        site = site_names(frame, column, name)
        return cls(without(frame, [column]), name, site, site_at=names.index(column))

    def only(self, kept: Array) -> Sheet:
        """Return the table with the rows (n,) that are kept."""
        if kept.all():
            return self
        at = np.flatnonzero(kept)
        site = self.site if self.site is None or isinstance(self.site, str) else self.site[at]
        frame = taken(self.frame, at)
        return replace(
            self, frame=frame, site=site, rows=self.number(at), left_out=len(kept) - len(at)
        )

    @property
    def width(self) -> int:
        """Number of the table's columns, with the site column."""
        return self.frame.shape[1] + (self.site_at is not None)

    def place(self, i: int) -> int:
        """Return the position, from 1, of column i of `frame` in the table."""
        return i + 1 + (self.site_at is not None and i >= self.site_at)

    @cached_property
    def parts(self) -> tuple[SitePart, ...]:
        """The rows of each site; one part with all rows if the table is not yet divided."""
        n = len(self.frame)
        if self.site is None:
            return (SitePart(self, "the table", None, slice(None), n),)
        if isinstance(self.site, str):
            return (SitePart(self, f"site {self.site!r}", self.site, slice(None), n),)
        parts: list[SitePart] = []
        sites = 2 * int((np.bincount(self.codes) < FEW).sum()) <= len(self._codes[1])
        for i, name in enumerate(self._codes[1]):
            at = np.flatnonzero(self.codes == i)
            known = str(name)[:LONGEST] if len(at) >= FEW or sites else None
            called = f"site {known!r}" if known else f"the site in row {self.number(at[:1])[0]}"
            parts.append(SitePart(self, called, known, at, len(at)))
        return tuple(parts)

    @property
    def codes(self) -> Array:
        """Each row's site as a whole number from 0 (n,)."""
        return self._codes[0]

    @cached_property
    def _codes(self) -> tuple[Array, Any]:
        if self.site is None or isinstance(self.site, str):
            return np.zeros(len(self.frame), np.int64), [self.site]
        return pd.factorize(self.site, sort=True)

    def number(self, at: Array) -> Array:
        """Return the row numbers, from 1, of positions in `frame`."""
        return at + 1 if self.rows is None else self.rows[at]

    def finding(
        self, rule: str, what: str, remedy: str, broken: Array | None = None, **more: Any
    ) -> Finding:
        """Return a finding of this table, about the rows `broken` (n,)."""
        about: dict[str, Any] = {"severity": ERROR, **more}
        if broken is not None:
            about |= rows_of(broken, self.number)
        if isinstance(self.site, str):
            about.setdefault("site", self.site)
        return Finding(self.name, rule, what=what, remedy=remedy, **about)


@dataclass(frozen=True)
class SitePart:
    """One site's rows of a table.

    Attributes
    ----------
    called : how findings name the site in a sentence.
    known : the site's name, or None if findings must not show it.
    rows : positions in the table.
    n : number of rows.
    """

    sheet: Sheet
    called: str
    known: str | None
    rows: Array | slice
    n: int

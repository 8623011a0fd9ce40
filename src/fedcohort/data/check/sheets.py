"""A table on its way into a study, as the checks see it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.check.findings import ERROR, Finding, rows_of
from fedcohort.data.read.frames import site_names

#: Where more than half of the names in a column have fewer rows, they may be patients' and no
#: sites': such a name is not said.
FEW = 5
#: So much of a site's name is said.
LONGEST = 80


@dataclass(frozen=True)
class Sheet:
    """One table.

    Attributes
    ----------
    frame : (n rows), in the form of `canonical`, without the site column.
    name : what findings call it: a file, or a site.
    site : the site whose table it is, or each row's (n,); None where sites are yet to be made.
    rows : (n,) data row from 1 of each row of `frame`, where rows were left out; None if none was.
    left_out : how many rows were.
    site_at : where the site column stood in the table.
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

        known : columns of the dictionary; if none is there, the header is at fault, as will be
            said of the whole.

        Raises
        ------
        DataError : there is no such column, or rows without a site.
        """
        names = [str(c) for c in frame.columns]
        if known and not {column, *known} & set(names):
            return cls(frame, name)
        site = site_names(frame, column, name)
        return cls(frame.drop(columns=[column]), name, site, site_at=names.index(column))

    def only(self, kept: Array) -> Sheet:
        """Return the table with the rows (n,) that are kept."""
        if kept.all():
            return self
        at = np.flatnonzero(kept)
        site = self.site if self.site is None or isinstance(self.site, str) else self.site[at]
        frame = self.frame.iloc[at].reset_index(drop=True)
        return replace(
            self, frame=frame, site=site, rows=self.number(at), left_out=len(kept) - len(at)
        )

    @property
    def width(self) -> int:
        """How many columns the table has, that of the site included."""
        return self.frame.shape[1] + (self.site_at is not None)

    def place(self, i: int) -> int:
        """Return the position, from 1, at which column i of `frame` stood in the table."""
        return i + 1 + (self.site_at is not None and i >= self.site_at)

    @cached_property
    def parts(self) -> tuple[SitePart, ...]:
        """The rows of each site; one part with all rows where sites are yet to be made."""
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
        """Return the data rows, from 1, of places in `frame`."""
        return at + 1 if self.rows is None else self.rows[at]

    def finding(
        self, rule: str, what: str, remedy: str, broken: Array | None = None, **more: Any
    ) -> Finding:
        """Return a finding of this table; `broken` (n,) says in which rows."""
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
    called : how findings name it in a sentence.
    known : its name, or None if it has none that may be said.
    rows : where they are in the table.
    n : how many.
    """

    sheet: Sheet
    called: str
    known: str | None
    rows: Array | slice
    n: int

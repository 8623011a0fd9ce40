"""Sums over sites about latent coordinates: errors of reconstructed rows.

A site's rows are `Rebuilt`: entries x (n, p), NaN if unknown; a model's reconstruction x̂; and x̂
of each view from the other views alone. With c and s the mean and standard deviation of column j's
entries over all sites,

    entries   Σ (x − c), Σ (x − c)²                        for c and s of all sites            (1)
    tails     Σ ((x − c)/s)³, Σ ((x − c)/s)⁴               to detect influence of few values   (2)
    errors    Σ |x − x̂| / s over rows and columns; for filled views also Σ (x − x̂)² / s²       (3)
    columns   both sums of each column                                                         (4)
    agreed    the terms of `metrics.latent.agreement`, over rows and columns of two values     (5)
    squares   Σ (x − x̂)² / s² over rows and columns, of blind or of training rows             (6)

are sums of values: over few rows they reveal these rows. So the coordinator counts first (`known`,
and `hidden` for rows that also have another view), and asks only for columns with many (`Counted`).
If fewer than m rows have only a column's view, the two errors would differ by these rows; so they
count in neither, nor in (1).

Revealed: the messages below, only as sums over all sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.counts import few
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed


class Rebuilt(Protocol):
    """A site's rows (n, p), with a model's reconstruction.

    ``x`` NaN if unknown; ``hidden``: the row has the column's view and another; ``said`` x̂ and
    ``filled`` x̂ of hidden entries; ``strange`` (p,) columns unknown to the model, reconstructed by
    their mean; ``agreed`` the terms of eq. (5) (n, p) each, NaN where there are none.
    """

    x: Array
    hidden: Array
    said: Array
    filled: Array
    strange: Array
    agreed: tuple[Array, Array]


# messages -----------------------------------------------------------------------------------


@message
class EntryCounts:
    """Rows (); entries by column that are ``known`` and, among these, to be ``hidden`` (p,)."""

    rows: Array
    known: Array
    hidden: Array


@message
class EntrySums:
    """Eq. (1): ``total`` and ``squares`` (p,)."""

    total: Array
    squares: Array


@message
class EntryTails:
    """Eq. (2): ``cubes`` and ``fourths`` (p,)."""

    cubes: Array
    fourths: Array


@message
class RebuildErrors:
    """Eq. (3), all (): errors of entries, and of ``filled`` ones; ``lost`` have no finite x̂."""

    total: Array
    lost: Array
    filled: Array
    filled_squares: Array
    filled_lost: Array


@message
class ColumnErrors:
    """Eq. (4), all (p,): sums of errors and of their squares; of filled entries as well."""

    total: Array
    squares: Array
    filled: Array
    filled_squares: Array


@message
class EntryAgreement:
    """Eq. (5), all (): number of ``entries``, and the sums of both terms."""

    entries: Array
    expected: Array
    rounded: Array


@message
class RebuildSquares:
    """Eq. (6), all (), of the model's columns; ``lost`` entries have no finite x̂."""

    entries: Array
    squares: Array
    lost: Array


# steps ----------------------------------------------------------------------------------------


@summed
def count_known_entries(site: Site[Any, None]) -> EntryCounts:
    """Count known entries of blind rows by column, and those of rows that have another view."""
    d: Rebuilt = site.data
    known = ~np.isnan(d.x)
    counts = (part.sum(axis=0, dtype=np.int64) for part in (known, known & d.hidden))
    return EntryCounts(np.array(len(d.x)), *counts)


@summed
def sum_entries(site: Site[Any, None], *, centre: Array, asked: Array, whole: Array) -> EntrySums:
    """Sum the entries of blind rows by column, and their squares.

    asked, whole : (p,) bool, see `Counted`; other columns are not summed.
    """
    off = _counted(site.data, asked, whole) - centre
    return EntrySums(np.nansum(off, axis=0), np.nansum(off**2, axis=0))


@summed
def sum_entry_tails(
    site: Site[Any, None], *, centre: Array, unit: Array, asked: Array, whole: Array
) -> EntryTails:
    """Sum the third and fourth powers of the entries of blind rows by column.

    They show which columns a few patients may dominate; these are not shown.
    """
    off = (_counted(site.data, asked, whole) - centre) / unit
    return EntryTails(np.nansum(off**3, axis=0), np.nansum(off**4, axis=0))


@summed
def sum_rebuild_errors(
    site: Site[Any, None], *, centre: Array, unit: Array, asked: Array, whole: Array, filled: Array
) -> RebuildErrors:
    """Sum the errors of reconstructed, and of filled, entries of blind rows over all columns.

    filled : (p,) bool, columns whose filled entries count.
    """
    e, lost = _errors(site.data, site.data.said, centre, unit, _counted(site.data, asked, whole))
    f, gone = _filled(site.data, centre, unit, filled)
    totals = e.sum(), lost, f.sum(), (f**2).sum(), gone
    return RebuildErrors(*(np.array(part) for part in totals))


@summed
def sum_column_errors(
    site: Site[Any, None], *, centre: Array, unit: Array, asked: Array, whole: Array, filled: Array
) -> ColumnErrors:
    """Sum the errors of reconstructed, and of filled, entries of blind rows by column.

    filled : as for `sum_rebuild_errors`.
    """
    e, _ = _errors(site.data, site.data.said, centre, unit, _counted(site.data, asked, whole))
    f, _ = _filled(site.data, centre, unit, filled)
    sums = e, e**2, f, f**2
    return ColumnErrors(*(part.sum(axis=0) for part in sums))


@summed
def sum_entry_agreement(site: Site[Any, None], *, asked: Array, whole: Array) -> EntryAgreement:
    """How often entries of blind rows with two values come back when rebuilt by the model."""
    d: Rebuilt = site.data
    counts = ~np.isnan(_counted(d, asked, whole))
    expected, rounded = (np.where(counts, part, np.nan) for part in d.agreed)
    entries = (~np.isnan(expected)).sum()
    sums = (np.nansum(expected), np.nansum(rounded))
    return EntryAgreement(np.array(int(entries)), *(np.array(float(s)) for s in sums))


@summed
def sum_rebuild_squares(
    site: Site[Any, None], *, centre: Array, unit: Array, asked: Array, whole: Array
) -> RebuildSquares:
    """Sum the squared errors of all reconstructed entries of rows, over all columns."""
    d: Rebuilt = site.data
    x = np.where(d.strange, np.nan, _counted(d, asked, whole))
    e, lost = _errors(d, d.said, centre, unit, x)
    entries = int((~np.isnan(x)).sum())
    return RebuildSquares(np.array(entries), np.array((e**2).sum()), np.array(lost))


STEPS = (
    count_known_entries, sum_entries, sum_entry_tails, sum_rebuild_errors, sum_column_errors,
)  # fmt: skip
#: Steps of metrics that a study has only if it names them.
NAMED = {
    "reconstruction_accuracy": (sum_entry_agreement,),
    "rounded_accuracy": (sum_entry_agreement,),
    "g_ratio": (sum_rebuild_squares,),
}


def _counted(d: Rebuilt, asked: Array, whole: Array) -> Array:
    """Return the entries that count (n, p), NaN for others."""
    return np.where(np.asarray(asked, bool) & (np.asarray(whole, bool) | d.hidden), d.x, np.nan)


def _filled(d: Rebuilt, centre: Array, unit: Array, filled: Array) -> tuple[Array, int]:
    asked = np.asarray(filled, bool)
    if not asked.any():
        return np.zeros(d.x.shape), 0
    return _errors(d, d.filled, centre, unit, np.where(asked & d.hidden, d.x, np.nan))


def _errors(d: Rebuilt, said: Array, centre: Array, unit: Array, x: Array) -> tuple[Array, int]:
    """Return |x − x̂| / s (n, p), 0 if unknown or lost, and the number of lost known entries."""
    said = np.where(d.strange, centre, said)
    known = ~np.isnan(x)
    sound = known & np.isfinite(said)
    off = np.where(sound, np.abs(np.where(sound, x, 0.0) - np.where(sound, said, 0.0)), 0.0)
    return off / unit, int((known & ~sound).sum())


# at the coordinator ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted:
    """Columns with many blind rows, and their rows that count.

    Attributes
    ----------
    counts : from the sites.
    asked : (p,) at least 2 m rows count.
    whole : (p,) rows with only the column's view count as well.
    filled : (p,) at least 2 m rows have the column's view and another, so that it is filled.
    """

    counts: EntryCounts
    asked: Array
    whole: Array
    filled: Array

    @classmethod
    def of(cls, counts: EntryCounts, least: int, *, fills: bool) -> Self:
        """Decide from counts (p,).

        Parameters
        ----------
        least : m.
        fills : whether filled views are asked for at all.
        """
        many = 2 * least if least > 1 else 1
        known, hidden = (np.asarray(part) for part in (counts.known, counts.hidden))
        filled = fills & (hidden >= many)
        whole = ~(filled & few(known - hidden, least))
        return cls(counts, np.where(whole, known, hidden) >= many, whole, filled)

    @property
    def entries(self) -> Array:
        """Entries that count (p,), 0 for a column that is not asked for."""
        c = self.counts
        return np.where(self.asked, np.where(self.whole, c.known, c.hidden), 0)

    @property
    def filled_entries(self) -> Array:
        """Filled entries (p,), 0 for a column that is not asked for."""
        return np.where(self.filled, self.counts.hidden, 0)

    def without(self, columns: Array) -> Counted:
        """Return the same without some columns, (p,) bool."""
        return Counted(
            self.counts, self.asked & ~columns, self.whole, self.filled & ~columns
        )  # fmt: skip

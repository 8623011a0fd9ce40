"""Federated preprocessing: everything a design needs, from sums over sites.

    call 1    rows; of each number n, Σx and how many are not whole; of each category its levels
    call 2    Σ(x − mean)² of each number
    call 3 …  only for medians, modes and ranges: cells of a histogram (see `sketch`)

Scaling to [0, 1] uses the 0.5 % and 99.5 % quantiles of the sketch and cuts off what lies
beyond, so that no patient's minimum or maximum is asked for.

Revealed: `Tally`, `Spread` and `Cells`, only as sums over all sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.design import Design, LevelColumn, NumberColumn
from fedcohort.data.dictionary import Dictionary, Variable, sorted_levels
from fedcohort.data.encode import Encoded, Encoding
from fedcohort.data.outcome import Binary, Category, Outcome
from fedcohort.data.sketch import Moments, count_between, modes, quantiles
from fedcohort.data.words import known_name
from fedcohort.protocol.errors import DataError, SettingError
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed

#: What `scale` may be.
SCALES = ("none", "standard", "minmax")
#: What `impute` may be.
IMPUTES = ("mean", "median", "most_frequent", "indicator")
#: Between these quantiles lies the range that "minmax" maps to [0, 1].
RANGE = (0.005, 0.995)


@message
class Tally:
    """First sums of c numbers and k categories.

    ``rows`` (); ``present``, ``total``, ``fractional`` (c,); ``levels`` (k, most levels).
    """

    rows: Array
    present: Array
    total: Array
    fractional: Array
    levels: Array


@message
class Spread:
    """Σ (x − mean)² of each number (c,)."""

    squares: Array


@message
class Cells:
    """Values of each number between its edges (c, m − 1)."""

    counts: Array


@summed
def column_tally(site: Site[Encoded, None], *, most_levels: int) -> Tally:
    """Count rows, values and levels of each column, and sum the values."""
    x, codes = site.data
    missing = np.isnan(x)
    levels = [np.bincount(c[c >= 0], minlength=most_levels) for c in codes.T]
    return Tally(
        rows=np.array(len(x)),
        present=(~missing).sum(axis=0),
        total=np.where(missing, 0.0, x).sum(axis=0),
        fractional=(~missing & (x != np.floor(x))).sum(axis=0),
        levels=np.array(levels, np.int64).reshape(codes.shape[1], most_levels),
    )


@summed
def column_spread(site: Site[Encoded, None], *, centre: Array) -> Spread:
    """Sum the squared deviations of each column from its pooled mean."""
    return Spread(np.nansum((site.data.numbers - centre) ** 2, axis=0))


@summed
def column_cells(site: Site[Encoded, None], *, edges: Array) -> Cells:
    """Count the values of each column between edges.

    edges : (c, m), padded with inf.
    """
    return Cells(count_between(site.data.numbers, edges))


#: Every step that `fit_design` asks for.
STEPS = (column_tally, column_spread, column_cells)


def fit_design(
    fed: Federation,
    dictionary: Dictionary,
    outcome: Outcome | None,
    *,
    scale: str = "standard",
    impute: str = "median",
    min_cell: int = 5,
) -> Design:
    """Find the design that all sites shall apply.

    Parameters
    ----------
    fed : sites that hold data frames.
    dictionary : its variables become features, but for the outcome, identifiers, dates, text.
    outcome : what the rows are about; None for features alone.
    scale : "none", "standard" (mean 0, sd 1) or "minmax" (`RANGE` to [0, 1], cut off beyond).
    impute : "mean", "median", "most_frequent", or "indicator" (median, and a column that says
        where). Levels and binary values are always filled by the most frequent one.
    min_cell : histogram cells with fewer than twice as many rows are not split.

    Returns
    -------
    design : with columns that are constant or empty everywhere left out, and `dropped` says why.

    Raises
    ------
    DataError : a site's table does not hold what the dictionary says, or no feature is left.
    SettingError : `scale` or `impute` is none of the above.
    """
    for name, value, known in (("scale", scale, SCALES), ("impute", impute, IMPUTES)):
        if value not in known:
            raise SettingError(known_name(name, value, known))
    variables = dictionary.features(outcome)
    if not variables:
        raise DataError("no column is left as a feature, besides outcome, identifiers and text.")
    encoding = Encoding(variables)
    seen = _look(fed, encoding)
    dropped = {
        v.name: "identifier" if v.identifier else v.type
        for v in dictionary.variables.values()
        if not v.usable
    }
    numbers = _numbers(seen, encoding.numeric, scale, impute, min_cell)
    levels = [_levels(v, c, seen, impute) for v, c in zip(encoding.coded, seen.levels, strict=True)]
    found = {c.name: c for c in (*numbers, *levels) if not isinstance(c, Dropped)}
    dropped |= {c.name: c.reason for c in (*numbers, *levels) if isinstance(c, Dropped)}
    columns = tuple(found[v.name] for v in variables if v.name in found)
    if not columns:
        raise DataError(
            f"none of the {len(variables)} columns varies among the {seen.rows} rows of all sites, "
            f"so there is no feature. Check that the tables are not empty."
        )
    return Design(
        columns=columns,
        outcome=outcome,
        classes=_classes(dictionary, outcome),
        scale=scale,
        impute=impute,
        dropped=dropped,
    )


@dataclass(frozen=True)
class Dropped:
    """A column that gives no feature, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class _Seen:
    """What the first two calls found, and how to ask for more."""

    fed: Federation
    rows: int
    moments: Moments
    levels: Array

    def ask(self, edges: Array) -> Array:
        return self.fed.sum(column_cells, edges=edges).counts


def _look(fed: Federation, encoding: Encoding) -> _Seen:
    """Make the first two calls."""
    inside = fed.through(encoding)
    most = max((len(v.levels) for v in encoding.coded), default=0)
    first = inside.sum(column_tally, most_levels=most)
    n = first.present.astype(float)
    mean = np.divide(first.total, n, out=np.zeros(len(n)), where=n > 0)
    squares = inside.sum(column_spread, centre=mean).squares if len(n) else np.zeros(0)
    sd = np.sqrt(np.divide(squares, n, out=np.zeros(len(n)), where=n > 0))
    return _Seen(inside, int(first.rows), Moments(n, mean, sd, first.fractional == 0), first.levels)


def _numbers(
    seen: _Seen, variables: tuple[Variable, ...], scale: str, impute: str, min_cell: int
) -> list[NumberColumn | Dropped]:
    """Return what becomes of each column of numbers."""
    m = seen.moments
    binary = np.array([v.type == "binary" for v in variables], bool)
    useful = (m.n > 0) & ~m.constant
    wanted = np.flatnonzero(useful & ~binary)
    fill, shift, width = m.mean.copy(), np.zeros(len(m.n)), np.ones(len(m.n))
    error = np.zeros(len(m.n))
    fill[binary] = m.mean[binary] > 0.5
    if impute == "most_frequent":
        fill[wanted], error[wanted] = modes(seen.ask, m, wanted, min_cell)
    if impute in ("median", "indicator") or scale == "minmax":
        values, errors = quantiles(seen.ask, m, wanted, (0.5, *RANGE), min_cell)
        if impute in ("median", "indicator"):
            fill[wanted], error[wanted] = values[:, 0], errors[:, 0]
        if scale == "minmax":
            low, high = _range(m, wanted, values[:, 1:], errors[:, 1:])
            shift[wanted], width[wanted] = low, high - low
            error[wanted] = np.maximum(error[wanted], errors[:, 1:].max(axis=1))
    if scale == "standard":
        shift[wanted], width[wanted] = m.mean[wanted], m.sd[wanted]
    out: list[NumberColumn | Dropped] = []
    for j, v in enumerate(variables):
        if not useful[j]:
            out.append(Dropped(v.name, "constant" if m.n[j] else "no values"))
            continue
        out.append(
            NumberColumn(
                name=v.name,
                type=v.type,
                fill=float(fill[j]),
                shift=float(shift[j]),
                scale=float(width[j]),
                clip=scale == "minmax" and not binary[j],
                indicator=impute == "indicator" and bool(m.n[j] < seen.rows),
                error=float(error[j]),
            )
        )
    return out


def _range(m: Moments, columns: Array, ends: Array, errors: Array) -> tuple[Array, Array]:
    """Return the ranges that become [0, 1]; where the quantiles coincide, mean ± 2 sd."""
    low, high = ends.T
    tied = high - low <= errors.sum(axis=1)
    mean, sd = m.mean[columns], m.sd[columns]
    return np.where(tied, mean - 2 * sd, low), np.where(tied, mean + 2 * sd, high)


def _levels(v: Variable, counts: Array, seen: _Seen, impute: str) -> LevelColumn | Dropped:
    """Return what becomes of one category, with counts (most levels,) of its levels."""
    kept = tuple(level for level, n in zip(v.levels, counts, strict=False) if n > 0)
    if len(kept) < 2:
        return Dropped(v.name, "constant" if kept else "no values")
    return LevelColumn(
        name=v.name,
        type=v.type,
        levels=v.levels,
        kept=kept,
        fill=v.levels[int(np.argmax(counts))],
        indicator=impute == "indicator" and int(counts.sum()) < seen.rows,
    )


def _classes(dictionary: Dictionary, outcome: Outcome | None) -> tuple[str, ...]:
    """Return the classes of a labelled outcome, from the dictionary.

    Raises
    ------
    DataError : the outcome has no levels there, or a binary one has not two.
    """
    if not isinstance(outcome, (Binary, Category)):
        return ()
    v = dictionary[outcome.y]
    levels = ("0", "1") if v.type == "binary" and not v.levels else v.levels
    if not levels:
        raise DataError(
            f"outcome {v.name!r} is of type {v.type!r} in the dictionary; make it a category and "
            f"list its levels."
        )
    if isinstance(outcome, Category):
        return levels
    if len(levels) != 2:
        raise DataError(f"the binary outcome {v.name!r} has {len(levels)} levels; it needs two.")
    return sorted_levels(levels)

"""Rows of a model's features as rows of a table: units, types, ranges, levels and dates.

`Design.table` undoes the scale. This module then makes every cell one that `fedcohort data check`
accepts: numbers are cut to the dictionary's range, whole numbers are rounded, a level is one of the
dictionary's (one of a pool of rare levels is drawn, each with the same probability), and a date is
a day. NaN, a missing entry, becomes an empty cell. A column of the dictionary that the model does
not know is empty.

A model knows the time from one date to another, not the dates. So the first date is `ANCHOR` in
every row, and the second one lies the drawn time after it.

Some rules concern whole rows: an outcome is known, a survival time is above 0, and observation
begins before it ends. `possible` finds the rows that keep them.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import replace

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.prepare import Column, Design, NumberColumn
from fedcohort.data.variable import DURATIONS, LARGEST, Variable

#: Day of every first date.
ANCHOR = "2000-01-01"
#: See `_near`.
TAIL = 2.0
#: Numbers keep so many significant digits.
DIGITS = 6
#: Days from 1970 of the first and the last year that a table may hold.
_FIRST, _LAST = (
    np.datetime64(day).astype("datetime64[D]").astype(int) for day in ("1900-01-01", "2199-12-31")
)


def restored(
    design: Design,
    dictionary: Dictionary,
    x: Array,
    outcome: Array | None,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return rows of features x (n, p) as a table with the dictionary's columns, in its order.

    Parameters
    ----------
    outcome : (n, k) as `Fitted.sample_outcome` gives them, for a design with an outcome; else None.
    """
    found: dict[str, Array] = {}
    at = 0
    for c in design.columns:
        part = x[:, at : at + len(c.features)]
        found[c.name] = _undone(c, part, rng)
        at += len(c.features)
    if design.offset:
        found[design.offset] = x[:, -1]
    if outcome is not None and design.outcome is not None:
        found |= _of_outcome(design, outcome)
    columns: dict[str, pd.Series] = {}
    for v in dictionary.variables.values():
        if v.name in found and not v.since:
            columns[v.name] = _cells(v, found[v.name])
    for v in dictionary.variables.values():
        if v.name in found and v.since:
            _write_dates(v, found[v.name], columns, dictionary)
    empty = pd.Series(np.full(len(x), np.nan))
    return pd.DataFrame({name: columns.get(name, empty) for name in dictionary.variables})


def possible(frame: pd.DataFrame, outcome: Outcome | None) -> Array:
    """Return the rows (n,) with a possible outcome: known, and of survival a time above 0 and after
    the start of observation.
    """
    if outcome is None:
        return np.ones(len(frame), bool)
    fine = frame[[*outcome.columns]].notna().all(axis=1).to_numpy()
    if not isinstance(outcome, Survival):
        return fine
    time = frame[outcome.time].to_numpy(float)
    fine &= time > 0
    if outcome.entry:
        fine &= frame[outcome.entry].to_numpy(float) < time
    return fine


def _undone(column: Column, part: Array, rng: np.random.Generator) -> Array:
    """Return a column's values or levels (n,), NaN or None if missing."""
    if isinstance(column, NumberColumn):
        return _near(column).undone(part[:, :1])
    found = column.undone(part[:, : column.raw_width])
    if column.pooled:
        pool = np.flatnonzero(found == column.kept[-1])
        found[pool] = np.array(column.pooled, object)[
            rng.integers(len(column.pooled), size=len(pool))
        ]
    return found


def _near(column: NumberColumn) -> NumberColumn:
    """Return a column of ranks whose outermost knots are not far beyond the others.

    Below the first inner knot and above the last one are few rows, so that the ends are those of a
    wide cell. An end lies at most `TAIL` times as far out as its share of rows would at the density
    beside it.
    """
    x, f = column.knots, column.shares
    if len(x) < 4:
        return column
    low, high = x[0], x[-1]
    if f[2] > f[1]:  # else no row is beside it, and the end stays
        low = max(low, x[1] - TAIL * (x[2] - x[1]) * max(1.0, (f[1] - f[0]) / (f[2] - f[1])))
    if f[-2] > f[-3]:
        beyond = max(1.0, (f[-1] - f[-2]) / (f[-2] - f[-3]))
        high = min(high, x[-2] + TAIL * (x[-2] - x[-3]) * beyond)
    return replace(column, knots=(low, *x[1:-1], high))


def _of_outcome(design: Design, y: Array) -> dict[str, Array]:
    """Return the outcome's columns."""
    outcome = design.outcome
    assert outcome is not None
    if isinstance(outcome, Survival):
        return {outcome.time: y[:, 0], outcome.event: y[:, 1]}
    if design.classes:
        return {outcome.label: np.array(design.classes, object)[y[:, 0].astype(int)]}
    return {outcome.label: y[:, 0]}


def _cells(v: Variable, values: Array) -> pd.Series:
    """Return values (n,) as cells of a variable's column."""
    if v.coded or values.dtype == object:
        return pd.Series(values, dtype=object)
    if v.type in ("binary", "event"):
        return _whole(np.clip(values, 0.0, 1.0))
    low, high = _ends(v)
    if v.type == "integer":
        return _whole(np.clip(np.rint(values), math.ceil(low), math.floor(high)))
    return pd.Series(np.clip(significant(np.clip(values, low, high)), low, high))


def _ends(v: Variable) -> tuple[float, float]:
    """Return a variable's range; the largest numbers without one."""
    low, high = v.range
    return -LARGEST if low is None else low, LARGEST if high is None else high


def _whole(values: Array) -> pd.Series:
    """Return whole numbers; missing ones stay."""
    return pd.Series(np.rint(values)).astype("Int64")


def significant(values: Array) -> Array:
    """Return values (n,) with `DIGITS` significant digits."""
    size = np.abs(values)
    known = np.isfinite(size) & (size > 0)
    power = np.floor(np.log10(size, where=known, out=np.zeros(len(size))))
    places = DIGITS - 1 - power
    up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
    return np.where(known, np.rint(values * up / down) / up * down, values)


def _write_dates(
    v: Variable, values: Array, columns: dict[str, pd.Series], dictionary: Dictionary
) -> None:
    """Add a date, and the date it counts from, if this is a column without dates so far."""
    days = np.clip(values, *_ends(v)) * DURATIONS[v.unit]
    start = np.datetime64(v.since if v.since_day is not None else ANCHOR, "D").astype(int)
    if v.since_day is None and v.since not in columns and v.since in dictionary:
        columns[v.since] = pd.Series([ANCHOR] * len(values), dtype=object)
    known = np.isfinite(days)
    at = np.clip(start + np.rint(np.where(known, days, 0.0)), _FIRST, _LAST).astype(int)
    first = datetime.date(1970, 1, 1)
    texts = [
        (first + datetime.timedelta(days=int(day))).isoformat() if fine else None
        for day, fine in zip(at, known, strict=True)
    ]
    columns[v.name] = pd.Series(texts, dtype=object)

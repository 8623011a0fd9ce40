"""Fitted survival curves: the published points, and predictions for new rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.algorithms.survival_curves.groups import group_of
from fedcohort.arrays import Array
from fedcohort.metrics.survival.kaplan_meier import first_below
from fedcohort.protocol import Fitted, Row

#: Kinds of curve.
SURVIVAL, HAZARD = "survival", "cumulative_hazard"


@dataclass(frozen=True, eq=False)
class Curve:
    """One group's curve; each array (J,), or (J + 1,) with the start first.

    Attributes
    ----------
    times : of the curve's steps, in the unit of the outcome.
    events : deaths since the time before.
    followed : (J + 1,) records alive and followed after each time; −1 if not known.
    about : (J + 1,) the same, estimated if not known; nan if it is below `min_cell`.
    value, low, high : survival or cumulative hazard, and its interval.
    least, most : (J,) bounds of the value at exact times.
    """

    times: Array
    events: Array
    followed: Array
    about: Array
    value: Array
    low: Array
    high: Array
    least: Array
    most: Array

    def thinned(self, most: int) -> Curve:
        """Return the curve at `most` or fewer of its times, the last included."""
        n = len(self.times)
        kept = np.unique(np.ceil(np.arange(1, min(most, n) + 1) * n / min(most, n))).astype(int)
        parts = {k: getattr(self, k)[kept - 1] for k in _PARTS}
        parts |= {k: getattr(self, k)[np.r_[0, kept]] for k in ("followed", "about")}
        events = np.add.reduceat(self.events, np.r_[0, kept[:-1]])
        return Curve(**{**parts, "events": events})


_PARTS = tuple(Curve.__annotations__)


@dataclass(frozen=True, eq=False)
class CurvesModel(Fitted):
    """Curves of all records, or of each group.

    Attributes
    ----------
    kind : "survival" or "cumulative_hazard".
    by : column of the groups; "" for one curve of all.
    groups : their names, in the order of the design's features.
    shown : each group's curve, or None.
    records, events : of each group; None if below `min_cell`, or if such a number would follow.
    notes : why a group has no curve, or what its curve leaves out; "" if nothing.
    exact : the curves step at the times of death.
    level : coverage of the intervals.
    horizon : time to which the mean survival time is restricted; 0 for none.
    min_cell : smallest published count other than 0.
    """

    kind: str
    by: str
    groups: tuple[str, ...]
    shown: tuple[Curve | None, ...]
    records: tuple[int | None, ...]
    events: tuple[int | None, ...]
    notes: tuple[str, ...]
    exact: bool
    level: float
    horizon: float
    min_cell: int

    def predict(self, x: Array) -> Array:
        """Return 0 (n,) for each row of x (n, p): curves give no ranking."""
        return np.zeros(len(x))

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) (n, m) of each row of x (n, p) at each of `times` (m,).

        It is the curve of the row's group, or else the mean of all curves weighted by records.
        """
        group = group_of(np.asarray(x), len(self.groups) if self.by else 0)
        alive = np.stack([self._survival(c, times) for c in self.shown if c is not None])
        place = np.cumsum([c is not None for c in self.shown]) - 1
        found = [alive[place[i]] if c is not None else None for i, c in enumerate(self.shown)]
        size = np.array([c.followed[0] for c in self.shown if c is not None], float)
        mean = np.maximum(size, 1.0) @ alive / np.maximum(size, 1.0).sum()
        return np.stack([*(mean if f is None else f for f in found), mean])[group]

    def known_until(self, x: Array) -> Array:
        """Return the last time (n,) of the curve of each row of x (n, p).

        For a row whose group has no curve, it is the earliest such time of the groups.
        """
        group = group_of(np.asarray(x), len(self.groups) if self.by else 0)
        ends = [None if c is None else c.times[-1] for c in self.shown]
        first = min(end for end in ends if end is not None)
        return np.array([first if end is None else end for end in (*ends, None)])[group]

    def _survival(self, curve: Curve, times: Array) -> Array:
        """Return a curve's survival at times (m,): steps if exact, otherwise linear between."""
        alive = curve.value if self.kind == SURVIVAL else np.exp(-curve.value)
        x, y = np.r_[0.0, curve.times], np.r_[1.0, alive]
        if self.exact:
            return y[np.searchsorted(curve.times, times, side="right")]
        return np.interp(times, x, y)

    def curves(self) -> list[Row]:
        """Return a row for each group and time of its curve, from time 0 on.

        ``at_risk`` counts the records that could have had the ``events``, ``censored`` those
        censored since the row before, ``followed`` those that remain; None if a protected grid does
        not give it. ``about`` estimates ``followed``; None below `min_cell`.
        """
        return [
            {"group": name, **row}
            for name, curve in zip(self.groups, self.shown, strict=True)
            if curve is not None
            for row in self._rows(curve)
        ]

    def _rows(self, c: Curve) -> list[Row]:
        start = 1.0 if self.kind == SURVIVAL else 0.0
        first: Row = {
            "time": 0.0, "at_risk": _count(c.followed[0]), "events": 0, "censored": 0,
            "followed": _count(c.followed[0]), "about": _count(c.about[0]),
            self.kind: start, "low": start, "high": start,
        }  # fmt: skip
        rows = [first]
        for j, time in enumerate(c.times.tolist()):
            before, after, died = int(c.followed[j]), int(c.followed[j + 1]), int(c.events[j])
            risk = after + died if self.exact else before
            left = before - died - after if min(before, after) >= 0 else None
            rows.append(
                {"time": time, "at_risk": _count(risk), "events": died, "censored": left,
                 "followed": _count(after), "about": _count(np.round(c.about[j + 1])),
                 self.kind: float(c.value[j]),
                 "low": _number(c.low[j]), "high": _number(c.high[j])}
            )  # fmt: skip
        return rows

    def summary(self) -> list[Row]:
        """Return a row for each group: records, events, and the median or the last hazard.

        ``low`` and ``high`` are its interval. A value is None if the curve ends before it or if it
        is below `min_cell`; ``note`` says what is left out.
        """
        rows: list[Row] = []
        for i, (name, curve) in enumerate(zip(self.groups, self.shown, strict=True)):
            row: Row = {"group": name, "records": self.records[i], "events": self.events[i]}
            row |= self._median(curve) if self.kind == SURVIVAL else self._last(curve)
            rows.append({**row, "note": self.notes[i]})
        return rows

    def _median(self, c: Curve | None) -> Row:
        values = [math.nan] * 3 if c is None else [
            first_below(c.times, v, 0.5, steps=self.exact) for v in (c.value, c.low, c.high)
        ]  # fmt: skip
        row: Row = dict(zip(("median", "low", "high"), map(_number, values), strict=True))
        if self.horizon:
            row["restricted_mean"] = None if c is None else _number(self._restricted_mean(c))
        return row

    def _restricted_mean(self, c: Curve) -> float:
        """Return the area below a curve up to the horizon; nan if it ends before, above 0."""
        if not len(c.times) or (self.horizon > c.times[-1] and c.value[-1] > 0):
            return math.nan
        ends = np.r_[0.0, c.times[c.times < self.horizon], self.horizon]
        alive = self._survival(c, ends)
        heights = alive[:-1] if self.exact else (alive[:-1] + alive[1:]) / 2
        return float(np.diff(ends) @ heights)

    def _last(self, c: Curve | None) -> Row:
        if c is None:
            return dict.fromkeys(("time", HAZARD, "low", "high"))
        values = (c.times[-1], c.value[-1], c.low[-1], c.high[-1])
        return dict(zip(("time", HAZARD, "low", "high"), map(_number, values), strict=True))

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save: all curves concatenated, and the number of points of each."""
        kept = [c for c in self.shown if c is not None]
        parts = {f"curve_{k}": np.concatenate([getattr(c, k) for c in kept]) for k in _PARTS}
        points = np.array([-1 if c is None else len(c.times) for c in self.shown])
        return {**parts, "points": points, "times": np.unique(parts["curve_times"])}

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        names = ("kind", "by", "exact", "level", "horizon", "min_cell")
        lists = ("groups", "records", "events", "notes")
        return {k: getattr(self, k) for k in names} | {k: list(getattr(self, k)) for k in lists}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> CurvesModel:
        """Build the model from saved arrays and values."""
        shown: list[Curve | None] = []
        at = dict.fromkeys(_PARTS, 0)
        for n in arrays["points"].tolist():
            if n < 0:
                shown.append(None)
                continue
            parts: dict[str, Array] = {}
            for k in _PARTS:
                size = n + (k in ("followed", "about"))
                parts[k] = arrays[f"curve_{k}"][at[k] : at[k] + size]
                at[k] += size
            shown.append(Curve(**parts))
        lists: dict[str, Sequence[Any]] = {
            k: tuple(meta[k]) for k in ("groups", "records", "events", "notes")
        }
        single = {k: meta[k] for k in ("kind", "by", "exact", "level", "horizon", "min_cell")}
        return cls(shown=tuple(shown), **single, **lists)  # pyright: ignore[reportArgumentType]


def _count(value: float) -> int | None:
    return int(value) if value >= 0 else None


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

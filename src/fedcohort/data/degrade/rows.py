"""The rows of one site while they are changed, by the rules of the package's header."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.degrade.items import COLUMN, VALUE, Degradation, Given, generator, part
from fedcohort.data.encode import code_column, number_column
from fedcohort.data.outcome import Outcome
from fedcohort.data.variable import Variable
from fedcohort.protocol.errors import DataError


def is_number(v: Variable) -> bool:
    """Return whether a column holds numbers that can be converted and blurred."""
    return v.type in ("number", "integer") and not v.coded


class SiteRows:
    """The rows of one site, while they are changed.

    whole : training rows of all sites, unchanged.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        site: str,
        seed: int,
        known: Mapping[str, Variable],
        outcome: Outcome | None,
        whole: pd.DataFrame,
    ):
        self.frame, self.site, self.seed = frame, site, seed
        self.known = [v for v in known.values() if v.name in frame.columns]
        self.outcome, self.whole = outcome, whole
        self.given = Given(laid=len(frame))
        self.kept = np.arange(len(frame))

    def _rng(self, kind: str) -> np.random.Generator:
        return generator(self.seed, kind, self.site)

    def keep(self, rows: float) -> None:
        """Keep a number of rows, or below 1 a share of them."""
        n = len(self.frame)
        k = min(n, int(rows) if rows >= 1 else max(2, part(rows, n)))
        rng = self._rng("rows")
        order = rng.permutation(n)
        if self.outcome is not None:
            order = order[np.argsort(self.outcome.strata(self.frame)[order], kind="stable")]
        at = np.floor((np.arange(k) + rng.random()) * n / k).astype(int)
        self.kept = np.sort(order[at])
        self.frame = self.frame.iloc[self.kept].reset_index(drop=True)

    def left_of(self, before: pd.DataFrame) -> tuple[int, int]:
        """Return the known entries of the rows before, and those that are as they were."""
        names = [v.name for v in self.known]
        names += [] if self.outcome is None else [*self.outcome.columns]
        was = before[names]
        same = was.iloc[self.kept].reset_index(drop=True) == self.frame[names]
        return int(was.notna().to_numpy().sum()), int(same.to_numpy().sum())

    def swap(self, share: float) -> None:
        """Permute the outcomes of a share of the rows."""
        rng = self._rng("swap")
        some = rng.permutation(len(self.frame))[: part(share, len(self.frame))]
        if len(some) and self.outcome is not None:
            to = rng.permutation(some)
            for name in self.outcome.columns:
                values = self.frame[name].copy()
                values.iloc[some] = self.frame[name].iloc[to].to_numpy()
                self.frame = self.frame.assign(**{name: values})
        self.given.swapped = len(some)

    def flip(self, share: float) -> None:
        """Give a share of the rows another class, drawn evenly."""
        rng = self._rng("flip")
        some = rng.permutation(len(self.frame))[: part(share, len(self.frame))]
        if len(some) and self.outcome is not None:
            name = self.outcome.label
            levels = sorted(self.whole[name].dropna().unique())
            if len(levels) < 2:
                raise DataError(f"degrade: column {name!r} has one level; none to flip to.")
            at = {level: i for i, level in enumerate(levels)}
            values = self.frame[name].copy()
            further = rng.integers(1, len(levels), len(some))
            values.iloc[some] = [
                levels[(at[value] + step) % len(levels)]
                for value, step in zip(values.iloc[some], further, strict=True)
            ]
            self.frame = self.frame.assign(**{name: values})
        self.given.flipped = len(some)

    def convert(self, units: Mapping[str, float]) -> None:
        """Multiply columns by factors."""
        changed = {name: pd.to_numeric(self.frame[name]) * factor
                   for name, factor in units.items() if name in self.frame.columns}  # fmt: skip
        self.frame = self.frame.assign(**changed)
        self.given.units = {name: units[name] for name in changed}

    def add_noise(self, sds: float) -> None:
        """Add normal noise to numbers, in standard deviations over all sites."""
        self.given.noise = sds
        if not sds:
            return
        rng = self._rng("noise")
        for v in self.known:
            x = number_column(self.frame, v) if is_number(v) else np.zeros(0)
            known = ~np.isnan(x)
            if not known.any():
                continue
            sd = np.nanstd(number_column(self.whole, v))
            self._set(v, known, x + sds * sd * rng.normal(size=len(x)))
            self.given.noisy += int(known.sum())

    def _set(self, v: Variable, where: Array, values: Any) -> None:
        """Set entries of a column; a number keeps the form and the range of its column."""
        column = self.frame[v.name]
        if is_number(v):
            low, high = v.range
            numbers = np.clip(values, -np.inf if low is None else low,
                              np.inf if high is None else high)  # fmt: skip
            if v.type == "integer":
                numbers = np.round(numbers)
            column = pd.Series(
                np.where(where, numbers, number_column(self.frame, v)), column.index, name=v.name
            )
        else:
            column = _with(column, where, values[where])
        self.frame = self.frame.assign(**{v.name: column})

    def _entries(self, names: Collection[str] = ()) -> list[tuple[Variable, Array]]:
        """Return which entries (n,) of each feature are known."""
        return [
            (v, self.frame[v.name].notna().to_numpy())
            for v in self.known
            if not names or v.name in names
        ]

    def replace(self, share: float) -> None:
        """Replace a share of the known entries by noise."""
        if not share:
            return
        rng = self._rng("replace")
        entries = [(v, e) for v, e in self._entries() if v.type != "date"]
        for (v, _), where in zip(entries, _some(entries, share, rng), strict=True):
            n = len(self.frame)
            if not where.any():
                continue
            if is_number(v):
                x = number_column(self.whole, v)
                low, high = np.nanmin(x), np.nanmax(x)
                whole = v.type == "integer"
                drawn = rng.integers(int(low), int(high) + 1, n) if whole else \
                    rng.uniform(low, high, n)  # fmt: skip
            else:
                levels = sorted(self.whole[v.name].dropna().unique(), key=str)
                known = pd.Series(levels, dtype=self.whole[v.name].dtype).to_numpy()
                drawn = known[rng.integers(0, len(known), n)]
            self._set(v, where, drawn)
            self.given.replaced += int(where.sum())

    def remove(self, item: Degradation) -> None:
        """Remove a share of the known entries."""
        if not item.missing:
            return
        rng, self.given.how = self._rng("missing"), item.how
        entries = self._entries(item.columns)
        if item.how == COLUMN:
            gone = rng.permutation(len(entries))[: part(item.missing, len(entries))]
            lost = [e & (i in gone) for i, (_, e) in enumerate(entries)]
            self.given.columns = tuple(entries[i][0].name for i in sorted(gone))
        elif item.how == VALUE:
            lost = [self._by_value(v, e, item.missing, rng) for v, e in entries]
        else:
            lost = _some(entries, item.missing, rng)
        for (v, _), where in zip(entries, lost, strict=True):
            if where.any():
                emptied = _with(self.frame[v.name], where, None)
                self.frame = self.frame.assign(**{v.name: emptied})
            self.given.removed += int(where.sum())

    def _by_value(self, v: Variable, known: Array, share: float, rng: np.random.Generator) -> Array:
        """Draw entries without replacement, with chances in proportion to their ranks.

        The entries of the largest ln(u)/w, u uniform and w the weight (Efraimidis & Spirakis 2006).
        """
        if v.coded:
            values = code_column(self.frame, v).astype(float)
        elif v.type == "binary":
            values = pd.factorize(self.frame[v.name], sort=True)[0].astype(float)
        else:
            values = number_column(self.frame, v)
        at = np.flatnonzero(known)
        rank = pd.Series(values[at]).rank().to_numpy()
        keys = np.log(rng.random(len(known)))[at] / rank
        lost = np.zeros(len(known), bool)
        lost[at[np.argsort(-keys, kind="stable")[: part(share, len(at))]]] = True
        return lost


def _with(column: pd.Series, where: Array, values: Any) -> pd.Series:
    """Return a column with other values at some rows (n,), in its own form; None is missing."""
    out = column.copy()
    out.iloc[np.flatnonzero(where)] = values
    return out


def _some(
    entries: Sequence[tuple[Variable, Array]], share: float, rng: np.random.Generator
) -> list[Array]:
    """Return which of the known entries (n,) of each column are drawn, r(share·entries) in all."""
    if not entries:
        return []
    known = np.column_stack([e for _, e in entries])
    flat = np.flatnonzero(known.ravel())
    lost = np.zeros(known.size, bool)
    lost[rng.permutation(flat)[: part(share, len(flat))]] = True
    return list(lost.reshape(known.shape).T)

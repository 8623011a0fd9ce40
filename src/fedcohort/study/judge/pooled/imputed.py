"""Imputation: known entries of blind rows are hidden, imputed, and compared.

Entries are hidden in three ways, from the judge's seed:

    random   each known entry with the probability `SHARE`
    value    an entry with the probability 2 `SHARE` r, r its rank among the column's blind entries
             from 0 to 1: the higher, the rarer it is known; levels are ranked by their number
    view     all entries of each view in turn, of rows that have it and another one

With v the hidden value of a number, v̂ the imputed one and s the standard deviation of the column's
known blind entries; and for levels and binary columns whether the imputed level is another one

    masked_rmse       root of the mean of ((v − v̂)/s)² over hidden numbers, random           (1)
    masked_mae        mean of |v − v̂|/s over the same
    masked_wrong      share of hidden levels that are imputed wrong, random
    masked_coverage   share of hidden numbers inside m ± 1.96 sd √(1 + 1/D), with mean m and sd
                      of D = `DRAWS` draws: 0.95 if draws are as uncertain as they should be
    masked_rmse_by_value, masked_rmse_by_view, masked_wrong_by_view    the same, hidden so

A column that a model lacks, as one that a hospital did not measure, is imputed by its mean or most
frequent level among the blind rows: the best constant, which flatters such a model. A column with
one value among the blind rows is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array, ratio
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoding
from fedcohort.data.imputing.values import values_of
from fedcohort.metrics.latent import commonest, over_entries, units
from fedcohort.privacy.disclosure.counts import fewest
from fedcohort.protocol import NotSupported, Row
from fedcohort.study.judge.pooled.base import Metrics, Untaught
from fedcohort.study.run.engine import Problem, Run

#: Share of entries that are hidden, and the number of draws of each.
SHARE, DRAWS = 0.3, 20
#: The ways of hiding.
WAYS = ("random", "value", "view")
#: By metric, the way of hiding and the error.
MEASURES: Mapping[str, tuple[str, str]] = {
    "masked_rmse": ("random", "squares"),
    "masked_mae": ("random", "off"),
    "masked_wrong": ("random", "wrong"),
    "masked_coverage": ("random", "inside"),
    "masked_rmse_by_value": ("value", "squares"),
    "masked_rmse_by_view": ("view", "squares"),
    "masked_wrong_by_view": ("view", "wrong"),
}


class Column(NamedTuple):
    """A column of some rows: values (n,), NaN if unknown; of levels their numbers."""

    name: str
    view: str
    levels: tuple[str, ...]
    values: Array


class Errors(NamedTuple):
    """Errors of hidden entries (n, p), NaN elsewhere: |v − v̂|/s ``off`` of numbers, ``wrong`` of
    levels, and ``inside``, whether a number is in its interval.
    """

    off: Array
    wrong: Array
    inside: Array

    def of(self, kind: str) -> Array:
        """Return the terms of a metric (n, p)."""
        return np.square(self.off) if kind == "squares" else getattr(self, kind)


#: A fit's errors by way of hiding.
Said = Mapping[str, Errors]


@dataclass(frozen=True)
class Imputed(Untaught):
    """The blind rows of one repeat, and what their metrics need.

    Attributes
    ----------
    test : blind rows.
    among : all blind rows, also if `test` are some of them: s and ranks come from these.
    rows : positions of `test` among them (n,).
    dictionary : types and views of the columns that fits see.
    seed : seed of what is hidden.
    """

    test: pd.DataFrame
    among: pd.DataFrame
    rows: Array
    dictionary: Dictionary
    min_cell: int
    seed: int

    leading: ClassVar[str] = "masked_rmse"

    @classmethod
    def of(
        cls, problem: Problem, test: pd.DataFrame, seed: int = 0, horizon: float | None = None
    ) -> Self:
        """See `Judge`."""
        known = problem.learnt().dictionary
        return cls(test, test, np.arange(len(test)), known, problem.min_cell, seed)

    @property
    def can_rank(self) -> bool:
        """Whether there are enough rows to publish their error."""
        return len(self.test) >= fewest(self.min_cell)

    def on(self, rows: Array) -> Imputed:
        """See `Judge`."""
        test = self.test[rows].reset_index(drop=True)
        return replace(self, test=test, rows=self.rows[rows])

    # columns --------------------------------------------------------------------------

    def columns(self) -> list[Column]:
        """Return the columns that vary among the blind rows."""
        variables = [v for v in self.dictionary.features() if not v.since]
        encoding = Encoding(tuple(variables))
        read = encoding(self.among)
        found = {v.name: (v, x) for v, x in zip(encoding.numeric, read.numbers, strict=True)}
        for v, codes in zip(encoding.coded, read.codes, strict=True):
            found[v.name] = (v, np.where(codes < 0, np.nan, codes.astype(float)))
        columns: list[Column] = []
        for v, values in (found[v.name] for v in variables):
            known = values[~np.isnan(values)]
            if len(known) and known.min() < known.max():
                levels = v.levels if v.coded else ("0", "1") if v.type == "binary" else ()
                columns.append(Column(v.name, v.view, levels, values))
        return columns

    def hidden(self, way: str, columns: list[Column]) -> list[Array]:
        """Return which entries are hidden together (n, p), once or by view."""
        known = np.column_stack([~np.isnan(c.values) for c in columns])
        rng = np.random.default_rng((self.seed, WAYS.index(way)))
        if way == "view":
            views = np.array([c.view for c in columns], object)
            there = {v: known[:, views == v].any(axis=1) for v in dict.fromkeys(views)}
            several = np.sum([*there.values()], axis=0) > 1
            masks = [known & (views == v) & (there[v] & several)[:, None] for v in there]
            return [m[self.rows] for m in masks] if len(there) > 1 else []
        chance = np.full(known.shape, SHARE)
        if way == "value":
            for j, c in enumerate(columns):
                order = c.values[known[:, j]]
                rank = np.searchsorted(np.sort(order), order, "left") / max(len(order) - 1, 1)
                chance[known[:, j], j] = 2 * SHARE * rank
        return [(known & (rng.random(known.shape) < chance))[self.rows]]

    # errors ---------------------------------------------------------------------------

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Said:
        """See `Judge`."""
        columns = self.columns()
        ways = dict.fromkeys(MEASURES[m][0] for m in wanted if m in MEASURES)
        draws = DRAWS if "masked_coverage" in wanted else 0
        return {
            way: self._errors(run, columns, way, draws if way == "random" else 0) for way in ways
        }

    def _errors(self, run: Run, columns: list[Column], way: str, draws: int) -> Errors:
        """Return the errors of what a fit imputes."""
        shape = (len(self.test), len(columns))
        out = Errors(*(np.full(shape, np.nan) for _ in Errors._fields))
        masks = self.hidden(way, columns) if columns else []
        for mask in masks:
            frame = self._without(columns, mask)
            x = run.design.matrix(frame)
            filled = values_of(run.design, run.model.impute(x))
            spread = self._spread(run, x, draws)
            for j, c in enumerate(columns):
                rows = np.flatnonzero(mask[:, j])
                true, said = c.values[self.rows][rows], self._said(c, filled, rows)
                if c.levels:
                    out.wrong[rows, j] = ~(true == said)
                    continue
                (unit,), _ = units(c.values[:, None])
                off = np.where(np.isfinite(said), np.abs(true - said), np.inf)
                out.off[rows, j] = off / unit
                if c.name in spread:
                    mean, sd = (part[rows] for part in spread[c.name])
                    half = 1.96 * sd * np.sqrt(1 + 1 / draws)
                    out.inside[rows, j] = np.abs(true - mean) <= half
        return out

    def _without(self, columns: list[Column], mask: Array) -> pd.DataFrame:
        """Return the test rows without the hidden entries."""
        frame = self.test.copy()
        for j, c in enumerate(columns):
            if mask[:, j].any() and c.name in frame:
                frame[c.name] = frame[c.name].mask(mask[:, j])
        return frame

    def _said(self, c: Column, filled: pd.DataFrame, rows: Array) -> Array:
        """Return a column's imputed values in some rows; of levels their numbers."""
        if c.name not in filled:
            return np.full(len(rows), self._constant(c))
        said = filled[c.name].to_numpy()[rows]
        if not c.levels or said.dtype != object:
            return said.astype(float)
        number = {level: float(i) for i, level in enumerate(c.levels)}
        return np.array([number.get(str(s), np.nan) for s in said])

    @staticmethod
    def _constant(c: Column) -> float:
        """Return the best constant for a column: its mean, or most frequent level."""
        known = c.values[~np.isnan(c.values)]
        return float(commonest(known.astype(np.int64))) if c.levels else float(known.mean())

    def _spread(self, run: Run, x: Array, draws: int) -> dict[str, tuple[Array, Array]]:
        """Return mean and standard deviation (n,) of draws of each number; {} without draws."""
        if not draws:
            return {}
        rng = np.random.default_rng((self.seed, len(WAYS)))
        try:
            many = [values_of(run.design, run.model.impute_drawn(x, rng)) for _ in range(draws)]
        except NotSupported:
            return {}
        numbers = [str(name) for name in many[0] if many[0][name].dtype.kind == "f"]
        found = {name: np.array([one[name].to_numpy() for one in many]) for name in numbers}
        return {name: (v.mean(axis=0), v.std(axis=0, ddof=1)) for name, v in found.items()}

    def metrics(self, said: Said, wanted: tuple[str, ...]) -> Metrics:
        """See `Judge`."""
        found = self.draws(said, np.ones((1, len(self.test))), wanted)
        return {m: float(found[m][0]) if np.isfinite(found[m][0]) else None for m in wanted}

    def draws(self, said: Said, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """See `Judge`."""
        out: dict[str, Array] = {}
        for metric in wanted:
            way, kind = MEASURES.get(metric, ("", ""))
            out[metric] = np.full(len(weights), np.nan)
            if way not in said:
                continue
            terms = said[way].of(kind)
            if (~np.isnan(terms)).any(axis=1).sum() >= fewest(self.min_cell):
                mean = over_entries(terms, weights)
                out[metric] = np.sqrt(mean) if kind == "squares" else mean
        return out

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of the best constant for each column."""
        said = {way: self.constants(way) for way in dict.fromkeys(w for w, _ in MEASURES.values())}
        asked = tuple(m for m in wanted if MEASURES.get(m, ("", "inside"))[1] != "inside")
        return self.draws(said, weights, asked)

    def constants(self, way: str) -> Errors:
        """Return the errors of the best constants."""
        columns = self.columns()
        out = Errors(*(np.full((len(self.test), len(columns)), np.nan) for _ in Errors._fields))
        for mask in self.hidden(way, columns) if columns else []:
            for j, c in enumerate(columns):
                rows, constant = np.flatnonzero(mask[:, j]), self._constant(c)
                true = c.values[self.rows][rows]
                if c.levels:
                    out.wrong[rows, j] = true != constant
                else:
                    out.off[rows, j] = np.abs(true - constant) / units(c.values[:, None])[0][0]
        return out

    def by_column(self, run: Run) -> Iterator[Row]:
        """Yield the publishable error of each column, by way of hiding.

        With m the `min_cell`, at least 2 m entries are hidden, and of the column's known entries at
        least m are not the most frequent one.
        """
        columns = self.columns()
        said = self.predicted(run, tuple(MEASURES))
        for way, errors in said.items():
            base = self.constants(way)
            for j, c in enumerate(columns):
                kind = "wrong" if c.levels else "squares"
                terms, best = (e.of(kind)[:, j] for e in (errors, base))
                known = c.values[~np.isnan(c.values)]
                _, counts = np.unique(known, return_counts=True)
                rest = len(known) - int(counts.max())
                entries = int((~np.isnan(terms)).sum())
                if entries < 2 * max(self.min_cell, 1) or rest < self.min_cell:
                    continue
                inside = errors.inside[:, j]
                yield {
                    "hidden": way, "view": c.view, "column": c.name,
                    "measure": "wrong" if c.levels else "rmse",
                    "error": _mean(terms, kind), "constant": _mean(best, kind),
                    "coverage": None if np.isnan(inside).all() else _mean(inside, "inside"),
                }  # fmt: skip

    def groups(self, run: Run) -> list[Row]:
        """See `Judge`; nothing, as there is no prediction of an outcome."""
        return []

    def decision(self, run: Run) -> list[Row]:
        """See `Judge`; nothing, as there is no risk."""
        return []


def _mean(terms: Array, kind: str) -> float | None:
    """Return the mean of the known terms, of squares its root, to three decimals."""
    known = terms[~np.isnan(terms)]
    mean = float(ratio(known.sum(keepdims=True), np.array([len(known)]))[0])
    if not np.isfinite(mean):
        return None
    return round(float(np.sqrt(mean)) if kind == "squares" else mean, 3)

"""A fitted design: the function from a table to the arrays that programs use.

It holds the results of federated preprocessing (fills, limits, scales, levels) and no row. Every
site applies the same design, it is saved with the model, and predictions apply it: read
each column, cut numbers to their limits, fill missing values, scale (see `columns`, `joint`).

The offset is the last column of x, neither filled nor scaled. Weights and strata are no part of x;
`matrix` appends the stratum's number, because predictions need it.

With an indicator, a column "<name> missing" is 1 if the value was missing. Binary and one-hot
columns stay 0/1. A level of the dictionary that occurred nowhere in the fit counts as missing, or
as pooled if rare levels were pooled.

With impute "none" nothing is filled: all features of a column are NaN if its value is missing.
A table may lack all columns of a view; its values are missing there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self, get_args

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data import on_disk
from fedcohort.data.dictionary import Variable
from fedcohort.data.encode import (
    Encoding,
    Unfit,
    joined,
    offset_column,
    read_offset,
    read_stratum,
    stratum_column,
)
from fedcohort.data.outcome import Outcome, Survival, weights_of
from fedcohort.data.prepare.columns import Column, NumberColumn, column_from, parts_of, plain_column
from fedcohort.data.prepare.heads import Head, heads_of
from fedcohort.data.prepare.joint import Joint, completed
from fedcohort.data.tables import FeatureTable, LabelledTable, SurvivalTable
from fedcohort.protocol.errors import DataError
from fedcohort.protocol.views import view

#: Imputing a single value makes intervals too narrow; a share of missing values above this is
#: reported.
MOST_FILLED = 0.2

#: Kinds of outcome by the name in a design's text.
_OUTCOMES: dict[str, type[Outcome]] = {cls.__name__: cls for cls in get_args(Outcome)}

#: A table that programs use.
Table = SurvivalTable | LabelledTable | FeatureTable


@view("design")
@dataclass(frozen=True, kw_only=True)
class Design:
    """View of a table: features by its columns, and the outcome.

    Attributes
    ----------
    columns : in the order of the dictionary.
    outcome : of the table's rows; None gives features alone.
    classes : of a binary or categorical outcome, in the order of their numbers 0, 1, ….
    scale, impute, winsorise, pool_levels : options of the fit.
    joint : distribution for iterative imputation; None if each column has its own fill.
    dropped : column → why it gives no feature.
    offset : last column of x, unscaled; "" without.
    weights : column with each row's weight; "" without.
    filled : column → share of rows with missing values in the fit, in hundredths, if it is above
        `MOST_FILLED`.
    strata, strata_levels : column whose levels each have a baseline hazard, and the levels; ""
        without.
    """

    columns: tuple[Column, ...]
    outcome: Outcome | None = None
    classes: tuple[str, ...] = ()
    scale: str = "none"
    impute: str = "median"
    winsorise: float = 0.0
    pool_levels: int = 0
    joint: Joint | None = None
    dropped: Mapping[str, str]
    offset: str = ""
    weights: str = ""
    strata: str = ""
    strata_levels: tuple[str, ...] = ()
    filled: Mapping[str, float] = field(default_factory=dict[str, float])

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of x, in order (p,); the offset is the last."""
        offset = (self.offset,) if self.offset else ()
        return (*(f for c in self.columns for f in c.features), *offset)

    @cached_property
    def views(self) -> tuple[str, ...]:
        """View of each column of x, in order (p,); "" for a column without view, and for an
        offset.
        """
        offset = ("",) if self.offset else ()
        return (*(c.view for c in self.columns for _ in c.features), *offset)

    @cached_property
    def places(self) -> dict[str, list[int]] | None:
        """Places in x of the features of each column of the table.

        None if a feature depends on several columns: with iterative imputation, and for a time
        `since` the date in another column.
        """
        if self.joint is not None or any(c.variable.since for c in self.columns):
            return None
        found: dict[str, list[int]] = {}
        at = 0
        for c in self.columns:
            found.setdefault(c.name, []).extend(range(at, at + len(c.features)))
            at += len(c.features)
        return found

    @cached_property
    def origin(self) -> Array:
        """A public point (p,) near the middle of each feature: its fill, in the feature's units.

        It is 0 for columns of levels, for indicators of missing values, and for an offset.
        """
        at = np.zeros((1, len(self.features)))
        j = 0
        for c in self.columns:
            if isinstance(c, NumberColumn):
                c.write(np.array([c.fill]), at[:, j : j + 1])
            j += len(c.features)
        return at[0]

    @cached_property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """The two values (p, 2) of features of levels and binary columns; NaN for others."""
        found: list[tuple[float, float]] = []
        for c in self.columns:
            own = [(0.0, 1.0)] * len(c.features)
            if isinstance(c, NumberColumn):
                at = np.full((2, 1), np.nan)
                if c.type == "binary":
                    c.write(np.array([0.0, 1.0]), at)
                own[0] = (float(at[0, 0]), float(at[1, 0]))
            found += own
        return (*found, *[(np.nan, np.nan)] * bool(self.offset))

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """Distribution of each source column of x but the offset, in order."""
        return heads_of(self.columns, self.scale)

    @cached_property
    def encoding(self) -> Encoding:
        """View that reads the columns from a table."""
        return Encoding(tuple(c.variable for c in self.columns))

    @property
    def spec(self) -> str:
        """JSON text that determines the design; equal designs have equal texts."""
        return self._text

    def to_json(self) -> str:
        """Return `spec`, which is saved with the model."""
        return self._text

    @cached_property
    def _text(self) -> str:
        about = None
        if self.outcome is not None:
            about = {"type": type(self.outcome).__name__, **asdict(self.outcome)}
        plain = {
            "columns": [plain_column(c) for c in self.columns],
            "outcome": about,
            "classes": self.classes,
            "scale": self.scale,
            "impute": self.impute,
            "winsorise": self.winsorise,
            "pool_levels": self.pool_levels,
            "joint": None if self.joint is None else asdict(self.joint),
            "dropped": dict(self.dropped),
            "offset": self.offset,
            "weights": self.weights,
            "strata": self.strata,
            "strata_levels": self.strata_levels,
            **({"filled": dict(self.filled)} if self.filled else {}),
        }
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Rebuild a design from `to_json`.

        Raises
        ------
        DataError : the text is no design.
        """
        try:
            plain: dict[str, Any] = json.loads(text)
            columns = tuple(column_from(c) for c in plain.pop("columns"))
            about, joint = plain.pop("outcome"), plain.pop("joint")
            outcome = None
            if about is not None:
                outcome = _OUTCOMES[about.pop("type")](**about)
            return cls(
                columns=columns,
                outcome=outcome,
                classes=tuple(plain.pop("classes")),
                strata_levels=tuple(plain.pop("strata_levels", ())),
                joint=None if joint is None else Joint.from_dict(joint),
                **plain,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            kind = type(error).__name__
            raise DataError(f"this is no saved design ({kind}). Save the model again.") from None

    @classmethod
    def from_spec(cls, text: str) -> Self:
        """Rebuild a design from `spec`; see `from_json`."""
        return cls.from_json(text)

    def __call__(self, frame: pd.DataFrame, /) -> Table:
        """Return the table that programs use.

        Raises
        ------
        DataError : a column is missing or holds a wrong value; the message counts rows from 1.
        """
        x = self._features(frame)
        if self.outcome is None:
            return FeatureTable(x)
        weight = weights_of(frame, self.weights) if self.weights else None
        if isinstance(self.outcome, Survival):
            time, event = self.outcome.arrays(frame)
            entry = self.outcome.entries(frame, time)
            return SurvivalTable(x, time, event, weight, entry, self._stratum(frame))
        return LabelledTable(x, self.outcome.values(frame, self.classes), weight)

    def many(self, frames: Sequence[pd.DataFrame]) -> list[Table] | None:
        """Return the result of each of several tables, made as one; None: make them one by one."""
        if self.joint is not None:  # a row's bits depend on the rows beside it
            return None
        read = [c.variable for c in self.columns]
        named = [*(self.outcome.columns if self.outcome else ()), self.offset, self.weights]
        numbers = {name: Variable(name, "number") for name in named if name}
        if self.outcome is not None and self.outcome.has_classes:
            numbers |= {n: Variable(n, "category", self.classes) for n in self.outcome.columns}
        whole = joined(frames, [*read, *numbers.values(), *([self._strata] if self.strata else [])])
        if whole is None:
            return None
        found = self(whole)
        ends = np.cumsum([len(frame) for frame in frames])[:-1]
        parts: list[list[Any]] = [
            [None] * len(frames) if a is None else np.split(a, ends) for a in found
        ]
        made: type[Any] = type(found)
        own = zip(*parts, strict=True)
        return [made(*(a if a is None else a.copy() for a in row)) for row in own]

    def matrix(self, frame: pd.DataFrame) -> Array:
        """Return the input of a model's predictions: the features x (n, p), without the outcome.

        With strata, one more column has the number of each row's level.

        Raises
        ------
        DataError : as for the design itself, except for the outcome.
        """
        x, stratum = self._features(frame), self._stratum(frame)
        return x if stratum is None else np.column_stack([x, stratum])

    def table(self, x: Array) -> pd.DataFrame:
        """Return a table whose features are x (n, p), as far as they determine it.

        Numbers are in their columns' units, levels are the likeliest ones, and a duration is a
        number.
        """
        found: dict[str, Array] = {}
        at = 0
        for c in self.columns:
            found[c.name] = c.undone(x[:, at : at + c.raw_width])
            at += len(c.features)
        return pd.DataFrame(found)

    def _stratum(self, frame: pd.DataFrame) -> Array | None:
        return stratum_column(frame, self._strata) if self.strata else None

    @property
    def _strata(self) -> Variable:
        return Variable(self.strata, "category", self.strata_levels)

    def _features(self, frame: pd.DataFrame) -> Array:
        if not on_disk.on_disk(frame):
            return self._in_memory(frame)
        blocks = (self._in_memory(frame.iloc[rows]) for rows in on_disk.parts(frame))
        return on_disk.stored(len(frame), len(self.features), blocks)

    def _in_memory(self, frame: pd.DataFrame) -> Array:
        x = np.empty((len(frame), len(self.features)))
        for part, values in parts_of(self.columns, self.encoding(frame), len(frame)):
            self._write(values, x[part])
        if self.offset:
            x[:, -1] = offset_column(frame, self.offset)
        return x

    def unfit(self, frame: pd.DataFrame) -> list[Unfit]:
        """Return every cell that `matrix` could not read, column by column.

        Raises
        ------
        DataError : a column is missing, or holds dates where numbers are expected.
        """
        offset = read_offset(frame, self.offset)[1] if self.offset else []
        strata = read_stratum(frame, self._strata)[1] if self.strata else []
        return [*self.encoding.unfit(frame), *offset, *strata]

    def _write(self, values: list[Array], x: Array) -> None:
        """Write the features of rows into x (n, p), from each column's values."""
        full = values if self.joint is None else completed(self.joint, self.columns, values)
        at = 0
        for c, given, whole in zip(self.columns, values, full, strict=True):
            block = x[:, at : at + len(c.features)]
            at += len(c.features)
            c.write(c.filled(whole), block[:, : c.raw_width])
            if self.impute == "none":
                block[c.missing(given)] = np.nan
            if c.indicator:
                block[:, -1] = c.missing(given)

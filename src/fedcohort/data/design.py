"""A fitted design: the function from a table to the numbers that programs see.

It holds what federated preprocessing found out (fills, shifts, scales, levels) and nothing of
any row. The same design is applied at every site, saved with the model, and applied by predict:

    number    z = (x − shift) / scale, clipped to [0, 1] if scaled to the range
    category  one column for each level but the first of those that occur

A missing number is filled before it is scaled, a missing level by the most frequent one; so
is a level that the dictionary knows and that occurred nowhere in the fit. With an indicator, a
column "<name> missing" says so. Binary and one-hot columns stay 0/1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data import outcome as outcomes
from fedcohort.data.dictionary import Variable
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.tables import FeatureTable, LabelledTable, SurvivalTable
from fedcohort.data.targets import survival_of, target_of
from fedcohort.protocol.errors import DataError

#: A table as programs see it.
Table = SurvivalTable | LabelledTable | FeatureTable


@dataclass(frozen=True, kw_only=True)
class NumberColumn:
    """How a number becomes a feature.

    Attributes
    ----------
    name, type : as in the dictionary.
    fill : stands in for a missing value, in the column's unit.
    shift, scale : in the column's unit.
    clip : whether the result is cut to [0, 1].
    indicator : whether a column says where a value was missing.
    error : bound on the error of what came from quantiles, in the column's unit.
    """

    name: str
    type: str
    fill: float
    shift: float = 0.0
    scale: float = 1.0
    clip: bool = False
    indicator: bool = False
    error: float = 0.0

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features it gives, in order."""
        return (self.name, f"{self.name} missing") if self.indicator else (self.name,)


@dataclass(frozen=True, kw_only=True)
class LevelColumn:
    """How a category becomes features.

    Attributes
    ----------
    name, type, levels : as in the dictionary.
    kept : the levels that occur, in order; the first is the reference.
    fill : the level that stands in for one that is missing or not in `kept`.
    indicator : whether a column says where the level was missing.
    """

    name: str
    type: str
    levels: tuple[str, ...]
    kept: tuple[str, ...]
    fill: str
    indicator: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features it gives, in order."""
        hot = tuple(f"{self.name}={level}" for level in self.kept[1:])
        return (*hot, f"{self.name} missing") if self.indicator else hot

    @property
    def rows(self) -> Array:
        """Feature values (levels + 1, features) by code; the last row is for a missing level."""
        hot = np.eye(len(self.kept))[:, 1:]
        if self.indicator:
            hot = np.column_stack([hot, np.zeros(len(hot))])
        place = {level: i for i, level in enumerate(self.kept)}
        out = hot[[place.get(level, place[self.fill]) for level in (*self.levels, self.fill)]]
        if self.indicator:
            out[[level not in place for level in self.levels] + [True], -1] = 1.0
        return out


@dataclass(frozen=True, kw_only=True)
class Design:
    """A view of a table: features by its columns, and the outcome.

    Attributes
    ----------
    columns : in the order of the dictionary.
    outcome : what the table's rows are about; None gives features alone.
    classes : of a binary or categorical outcome, in the order of their numbers 0, 1, ….
    scale, impute : as asked for in the fit.
    dropped : column → why it gives no feature.
    """

    columns: tuple[NumberColumn | LevelColumn, ...]
    outcome: Outcome | None = None
    classes: tuple[str, ...] = ()
    scale: str = "none"
    impute: str = "median"
    dropped: Mapping[str, str]

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of x, in order (p,)."""
        return tuple(f for c in self.columns for f in c.features)

    @property
    def spec(self) -> str:
        """JSON text that determines the design; byte for byte the same for equal designs."""
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
            "columns": [asdict(c) for c in self.columns],
            "outcome": about,
            "classes": self.classes,
            "scale": self.scale,
            "impute": self.impute,
            "dropped": dict(self.dropped),
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
            columns = tuple(_column(c) for c in plain.pop("columns"))
            about = plain.pop("outcome")
            outcome = None
            if about is not None:
                outcome = cast("Outcome", getattr(outcomes, about.pop("type"))(**about))
            classes = tuple(plain.pop("classes"))
            return cls(columns=columns, outcome=outcome, classes=classes, **plain)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            kind = type(error).__name__
            raise DataError(f"this is no saved design ({kind}). Save the model again.") from None

    def __call__(self, frame: pd.DataFrame, /) -> Table:
        """Return the table that programs see.

        Raises
        ------
        DataError : a column is missing, or holds what it may not; rows are numbered from 1.
        """
        x = self.matrix(frame)
        if self.outcome is None:
            return FeatureTable(x)
        if isinstance(self.outcome, Survival):
            return SurvivalTable(x, *survival_of(frame, self.outcome))
        return LabelledTable(x, target_of(frame, self.outcome, self.classes))

    def matrix(self, frame: pd.DataFrame) -> Array:
        """Return the features x (n, p) of a table, which needs no outcome.

        Raises
        ------
        DataError : as for the design itself, but for the outcome.
        """
        values, codes = self._encoding(frame)
        x = np.empty((len(frame), len(self.features)))
        number = level = at = 0
        for c in self.columns:
            block = x[:, at : at + len(c.features)]
            at += len(c.features)
            if isinstance(c, NumberColumn):
                block[:] = _numbers(c, values[:, number])
                number += 1
            else:
                block[:] = self._rows[level][codes[:, level]]
                level += 1
        return x

    @cached_property
    def _encoding(self) -> Encoding:
        return Encoding(
            tuple(
                Variable(c.name, c.type, c.levels if isinstance(c, LevelColumn) else ())
                for c in self.columns
            )
        )

    @cached_property
    def _rows(self) -> list[Array]:
        return [c.rows for c in self.columns if isinstance(c, LevelColumn)]


def _numbers(c: NumberColumn, values: Array) -> Array:
    """Return the features (n, 1 or 2) of one column of numbers."""
    missing = np.isnan(values)
    z = (np.where(missing, c.fill, values) - c.shift) / c.scale
    z = np.clip(z, 0.0, 1.0) if c.clip else z
    return np.column_stack([z, missing]) if c.indicator else z[:, None]


def _column(plain: dict[str, Any]) -> NumberColumn | LevelColumn:
    if "levels" not in plain:
        return NumberColumn(**plain)
    plain["levels"], plain["kept"] = tuple(plain["levels"]), tuple(plain["kept"])
    return LevelColumn(**plain)

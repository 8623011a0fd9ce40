"""Columns of a design: how a number, or a level, becomes features.

number    x cut to [low, high], filled, then z = (x − shift) / scale, or z = F(x) by knots
category  one column for each kept level but the first

With knots, F is the share of all sites' rows below x, plus half of those equal to it: linear
between the knots, and constant beyond the first and the last. A column keeps no row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Variable
from fedcohort.data.encode import Encoded
from fedcohort.protocol.errors import DataError

#: Fields of a number that may be None: limits.
_ENDS = ("low", "high", "least", "most")

#: Rows processed at a time; this many fit into a processor's cache.
PART = 8192


@dataclass(frozen=True, kw_only=True)
class NumberColumn:
    """How a number becomes a feature.

    Attributes
    ----------
    name, type : as in the dictionary.
    since, unit : of a duration, as in the dictionary.
    fill : replaces a missing value, in the column's unit.
    shift, scale : in the column's unit; from moments they are rounded, so that they reveal no
    count. low, high : limits to which values are cut, in the column's unit; None for no limit.
    knots : (k,) values with an exact share of rows below, ascending; empty for a linear scale.
    shares : (k,) those shares. indicator : whether a column indicates missing values. error : bound
    on the error of values from quantiles, in the column's unit; limits are those
        of eq. (2) of `sketch`.
    view : as in the dictionary.
    least, most : the dictionary's range, in the column's unit; None for no limit.
    """

    name: str
    type: str
    since: str = ""
    unit: str = ""
    fill: float
    shift: float = 0.0
    scale: float = 1.0
    low: float | None = None
    high: float | None = None
    knots: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    indicator: bool = False
    error: float = 0.0
    view: str = ""
    least: float | None = None
    most: float | None = None

    @property
    def variable(self) -> Variable:
        """The variable to read from a table."""
        return Variable(self.name, self.type, since=self.since, unit=self.unit, view=self.view)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features, in order."""
        return (self.name, f"{self.name} missing") if self.indicator else (self.name,)

    @property
    def raw_width(self) -> int:
        """Number of columns of `raw`."""
        return 1

    def read(self, values: Array) -> Array:
        """Return values (n,) cut to [low, high]; NaN stays."""
        if self.low is None and self.high is None:
            return values
        return np.clip(values, self.low, self.high)

    def missing(self, values: Array) -> Array:
        """Return which of `values` (n,) are missing."""
        return np.isnan(values)

    def filled(self, values: Array) -> Array:
        """Return values (n,) with missing ones replaced by `fill`."""
        return np.where(np.isnan(values), self.fill, values)

    def raw(self, values: Array) -> Array:
        """Return values (n,) as a column (n, 1) of a joint distribution."""
        return values[:, None]

    def likeliest(self, raw: Array) -> Array:
        """Return the value (n,) for the expectation `raw` (n, 1)."""
        if self.type == "binary":
            return (raw[:, 0] > 0.5).astype(float)
        return self.read(raw[:, 0])

    def write(self, values: Array, out: Array) -> None:
        """Write the feature of complete values (n,) into `out` (n,) or (n, 1)."""
        if self.knots:
            out[:, 0] = np.interp(self.read(values), self.knots, self.shares)
        else:
            out[:, 0] = (self.read(values) - self.shift) / self.scale

    def undone(self, features: Array) -> Array:
        """Return values (n,) in the column's unit from features (n, 1): the inverse of `write`.

        For a 0/1 column, the likelier of the two; for shares beyond 0 and 1, the outermost knots.
        """
        z = features[:, 0]
        if self.knots:
            return np.interp(z, self.shares, self.knots)
        values = z * self.scale + self.shift
        return np.rint(np.clip(values, 0.0, 1.0)) if self.type == "binary" else values


@dataclass(frozen=True, kw_only=True)
class LevelColumn:
    """How a category becomes features; its values are positions in `kept`, −1 if missing.

    Attributes
    ----------
    name, type, levels : as in the dictionary.
    kept : the levels that occur, in order; the first is the reference. If levels were pooled, the
        last one is the pool.
    pooled : levels in the pool.
    fill : replaces a missing level, and a level in neither `kept` nor `pooled`.
    indicator : whether a column indicates missing levels.
    view : as in the dictionary.
    """

    name: str
    type: str
    levels: tuple[str, ...]
    kept: tuple[str, ...]
    pooled: tuple[str, ...] = ()
    fill: str
    indicator: bool = False
    view: str = ""

    @property
    def variable(self) -> Variable:
        """The variable to read from a table."""
        return Variable(self.name, self.type, self.levels, view=self.view)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features, in order."""
        hot = tuple(f"{self.name}={level}" for level in self.kept[1:])
        return (*hot, f"{self.name} missing") if self.indicator else hot

    @property
    def raw_width(self) -> int:
        """Number of columns of `raw`."""
        return len(self.kept) - 1

    def read(self, codes: Array) -> Array:
        """Return the positions (n,) of level codes (n,)."""
        return self._places[codes]

    def missing(self, places: Array) -> Array:
        """Return which of `places` (n,) are missing."""
        return places < 0

    def filled(self, places: Array) -> Array:
        """Return positions (n,) with missing ones replaced by that of `fill`."""
        return np.where(places < 0, self.kept.index(self.fill), places)

    def raw(self, places: Array) -> Array:
        """Return positions (n,) as 0/1 columns (n, levels − 1), NaN if missing."""
        hot = (places[:, None] == np.arange(1, len(self.kept))).astype(float)
        hot[places < 0] = np.nan
        return hot

    def likeliest(self, raw: Array) -> Array:
        """Return the most probable position (n,) for the expectations `raw` (n, levels − 1)."""
        return np.argmax(np.column_stack([1 - raw.sum(axis=1), raw]), axis=1)

    def write(self, places: Array, out: Array) -> None:
        """Write the features of complete positions (n,) into `out` (n, levels − 1)."""
        out[:] = places[:, None] == np.arange(1, len(self.kept))

    def undone(self, features: Array) -> Array:
        """Return the likeliest level (n,), as text, of features (n, levels − 1); None: missing."""
        found = np.array(self.kept, object)[self.likeliest(features)]
        found[np.isnan(features).any(axis=1)] = None
        return found

    @cached_property
    def _places(self) -> Array:
        """Position of each level (levels + 1,); the last is for a missing one."""
        place = {level: i for i, level in enumerate(self.kept)}
        place |= dict.fromkeys(self.pooled, len(self.kept) - 1)
        return np.array([*(place.get(level, -1) for level in self.levels), -1])


#: A column of a design.
Column = NumberColumn | LevelColumn


def ranged(column: Column, variable: Variable) -> Column:
    """Return a column with the range that the dictionary gives its number."""
    if isinstance(column, LevelColumn):
        return column
    return replace(column, least=variable.range[0], most=variable.range[1])


def plain_column(column: Column) -> dict[str, Any]:
    """Return a column's fields as JSON-able values; view and range only if there are some."""
    plain = asdict(column)
    if not column.view:
        del plain["view"]
    for key in ("least", "most"):
        if plain.get(key, 0.0) is None:
            del plain[key]
    return plain


def column_from(plain: Mapping[str, Any]) -> Column:
    """Rebuild a column from `plain_column`, also after JSON.

    Raises
    ------
    DataError : a field is not a finite number, or the scale is not positive.
    """
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
    if "levels" in given:
        return LevelColumn(**given)
    column = NumberColumn(**given)
    single = ("fill", "shift", "scale", "low", "high", "error", "least", "most")
    numbers = [(key, getattr(column, key)) for key in single]
    numbers += [(key, x) for key in ("knots", "shares") for x in getattr(column, key)]
    for key, x in numbers:
        if not _is_finite(x) and not (x is None and key in _ENDS):
            raise DataError(f"column {column.name!r}: its {key} is {x!r:.40}, no finite number.")
    if not column.scale > 0:
        raise DataError(f"column {column.name!r}: its scale is {column.scale:g}, not positive.")
    return column


def _is_finite(x: Any) -> bool:
    return type(x) in (int, float) and abs(x) <= sys.float_info.max


def parts_of(
    columns: Sequence[Column], encoded: Encoded, n: int
) -> Iterator[tuple[slice, list[Array]]]:
    """Yield slices of `PART` rows of a table, with each column's values as `read` gives them."""
    for start in range(0, n, PART):
        part = slice(start, start + PART)
        numbers, codes = iter(encoded.numbers), iter(encoded.codes)
        found = [(c, next(numbers if isinstance(c, NumberColumn) else codes)) for c in columns]
        yield part, [c.read(values[part]) for c, values in found]

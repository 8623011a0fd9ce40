"""One variable of a data dictionary: the meaning of a column, checked when it is read.

Levels and missing codes are text: 2, 2.0 and "2" are the same. Nothing is revealed: a dictionary is
public.

A view is a group of columns, such as a laboratory's or a scanner's. A site that did not measure a
view lacks all its columns. A site that lacks only some of them has lost them, which is an error.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from fedcohort.data.words import known_name, level_text
from fedcohort.protocol.errors import DataError


def columns_by_view(variables: Iterable[Variable]) -> dict[str, list[str]]:
    """Return the names of each view's columns, in order, without columns outside views."""
    found: dict[str, list[str]] = {}
    for v in variables:
        if v.view:
            found.setdefault(v.view, []).append(v.name)
    return found


def lacking(views: dict[str, list[str]], header: Collection[str]) -> frozenset[str]:
    """Return the views without any column in this header."""
    return frozenset(
        view for view, names in views.items() if not any(name in header for name in names)
    )


#: Types of variables. Free text never enters a model; a date does as the time `since` another.
#: "time" and "event" mark the outcome of a survival study.
TYPES = ("number", "integer", "binary", "category", "date", "text", "time", "event")

#: Types whose values have a range; a date has one with `since`: that of the duration.
RANGED = ("number", "integer", "time")

#: Days in a unit of duration; a month is a twelfth of 365.25 days.
DURATIONS: Mapping[str, float] = {"days": 1.0, "months": 30.4375, "years": 365.25}

_TEXTS = ("type", "unit", "since", "description", "view")
_FLAGS = ("feature", "identifier")

#: Numbers beyond ± this have squares whose sum may overflow.
LARGEST = 1e120


@dataclass(frozen=True)
class Variable:
    """One column.

    Attributes
    ----------
    name : as in the tables' header.
    type : one of `TYPES`; binary means 0/1 or two named levels.
    levels : of a category, in order; the first is the reference.
    unit : of a number; of a duration one of `DURATIONS`.
    range : lowest and highest possible value, both included; None for no limit.
    usual : range of most patients, within `range`; a private fit cuts and scales by it, or else by
        `range`. It comes from the literature, never from the records.
    missing : codes for a missing value, as text.
    since : of a date: the column of another date, or a day such as "2015-01-31". The variable then
        is the time from there to the date, in `unit`.
    description : for people.
    view : group of columns (modality) that it belongs to.
    feature : whether a model may use it; false for a column known only after the start, for
        example.
    identifier : whether it names a person or a site; identifiers never enter a model.
    per : of a number: effects are shown per this many units, such as 10 years; 0 lets the report
        choose.
    """

    name: str
    type: str = "number"
    levels: tuple[str, ...] = ()
    unit: str = ""
    range: tuple[float | None, float | None] = (None, None)
    missing: tuple[str, ...] = ()
    since: str = ""
    description: str = ""
    view: str = ""
    feature: bool = True
    identifier: bool = False
    usual: tuple[float | None, float | None] = (None, None)
    per: float = 0.0

    @property
    def coded(self) -> bool:
        """Whether its values are levels rather than numbers."""
        return bool(self.levels)

    @property
    def usable(self) -> bool:
        """Whether it may enter a model."""
        if self.identifier or not self.feature or self.type in ("text", "time", "event"):
            return False
        return self.type != "date" or bool(self.since)

    @property
    def since_day(self) -> datetime.date | None:
        """The day in `since`, or None if it names a column."""
        try:
            return datetime.date.fromisoformat(self.since)
        except ValueError:
            return None

    def to_dict(self) -> dict[str, Any]:
        """Return the values that differ from the defaults, JSON-able, without the name."""
        out: dict[str, Any] = {"type": self.type}
        for field, value in list(asdict(self).items())[2:]:
            if value != getattr(_DEFAULT, field):
                out[field] = list(value) if isinstance(value, tuple) else value
        for key in ("range", "usual"):
            if key in out:
                out[key] = [_plain(v) for v in out[key]]
        if "per" in out:
            out["per"] = _plain(out["per"])
        return out

    @classmethod
    def from_dict(cls, name: str, spec: Any, where: str = "the dictionary") -> Variable:
        """Build a variable from its entry in a dictionary file.

        Raises
        ------
        DataError : a key or type is unknown, a value is wrong, or keys do not fit the type.
        """
        if isinstance(spec, str):
            spec = {"type": spec}
        if not isinstance(spec, Mapping):
            raise DataError(f"{where}: variable {name!r} needs keys such as 'type' and 'unit'.")
        at = f"{where}: variable {name!r}"
        given = dict(cast("Mapping[Any, Any]", spec))
        known = [f.name for f in fields(cls) if f.name != "name"]
        for key in given:
            if key not in known:
                raise DataError(f"{at} has {known_name('key', key, known)}")
        given = {k: v for k, v in given.items() if v is not None}
        given |= {k: _text(given[k], k, at) for k in _TEXTS if k in given}
        kind = given["type"] = given.get("type") or "number"
        if kind not in TYPES:
            raise DataError(f"{at} has {known_name('type', kind, TYPES)}")
        for key in ("levels", "missing"):
            given[key] = _codes(given.get(key, []), key, at)
        for key in ("range", "usual"):
            given[key] = _range(given[key], at, key) if key in given else (None, None)
        if "per" in given:
            given["per"] = per = _end(given["per"]) or 0.0
            if not 0 < per < math.inf:
                raise DataError(f"{at}: 'per' is a number above 0, such as 10.")
        for key in _FLAGS:
            if not isinstance(given.get(key, False), bool):
                raise DataError(f"{at}: {key!r} is true or false.")
        if given.get("since") and not given.get("unit"):
            given["unit"] = "days"
        variable = cls(name=name, **given)
        variable._check(where)
        return variable

    def _check(self, where: str) -> None:
        """Check that the keys fit the type, and each other."""
        n, kind, at = len(self.levels), self.type, f"{where}: variable {self.name!r}"
        if n != len(set(self.levels)):
            raise DataError(f"{at} names a level twice.")
        if kind == "category" and n < 1 and not self.identifier:
            raise DataError(f"{where}: category {self.name!r} needs its 'levels', in order.")
        if kind == "binary" and n not in (0, 2):
            raise DataError(f"{where}: binary {self.name!r} has {n} levels; name two, or none.")
        if kind not in ("category", "binary") and n:
            raise DataError(f"{at} has levels but is of type {kind!r}.")
        if kind == "binary" and not n and {"0", "1"} & set(self.missing):
            raise DataError(f"{at} is 0 or 1; neither can be a missing code.")
        for level in self.levels:
            if level in self.missing:
                raise DataError(f"{at}: {level!r} is both a level and a missing code; remove one.")
        if self.usual != (None, None) and (
            None in self.usual or not (kind in RANGED or (kind == "date" and self.since))
        ):
            raise DataError(f"{at}: 'usual' is two ends, of a number or a date with 'since'.")
        if (
            self.range != (None, None)
            and kind not in RANGED
            and not (kind == "date" and self.since)
        ):
            raise DataError(
                f"{at} has a range but is of type {kind!r}; a range is for {', '.join(RANGED)} and "
                f"for a date with 'since'."
            )
        if self.per and not (kind in ("number", "integer") or (kind == "date" and self.since)):
            raise DataError(
                f"{at} has 'per' but is of type {kind!r}; it is for numbers, and dates with "
                f"'since'."
            )
        if self.since and kind != "date":
            raise DataError(f"{at} has 'since' but is of type {kind!r}; it is for dates.")
        if self.since and self.unit not in DURATIONS:
            raise DataError(
                f"{at} is a duration and has {known_name('unit', self.unit, DURATIONS)}"
            )
        if kind in ("time", "event") and self.identifier:
            raise DataError(f"{at} is an identifier and of type {kind!r}; it can only be one.")


_DEFAULT = Variable("")


def _plain(value: float | None) -> float | int | None:
    """Return a whole number as an int, so that a file shows 120 and not 120.0."""
    return int(value) if value is not None and value.is_integer() and abs(value) < 1e15 else value


def _text(value: Any, key: str, at: str) -> str:
    """Return a key's value as text, or raise a DataError for a list, a mapping or a boolean."""
    if isinstance(value, (bool, Mapping, list, tuple)):
        raise DataError(f"{at}: {key!r} is text; put it in quotes.")
    return level_text(value)


def _codes(value: Any, key: str, at: str) -> tuple[str, ...]:
    """Return levels or missing codes as text.

    Raises
    ------
    DataError : it is no list; or an item is true, false, empty, or no plain value.
    """
    if not isinstance(value, (list, tuple)):
        raise DataError(f"{at}: {key!r} is a list, such as [a, b].")
    items = cast("list[Any]", value)
    if any(isinstance(v, bool) for v in items):
        raise DataError(
            f"{at} has {key if key == 'levels' else 'missing codes'} that YAML reads as true or "
            f"false. Put quotes around yes, no, on and off."
        )
    if any(isinstance(v, (Mapping, list, tuple)) for v in items):
        raise DataError(f"{at}: {key!r} is a list of texts or numbers; put each one in quotes.")
    if any(v is None or v == "" for v in items):
        raise DataError(
            f"{at}: {key!r} has an empty item. Remove it: an empty cell is a missing value anyway."
        )
    return tuple(level_text(v) for v in items)


def _range(value: Any, at: str, key: str = "range") -> tuple[float | None, float | None]:
    """Return a range's two ends, or raise a DataError."""
    items = cast("list[Any]", value) if isinstance(value, (list, tuple)) else []
    low, high = (_end(v) for v in items) if len(items) == 2 else (math.nan, math.nan)
    finite = all(v is None or math.isfinite(v) for v in (low, high))
    if not finite or (low is not None and high is not None and low >= high):
        raise DataError(
            f"{at}: {key!r} is two ascending numbers, such as [0, 120]; null where there is no "
            f"limit."
        )
    return low, high


def _end(value: Any) -> float | None:
    """Return one end of a range; NaN if it is no number."""
    if value is None:
        return None
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan

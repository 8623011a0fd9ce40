"""Outcomes of a study: their columns, and everything that depends on their type.

Each type of outcome is a class, which other modules ask. Columns must keep these rules:

survival      time a number above 0, event 0 or 1, entry a number below time; none may be missing
binary        one of two levels; category and ordinal: one of their levels
continuous    a finite number; count: a whole number from 0

A column of weights holds finite numbers above 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.encode import code_column, column_of, numbers
from fedcohort.data.variable import Variable
from fedcohort.data.words import rows, sorted_levels
from fedcohort.protocol.errors import DataError

#: Quantiles that divide a value or a count into strata.
FIFTHS = (0.2, 0.4, 0.6, 0.8)
#: Dictionary type of a column of a survival outcome, by role.
_TYPES = {"time": "time", "event": "event", "entry": "number"}


class Known(Protocol):
    """The part of the dictionary that an outcome uses."""

    @property
    def variables(self) -> Mapping[str, Variable]:
        """Variables by name."""
        ...

    def __getitem__(self, name: str) -> Variable:
        """Return a variable, or raise a DataError that names the nearest."""
        ...


class _Outcome:
    """Interface of every type of outcome.

    Attributes
    ----------
    kind : task that predicts it.
    type : name in a study file.
    has_events : whether a row can have an event, or be of the class that counts as 1.
    has_classes : whether its values are levels.
    is_number : whether its values are numbers.
    counted : what `fewest` counts, in words.
    """

    kind: ClassVar[str]
    type: ClassVar[str]
    has_events: ClassVar[bool] = False
    has_classes: ClassVar[bool] = False
    is_number: ClassVar[bool] = False
    counted: ClassVar[str] = "rows"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the outcome's columns."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """Name of the column of the class, the value, or the event."""
        return self.columns[0]

    @property
    def roles(self) -> Mapping[str, str]:
        """Role of each column, by name: the type, or for survival "time", "event", "entry"."""
        return {self.label: self.type}

    def type_of(self, name: str) -> str:
        """Return the type that a column must have in the dictionary; "" for any."""
        return _TYPES.get(self.roles.get(name, ""), "")

    def to_dict(self) -> dict[str, str]:
        """Return the outcome as a study file has it."""
        return {"y": self.label, "type": self.type}

    def time_unit(self, known: Known) -> str:
        """Return the unit of times; "" if the dictionary gives none, or there are no times."""
        del known
        return ""

    def levels(self, known: Known) -> tuple[str, ...]:
        """Return the classes in the order of their numbers; empty without classes."""
        del known
        return ()

    def values(self, frame: pd.DataFrame, classes: Sequence[str] = ()) -> Array:
        """Return y (n,): the event as bool, the class's number among `classes`, or the value.

        Raises
        ------
        DataError : a rule of the header is broken; the message names column, rule and rows.
        """
        raise NotImplementedError

    def arrays(self, frame: pd.DataFrame, classes: Sequence[str] = ()) -> tuple[Array, Array]:
        """Return time (n,), 0 except for survival, and y (n,) as `values` does."""
        return np.zeros(len(frame)), self.values(frame, classes)

    def labels(self, frame: pd.DataFrame, classes: Sequence[str]) -> Array:
        """Return the class (n,) of each row: 1 for an event, 0 for a value."""
        del classes
        return np.zeros(len(frame), np.int64)

    def events(self, frame: pd.DataFrame) -> Array | None:
        """Return 1 for rows with the event, or of the last class, and 0 for others (n,).

        NaN if the outcome is neither; None if the type has no events. No rule is checked.
        """
        del frame
        return None

    def fewest(self, frame: pd.DataFrame) -> int:
        """Return the number of events, of rows of the rarest class, or of rows with a value."""
        return int(frame[self.label].notna().sum())

    def strata(self, frame: pd.DataFrame) -> Array:
        """Return a number (n,) for stratifying each row: event, class, or fifth."""
        y = np.asarray(frame[self.label], float)
        return np.searchsorted(np.quantile(y, FIFTHS), y)

    def can_teach(self, frames: Iterable[pd.DataFrame]) -> bool:
        """Return whether tables together have an event, or two values of another outcome."""
        return pd.concat([f[self.label] for f in frames]).nunique() > 1


@dataclass(frozen=True)
class Survival(_Outcome):
    """Right-censored time to an event: `time` > 0, `event` 1 if it was seen and 0 if not.

    `entry` < `time` is the start of a patient's observation (left truncation); patients with an
    earlier event are not in the table. "" if all are observed from time 0.
    """

    time: str
    event: str
    entry: str = ""
    kind: ClassVar[str] = "survival"
    type: ClassVar[str] = "survival"
    has_events: ClassVar[bool] = True
    counted: ClassVar[str] = "events"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the outcome's columns: time, event, and entry if there is one."""
        return (self.time, self.event, *((self.entry,) if self.entry else ()))

    @property
    def label(self) -> str:
        """Name of the column of the event."""
        return self.event

    @property
    def roles(self) -> Mapping[str, str]:
        """Role of each column, by name."""
        return {name: role for role, name in self.to_dict().items()}

    def to_dict(self) -> dict[str, str]:
        """Return the outcome as a study file has it."""
        return {role: name for role, name in asdict(self).items() if name}

    def time_unit(self, known: Known) -> str:
        """Return the unit of time; "" if the dictionary gives none."""
        return known.variables[self.time].unit if self.time in known.variables else ""

    def values(self, frame: pd.DataFrame, classes: Sequence[str] = ()) -> Array:
        """Return the event (n,) as bool; see `arrays`."""
        return self.arrays(frame, classes)[1]

    def arrays(self, frame: pd.DataFrame, classes: Sequence[str] = ()) -> tuple[Array, Array]:
        """Return time (n,) and event (n,) bool; raises as `values`."""
        del classes
        time, event = _complete(frame, self.time), _complete(frame, self.event)
        _rule(self.time, time <= 0, "is not above 0", "Correct or drop them.")
        _rule(self.time, np.isinf(time), "is infinite", "Correct or drop them.")
        wrong = (event != 0) & (event != 1)
        _rule(self.event, wrong, "is neither 0 nor 1", "Code an event that was seen as 1.")
        return time, event.astype(bool)

    def entries(self, frame: pd.DataFrame, time: Array) -> Array | None:
        """Return the start of each row's observation (n,), before its `time` (n,); None without.

        Raises
        ------
        DataError : an entry is missing, infinite, or not before the time; the message names rows.
        """
        if not self.entry:
            return None
        entry = _complete(frame, self.entry)
        _rule(self.entry, np.isinf(entry), "is infinite", "Correct or drop them.")
        late = f"is not below column {self.time!r}"
        remedy = "A patient is observed from entry to time: correct or drop them."
        _rule(self.entry, entry >= time, late, remedy)
        return entry

    def labels(self, frame: pd.DataFrame, classes: Sequence[str]) -> Array:
        """Return 1 for each row with an event, else 0 (n,)."""
        return self.arrays(frame, classes)[1].astype(np.int64)

    def events(self, frame: pd.DataFrame) -> Array | None:
        """Return the event (n,), NaN if it is neither 0 nor 1."""
        event = pd.to_numeric(column_of(frame, self.event), errors="coerce").to_numpy(float)
        return np.where(np.isin(event, (0.0, 1.0)), event, np.nan)

    def fewest(self, frame: pd.DataFrame) -> int:
        """Return the number of events."""
        return int((pd.to_numeric(frame[self.event], errors="coerce") > 0).sum())

    def strata(self, frame: pd.DataFrame) -> Array:
        """Return the event (n,) as a number."""
        return np.asarray(frame[self.event], float)

    def can_teach(self, frames: Iterable[pd.DataFrame]) -> bool:
        """Return whether a row of the tables has the event."""
        return any((np.asarray(f[self.event], float) > 0).any() for f in frames)


@dataclass(frozen=True)
class _Target(_Outcome):
    y: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the outcome's columns."""
        return (self.y,)


class _Labelled(_Target):
    """An outcome of levels."""

    kind: ClassVar[str] = "classification"
    has_classes: ClassVar[bool] = True
    counted: ClassVar[str] = "rows of the rarer class"

    def levels(self, known: Known) -> tuple[str, ...]:
        """Return the classes in the order of their numbers."""
        return sorted_levels(known[self.y].levels or ("0", "1"))

    def values(self, frame: pd.DataFrame, classes: Sequence[str] = ()) -> Array:
        """Return the class's number (n,) among `classes`; raises as `_Outcome.values`."""
        codes = code_column(frame, Variable(self.y, "category", tuple(classes)))
        _rule(self.y, codes < 0, "is missing", "Complete or drop them.")
        return codes

    def labels(self, frame: pd.DataFrame, classes: Sequence[str]) -> Array:
        """Return the class's number (n,) among `classes`."""
        return self.values(frame, classes).astype(np.int64)

    def fewest(self, frame: pd.DataFrame) -> int:
        """Return the number of rows of the rarest class; 0 if there is one class."""
        found = frame[self.y].value_counts()
        return int(found.min()) if len(found) > 1 else 0

    def strata(self, frame: pd.DataFrame) -> Array:
        """Return the class (n,) as a number."""
        return pd.factorize(frame[self.y], sort=True)[0]


class Binary(_Labelled):
    """A yes/no outcome with any two values; the one that sorts last counts as 1."""

    type: ClassVar[str] = "binary"
    has_events: ClassVar[bool] = True

    def values(self, frame: pd.DataFrame, classes: Sequence[str] = ()) -> Array:
        """Return the class's number (n,) among `classes`, as a float."""
        return super().values(frame, classes).astype(np.float64)

    def events(self, frame: pd.DataFrame) -> Array | None:
        """Return 1 for each row of the class that sorts last (n,), NaN if it is missing."""
        column = column_of(frame, self.y)
        classes = sorted(column.dropna().astype(str).unique())
        known = (column.astype(str) == classes[-1]) * 1.0 if classes else column * np.nan
        return np.where(column.isna(), np.nan, known)


class Category(_Labelled):
    """An outcome with more than two unordered levels."""

    type: ClassVar[str] = "category"


class Ordered(Category):
    """An outcome with more than two levels in an order: the dictionary lists the lowest first."""

    type: ClassVar[str] = "ordinal"

    def levels(self, known: Known) -> tuple[str, ...]:
        """Return the classes in the order of the dictionary."""
        return known[self.y].levels or super().levels(known)

    def check_drafted(self, known: Known) -> None:
        """Check that levels have an order by themselves, if nobody wrote the dictionary.

        Raises
        ------
        DataError : they are text.
        """
        try:
            [float(level) for level in self.levels(known)]
        except ValueError:
            raise DataError(
                f"the classes of {self.y!r} are text, and their order is not known. Give a "
                f"dictionary that lists them, the lowest first."
            ) from None


class Continuous(_Target):
    """A real-valued outcome."""

    kind: ClassVar[str] = "regression"
    type: ClassVar[str] = "continuous"
    is_number: ClassVar[bool] = True

    def values(self, frame: pd.DataFrame, classes: Sequence[str] = ()) -> Array:
        """Return the value (n,); raises as `_Outcome.values`."""
        del classes
        y = _complete(frame, self.y)
        _rule(self.y, np.isinf(y), "is infinite", "Correct or drop them.")
        return y


class Count(_Target):
    """A non-negative whole number."""

    kind: ClassVar[str] = "regression"
    type: ClassVar[str] = "count"
    is_number: ClassVar[bool] = True

    def values(self, frame: pd.DataFrame, classes: Sequence[str] = ()) -> Array:
        """Return the count (n,); raises as `_Outcome.values`."""
        y = Continuous(self.y).values(frame, classes)
        _rule(self.y, (y < 0) | (y != np.floor(y)), "is no count", "Give whole numbers from 0.")
        return y


Outcome: TypeAlias = Survival | Binary | Category | Ordered | Continuous | Count


def columns_of(outcome: Outcome | None) -> tuple[str, ...]:
    """Return the columns of an outcome; none without one."""
    return () if outcome is None else outcome.columns


def levels_of(outcome: Outcome | None, dictionary: Known) -> tuple[str, ...]:
    """Return `levels` of an outcome; empty without one."""
    return () if outcome is None else outcome.levels(dictionary)


def classes_of(frame: pd.DataFrame, outcome: Outcome | None, levels: Sequence[str]) -> Array:
    """Return `labels` of an outcome (n,); 0 without one."""
    return np.zeros(len(frame), np.int64) if outcome is None else outcome.labels(frame, levels)


def weights_of(frame: pd.DataFrame, name: str) -> Array:
    """Return the weight of each row (n,).

    Raises
    ------
    DataError : a weight is missing, infinite, or not above 0; the message names column and rows.
    """
    weight = _complete(frame, name)
    _rule(name, ~(weight > 0) | np.isinf(weight), "is no weight", "Give finite numbers above 0.")
    return weight


def _complete(frame: pd.DataFrame, name: str) -> Array:
    values = numbers(column_of(frame, name), name)
    _rule(name, np.isnan(values), "is missing", "Complete or drop them.")
    return values


def _rule(name: str, broken: Array, what: str, remedy: str) -> None:
    if broken.any():
        raise DataError(f"column {name!r} {what} in {rows(broken)}. {remedy}")

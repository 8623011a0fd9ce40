"""The outcome's columns of a table as arrays, and the rules they must keep.

survival      time a number above 0, event 0 or 1, entry a number below time; none may be missing
binary        one of two levels; category: one of its levels
continuous    a finite number; count: a whole number from 0

A column of weights holds finite numbers above 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary, Variable, sorted_levels
from fedcohort.data.encode import code_column, column_of, numbers
from fedcohort.data.outcome import Binary, Category, Count, Outcome, Survival
from fedcohort.data.words import rows
from fedcohort.protocol.errors import DataError


def survival_of(frame: pd.DataFrame, outcome: Survival) -> tuple[Array, Array]:
    """Return time (n,) and event (n,) bool.

    Raises
    ------
    DataError : a rule of the header is broken; column, rule and rows are named.
    """
    time, event = _complete(frame, outcome.time), _complete(frame, outcome.event)
    _rule(outcome.time, time <= 0, "is not above 0", "Correct or drop them.")
    _rule(outcome.time, np.isinf(time), "is infinite", "Correct or drop them.")
    wrong = (event != 0) & (event != 1)
    _rule(outcome.event, wrong, "is neither 0 nor 1", "Code an event that was seen as 1.")
    return time, event.astype(bool)


def entry_of(frame: pd.DataFrame, outcome: Survival, time: Array) -> Array | None:
    """Return when each row came under observation (n,), before its `time` (n,); None without.

    Raises
    ------
    DataError : an entry is missing, infinite, or not before the time; rows are named.
    """
    if not outcome.entry:
        return None
    entry = _complete(frame, outcome.entry)
    _rule(outcome.entry, np.isinf(entry), "is infinite", "Correct or drop them.")
    late = f"is not below column {outcome.time!r}"
    remedy = "A patient is observed from entry to time: correct or drop them."
    _rule(outcome.entry, entry >= time, late, remedy)
    return entry


def target_of(frame: pd.DataFrame, outcome: Outcome, classes: Sequence[str]) -> Array:
    """Return y (n,): the class's number among `classes`, or the value.

    Raises
    ------
    DataError : a rule of the header is broken; column, rule and rows are named.
    """
    name = outcome.columns[0]
    if isinstance(outcome, (Binary, Category)):
        codes = code_column(frame, Variable(name, "category", tuple(classes)))
        _rule(name, codes < 0, "is missing", "Complete or drop them.")
        return codes.astype(np.float64) if isinstance(outcome, Binary) else codes
    y = _complete(frame, name)
    _rule(name, np.isinf(y), "is infinite", "Correct or drop them.")
    if isinstance(outcome, Count):
        _rule(name, (y < 0) | (y != np.floor(y)), "is no count", "Give whole numbers from 0.")
    return y


def levels_of(outcome: Outcome | None, dictionary: Dictionary) -> tuple[str, ...]:
    """Return the classes of an outcome in the order of their numbers; empty of other outcomes."""
    if not isinstance(outcome, (Binary, Category)):
        return ()
    return sorted_levels(dictionary[outcome.y].levels or ("0", "1"))


def classes_of(frame: pd.DataFrame, outcome: Outcome | None, levels: Sequence[str]) -> Array:
    """Return the class (n,) of each row: 1 for an event, 0 of a value or of nothing."""
    if isinstance(outcome, Survival):
        return survival_of(frame, outcome)[1].astype(np.int64)
    if isinstance(outcome, (Binary, Category)):
        return target_of(frame, outcome, levels).astype(np.int64)
    return np.zeros(len(frame), np.int64)


def weights_of(frame: pd.DataFrame, name: str) -> Array:
    """Return how much each row counts (n,).

    Raises
    ------
    DataError : a weight is missing, infinite, or not above 0; column, rule and rows are named.
    """
    weight = _complete(frame, name)
    _rule(name, ~(weight > 0) | np.isinf(weight), "is no weight", "Give finite numbers above 0.")
    return weight


def _complete(frame: pd.DataFrame, name: str) -> Array:
    """Return a column of numbers without missing values."""
    values = numbers(column_of(frame, name), name)
    _rule(name, np.isnan(values), "is missing", "Complete or drop them.")
    return values


def _rule(name: str, broken: Array, what: str, remedy: str) -> None:
    if broken.any():
        raise DataError(f"column {name!r} {what} in {rows(broken)}. {remedy}")

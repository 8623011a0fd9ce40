"""The outcome's columns of a table as arrays, and the rules they must keep.

survival      time a number above 0, event 0 or 1; neither may be missing
binary        one of two levels; category: one of its levels
continuous    a finite number; count: a whole number from 0
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Variable
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


def _complete(frame: pd.DataFrame, name: str) -> Array:
    """Return a column of numbers without missing values."""
    values = numbers(column_of(frame, name), name)
    _rule(name, np.isnan(values), "is missing", "Complete or drop them.")
    return values


def _rule(name: str, broken: Array, what: str, remedy: str) -> None:
    if broken.any():
        raise DataError(f"column {name!r} {what} in {rows(broken)}. {remedy}")

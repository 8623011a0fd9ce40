"""Rules for the cells of one column, by the dictionary's entry of the column.

Each rule takes a whole column and returns the rows that break it. Columns are in the
form of `canonical`: a column with cells that could not be converted holds objects.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.check.findings import ERROR, WARNING
from fedcohort.data.outcome import Outcome
from fedcohort.data.variable import LARGEST, Variable
from fedcohort.data.words import level_text

#: Dates before this year are reported.
FIRST_YEAR = 1900
#: Rows that are tested before all others are, to find that a column varies.
_GLANCE = 1000

CORRECT = "Correct or drop them."
COMPLETE = "Complete or drop them."
#: The rule that a column has more values than one.
CONSTANT = "constant"


@dataclass(frozen=True)
class Rule:
    """One rule for a column.

    Attributes
    ----------
    name : as in `docs/data-check.md`.
    broken : column → rows (n,) that break it, or one truth if it is not about rows.
    what : what is wrong, after "column 'x' ".
    remedy : what to do.
    severity : as of a `Finding`.
    """

    name: str
    broken: Callable[[pd.Series], Array | bool]
    what: str
    remedy: str
    severity: str = ERROR


def rules_of(variable: Variable, outcome: Outcome | None = None) -> tuple[Rule, ...]:
    """Return the rules for a column, those of its type first."""
    if outcome is not None and variable.name in outcome.columns:
        return _of_outcome(variable, outcome)
    varies = () if variable.identifier else (_empty(), _constant())
    if variable.identifier:
        return (_missing(WARNING),)
    if variable.coded:
        return (_levels(variable), *varies)
    if variable.type in ("number", "integer", "binary", "time", "event"):
        return (*_of_number(variable), *varies)
    if variable.type == "date":
        return (DATE, *_EPOCH, *varies)
    return varies


def is_numeric(variable: Variable) -> bool:
    """Return whether a column in form holds floats."""
    kinds = ("number", "integer", "binary", "time", "event")
    return variable.type in kinds and not (variable.coded or variable.identifier)


def numbers(column: pd.Series) -> Array:
    """Return a column as floats (n,), NaN if missing or no number."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return column.to_numpy(np.float64)
    if column.dtype.kind in "mM":
        return np.full(len(column), np.nan)
    parsed = pd.to_numeric(column, errors="coerce")
    if parsed.dtype.kind == "c":
        return np.full(len(column), np.nan)
    return parsed.to_numpy(np.float64, na_value=np.nan)


def dates(column: pd.Series) -> Array:
    """Return a column as dates (n,) in microseconds, NaT if missing or no date."""
    if column.dtype.kind == "M":
        return column.to_numpy("datetime64[us]")
    nothing = np.datetime64("NaT")
    found = [v.to_datetime64() if isinstance(v, pd.Timestamp) else nothing for v in column]
    return np.array(found, "datetime64[us]")


def missing(column: pd.Series) -> Array:
    """Return the rows (n,) without a value."""
    return column.isna().to_numpy()


# numbers ------------------------------------------------------------------------------


def _no_number(column: pd.Series) -> Array:
    if column.dtype == np.float64:
        return np.zeros(len(column), bool)
    return np.isnan(numbers(column)) & ~missing(column)


def _not_whole(column: pd.Series) -> Array:
    x = numbers(column)
    return np.isfinite(x) & (x != np.floor(x))


def _not_binary(column: pd.Series) -> Array:
    x = numbers(column)
    return ~((x == 0) | (x == 1) | np.isnan(x))


def _infinite(column: pd.Series) -> Array:
    return np.isinf(numbers(column))


def _large(column: pd.Series) -> Array:
    x = np.abs(numbers(column))
    return (x > LARGEST) & (x < np.inf)


def _number(remedy: str) -> Rule:
    return Rule("number", _no_number, "holds no number", remedy)


NUMBER = _number("Correct or empty them.")
_TRUTH = _number("Write 0 and 1, or name its two levels in the dictionary.")
_FINITE = Rule("finite", _infinite, "is infinite", "Leave a missing value empty.")
#: Numbers too large to be squared break the same rule as infinite ones.
_LARGE = Rule(
    "finite", _large, f"is beyond ±{LARGEST:.0e}",
    "Correct them, or list the code among the column's missing values.",
)  # fmt: skip
_WHOLE = Rule(
    "whole", _not_whole, "is no whole number",
    "Correct them, or make its type 'number' in the dictionary.",
)  # fmt: skip
_BINARY = Rule(
    "binary", _not_binary, "is binary, and neither 0 nor 1",
    "Recode it, or declare its type in the dictionary.",
)  # fmt: skip


def _of_number(variable: Variable) -> tuple[Rule, ...]:
    kind = variable.type
    if kind in ("binary", "event"):
        return _TRUTH, _BINARY
    whole = (_WHOLE,) if kind == "integer" else ()
    return NUMBER, _FINITE, _LARGE, *whole, *range_rule(variable, numbers)


def range_rule(variable: Variable, values: Callable[[pd.Series], Array]) -> tuple[Rule, ...]:
    """Return the rule of a variable's range, if it has one; `values` gives its floats (n,)."""
    low, high = variable.range
    if low is None and high is None:
        return ()

    def outside(column: pd.Series) -> Array:
        x = values(column)
        below = np.zeros(len(x), bool) if low is None else x < low
        return below if high is None else below | ((x > high) & (x < np.inf))

    ends = (
        f"above {high:g}" if low is None else f"below {low:g}" if high is None
        else f"outside {low:g} to {high:g}"
    )  # fmt: skip
    unit = f" {variable.unit}" if variable.unit else ""
    remedy = "Correct or empty them, declare a missing code, or widen the range in the dictionary."
    return (Rule("range", outside, f"is {ends}{unit}, its range,", remedy),)


# levels, dates, and what concerns every column ----------------------------------------


def _levels(variable: Variable) -> Rule:
    known = set(variable.levels)

    def outside(column: pd.Series) -> Array:
        codes, distinct = cast("tuple[Array, Sequence[Any]]", pd.factorize(column))
        bad = np.array([level_text(v) not in known for v in distinct] + [False], bool)
        return bad[codes]

    return Rule(
        "levels", outside, f"has a level outside the {len(known)} that the dictionary knows,",
        "Correct them, or add the level to the dictionary.",
    )  # fmt: skip


def _no_date(column: pd.Series) -> Array:
    if column.dtype.kind == "M":
        return np.zeros(len(column), bool)
    return np.isnat(dates(column)) & ~missing(column)


def _before(column: pd.Series) -> Array:
    return dates(column) < np.datetime64(f"{FIRST_YEAR}-01-01")


def _after(column: pd.Series) -> Array:
    return dates(column) > np.datetime64(datetime.date.today() + datetime.timedelta(days=1))


DATE = Rule("date", _no_date, "holds no date", "Write dates as 2015-01-31.")
_EPOCH = (
    Rule("past", _before, f"lies before {FIRST_YEAR}", "Is the century right?", WARNING),
    Rule("future", _after, "lies in the future", "Is the year right?", WARNING),
)


def _empty() -> Rule:
    def broken(column: pd.Series) -> bool:
        return not (column.iloc[:_GLANCE].notna().any() or column.notna().any())

    remedy = "Other sites' values fill it; if nobody has it, take it out of the dictionary."
    return Rule("empty", broken, "has no value in any row", remedy, WARNING)


def _constant() -> Rule:
    def broken(column: pd.Series) -> bool:
        if len(column) < 2:
            return False
        return all(
            part.nunique() == 1 and part.notna().any() for part in (column.iloc[:_GLANCE], column)
        )

    remedy = "A constant column does not help a model. Is it the right column?"
    return Rule(CONSTANT, broken, "has the same value in every row", remedy, WARNING)


def _missing(severity: str = ERROR) -> Rule:
    return Rule("missing", missing, "is missing", COMPLETE, severity)


# outcomes -----------------------------------------------------------------------------


def _of_outcome(variable: Variable, outcome: Outcome) -> tuple[Rule, ...]:
    """Return the rules for an outcome's column, whatever its type in the dictionary."""
    role = outcome.roles[variable.name]
    if outcome.has_classes:
        coded = (_levels(variable),) if variable.coded else ()
        binary = (_TRUTH, _BINARY) if variable.type == "binary" and not coded else ()
        two = (_two_classes(),) if role == "binary" and not (coded or binary) else ()
        return _missing(), *coded, *binary, *two
    finite = Rule("finite", _infinite, "is infinite", CORRECT)
    if role == "event":
        coding = "Code an event that was seen as 1, and any other row as 0."
        event = Rule("event", _not_binary, "is neither 0 nor 1", coding)
        return _missing(), _number(coding), event
    if role == "time":
        positive = Rule("time", lambda c: numbers(c) <= 0, "is not above 0", CORRECT)
        return _missing(), NUMBER, positive, finite, _LARGE, *range_rule(variable, numbers)
    count = Rule("count", _no_count, "is no count", "Give whole numbers from 0.")
    more = (count,) if role == "count" else range_rule(variable, numbers)
    return _missing(), NUMBER, finite, _LARGE, *more


def _no_count(column: pd.Series) -> Array:
    x = numbers(column)
    return np.isfinite(x) & ((x < 0) | (x != np.floor(x)))


def _two_classes() -> Rule:
    def broken(column: pd.Series) -> bool:
        return len({level_text(v) for v in column.dropna().unique()}) > 2

    return Rule(
        "classes", broken, "has more than two levels; a binary outcome has two",
        "Use a categorical outcome.",
    )  # fmt: skip

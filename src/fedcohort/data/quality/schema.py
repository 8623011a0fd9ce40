"""A dictionary as a pandera schema, and which of its rules a table breaks.

pandera asks each column for its presence, its type, and the rules of `rules`, and says which of
them fail. What it would say of the cells is never looked at: each rule answers for a whole column,
so that neither pandera's messages nor its failure cases hold a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pandas as pd

from fedcohort.data.canonical import DATE
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome
from fedcohort.data.quality.findings import ERROR
from fedcohort.data.quality.rules import DATE as DATED
from fedcohort.data.quality.rules import NUMBER, Rule, is_numeric, rules_of
from fedcohort.data.variable import Variable

#: The rules that a column's type answers.
TYPED = (NUMBER.name, DATED.name)


def schema_of(
    dictionary: Dictionary, outcome: Outcome | None = None, *, warnings: bool = True
) -> Any:
    """Return the `pandera.pandas.DataFrameSchema` of tables in the form that a dictionary gives.

    Columns that the dictionary does not know are no matter of the schema.
    """
    from pandera.pandas import DataFrameSchema

    outcomes = outcome.columns if outcome is not None else ()
    return DataFrameSchema(
        {
            v.name: _column(v, outcome if v.name in outcomes else None, warnings=warnings)
            for v in dictionary.variables.values()
        }
    )


def broken_rules(
    frame: pd.DataFrame,
    dictionary: Dictionary,
    outcome: Outcome | None = None,
    *,
    warnings: bool = True,
) -> list[tuple[str, Rule]]:
    """Return column and rule for all that a table breaks, in the order of the dictionary.

    frame : in the form of `canonical`, with the columns that the dictionary knows, each once.
    warnings : whether rules are asked whose findings are no errors.
    """
    from pandera.errors import SchemaErrors

    try:
        schema = schema_of(dictionary, outcome, warnings=warnings)
        with catch_warnings():
            simplefilter("ignore")  # pandera's own, of how it lists what failed
            schema.validate(frame.copy(deep=False), lazy=True, inplace=True)
    except SchemaErrors as errors:
        failed = {(column, name) for column, name in map(_failed, errors.schema_errors)}
    else:
        return []
    return [
        (v.name, rule)
        for v in dictionary.variables.values()
        for rule in rules_of(v, outcome)
        if (v.name, rule.name) in failed
    ]


def _column(variable: Variable, outcome: Outcome | None, *, warnings: bool) -> Any:
    """Return one column of the schema: what `TYPED` asks is its type, the rest are checks."""
    from pandera.pandas import Check, Column

    form = _form(variable) if outcome is None else None
    checks = [
        Check(_kept(rule), name=rule.name, ignore_na=False)
        for rule in rules_of(variable, outcome)
        if (form is None or rule.name not in TYPED) and (warnings or rule.severity == ERROR)
    ]
    return Column(form, checks, nullable=True, required=True, name=variable.name)


def _form(variable: Variable) -> Any:
    """Return the type of a column in form; None where it may be any."""
    if is_numeric(variable):
        return np.float64
    return str(DATE) if variable.type == "date" and not variable.identifier else None


def _kept(rule: Rule) -> Any:
    def kept(column: pd.Series) -> bool:
        return not np.any(rule.broken(column))

    return kept


def _failed(error: Any) -> tuple[str, str]:
    """Return column and rule of pandera's error."""
    from pandera.errors import SchemaErrorReason as Reason

    column = str(error.schema.name)
    if error.reason_code is Reason.WRONG_DATATYPE:
        return column, DATED.name if "datetime" in str(error.schema.dtype) else NUMBER.name
    named: Mapping[str, Any] = vars(error.check)
    return column, str(named["name"])

"""Groups of records: the levels of one column, as a design.

The groups are the levels in the dictionary; sites are not asked, and a table's own levels never
leave it. Each level is a 0/1 column of x, the first included. A row without a value is 0 in all of
them and in no group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.outcome import Outcome
from fedcohort.data.prepare import Design, LevelColumn
from fedcohort.data.words import nearest
from fedcohort.protocol import SettingError

#: Name of the group of all records.
ALL = "all"


def design_of(by: str, dictionary: Dictionary, outcome: Outcome | None) -> Design:
    """Return the design whose columns are the groups; it has no columns if `by` is "".

    Raises
    ------
    SettingError : `by` is no column of the dictionary, or has no levels.
    """
    if not by:
        return Design(columns=(), outcome=outcome, dropped={})
    variable = _variable(by, dictionary, outcome)
    levels = variable.levels or ("0", "1")
    column = LevelColumn(name=by, type="category", levels=levels, kept=("", *levels), fill="")
    return Design(columns=(column,), outcome=outcome, dropped={})


def _variable(by: str, dictionary: Dictionary, outcome: Outcome | None) -> Variable:
    variables = dictionary.variables
    fit = [v.name for v in variables.values() if _makes_groups(v, outcome)]
    if by not in variables:
        raise SettingError(
            f"by is {by!r}, which is no column of the dictionary.{nearest(by, fit)} Sites cannot "
            f"be groups: a site's own counts stay there. Strategy 'isolated' fits each alone."
        )
    if not _makes_groups(variables[by], outcome):
        raise SettingError(
            f"by is {by!r}, of type {variables[by].type!r}, which makes no groups; give a binary "
            f"column or a category{f' such as {fit[0]!r}' if fit else ''}, or cut it into levels."
        )
    return variables[by]


def _makes_groups(v: Variable, outcome: Outcome | None) -> bool:
    taken = outcome.columns if outcome is not None else ()
    return v.type in ("binary", "category") and not v.identifier and v.name not in taken


def names_of(features: Sequence[str], by: str) -> tuple[str, ...]:
    """Return the levels of the design's features."""
    return tuple(name.removeprefix(f"{by}=") for name in features)


def group_of(x: Array, groups: int) -> Array:
    """Return the group of each row (n,), −1 for none; all are 0 if `groups` is 0."""
    if not groups:
        return np.zeros(len(x), np.int64)
    return np.where(x.any(axis=1), x.argmax(axis=1), -1) if len(x) else np.zeros(0, np.int64)

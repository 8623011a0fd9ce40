"""A design from the dictionary alone, for private fits: no site is asked, so it costs no ε.

number    x cut to its usual range [low, high], or else to its range, then z = (x − m)/r, with m
          the middle and r half the width: z is in [−1, 1], and a missing value is 0, the middle
0/1       as it is; a missing value is ½
category  one column for each level of the dictionary but the first, which also replaces a
          missing one

Nothing is measured, because moments of p columns are 3p sums, and one patient changes them by up
to √(3p) of a range. With the small share of ε that a fit can spare they would be noise, unless the
sites hold tens of thousands of rows. The usual range is public. Values beyond it are cut. A range
that is far too wide makes a column nearly constant.

For a method that takes missing values (`impute` "none") they stay NaN.

A constant column cannot be dropped and rare levels cannot be pooled: both would depend on records.

Revealed: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.outcome import Outcome
from fedcohort.data.prepare.columns import Column, LevelColumn, NumberColumn, ranged
from fedcohort.data.prepare.design import Design
from fedcohort.data.prepare.fit import check_roles, classes_of, strata_levels, unused
from fedcohort.data.words import first_of
from fedcohort.protocol.errors import DataError, SettingError

#: Preprocessing options, and the values that need no measurement.
FREE: Mapping[str, tuple[Any, ...]] = {
    "scale": ("none", "minmax"),
    "impute": ("median", "mean", "none"),
    "winsorise": (0.0,),
    "pool_levels": (0,),
}


def bounded_design(
    dictionary: Dictionary,
    outcome: Outcome | None,
    *,
    offset: str = "",
    weights: str = "",
    strata: str = "",
    impute: str = "mean",
) -> Design:
    """Return the design of a private fit.

    Parameters
    ----------
    impute : "none" leaves missing values NaN; other values fill them, see the header.

    Raises
    ------
    DataError : columns have no range; the message names them all.
    SettingError : `offset`, `weights` or `strata` names a column; a private fit takes none of them.
    """
    check_roles(dictionary, outcome, offset=offset, weights=weights)
    strata_levels(dictionary, outcome, strata)
    for role, name in (("offset", offset), ("weights", weights), ("strata", strata)):
        if name:
            raise SettingError(f"a private fit takes no {role}, and {role} is {name!r}. Leave it.")
    variables = dictionary.features(outcome)
    if not variables:
        raise DataError("no column is left as a feature, besides outcome, identifiers and text.")
    numbers = [v for v in variables if not v.coded and v.type != "binary"]
    open_ended = [v.name for v in numbers if None in _ends(v)]
    if open_ended:
        many = len(open_ended) > 1
        raise DataError(
            f"column{'s' * many} {first_of([*map(repr, open_ended)], 12)} "
            f"ha{'ve' if many else 's'} no range in the dictionary, and a private fit scales by "
            f"it. "
            f"Give 'usual: [low, high]', what most patients have, or 'feature: false'."
        )
    return Design(
        columns=tuple(ranged(_column(v), v) for v in variables),
        outcome=outcome,
        classes=classes_of(dictionary, outcome),
        scale="minmax",
        impute="none" if impute == "none" else "mean",
        dropped=unused(dictionary, outcome),
    )


def check_options(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse preprocessing options that need measurements, which a private fit does not make.

    Parameters
    ----------
    defaults : the method's own options; they are ignored, because the user did not choose them.

    Raises
    ------
    SettingError : an option needs measurements and is not the default.
    """
    for name, free in FREE.items():
        value = options.get(name, free[0])
        if value not in free and value != defaults.get(name, free[0]):
            raise SettingError(
                f"{name} is {value!r}, which would have to be measured, and a private fit scales "
                f"and fills by the dictionary's ranges. Leave {name!r} out."
            )


def _ends(v: Variable) -> tuple[float | None, float | None]:
    return v.range if v.usual == (None, None) else v.usual


def _column(v: Variable) -> Column:
    if v.coded:
        return LevelColumn(
            name=v.name,
            type=v.type,
            levels=v.levels,
            kept=v.levels,
            fill=v.levels[0],
            view=v.view,
        )
    if v.type == "binary":
        return NumberColumn(name=v.name, type=v.type, fill=0.5, view=v.view)
    low, high = _ends(v)
    assert low is not None
    assert high is not None
    middle = (low + high) / 2.0
    return NumberColumn(
        name=v.name,
        type=v.type,
        since=v.since,
        unit=v.unit if v.since else "",
        fill=middle,
        shift=middle,
        scale=(high - low) / 2.0,
        low=low,
        high=high,
        view=v.view,
    )

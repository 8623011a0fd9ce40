"""Options of the preprocessing and their possible values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedcohort.data.words import known_name
from fedcohort.protocol.errors import SettingError

#: Possible values of `scale`.
SCALES = ("none", "standard", "minmax", "quantile")
#: Possible values of `impute`; "none" leaves missing values as NaN, for methods with `gaps`.
IMPUTES = ("mean", "median", "most_frequent", "indicator", "iterative", "multiple", "none")
#: Methods that draw missing values, for `impute` "multiple".
IMPUTERS = ("mice", "joint_normal")
#: Default number of imputed tables, and the smallest.
TABLES, FEWEST_TABLES = 20, 2
#: The largest share of rows that `winsorise` cuts at each tail.
MOST_WINSORISED = 0.25
#: Share of rows that "minmax" and "quantile" cut at each tail if `winsorise` is 0.
TAIL = 0.005

#: Option → its possible words; none for a number.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "scale": SCALES,
    "impute": IMPUTES,
    "imputer": IMPUTERS,
    "imputations": (),
    "winsorise": (),
    "pool_levels": (),
}


def checked(key: str, value: Any) -> Any:
    """Return the value of one option, a number as float or int.

    Raises
    ------
    SettingError : the value is not possible; the message does not name the key.
    """
    words = OPTIONS[key]
    if words:
        if value not in words:
            raise SettingError(known_name(key, value, words))
        return value
    if key == "imputations":
        if type(value) is not int or value < FEWEST_TABLES:
            raise SettingError(f"expected a whole number of tables, from {FEWEST_TABLES}.")
        return value
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if key == "winsorise":
        if not number or not 0 <= value <= MOST_WINSORISED:
            raise SettingError(
                f"expected the share of rows to cut at each tail, from 0 to {MOST_WINSORISED}."
            )
        return float(value)
    if not number or not math.isfinite(value) or value != int(value) or value < 0:
        raise SettingError("expected a whole number of rows, from 0; rarer levels become one.")
    return int(value)

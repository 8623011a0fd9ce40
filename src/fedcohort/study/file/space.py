"""The space of a setting for Optuna, in a study file.

[low, high]            a range; whole numbers if both ends are [low, high, log]       a range above
0, drawn evenly on the log scale {choose: [values]}     one of these values
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from fedcohort.protocol import SettingError


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole if both are."""

    low: float
    high: float
    log: bool

    @property
    def values(self) -> tuple[float, float]:
        """The two ends, which the setting must allow."""
        return self.low, self.high


@dataclass(frozen=True)
class Choice:
    """Some values, in the order of the file."""

    values: tuple[Any, ...]


def space_of(name: str, spec: Any) -> Range | Choice:
    """Return the space that `spec` gives for the setting `name`.

    Raises
    ------
    SettingError : it has another shape, or a range is empty or infinite.
    """
    if isinstance(spec, dict) and list(cast("dict[str, Any]", spec)) == ["choose"]:
        values: Any = spec["choose"]
        if isinstance(values, list) and values:
            return Choice(tuple(cast("list[Any]", values)))
    if isinstance(spec, list):
        ends = cast("list[Any]", spec)
        log = ends[2:] == ["log"]
        if len(ends) == 2 + log and all(_is_number(v) for v in ends[:2]):
            low, high = ends[:2]
            if low <= high and (low > 0 or not log):
                return Range(low, high, log)
    raise SettingError(
        f"tune.space.{name} must be [low, high], [low, high, log] or {{choose: [values]}}."
    )


def _is_number(value: Any) -> bool:
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return real and math.isfinite(value)

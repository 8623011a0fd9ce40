"""Times for a reader: days and months of a long follow-up as years.

Times are kept in the dictionary's unit; the last time decides the displayed unit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

#: Units of a year: a month is a twelfth of 365.25 days.
IN_A_YEAR: Mapping[str, float] = {
    "days": 365.25, "weeks": 365.25 / 7, "months": 12.0, "years": 1.0,
}  # fmt: skip
#: Years of follow-up from which on it is shown in years.
LONG = 2.0


@dataclass(frozen=True)
class Clock:
    """Display of one outcome's times.

    Attributes
    ----------
    unit : of the dictionary; "" if it has none.
    shown : the displayed unit.
    factor : displayed units per unit.
    """

    unit: str
    shown: str
    factor: float

    @classmethod
    def of(cls, unit: str, last: float) -> Self:
        """Return the display of times in `unit` up to `last`."""
        per_year = IN_A_YEAR.get(unit, math.inf)
        if last / per_year > LONG and unit != "years":
            return cls(unit, "years", 1.0 / per_year)
        return cls(unit, unit, 1.0)

    @property
    def axis(self) -> str:
        """The title of an axis."""
        return f"time since start, {self.shown}" if self.shown else "time since start"

    def at(self, time: float) -> float:
        """Return a time in the displayed unit."""
        return time * self.factor

    def say(self, time: float) -> str:
        """Return ``730 days (2 years)``, ``18 months``, or the number if there is no unit."""
        return said(time, self.unit)


def said(time: float, unit: str) -> str:
    """Return a time with its unit; from one year on also in years."""
    text = f"{time:.6g} {unit}" if unit else f"{time:,.6g}"
    years = time / IN_A_YEAR.get(unit, math.inf)
    if unit == "years" or years < 0.99:
        return text
    number = f"{years:.1f}".removesuffix(".0")
    return f"{text} ({number} {'year' if number == '1' else 'years'})"

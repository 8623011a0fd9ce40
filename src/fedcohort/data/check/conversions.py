"""Conversions between units of one quantity, and those that a column can need.

Only conversions of the column's own quantity are tried, by its unit and its name: a share in % is
never in pounds. Any other number may be in thousandths, hundredths or tenths of its unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedcohort.data.outcome import Outcome
from fedcohort.data.read.hints import words
from fedcohort.data.variable import Variable


@dataclass(frozen=True)
class Conversion:
    """Two units of one quantity: x in `small` = `factor` · x in `large` + `offset`.

    Attributes
    ----------
    factor : above 1.
    small, large : names of the smaller and the larger unit.
    offset : for scales with different zeros.
    decimal : whether it fits any quantity, and the units are an example.
    """

    factor: float
    small: str
    large: str
    offset: float = 0.0
    decimal: bool = False

    @property
    def rare(self) -> bool:
        """Whether it takes more evidence."""
        return self.decimal or self.large == "weeks"

    @property
    def example(self) -> str:
        """Both units in words."""
        return f"{self.small} and {self.large}"

    def to_large(self, x: float) -> float:
        """Return a number of the small unit in the large one."""
        return (x - self.offset) / self.factor

    def to_small(self, x: float) -> float:
        """Return a number of the large unit in the small one."""
        return x * self.factor + self.offset


#: A unit's thousandth, hundredth and tenth, which any quantity may have.
DECIMAL = (
    Conversion(1000.0, "milligrams", "grams", decimal=True),
    Conversion(100.0, "centimetres", "metres", decimal=True),
    Conversion(10.0, "g/l", "g/dl", decimal=True),
)
#: The same for lengths, with the names of their units.
LENGTHS = (
    Conversion(1000.0, "millimetres", "metres", decimal=True),
    Conversion(100.0, "centimetres", "metres", decimal=True),
    Conversion(10.0, "millimetres", "centimetres", decimal=True),
)
#: Units of time, the longest first.
TIMES = (
    Conversion(365.25, "days", "years"),
    Conversion(30.4375, "days", "months"),
    Conversion(12.0, "months", "years"),
    Conversion(7.0, "days", "weeks"),
)
PERCENT = (Conversion(100.0, "percent", "shares"),)
#: Per quantity: conversions, units, and beginnings of words in the column's name.
_QUANTITIES: tuple[tuple[tuple[Conversion, ...], frozenset[str], tuple[str, ...]], ...] = (
    (
        (Conversion(88.4, "creatinine in µmol/l", "mg/dl"),),
        frozenset(), ("crea", "krea"),
    ),
    (
        (Conversion(38.67, "cholesterol in mg/dl", "mmol/l"),),
        frozenset(), ("chol", "ldl", "hdl"),
    ),
    (
        (Conversion(18.02, "glucose in mg/dl", "mmol/l"),),
        frozenset(), ("gluc", "gluk", "bg", "fbg", "sugar"),
    ),
    (
        (Conversion(17.1, "bilirubin in µmol/l", "mg/dl"),),
        frozenset(), ("bili",),
    ),
    (
        (
            Conversion(10.0, "haemoglobin in g/l", "g/dl"),
            Conversion(1.6114, "haemoglobin in g/dl", "mmol/l"),
            Conversion(16.114, "haemoglobin in g/l", "mmol/l"),
        ),
        frozenset(), ("hb", "hgb", "haemoglobin", "hemoglobin"),
    ),
    (
        (Conversion(1000.0, "cells/µl", "10⁹ cells/l"),),
        frozenset(),
        ("wbc", "leuk", "leuc", "white", "neutro", "anc", "lymph", "mono", "plt", "plat", "thromb"),
    ),
    (
        (Conversion(10.929, "HbA1c in mmol/mol", "%", -23.5),),
        frozenset(), ("hba1c", "a1c"),
    ),
    (
        (Conversion(1.8, "degrees Fahrenheit", "degrees Celsius", 32.0),),
        frozenset({"°c", "°f", "c", "f", "celsius", "fahrenheit", "degc", "degf"}),
        ("temp", "fever"),
    ),
    (
        (Conversion(2.54, "centimetres", "inches"),),
        frozenset({"cm", "in", "inch", "inches"}),
        ("height", "length", "waist", "girth", "hip", "stature", "circumference"),
    ),
    (
        (Conversion(2.2046, "pounds", "kilograms"),),
        frozenset({"kg", "lb", "lbs", "pound", "pounds"}),
        ("weight", "wt", "kg", "lbs", "mass"),
    ),
)  # fmt: skip
#: Conversions for an unknown quantity, the largest factor first.
COMMON = sorted(
    {
        c.factor: c
        for c in (*(c for those, *_ in _QUANTITIES for c in those), *TIMES, *DECIMAL)
        if not c.offset and c.factor not in (1.6114, 16.114, 17.1)
    }.values(),
    key=lambda c: -c.factor,
)
#: Units of time.
_DURATIONS = frozenset({"years", "months", "weeks", "days"})
#: Words in names of columns of times.
_TIMED = frozenset(
    {"time", "duration", "followup", "fu", "age", "years", "months", "weeks", "days"}
)


def conversions_of(name: str, unit: str, *, time: bool = False) -> tuple[Conversion, ...]:
    """Return the conversions that a column can need, by its own unit and its name.

    time : whether its type is time.
    """
    parts, known = words(name), unit.lower()
    own = [
        conversion
        for those, units, starts in _QUANTITIES
        if known in units or any(part.startswith(starts) for part in parts)
        for conversion in those
    ]
    if known == "%":
        return (*PERCENT, *(c for c in own if c.offset))
    if known in _DURATIONS:
        return tuple(c for c in TIMES if known in (c.small, c.large))
    if time or (not unit and _TIMED & set(parts)):
        return TIMES
    taken = {c.factor for c in own}
    decimal = LENGTHS if known in ("mm", "cm", "m") else DECIMAL
    return (*own, *(c for c in decimal if c.factor not in taken))


def conversions_for(v: Variable, outcome: Outcome | None) -> tuple[Conversion, ...]:
    """Return the conversions that a variable can need; times of a survival outcome need those of
    time.
    """
    of_outcome = outcome is not None and outcome.roles.get(v.name) in ("time", "entry")
    return conversions_of(v.name, v.unit, time=of_outcome or v.type == "time")


def factors_of(conversions: tuple[Conversion, ...]) -> Mapping[float, str]:
    """Return the factors of conversions without offset, each with an example."""
    return {c.factor: c.example for c in conversions if not c.offset}

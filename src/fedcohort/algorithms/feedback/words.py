"""A site's findings in words: one line per finding, without any patient's value."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.algorithms.feedback import rules
from fedcohort.algorithms.feedback.model import Remark
from fedcohort.data.check import COMMON
from fedcohort.data.describe import Reading
from fedcohort.data.outcome import Outcome

#: The rules' names, by number.
NAMES = (
    "shift", "unit", "swapped", "off", "flipped label", "half empty", "empty", "constant", "level",
    "copies",
)  # fmt: skip
UNRECORDED = "unrecorded"


@dataclass(frozen=True)
class Unit:
    """Two units of one quantity: ``back[0] · x + back[1]`` is in the other sites' unit."""

    back: tuple[float, float]
    example: str


#: Units that are tried: `data.check.conversions` both ways, and scales with other zeros.
UNITS = (
    *(Unit((1 / c.factor, 0.0), c.example) for c in COMMON),
    *(Unit((c.factor, 0.0), c.example) for c in COMMON),
    Unit((5 / 9, -160 / 9), "°F where they have °C"),
    Unit((9 / 5, 32.0), "°C where they have °F"),
    Unit((0.09148, 2.152), "HbA1c in mmol/mol where they have %"),
    Unit((10.929, -23.5), "HbA1c in % where they have mmol/mol"),
)


def line(
    site: str,
    reading: Reading,
    places: tuple[str, ...],
    outcome: Outcome | None,
    rule: int,
    column: int,
    other: int,
    size: float,
    more: float,
) -> Remark:
    """Return one finding in words.

    Parameters
    ----------
    places : the variables' names, in the order of column numbers.
    rule, column, other, size, more : see `rules.Finding`.
    """
    name = places[column] if column >= 0 else ""
    about = ""
    text = ""
    if rule == rules.SHIFT:
        way = "above" if size > 0 else "below"
        text = (
            f"{name} lies about {abs(size):g}{_unit(reading, name)} {way} the other sites', with "
            f"a spread like theirs: is something added to it, or taken off?"
        )
    elif rule == rules.UNIT:
        about, text = _of_unit(name, UNITS[other], size)
    elif rule == rules.SWAPPED:
        about = places[other]
        text = (
            f"{name} looks like the other sites' {about}, and {about} like their {name}: are the "
            f"two columns swapped?"
        )
    elif rule == rules.OFF:
        way = "above" if size > 0 else "below"
        text = (
            f"{name} lies about {abs(size):g}{_unit(reading, name)} {way} the other sites', with "
            f"{more:g} times their spread: is it the same quantity, in the same unit?"
        )
    elif rule == rules.LABEL:
        name = "" if outcome is None else outcome.label
        how = "AUC" if outcome is not None and outcome.has_classes else "correlation"
        text = (
            f"{name} goes with the other columns the other way round than at the other sites "
            f"({how} of their model here {size:g}): are its values flipped?"
        )
    elif rule in (rules.HALF, rules.EMPTY):
        text = (
            f"{name} is missing in about {100 * size:.0f} % of rows, and in about "
            f"{100 * more:.0f} % at the other sites"
        )
    elif rule == rules.CONSTANT:
        text = f"{name} is the same in all rows, and varies at the other sites: is it a default?"
    elif rule == rules.LEVEL:
        about = reading.levels[name][other]
        text = (
            f"{name} has the level {about!r} in about {100 * size:.0f} % of rows, which no other "
            f"site uses: is it coded otherwise?"
        )
    elif rule == rules.COPIES:
        text = (
            f"about {100 * size:.0f} % of rows are copies of other rows in every column: were they "
            f"entered twice?"
        )
    return Remark(site, NAMES[rule], name, about, size, f"{site}: {text}")


def _unit(reading: Reading, name: str) -> str:
    """Return a variable's unit after a space; "" if the dictionary has none."""
    unit = next(v.unit for v in reading.variables if v.name == name)
    return f" {unit}" if unit else ""


def _of_unit(name: str, unit: Unit, times: float) -> tuple[str, str]:
    """Return the units, and the text."""
    if unit.back[1]:
        return unit.example, f"{name} looks like {unit.example}: is it in another unit?"
    ratio = f"{times:g} times" if times >= 1 else f"1/{1 / times:.3g} of"
    return unit.example, (
        f"{name} is about {ratio} the other sites' (such as {unit.example}): is it in another unit?"
    )


def unrecorded(
    site: str,
    places: tuple[str, ...],
    outcome: Outcome | None,
    column: int,
    fall: float,
    low: float,
    high: float,
) -> Remark:
    """Return the gain from an unrecorded column in words."""
    name = places[column]
    what = "the outcome" if outcome is None else outcome.label
    text = (
        f"{name} is not recorded; at the other sites a linear model of {what} from the columns "
        f"that {site} has loses {100 * fall:.1f} % less with it (95 % interval {100 * low:.1f} to "
        f"{100 * high:.1f} %)"
    )
    if low <= 0:
        text = (
            f"{name} is not recorded; at the other sites it adds nothing clear to what {site} has"
        )
    return Remark(site, UNRECORDED, name, what, fall, f"{site}: {text}", low, high)

"""The time of predicted risks in a survival study: ``evaluate.horizon``, such as 2 years.

It is a number in the unit of the time column, or a number with its own unit; then the dictionary
must have a known unit for that column.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.protocol import DataError
from fedcohort.report.clock import IN_A_YEAR
from fedcohort.study.file.reader import Reader, spelled
from fedcohort.study.file.yamlfile import Where
from fedcohort.study.kinds import Kind

_WHERE: Where = ("evaluate", "horizon")
_TEXT = re.compile(r"\s*([0-9.]+)\s*([a-z]+)\s*")


@dataclass(frozen=True)
class Horizon:
    """A time after the start of follow-up.

    Attributes
    ----------
    value : above 0.
    unit : one of `IN_A_YEAR`; "" for that of the time column.
    """

    value: float
    unit: str = ""

    @property
    def text(self) -> str:
        """``2 years``, or the number alone."""
        unit = self.unit.removesuffix("s") if self.value == 1 else self.unit
        return f"{self.value:.6g} {unit}".strip()

    def within(self, dictionary: Dictionary, outcome: Outcome | None) -> float:
        """Return the horizon in the unit of the time column.

        Raises
        ------
        DataError : the dictionary has no known unit for the column.
        """
        if not isinstance(outcome, Survival) or not self.unit:
            return self.value
        unit = outcome.time_unit(dictionary)
        if unit not in IN_A_YEAR:
            there = f"the unit {unit!r}" if unit else "no unit"
            raise DataError(
                f"evaluate.horizon is {self.text}, and the dictionary has {there} for the time "
                f"{outcome.time!r}. Give it one of {', '.join(IN_A_YEAR)}, or the horizon as a "
                f"number in the unit of the column."
            )
        return self.value * IN_A_YEAR[unit] / IN_A_YEAR[self.unit]


def read(reader: Reader, kind: Kind) -> Horizon | None:
    """Return the horizon of a study file; None without.

    Raises
    ------
    StudyError : it is no such time, or the study is not of survival.
    """
    given = reader.get(_WHERE)
    if given is None:
        return None
    if not kind.timed:
        raise reader.doc.error(_WHERE, f"a horizon is for survival, and this is {kind.name}.")
    number, unit = spelled(given), ""
    if isinstance(given, str) and (found := _TEXT.fullmatch(given)):
        number, unit = spelled(found[1]), f"{found[2].removesuffix('s')}s"
    fine = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not (fine and 0 < number < math.inf) or (unit and unit not in IN_A_YEAR):
        raise reader.doc.error(
            _WHERE,
            f"expected a time above 0: a number in the unit of the time column, or with one of "
            f"{', '.join(IN_A_YEAR)}, such as 2 years.",
        )
    return Horizon(float(number), unit)


def check(horizon: float, text: str, times: Array, min_cell: int, where: str) -> None:
    """Refuse a horizon after the end of every survival curve.

    Parameters
    ----------
    times : (n,) follow-up of all rows; a curve ends when `min_cell` rows are left.

    Raises
    ------
    DataError : fewer than `min_cell` rows, or none, are followed beyond it.
    """
    beyond = int(np.count_nonzero(times > horizon))
    if beyond < max(min_cell, 1):
        who = f"fewer than {min_cell} rows (min_cell) were" if beyond else "nobody was"
        raise DataError(
            f"{where}: evaluate.horizon is {text}, and {who} followed beyond it, so no model can "
            f"predict the risk. Give an earlier one."
        )

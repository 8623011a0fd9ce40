"""Checks of a study's tables: `examine` returns all findings at once.

Nothing leaves a site, and no finding holds a cell's value.
"""

from fedcohort.data.check.accepted import EVERY, NOTHING, Accepted
from fedcohort.data.check.between import Middle, differing
from fedcohort.data.check.cells import OTHER_LEVEL, level_remedies, number_remedies
from fedcohort.data.check.checks import check_column, check_sheets
from fedcohort.data.check.conversions import COMMON, conversions_for
from fedcohort.data.check.examining import examine, with_outcome
from fedcohort.data.check.findings import ERROR, WARNING, Finding, errors
from fedcohort.data.check.sheets import Sheet
from fedcohort.data.check.units import FEWEST

__all__ = [
    "Accepted",
    "COMMON",
    "ERROR",
    "EVERY",
    "FEWEST",
    "Finding",
    "Middle",
    "NOTHING",
    "OTHER_LEVEL",
    "Sheet",
    "WARNING",
    "check_column",
    "check_sheets",
    "conversions_for",
    "differing",
    "errors",
    "examine",
    "level_remedies",
    "number_remedies",
    "with_outcome",
]

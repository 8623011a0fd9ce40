"""Is a table fit for a study? `examine` finds everything that is wrong at once.

Nothing here leaves a site, and no finding holds a cell's value.
"""

from fedcohort.data.check.examine import examine, with_outcome
from fedcohort.data.check.findings import ERROR, WARNING, Finding, errors
from fedcohort.data.check.sheets import Sheet

__all__ = [
    "ERROR",
    "WARNING",
    "Finding",
    "Sheet",
    "errors",
    "examine",
    "with_outcome",
]

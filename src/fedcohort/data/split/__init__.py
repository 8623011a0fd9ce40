"""Splits of rows: one table into sites, blind rows in thirds, folds."""

from fedcohort.data.split.folds import BY_ROW, HIDDEN, check_rows, own_fold
from fedcohort.data.split.rules import partition
from fedcohort.data.split.thirds import THIRDS, check_thirds

__all__ = [
    "BY_ROW",
    "HIDDEN",
    "THIRDS",
    "check_rows",
    "check_thirds",
    "own_fold",
    "partition",
]

"""The TRIPOD+AI checklist: a run's answers, and the items for a person to write."""

from fedcohort.report.tripod.items import FILLED, PART, WRITE, Line, checklist

__all__ = [
    "FILLED",
    "Line",
    "PART",
    "WRITE",
    "checklist",
]

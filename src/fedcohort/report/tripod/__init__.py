<<<<<<< HEAD
"""The TRIPOD+AI checklist: a run's answers, and the items for a person to write."""
=======
"""The TRIPOD+AI checklist: what a run can answer, and what a person must write."""

from fedcohort.report.tripod.items import FILLED, PART, WRITE, Line, checklist

__all__ = [
    "FILLED",
    "Line",
    "PART",
    "WRITE",
    "checklist",
]
>>>>>>> main

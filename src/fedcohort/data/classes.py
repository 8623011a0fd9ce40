"""When a yes/no outcome can teach, and be shown: both classes are there, and of no few records.

Nothing is revealed: the counts of all sites together are known when this is asked.
"""

from __future__ import annotations

from fedcohort.protocol.errors import NothingToLearn


def check_classes(rows: int, ones: int, least: int) -> None:
    """Refuse one class only, or a class of few.

    Parameters
    ----------
    rows, ones : records, and those of class 1, at all sites.
    least : records that each class must have.

    Raises
    ------
    NothingToLearn : either is so.
    """
    if ones in (0, rows):
        raise NothingToLearn(
            f"all {rows} records are of class {ones // rows}, and a fit needs both. Add a site "
            f"that has the other one, or check how the outcome is coded."
        )
    if min(ones, rows - ones) < least:
        raise NothingToLearn(
            f"class {int(ones < rows - ones)} has fewer than {least} records at all sites together "
            f"(min_cell). Add sites or records; or lower min_cell, if all sites agree."
        )

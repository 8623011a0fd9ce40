"""Checks before sums of columns with missing entries: none may single out few records.

The rules are those of exact fits (`data.isolation`), of the table in which missing entries have the
column's public point: a column in which few records differ from it, one record that is far from all
others, two columns that differ in few records, and a column that others determine but in few.

Revealed: `Isolation` of that table, once, as a sum over all sites.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.isolation import Isolation, check_isolation, isolation
from fedcohort.data.prepare import Head
from fedcohort.data.tables import FeatureTable, LabelledTable
from fedcohort.protocol import Federation, NothingToLearn, Site, Task, summed


@summed
def known_isolation(site: Site[FeatureTable, None], *, origin: Array) -> Isolation:
    """Count the records that differ in each column, and sum the powers of their distances.

    origin : (p,), what missing entries count as.
    """
    x = np.where(np.isnan(site.data.x), origin, site.data.x)
    table = LabelledTable(x, np.zeros(len(x)))
    return isolation.run(
        replace(site, data=table), origin=np.r_[origin, 0.0, 1.0], link="", offset=False,
        kinds=False, n_classes=0,
    )  # fmt: skip


def checked(fed: Federation, task: Task) -> tuple[Federation, int]:
    """Return the sites that answered, which later calls wait for, and `min_cell`; 1 for one site.

    Raises
    ------
    NothingToLearn : fewer than `min_cell` records, or a column singles out few; it is named.
    """
    if len(fed.sites) < 2 or task.min_cell < 2:
        return fed.awaiting(), 1
    p = len(task.features)
    origin = np.zeros(p) if task.origin is None else np.asarray(task.origin, float)
    told = fed.sum(known_isolation, origin=origin)
    if told.rows < task.min_cell:
        raise NothingToLearn(
            f"there are fewer than {task.min_cell} records (min_cell) at all sites together. Add "
            f"sites or records; or lower min_cell, if all sites agree."
        )
    check_isolation(told, task.features, p, task.min_cell, "number")
    return fed.only(fed.answered).awaiting(), task.min_cell


def heads_of(task: Task) -> tuple[Head, ...]:
    """Return the columns of x; if the task does not know them, each feature is a number."""
    if task.heads:
        return task.heads
    return tuple(Head(name=f, kind="normal", at=(j,)) for j, f in enumerate(task.features))

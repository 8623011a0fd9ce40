"""The best one-to-one matching of clusters to classes (Hungarian method).

Kuhn, Naval Res. Logist. Q. 2, 1955; solved by `scipy.optimize.linear_sum_assignment`. In a table of
counts f_ij, of rows with label i and class j, the matching M is the one-to-one choice of cells with
the largest

    Σ_{(i,j) ∈ M} f_ij                                                                      (1)

Labels have no order, so "cluster 2" means nothing before it is matched.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array

#: Stands for a label without a partner, where one side has more labels than the other.
NONE = -1


def matching(table: Array) -> Array:
    """Return the partner of each label, eq. (1): (k,) integers; `NONE` where there is none.

    Parameters
    ----------
    table : f (k, l), rows of each label in each class.
    """
    rows, columns = _assignment(np.asarray(table))
    partner = np.full(len(table), NONE)
    partner[rows] = columns
    return partner


def matched(table: Array) -> float:
    """Return the count of eq. (1), of rows that the best matching of a table (k, l) puts right."""
    table = np.asarray(table)
    return float(table[_assignment(table)].sum())


def _assignment(table: Array) -> tuple[Array, Array]:
    """Return the rows and the columns of the cells of M, eq. (1)."""
    from scipy.optimize import linear_sum_assignment  # slow to load, as all of scipy.optimize

    return linear_sum_assignment(table, maximize=True)

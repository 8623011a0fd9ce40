"""The least and the largest value of hidden counts, by two linear programs each.

This is how τ-Argus and sdcMicro audit a table, beside the flows of `privacy.disclosure.tables`.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog


def bounds(table, hidden, sums, cells):
    """Return the least and the largest value (u, 2) that all that is shown allows some cells.

    table : (r + 1, k), the row of all last; sums : (r + 1,), NaN where not known; cells : (u, 2).
    """
    place = np.full(table.shape, -1)
    place[hidden] = np.arange(hidden.sum())
    known = np.where(hidden, 0.0, table)
    sign = np.r_[np.ones(len(table) - 1), -1.0]
    lines, values = [], []
    for i in np.flatnonzero(hidden.any(axis=1) & ~np.isnan(sums)):
        lines.append(np.isin(np.arange(hidden.sum()), place[i][hidden[i]]) * 1.0)
        values.append(sums[i] - known[i].sum())
    for j in np.flatnonzero(hidden.any(axis=0)):
        line = np.zeros(hidden.sum())
        line[place[hidden[:, j], j]] = sign[hidden[:, j]]
        lines.append(line)
        values.append(-float(sign @ known[:, j]))
    found = []
    for at in place[cells[:, 0], cells[:, 1]].tolist():
        one = np.arange(hidden.sum()) == at
        ends = [linprog(way * one, A_eq=np.array(lines), b_eq=values) for way in (1.0, -1.0)]
        assert all(e.status in (0, 3) for e in ends), "nothing fits what is shown"
        found.append([way * e.fun if e.status == 0 else way * -np.inf
                      for way, e in zip((1.0, -1.0), ends, strict=True)])  # fmt: skip
    return np.array(found)

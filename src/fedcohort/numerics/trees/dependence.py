"""Margins of rows in which one covariate is replaced, for partial dependence by sums over rows.

Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29,
2001, section 8.2. With f a prediction and x^(j=v) a row whose covariate j is set to v, of a public
grid:

    PD_j(v) = Σ_i f(x_i^(j=v)) / n                                                        (1)

A leaf is reached by x^(j=v) if the row meets the conditions of its path on all other covariates,
and v the one on j. So one pass over the rows serves all values:

    F(x^(j=v)) = b + Σ_leaves value · [x meets the others] · [v meets the one on j]         (2)

Margins of a row are of one patient, and are as secret as the row.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.trees.ensemble import Ensemble
from fedcohort.numerics.trees.shapley import CHUNK, Paths, compared, paths_to_leaves, taken


def replaced(ensemble: Ensemble, x: Array, values: Mapping[int, Array]) -> dict[int, Array]:
    """Return the margins (n, m, K) of rows x (n, p) with each replaced covariate, eq. (2).

    Parameters
    ----------
    values : number of a covariate → its values (m,); NaN for a missing one.
    """
    x, base = compared(x), np.asarray(ensemble.base, float)
    asked = {j: compared(v) for j, v in values.items()}
    out = {j: np.tile(base, (len(x), len(v), 1)) for j, v in asked.items()}
    group = np.asarray(ensemble.group)[ensemble.trees.tree_of]
    for paths in paths_to_leaves(ensemble.trees, ensemble.cover):
        value = np.asarray(ensemble.trees.value[paths.leaf, 0], float)
        for k in np.unique(group[paths.leaf]).tolist():
            own = group[paths.leaf] == k
            for j, at in asked.items():
                _add(out[j][..., k], x, paths[own], value[own], j, at)
    return out


def _add(out: Array, x: Array, paths: Paths, value: Array, j: int, at: Array) -> None:
    """Add eq. (2) over leaves of paths of the same length, to out (n, m)."""
    leaves, d = paths.feature.shape
    rows = min(max(len(x), 1), 1024)
    step = max(1, CHUNK // (rows * max(d, 1)))
    for first in range(0, leaves, step):
        own = paths[np.arange(first, min(first + step, leaves))]
        low, high, missing = (a[..., None] for a in (own.low, own.high, own.missing))
        free = (own.feature == j)[..., None]
        weight = (~free | taken(at, low, high, missing)).all(axis=1)
        weight = value[first : first + step, None] * weight
        for start in range(0, len(x), rows):
            block = slice(start, start + rows)
            met = taken(x[block].T[own.feature], low, high, missing) | free
            out[block] += met.all(axis=1).T.astype(float) @ weight

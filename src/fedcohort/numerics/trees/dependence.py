"""Partial dependence by sums over rows.

Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29,
2001, section 8.2. With f a prediction and x^(j=v) a row whose covariate j is set to v, of a public
grid:

    PD_j(v) = Σ_i f(x_i^(j=v)) / n

Sites give the sums over their rows, and n. A sum reveals the mean prediction over rows of the site
at each value of the grid, and nothing else of a row; a masked sum reveals that of all sites alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedcohort.arrays import Array


def dependence_sums(
    predict: Callable[[Array], Array], x: Array, j: int, grid: Array
) -> tuple[Array, int]:
    """Return Σ_i f(x_i^(j=v)) at each value v of the grid (g,), and the number of rows n.

    Parameters
    ----------
    predict : f, from rows (n, p) to (n,), or to (n, K) for several outputs.
    x : rows (n, p); missing values of other covariates stay missing.
    j : number of the covariate.
    grid : (g,) values of the covariate; NaN for a missing one.

    Returns
    -------
    sums : (g,), or (g, K).
    n : number of rows.
    """
    changed = np.array(x, float)
    sums: list[Array] = []
    for value in np.asarray(grid, float).tolist():
        changed[:, j] = value
        sums.append(np.asarray(predict(changed), float).sum(axis=0))
    return np.array(sums), len(changed)

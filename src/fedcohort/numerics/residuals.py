"""Residuals of each column of a table on all others, and the effective number of their rows.

For columns z_j with cross-products S, in standard deviations, the residual r_j = z_j − Σ b_i z_i is
along a row of S⁻¹. If others determine a column, its residual is 0, as for each column of such a
relation. Revealed: nothing.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array

#: 1 − R² of a column that others give: rounding.
ROUNDING = 1e-10
#: 1 − R² of columns that are clearly not given by others.
CLEAR = 1e-6
#: Coefficients (in standard deviations) that make a column part of a relation, and residuals, as a
#: share of the terms that they are the sum of, that are rounding.
PART, NOTHING = 1e-6, 1e-11
#: Residuals are cut to this, so that an exact sum can hold their powers.
FARTHEST = 1e16


def residual_parts(inner: Array) -> tuple[Array, Array]:
    """Return coefficients (q, q) of each column's residual, and 1 − R² (q,).

    Parameters
    ----------
    inner : cross-products (q, q) about the means.

    Returns
    -------
    parts : r_j = Σ_i parts_ji z_i/√S_ii; a row of 0 where r_j is, or the column does not vary.
    left : 1 − R²; 0 where others give a column to `ROUNDING`, inf where it does not vary.
    """
    unit = roots(inner)
    corr = inner / (unit[:, None] * unit)
    if (whole := _all_independent(corr)) is not None:
        own = whole.diagonal()
        return whole / own[:, None], 1.0 / own
    kept = _independent(corr)
    parts, left = np.zeros_like(corr), np.full(len(corr), np.inf)
    if not len(kept):
        return parts, left
    precision = np.linalg.inv(corr[np.ix_(kept, kept)])
    own = np.diag(precision)
    rest = np.setdiff1d(np.flatnonzero(np.diag(corr)), kept)
    given = corr[np.ix_(rest, kept)] @ precision
    parts[np.ix_(kept, kept)] = precision / own[:, None]
    left[kept] = 1.0 / own
    bound = kept[(np.abs(given) > PART).any(axis=0)]
    parts[bound], left[bound], left[rest] = 0.0, 0.0, 0.0
    parts[np.ix_(rest, kept)] = -given
    parts[rest, rest] = 1.0
    return parts, left


def powers(columns: Array, parts: Array) -> tuple[Array, Array]:
    """Return Σ r² and Σ r⁴ (2, k) of combinations of columns (n, q), and of those less the median.

    The coefficients are `parts` (k, q).
    """
    r = columns @ parts.T
    r[np.abs(r) <= NOTHING * (np.abs(columns) @ np.abs(parts).T)] = 0.0
    half = len(r) // 2
    median = np.partition(r, half, axis=0)[half] if len(r) else np.zeros(len(parts))
    squares = [np.clip(d, -FARTHEST, FARTHEST) ** 2 for d in (r, r - median)]
    return (
        np.array([d.sum(axis=0) for d in squares]),
        np.array([np.einsum("ij,ij->j", d, d) for d in squares]),
    )


def own_powers(columns: Array) -> Array:
    """Return Σ r² and Σ r⁴ (2, q) of the residuals of one table's columns (n, q)."""
    if not len(columns):
        return np.zeros((2, columns.shape[1]))
    cut = np.clip(columns, -FARTHEST, FARTHEST)
    centred = cut - cut.mean(axis=0)
    inner = centred.T @ centred
    parts, _ = residual_parts(inner)
    unit = roots(inner)
    squares, fourth = powers(centred, parts / unit)
    unit = unit**2
    return np.array([squares[0] * unit, fourth[0] * unit**2])


def roots(inner: Array) -> Array:
    """Return the square roots of the diagonal (q,), and 1 for 0."""
    sd = np.sqrt(np.maximum(inner.diagonal(), 0.0))
    return np.where(sd > 0, sd, 1.0)


def about_means(products: Array) -> Array:
    """Return cross-products (q, q) about the means from those with an intercept (q + 1, q + 1)."""
    first = products[0, 1:]
    return products[1:, 1:] - np.outer(first, first) / (products[0, 0] or 1.0)


def _all_independent(corr: Array) -> Array | None:
    """Return the inverse of a correlation matrix in which each column is far from given by others.

    Then no pivot of `_independent` is below the least 1 − R². None where one column may be given.
    """
    try:
        found = np.linalg.inv(corr)
    except np.linalg.LinAlgError:
        return None
    own = found.diagonal()
    if own.size and own.min() > 0.5 and own.max() < 1.0 / CLEAR:
        return found
    return None


def _independent(corr: Array) -> Array:
    """Return columns (k,) of a correlation matrix of which no others give one, by pivoting."""
    rest, kept = corr.copy(), list[int]()
    own = rest.diagonal()  # a view: it follows
    while len(kept) < len(corr):
        j = int(own.argmax())
        if own[j] <= ROUNDING:
            break
        kept.append(j)
        rest -= rest[:, j, None] * rest[j] / rest[j, j]
        rest[kept] = rest[:, kept] = 0.0
    return np.array(kept, np.int64)

"""Rows of a multivariate normal with missing entries: conditional means, and expected sums.

Dempster, Laird, Rubin, JRSS B 39, 1977; Little, Rubin, "Statistical Analysis with Missing Data",
2nd ed., section 11.2. With Λ = Σ⁻¹, a row whose entries o are seen and m are missing has

    E[x_m | x_o]   = μ_m − Λ_mm⁻¹ Λ_mo (x_o − μ_o)                                      (1)
    Cov[x_m | x_o] = Λ_mm⁻¹                                                             (2)

so that only matrices of the size of m are inverted, one for each pattern of missing entries. The
EM algorithm sums, over all rows, with y = E[x | x_o] − μ and C the covariance (2) in m, else 0,

    s = Σ y,   S = Σ (y yᵀ + C)                                                         (3)

and then sets μ ← μ + s/n, Σ ← S/n − (s/n)(s/n)ᵀ.                                       (4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array

#: A block has at most this many rows, and its conditional covariances this many numbers.
BLOCK_ROWS, BLOCK_NUMBERS = 1 << 16, 1 << 21


@dataclass(frozen=True)
class Block:
    """Rows with the same number m of missing entries, in b patterns.

    Attributes
    ----------
    rows : (r,) their places in the table.
    pattern : (r,) which of the b patterns each row has.
    missing : (b, m) the columns that are missing.
    counts : (b,) rows of each pattern.
    """

    rows: Array
    pattern: Array
    missing: Array
    counts: Array


def blocks(missing: Array) -> list[Block]:
    """Group rows by what is missing (n, d)."""
    packed = np.packbits(missing, axis=1)
    _, pattern = np.unique(packed, axis=0, return_inverse=True)
    number = missing.sum(axis=1)
    order = np.lexsort((pattern.ravel(), number))
    found: list[Block] = []
    for m in np.unique(number).tolist():
        same = order[slice(*np.searchsorted(number[order], [m, m + 1]))]
        size = max(1, min(BLOCK_ROWS, BLOCK_NUMBERS // max(m * m, 1)))
        for start in range(0, len(same), size):
            rows = same[start : start + size]
            kinds, first, which, counts = np.unique(
                pattern.ravel()[rows], return_index=True, return_inverse=True, return_counts=True
            )
            columns = np.nonzero(missing[rows[first]])[1].reshape(len(kinds), m)
            found.append(Block(rows, which, columns, counts))
    return found


def conditional(y: Array, block: Block, precision: Array) -> Array:
    """Fill y (r, d), deviations from μ of a block's rows with 0 where missing, by eq. (1).

    Returns
    -------
    covariance : (b, m, m) of each pattern's missing entries, eq. (2); y is changed in place.
    """
    at = block.missing
    covariance = np.linalg.inv(precision[at[:, :, None], at[:, None, :]])
    mine = at[block.pattern]
    pull = np.take_along_axis(y @ precision, mine, axis=1)
    np.put_along_axis(y, mine, -np.einsum("rij,rj->ri", covariance[block.pattern], pull), axis=1)
    return covariance


def expected_sums(
    x: Array, grouped: Sequence[Block], mean: Array, precision: Array
) -> tuple[Array, Array]:
    """Return s (d,) and S (d, d) of eq. (3).

    Parameters
    ----------
    x : (n, d), NaN where missing.
    grouped : its rows, as `blocks` groups them.
    mean, precision : μ (d,) and Λ (d, d).
    """
    total, products = np.zeros_like(mean), np.zeros_like(precision)
    for block in grouped:
        y = np.nan_to_num(x[block.rows] - mean)
        if block.missing.shape[1]:
            at = block.missing
            covariance = conditional(y, block, precision) * block.counts[:, None, None]
            np.add.at(products, (at[:, :, None], at[:, None, :]), covariance)
        total += y.sum(axis=0)
        products += y.T @ y
    return total, products


def filled(
    x: Array, mean: Array, covariance: Array, rng: np.random.Generator | None = None
) -> Array:
    """Return x (n, d) with conditional means, eq. (1), where it is NaN.

    Parameters
    ----------
    rng : of a draw of eqs. (1) and (2) instead; None for the means.
    """
    sd = np.sqrt(np.diag(covariance))
    y = np.nan_to_num((x - mean) / sd)
    precision = np.linalg.inv(covariance / np.outer(sd, sd))
    for block in blocks(np.isnan(x)):
        if block.missing.shape[1]:
            part = y[block.rows]
            spread = conditional(part, block, precision)
            if rng is not None:
                mine = block.missing[block.pattern]
                noise = rng.standard_normal(mine.shape)
                noise = np.einsum("rij,rj->ri", np.linalg.cholesky(spread)[block.pattern], noise)
                values = np.take_along_axis(part, mine, axis=1) + noise
                np.put_along_axis(part, mine, values, axis=1)
            y[block.rows] = part
    return np.where(np.isnan(x), mean + sd * y, x)


def conditional_sd(x: Array, covariance: Array) -> Array:
    """Return the root of eq. (2)'s diagonal where x (n, d) is NaN, else 0."""
    precision, out = np.linalg.inv(covariance), np.zeros(x.shape)
    for block in blocks(np.isnan(x)):
        if block.missing.shape[1]:
            part = np.zeros((len(block.rows), x.shape[1]))
            root = np.sqrt(np.diagonal(conditional(part, block, precision), axis1=1, axis2=2))
            mine = block.missing[block.pattern]
            np.put_along_axis(part, mine, root[block.pattern], axis=1)
            out[block.rows] = part
    return out

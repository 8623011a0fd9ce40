"""Divergence of two sites from tables of counts, its value by chance, a test, and a map.

Counts a, b (k,) of two sites with n and m rows, shares p = a/n and q = b/m:

    JS = ½ Σ p log₂(p/μ) + ½ Σ q log₂(q/μ),   μ = (p + q)/2     in bits, 0 alike, 1 disjoint (1)
    E JS ≈ (k − 1)(1/n + 1/m)/(8 ln 2)     if both are drawn from the same shares            (2)
    X² = Σ (observed − expected)²/expected of the 2 × k table, χ² on k − 1 degrees           (3)

(Lin, IEEE Trans. Inf. Theory 37(1), 1991; Pearson 1900. (2) by JS ≈ Σ (p − q)²/(8 μ ln 2).) For
tables of cells by groups (k, g), such as bins of a feature by the outcome, conditional on the cell:
(1) and (2) of each row, averaged by (p + q)/2 of the rows' shares; (3) of each, added.

Cells hidden by either site (privacy.disclosure.counts) form one cell of both: the rest of the
total. For (3), cells with fewer than `ENOUGH` expected rows at either site are joined with the next
smallest. Needs no record.

Map: classical scaling (Torgerson, Psychometrika 17, 1952) of distances d (S, S): the eigenvectors
of −½ J d² J, J = I − 1/S, of the two largest eigenvalues λ > 0, times √λ. Distances that are not
Euclidean give some λ < 0, which count as not shown (Mardia, Communications in Statistics A7, 1978).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc, xlogy

from fedcohort.arrays import Array

#: Fewest expected rows in a cell of (3) (Cochran, Biometrics 10, 1954).
ENOUGH = 5.0


class Divergence(NamedTuple):
    """Divergence of two sites in one table.

    Attributes
    ----------
    js : eq. (1), in bits.
    expected : eq. (2).
    p : of eq. (3); nan if no two cells can be compared.
    cells : number of compared cells.
    """

    js: float
    expected: float
    p: float
    cells: int


NONE = Divergence(math.nan, math.nan, math.nan, 0)


def js_bits(a: ArrayLike, b: ArrayLike) -> float:
    """Return eq. (1) of two sites' counts or shares (k,), neither of them all 0."""
    p, q = (np.asarray(v, float) / np.sum(v) for v in (a, b))
    middle = (p + q) / 2
    parts = [xlogy(v, np.divide(v, middle, out=np.ones(len(v)), where=v > 0)) for v in (p, q)]
    return min(1.0, max(0.0, float(np.sum(parts)) / (2 * math.log(2))))


def by_chance(k: int, n: float, m: float) -> float:
    """Return eq. (2) of k cells that are not empty, in bits."""
    return min(1.0, max(k - 1, 0) * (1 / n + 1 / m) / (8 * math.log(2)))


def chi_square(table: Array) -> tuple[float, int]:
    """Return eq. (3) and its degrees of freedom for counts (2, k) without an empty row or
    column.
    """
    total = table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / total
    return float(((table - expected) ** 2 / expected).sum()), table.shape[1] - 1


def joined(table: Array) -> Array:
    """Return counts (2, k) with cells of few expected rows joined, the smallest first."""
    table = table[:, table.sum(axis=0) > 0]
    share = table.sum(axis=1).min() / max(table.sum(), 1)
    table = table[:, np.argsort(table.sum(axis=0), kind="stable")]
    while table.shape[1] > 1 and table[:, 0].sum() * share < ENOUGH:
        table = np.column_stack([table[:, 0] + table[:, 1], table[:, 2:]])
        table = table[:, np.argsort(table.sum(axis=0), kind="stable")]
    return table


def together(a: Array, b: Array, hidden: Array, n: int, m: int) -> Array:
    """Return counts (2, k) of two sites; cells hidden by either are merged into the last.

    Parameters
    ----------
    a, b : (k,) counts; hidden cells are ignored.
    hidden : (k,) bool.
    n, m : all rows of each that are in cells.
    """
    shown = np.stack([np.asarray(a), np.asarray(b)])[:, ~np.asarray(hidden, bool)]
    if not np.any(hidden):
        return shown
    return np.column_stack([shown, np.array([n, m]) - shown.sum(axis=1)])


def divergence(table: Array) -> Divergence:
    """Return eqs. (1) to (3) of the counts of two sites (2, k); `NONE` if one has none."""
    table = np.asarray(table, float)
    table = table[:, table.sum(axis=0) > 0]
    n, m = (float(v) for v in table.sum(axis=1))
    if not (n and m):
        return NONE
    fit = joined(table)
    x2, df = chi_square(fit)
    p = float(chdtrc(df, x2)) if df else math.nan
    k = table.shape[1]
    return Divergence(js_bits(*table), by_chance(k, n, m), p, k)


def divergence_within(tables: Array) -> Divergence:
    """Return eqs. (1) to (3) of two sites' tables (2, k, g), conditional on the cell.

    Cells in which either site has no rows are left out.
    """
    tables = np.asarray(tables, float)
    sizes = tables.sum(axis=2)
    both = (sizes > 0).all(axis=0)
    if not both.any():
        return NONE
    rows = tables[:, both].transpose(1, 0, 2)
    shares = (sizes[:, both] / sizes[:, both].sum(axis=1, keepdims=True)).mean(axis=0)
    found = [divergence(row) for row in rows]
    tested = [chi_square(joined(row)) for row in rows]
    df = sum(d for _, d in tested)
    p = float(chdtrc(df, sum(x for x, _ in tested))) if df else math.nan
    js = float(shares @ [one.js for one in found])
    chance = float(shares @ [one.expected for one in found])
    return Divergence(js, chance, p, int(both.sum()))


def holm(p: ArrayLike) -> Array:
    """Return p-values (c,) adjusted for all of them (Holm, Scand. J. Stat. 6, 1979); nan stays."""
    p = np.asarray(p, float)
    known = np.flatnonzero(~np.isnan(p))
    out = np.full(len(p), np.nan)
    order = known[np.argsort(p[known], kind="stable")]
    times = np.arange(len(order), 0, -1)
    out[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * times)) if len(order) else []
    return out


def scaled(d: Array) -> tuple[Array, float]:
    """Return coordinates (S, 2) of sites from their distances d (S, S), and the share of d shown.

    The share is λ₁ + λ₂ of Σ |λ|, for λ₁, λ₂ > 0, and 1 if all are 0. The sign of each axis is such
    that its largest coordinate is positive.
    """
    s = len(d)
    middle = np.eye(s) - 1.0 / max(s, 1)
    values, vectors = np.linalg.eigh(-0.5 * middle @ (np.asarray(d, float) ** 2) @ middle)
    values, vectors = values[::-1], vectors[:, ::-1]
    large = np.abs(values) > 1e-12 * max(np.abs(values).max(initial=0.0), 1e-300)
    kept = np.where(large & (values > 0), values, 0.0)
    out = np.zeros((s, 2))
    for j in range(min(2, s)):
        axis = vectors[:, j] * math.sqrt(kept[j])
        out[:, j] = axis * (1.0 if axis[np.argmax(np.abs(axis) - 1e-9 * np.arange(s))] >= 0 else -1)
    whole = float(np.abs(values[large]).sum())
    return out, float(kept[:2].sum()) / whole if whole > 0 else 1.0

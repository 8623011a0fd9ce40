"""Statistics of bounded records, with their sensitivity to one record.

A `Statistic` is an exact sum over records, to which a site's guard adds noise; neighbouring tables
differ by one record added or removed. Each record is first cut to public bounds, so the sensitivity
holds for any table:

    histogram     (n_1 … n_B), one bin a record    Δ₁ = Δ₂ = 1
    moments       (n, Σu, Σu²), u in [−1, 1]^p     Δ₁ = 1 + 2p,   Δ₂ = √(1 + 2p)
    cross_products   Σ aaᵀ, a = (x, y), ‖a‖ ≤ C   Δ₂ = C²,   Δ₁ ≤ C² (1 + (k − 1)/√2)   (1)

The bounds must come from a dictionary or a person, not from the records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import SettingError


@dataclass(frozen=True)
class Statistic:
    """An exact sum over records: no part of it may leave without noise.

    Attributes
    ----------
    value : any shape, float64.
    l1 : Δ₁, the most that one record changes it in L1 norm.
    l2 : Δ₂, the same in L2 norm.
    """

    value: Array
    l1: float
    l2: float


def histogram(codes: Array, bins: int) -> Statistic:
    """Return how many records are in each bin (bins,).

    Parameters
    ----------
    codes : bin of each record (n,), integers; a record outside 0 … bins − 1 is in no bin.
    """
    kept = np.asarray(codes, np.int64)
    kept = kept[(kept >= 0) & (kept < bins)]
    return Statistic(np.bincount(kept, minlength=bins).astype(np.float64), 1.0, 1.0)


def moments(values: Array, lower: Array, upper: Array) -> Statistic:
    """Return n, Σu and Σu² (1 + 2p,) of values cut to their bounds and brought to [−1, 1].

    Parameters
    ----------
    values : (n, p); a value that is not a number counts as the middle of its bounds.
    lower, upper : public bounds (p,), lower < upper.

    Raises
    ------
    SettingError : bounds that are not finite, or not in order; another number of columns.
    """
    middle, half = _bounds(lower, upper)
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or table.shape[1] != middle.size:
        raise SettingError(f"values of shape {table.shape} for bounds of {middle.size} columns")
    u = np.nan_to_num((np.clip(table, lower, upper) - middle) / half, nan=0.0)
    u = np.clip(u, -1.0, 1.0)
    value = np.concatenate([[float(len(u))], u.sum(axis=0), (u * u).sum(axis=0)])
    return Statistic(value, 1.0 + 2 * middle.size, math.sqrt(1 + 2 * middle.size))


def cross_products(rows: Array, norm: float) -> Statistic:
    """Return the upper triangle of Σ aaᵀ over rows a cut to a norm, eq. (1).

    Off-diagonal entries are multiplied by √2, so that the L2 norm of a row's part is that of aaᵀ as
    a matrix, ‖a‖² ≤ C²: two equal halves cost once.

    Parameters
    ----------
    rows : (n, k), one record each: covariates, and the outcome as a last column for Xᵀy; NaN counts
        as 0.
    norm : C > 0; a longer row is shortened to it.

    Returns
    -------
    the triangle (k(k+1)/2,), row by row.

    Raises
    ------
    SettingError : the norm is not above 0; rows that are no matrix.
    """
    if not 0 < norm < math.inf:
        raise SettingError(f"norm {norm:g}: it must be above 0, and finite")
    a = shortened(rows, norm)
    k = a.shape[1]
    upper = np.triu_indices(k)
    weight = np.where(upper[0] == upper[1], 1.0, math.sqrt(2))
    # |a|ᵀ-sum: Σ a_i² + √2 Σ_{i<j} |a_i a_j| = C² (1 − 1/√2) + ‖a‖₁²/√2, and ‖a‖₁² ≤ k C².
    most = norm**2 * (1 - math.sqrt(0.5) + k * math.sqrt(0.5))
    return Statistic((a.T @ a)[upper] * weight, most, norm**2)


def shortened(rows: Array, norm: float) -> Array:
    """Return rows (n, k), each no longer than the norm; NaN as 0, infinities as large numbers."""
    table = np.asarray(rows, np.float64)
    if table.ndim != 2:
        raise SettingError(f"rows of shape {table.shape}: a matrix is needed")
    finite = np.nan_to_num(table, nan=0.0, posinf=1e150, neginf=-1e150)
    largest = np.max(np.abs(finite), axis=1, initial=0.0, keepdims=True)
    scaled = finite / np.where(largest > 0, largest, 1.0)  # squares of 1e200 would be infinite
    length = np.linalg.norm(scaled, axis=1, keepdims=True) * largest
    return np.where(length > norm, finite / np.where(length > 0, length, 1.0) * norm, finite)


def _bounds(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return the middle and half the width (p,) of bounds."""
    low, high = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
    if low.ndim != 1 or low.shape != high.shape:
        raise SettingError(f"bounds of shapes {low.shape} and {high.shape}: (p,) each is needed")
    if not bool(np.all(np.isfinite(low) & np.isfinite(high) & (low < high))):
        raise SettingError("bounds must be finite, each lower one below its upper one")
    return (low + high) / 2, (high - low) / 2

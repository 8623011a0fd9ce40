"""Sums of a table for EM, over the rows with the same present entries.

Rows with the same present entries form a pattern. With n rows of o entries it has the mean t̄ and a
factor F of at most o rows, FᵀF = Σ (t − t̄)(t − t̄)ᵀ. So the n rows are read once, and an iteration
of EM costs O(o² q) a pattern. A table without missing entries is one pattern.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fedcohort.arrays import Array


@dataclass(frozen=True, eq=False)
class Pattern:
    """Rows with the same present entries.

    Attributes
    ----------
    columns : numbers of the present columns (o,).
    rows : n.
    mean : t̄ (o,).
    factor : F (m, o), m ≤ o.
    """

    columns: Array
    rows: int
    mean: Array
    factor: Array


def patterns(x: Array) -> list[Pattern]:
    """Return the patterns of a table x (n, p), NaN where missing, without its empty rows.

    Their order does not depend on the order of the rows.
    """
    there = ~np.isnan(x)
    if there.all():
        return [_pattern(np.arange(x.shape[1]), x)] if x.size else []
    kinds, of = np.unique(there, axis=0, return_inverse=True)
    return [
        _pattern(columns, x[of.ravel() == k][:, columns])
        for k, kind in enumerate(kinds)
        if len(columns := np.flatnonzero(kind))
    ]


def _pattern(columns: Array, x: Array) -> Pattern:
    mean = x.mean(axis=0)
    off = x - mean
    factor = scipy.linalg.qr(off, mode="r")[0][: off.shape[1]] if len(off) > off.shape[1] else off
    return Pattern(columns, len(x), mean, factor)

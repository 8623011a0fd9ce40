"""What a site shows of a column of numbers; the rules are those of `privacy.disclosure.numbers`.

With m the `min_cell`, of a number are shown

    mean, sd    of 2m known values or more, where no few values make them (1)
    quartiles   of 4m or more; each the mean of the m values nearest in rank
    a quantile  where quartiles are, and m lie at either side of it; on a line between the means of
                blocks of m or more neighbours in rank

unless the number is a count in disguise, when nothing is shown:

    fewer than m values differ from the most frequent one, or none does;
    of `FEW` distinct values, or m, some count is one that `privacy.disclosure` hides.

Of a few patients, such as one of 999 among many near 0, mean and sd tell both how many they are and
the value. So they are shown only where, of the squared distances from the median, those of all
others add up to a share of the m − 1 largest (a p % rule against fewer than m together):

    Σ_others d² ≥ `SHARE` · Σ_largest d²                                                     (1)

A value beyond the m-th largest or smallest counts as that one in quartiles and quantiles, which so
say nothing of fewer than m. The blocks lie side by side and are the same whatever shares are asked
for: the mean of a block less that of a shifted one would be a single value.

All are rounded to a step that hides how many values there are; where (1) fails, that of quartiles
is from the sd of the values so cut. Where the count of missing values of n rows is hidden, the
rules count n − (m − 1) known ones, as if as many as possible were missing: whether a mean is there
tells nothing. Nobody's smallest or largest value is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.privacy.disclosure.numbers import counts_in_disguise, dominated, winsorised
from fedcohort.privacy.disclosure.rounding import rounded, step, unit

#: Stands for a count that is hidden.
HIDDEN = -1
#: At these shares of the rows lie the quartiles.
QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class ShownNumber:
    """What a site shows of one column of numbers; None, or `HIDDEN`, for what it does not."""

    missing: int
    mean: float | None = None
    sd: float | None = None
    quartiles: tuple[float, ...] | None = None
    quantiles: tuple[float | None, ...] = ()

    @classmethod
    def of(
        cls,
        x: Array,
        min_cell: int,
        *,
        shares: Sequence[float] = (),
        rounding: bool = True,
        secret: bool = False,
    ) -> ShownNumber:
        """Describe x (n,), NaN where missing.

        Parameters
        ----------
        shares : (q,) of the quantiles asked for besides the quartiles.
        rounding : without it, and with a `min_cell` of 1, everything is exact.
        secret : whether the count of missing values is hidden for another reason than its size.
        """
        known = np.sort(x[~np.isnan(x)])
        cells = np.array([len(x) - len(known), len(known)])
        secret = secret or bool(hidden(cells, min_cell).any())
        missing = HIDDEN if secret else int(cells[0])
        m = max(min_cell, 1)
        sure = min(len(x) - (m - 1), len(known)) if secret else len(known)
        if sure < 2 * m or (secret and m < 3) or counts_in_disguise(known, m):
            return cls(missing, quantiles=(None,) * len(shares))
        with np.errstate(over="ignore", invalid="ignore"):
            mean, spread = float(known.mean()), float(known.std(ddof=1))
            made_by_few = dominated(known, m)
            cut = winsorised(known, m)
            inner = float(cut.std(ddof=1))
        if not math.isfinite(mean + spread):
            return cls(missing, quantiles=(None,) * len(shares))
        s = step(inner if made_by_few else spread, sure, unit(known)) if rounding else 0.0
        near = _quantile if m == 1 and not rounding else _near
        quartiles = more = None
        if sure >= 4 * m:
            quartiles = tuple(rounded(near(cut, q, m), s) for q in QUARTILES)
            ranks, means = _blocks(cut, m)
            at = np.interp(np.multiply(shares, len(cut) - 1), ranks, means).tolist()
            outside = [sure * min(q, 1 - q) < m for q in shares]
            more = tuple(None if out else rounded(x, s) for out, x in zip(outside, at, strict=True))
        return cls(
            missing,
            None if made_by_few else rounded(mean, s),
            None if made_by_few else rounded(spread, s),
            quartiles,
            more or (None,) * len(shares),
        )


def _near(ordered: Array, share: float, m: int) -> float:
    """Return the mean of the m values nearest in rank to a quantile."""
    first = _first(len(ordered), share, m)
    return float(ordered[first : first + m].mean())


def _first(n: int, share: float, m: int) -> int:
    """Return the rank of the first of the m values nearest to a quantile of n."""
    return min(max(round(share * (n - 1) - (m - 1) / 2), 0), n - m)


def _blocks(ordered: Array, m: int) -> tuple[Array, Array]:
    """Return middle ranks and means of blocks of m values or more, those of quartiles among them.

    The m − 1 values at either end are in none but a quartile's own.
    """
    n = len(ordered)
    parts: list[Array] = []
    low = m - 1
    for first in [*(_first(n, q, m) for q in QUARTILES), n - m + 1]:
        if first - low >= m:
            parts += np.array_split(np.arange(low, first), (first - low) // m)
        if first <= n - m:
            parts.append(np.arange(first, first + m))
        low = first + m
    return np.array([r.mean() for r in parts]), np.array([ordered[r].mean() for r in parts])


def _quantile(ordered: Array, share: float, _: int) -> float:
    """Return a quantile as pandas has it, between the two values nearest in rank."""
    return float(np.quantile(ordered, share))

"""Description of a number at a site, by the disclosure rules of `privacy.disclosure.numbers`.

With m the `min_cell`, a site shows

    mean, sd    of 2m known values or more, unless a few values dominate them (1)
    quartiles   of 4m or more; each is the mean of the m values nearest in rank
    a quantile  if quartiles are shown and m values lie at either side; interpolated between the
                means of blocks of m or more neighbours in rank

and nothing if the values are a count in disguise:

    fewer than m values differ from the most frequent one, or none does;
    of `FEW` distinct values, or m, some count is one that `privacy.disclosure` hides.

If most values are near 0 and a few patients have 999, mean and sd reveal both the number of these
patients and their value. So mean and sd are shown only if the squared distances from the median of
all other values add up to a share of those of the m − 1 largest (a p % rule against fewer than m
together):

    Σ_others d² ≥ `SHARE` · Σ_largest d²                                                     (1)

In quartiles and quantiles, a value beyond the m-th largest or smallest counts as that one, so that
they depend on no fewer than m values. The blocks do not overlap and do not depend on the requested
shares: the difference of the means of two overlapping blocks would be a single value.

All statistics are rounded to a step that hides the number of values. If (1) fails, the step of
quartiles comes from the sd of the cut values. If the count of missing values of n rows is hidden,
the rules take n − (m − 1) values as known, the smallest possible number, so that the presence
of a mean reveals nothing. The smallest and the largest value are never shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import remembered
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.privacy.disclosure.numbers import counts_in_disguise, dominated, winsorised
from fedcohort.privacy.disclosure.rounding import rounded, step, unit

#: Stands for a count that is hidden.
HIDDEN = -1
#: Shares of the quartiles.
QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class ShownNumber:
    """Statistics that a site shows of one column of numbers; None or `HIDDEN` for hidden ones."""

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
        shares : (q,) of quantiles besides the quartiles.
        rounding : False, with a `min_cell` of 1, gives exact numbers.
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
            few_dominate = dominated(known, m)
            cut = winsorised(known, m)
            inner = float(cut.std(ddof=1))
        if not math.isfinite(mean + spread):
            return cls(missing, quantiles=(None,) * len(shares))
        s = step(inner if few_dominate else spread, sure, unit(known)) if rounding else 0.0
        near = _quantile if m == 1 and not rounding else _near
        quartiles: tuple[float, ...] | None = None
        quantiles: tuple[float | None, ...] = (None,) * len(shares)
        if sure >= 4 * m:
            quartiles = tuple(rounded(near(cut, q, m), s) for q in QUARTILES)
            if len(shares):  # blocks take ten times as long as all the rest
                at = np.interp(np.multiply(shares, len(cut) - 1), *_blocks(cut, m)).tolist()
                outside = [sure * min(q, 1 - q) < m for q in shares]
                quantiles = tuple(
                    None if out else rounded(x, s) for out, x in zip(outside, at, strict=True)
                )
        return cls(
            missing,
            None if few_dominate else rounded(mean, s),
            None if few_dominate else rounded(spread, s),
            quartiles,
            quantiles,
        )


def shown_number(x: Array, min_cell: int, *, rounding: bool = True) -> ShownNumber:
    """Return `ShownNumber.of` a column, remembered as long as the column lives."""
    key = ("shown", min_cell, rounding)
    return remembered((x,), key, lambda: ShownNumber.of(x, min_cell, rounding=rounding))


def _near(ordered: Array, share: float, m: int) -> float:
    first = _first(len(ordered), share, m)
    return float(ordered[first : first + m].mean())


def _first(n: int, share: float, m: int) -> int:
    """Return the lowest rank of the m values nearest to a quantile of n."""
    return min(max(round(share * (n - 1) - (m - 1) / 2), 0), n - m)


def _blocks(ordered: Array, m: int) -> tuple[Array, Array]:
    """Return middle ranks and means of blocks of m values or more, with those of the quartiles.

    The m − 1 values at either end are in no block but a quartile's own.
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
    return float(np.quantile(ordered, share))

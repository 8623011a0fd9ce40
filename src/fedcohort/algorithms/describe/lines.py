"""Table 1 as lines: one for each number, or level, of a variable at a site and in a group.

Standardised differences compare groups by their shown numbers; with more than two groups it is the
largest difference of a pair: Austin, "Balance diagnostics …", Statistics in Medicine 28(25), 2009,
eqs. (1), (2); for several levels the multivariate form of Yang & Dalton, SAS Global Forum 2012,
335. With means m, standard deviations s and shares p of all levels but one,

    number    d = |m₁ − m₂| / √((s₁² + s₂²)/2)                                            (1)
    levels    d = √((p₁ − p₂)ᵀ S⁻¹ (p₁ − p₂)),   S = (Σ₁ + Σ₂)/2,   Σ = diag(p) − p pᵀ      (2)

For two levels (2) is (1) with s² = p (1 − p). The choice of the level left out does not matter.

Revealed: nothing more than sites show.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.describe.summary import Summary
from fedcohort.protocol import Row


def lines(summaries: Sequence[Summary], shares: Sequence[float] = ()) -> list[Row]:
    """Return Table 1, variable by variable: all rows first, then each group.

    Parameters
    ----------
    summaries : over all sites (site None) and at each, of all rows (group None) and each group.
    shares : (q,) of their further quantiles.

    Returns
    -------
    lines : variable, type, unit, level; site and group, None for all; n and missing (rows), count
        and share (of a level, among known values), mean, sd, q25, median, q75 and further
        quantiles; smd, the standardised difference between groups, on the lines of all groups. None
        if hidden, or not of that variable.
    """
    names = list(dict.fromkeys(s.variable.name for s in summaries))
    out: list[Row] = []
    for name in names:
        own = [s for s in summaries if s.variable.name == name]
        for s in own:
            groups = [g for g in own if g.group is not None and g.site == s.site]
            smd = None if s.group is not None else difference(groups)
            out += _lines(s, smd, shares)
    return out


def _lines(s: Summary, smd: float | None, shares: Sequence[float]) -> list[Row]:
    q1, median, q3 = s.quartiles or (None, None, None)
    more = {f"q{100 * q:g}": v for q, v in itertools.zip_longest(shares, s.quantiles)}
    known = None if s.rows is None or s.missing is None else s.rows - s.missing
    of: list[tuple[str | None, int | None]] = list(zip(s.levels, s.counts, strict=True))
    return [
        {
            "variable": s.variable.name,
            "type": s.variable.type,
            "unit": s.variable.unit,
            "level": level,
            "site": s.site,
            "group": s.group,
            "n": s.rows,
            "missing": s.missing,
            "count": count,
            "share": count / known if known and count is not None else None,
            "mean": s.mean,
            "sd": s.sd,
            "q25": q1,
            "median": median,
            "q75": q3,
            **more,
            "smd": smd,
        }
        for level, count in of or [(None, None)]
    ]


def difference(groups: Sequence[Summary]) -> float | None:
    """Return the largest standardised difference between two groups; None if one is hidden."""
    found: list[float] = []
    for one, other in itertools.combinations(groups, 2):
        if one.levels:
            cells = [[n for n in g.counts if n is not None] for g in (one, other)]
            if any(len(c) < len(one.levels) for c in cells):
                return None
            d = of_levels(*(np.array(c, float) for c in cells))
        else:
            if one.mean is None or one.sd is None or other.mean is None or other.sd is None:
                return None
            d = of_means((one.mean, one.sd), (other.mean, other.sd))
        if not math.isfinite(d):
            return None
        found.append(d)
    return max(found, default=None)


def of_means(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return d of eq. (1), from two pairs of mean and sd; NaN if neither group varies."""
    spread = math.sqrt((one[1] ** 2 + other[1] ** 2) / 2)
    return abs(one[0] - other[0]) / spread if spread > 0 else math.nan


def of_levels(one: Array, other: Array) -> float:
    """Return d of eq. (2), from the rows of each level in two groups, (k,) each.

    Levels without rows are left out. NaN if a group has no rows, if one level is left, or if S is
    singular because the groups have hardly a common level.
    """
    seen = (one + other) > 0
    if not one.sum() or not other.sum() or seen.sum() < 2:
        return math.nan
    p, q = (c[seen][1:] / c.sum() for c in (one, other))
    spread = sum(np.diag(x) - np.outer(x, x) for x in (p, q)) / 2
    scale = np.sqrt(np.diag(spread))
    if (scale == 0).any():
        return math.nan
    values, vectors = np.linalg.eigh(spread / np.outer(scale, scale))
    if values[0] <= 1e-12 * values[-1]:
        return math.nan
    away = vectors.T @ ((p - q) / scale)
    return math.sqrt(float((away**2 / values).sum()))

"""Gain from a column that a site does not record, estimated from the other sites' rows.

The loss is 1 − R² of the least squares fit of the outcome to the recorded features. The gain is its
relative fall at the other sites when the column is added:

    fall = 1 − (1 − R₁²)(n + p₁)/(n − p₁) · (n − p₀)/((1 − R₀²)(n + p₀))                      (1)

(Akaike's final prediction error, Ann. Inst. Statist. Math. 21, 1969), with R² from correlations
within sites, and the interval of the partial correlation by Fisher's z. For a category of q > 1
columns, R² is above 0 by chance alone, so the interval also includes the limits from n R²/(1 − R²)
as a noncentral χ² on q degrees.

Revealed: see `steps`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from fedcohort.algorithms.feedback import own
from fedcohort.algorithms.feedback.look import NONE, Around, Here, proper
from fedcohort.arrays import Array


class Gain(NamedTuple):
    """An unrecorded column, and eq. (1) with its interval."""

    column: int
    fall: float
    low: float
    high: float


def gains(here: Here, around: Around) -> list[Gain]:
    """Return the gain, eq. (1), of each column that the site does not record."""
    if not around.labelled:
        return []
    recorded: list[int] = []
    lacking: list[tuple[int, list[int]]] = []
    of_y = around.votes["n"][-1]
    for j, span in enumerate(around.spans):
        usable = [a for a in span if around.tells[a]]
        if not around.feature[j] or not usable:
            continue
        if 2 * here.known[j] >= here.rows:
            recorded += usable
        elif here.known[j] <= (1 - NONE) * here.rows:
            lacking.append((j, usable))
    r = around.r
    out: list[Gain] = []
    for j, more in lacking:
        n = float(of_y[more].min())
        p0, p1 = len(recorded), len(recorded) + len(more)
        without, with_it = unexplained(r, recorded), unexplained(r, [*recorded, *more])
        if n <= p1 + 3 or not 0 < with_it <= without:
            continue
        error = (n + p1) / (n - p1) * (n - p0) / (n + p0)
        low, high = interval(1 - with_it / without, n, p1, len(more))
        fall = 1 - with_it / without * error
        out.append(Gain(j, float(round(fall, 3)), float(round(low, 3)), float(round(high, 3))))
    return sorted(out, key=lambda g: -g.fall)


def interval(part: float, n: float, p: int, q: int) -> tuple[float, float]:
    """Return 95 % limits of `part`, the share of the rest explained by q of p columns."""
    z, half = float(own.fisher(np.sqrt(np.array(part)))), 1.96 / np.sqrt(n - p - 3)
    low, high = np.tanh(max(z - half, 0.0)) ** 2, np.tanh(z + half) ** 2
    if q > 1:
        x = (n - p - 1) * part / (1 - part)
        ends = [
            float(special.chndtrinc(x, q, level)) if special.chdtr(q, x) > level else 0.0
            for level in (0.975, 0.025)
        ]
        low, high = min(low, ends[0] / (ends[0] + n)), max(high, ends[1] / (ends[1] + n))
    return float(low), float(high)


def unexplained(r: Array, used: list[int]) -> float:
    """Return 1 − R² of the last column on the `used` others, from correlations r (d, d)."""
    if not used:
        return 1.0
    part = proper(r, [*used, len(r) - 1])
    of_y = part[:-1, -1]
    return float(1 - np.linalg.solve(part[:-1, :-1], of_y) @ of_y)

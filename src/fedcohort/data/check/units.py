"""Is a column in two units? Two clusters on the log scale, a known factor apart.

Let A, B and C be windows of equal width ⅓ log f on the log scale, at the middle of a column's
values, ½ log f and log f from there. If the density of log x is log-concave, so is the
probability of a window of given width by where it stands (Prékopa), hence

    P(A) P(C) ≤ P(B)²                                                                   (1)

Normal, uniform, exponential, gamma, Weibull, Pareto and lognormal values all have such logs.
With counts a, b, c of the three windows, taken as Poisson with means α, β and at most β²/α, the
chance to see b or fewer in B and yet c or more in C is at most

    sup over β of  F(b; β) · [1 − F(c − 1; β²/a)]                                       (2)

Rows are suspected where (2) is below `CHANCE`, shared among all factors and both directions, and
C holds clearly more than B. So at most a share `CHANCE` of such columns is suspected wrongly. Of
whole sites in another unit see `between`.

Many columns have two clusters of their own, of which (1) does not hold. So only such factors are
tried as units of the quantity can have (`conversions`): a share in % is in no pounds. Where more
than half of three sites or more have rows that look alike, it is the column that is so. And times
of follow-up are judged among those with the event and those without apart, because early deaths
and late ends of follow-up make two clusters: both must be suspected, by the same factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import special

from fedcohort.arrays import Array
from fedcohort.data.describe.shown_number import QUARTILES

#: Factor between two units of one quantity → an example; see `conversions`.
Factors: TypeAlias = Mapping[float, str]

#: A column with log-concave logs is suspected at most so often, whatever its size.
CHANCE = 1e-4
#: B may hold at most this share of C: between two units lies a gap.
GAP = 0.6
#: Fewer values than this are too few to say.
FEWEST = 20
#: The middle of a column needs so many distinct values; else it is a code or a small count.
DISTINCT = 5
#: The middle of the first cluster is looked for near these quantiles.
STARTS = (0.5, 0.25, 0.75)

#: Bits of a float that are not counted: what is left is an octave and 1/256 of it.
_DROPPED = 44
#: Cells of the histogram for each unit of log x.
_CELLS = 256 / np.log(2.0)


@dataclass(frozen=True)
class Suspicion:
    """Some values of a column may be in another unit.

    Attributes
    ----------
    factor : between the two units.
    example : of such units.
    centre : of the first cluster, as a logarithm.
    larger : whether the values in question are the larger ones.
    """

    factor: float
    example: str
    centre: float
    larger: bool

    @property
    def text(self) -> str:
        """The factor in words."""
        return f"a factor near {self.factor:,.4g} (such as {self.example})"

    def rows(self, x: Array) -> Array:
        """Return which values (n,) are nearer to the second cluster than to the first."""
        sign = 1.0 if self.larger else -1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            away = (np.log(x) - self.centre) * sign / np.log(self.factor)
        return (away > 0.5) & (away < 1.5)


def suspect_rows(counts: Counts, factors: Factors) -> Suspicion | None:
    """Look for rows in another unit; return the factor that fits best of those suspected."""
    logs = np.log(list(factors))
    step = np.repeat(np.concatenate([logs, -logs]), len(STARTS))
    centre = counts.middle_near(np.tile(counts.quantile(STARTS), 2 * len(logs)), np.abs(step))
    likely = [i for i, p in _chances(counts, centre, step) if p < CHANCE / len(step)]
    if not likely:
        return None
    second = counts.middle_near(centre + step, np.abs(step))
    best = min(likely, key=lambda i: abs(second[i] - centre[i] - step[i]))
    factor = list(factors)[best // len(STARTS) % len(logs)]
    return Suspicion(factor, factors[factor], float(centre[best]), bool(step[best] > 0))


@dataclass(frozen=True)
class Counts:
    """A histogram on the log scale: `at` (k,) ascending, cumulative counts `upto` (k + 1,)."""

    at: Array
    upto: Array

    @property
    def total(self) -> float:
        """How many values there are."""
        return float(self.upto[-1])

    def quantile(self, p: Array | Sequence[float]) -> Array:
        """Return quantiles (q,) of log x."""
        return self._at(np.asarray(p) * self.total)

    def middle_near(self, place: Array, reach: Array) -> Array:
        """Return the median of the values within ½ `reach` (q,) of each place (q,)."""
        first, last = self._cells(place, reach)
        return self._at((self.upto[first] + self.upto[last]) / 2)

    def window(self, centre: Array, width: Array) -> tuple[Array, Array]:
        """Return the counts in windows (q,), and how many cells of the histogram each fills."""
        first, last = self._cells(centre, width)
        return (self.upto[last] - self.upto[first]).astype(float), last - first

    def _at(self, count: Array) -> Array:
        place = np.searchsorted(self.upto[1:], count)
        return self.at[np.minimum(place, len(self.at) - 1)]

    def _cells(self, centre: Array, width: Array) -> tuple[Array, Array]:
        first = np.searchsorted(self.at, centre - width / 2)
        return first, np.searchsorted(self.at, centre + width / 2)


def histogram(x: Array) -> Counts | None:
    """Count the values (n,) above 0 by the leading bits of their binary form, which ascend with x.

    None where they are fewer than `FEWEST`, or fewer than half of those present.
    """
    positive = x[(x > 0) & (x < np.inf)]
    if len(positive) < FEWEST or 2 * len(positive) < np.count_nonzero(~np.isnan(x)):
        return None
    cells = np.ascontiguousarray(positive, np.float64).view(np.int64) >> _DROPPED
    first = int(cells.min())
    counts = np.bincount(cells - first)
    filled = np.flatnonzero(counts)
    middle = ((filled + first) << _DROPPED) + (1 << (_DROPPED - 1))
    return Counts(np.log(middle.view(np.float64)), np.concatenate([[0], np.cumsum(counts[filled])]))


def quartiles(x: Array) -> tuple[float, float, float] | None:
    """Return the quartiles of x (n,), of those known; 0 or -1 where that is 0 or below.

    None where those above 0 are too few (`histogram`).
    """
    counts = histogram(x)
    if counts is None:
        return None
    known = int(np.count_nonzero(~np.isnan(x)))
    negative = int(np.count_nonzero(x < 0))
    rank = np.multiply(QUARTILES, known) - (known - counts.total)
    values = np.exp(counts.quantile(np.maximum(rank, 0.0) / counts.total))
    below = np.where(np.multiply(QUARTILES, known) <= negative, -1.0, 0.0)
    low, mid, high = np.where(rank > 0, values, below).tolist()
    return low, mid, high


def _chances(counts: Counts, centre: Array, step: Array) -> Iterator[tuple[int, float]]:
    """Yield the bound (2) for the places (q,) where the windows can tell at all."""
    width = np.abs(step) / 3
    a, distinct = counts.window(centre, width)
    b, _ = counts.window(centre + step / 2, width)
    c, other = counts.window(centre + step, width)
    # Whole numbers leave gaps of their own: are the values fine enough to fill B?
    cells = width * _CELLS
    fine = distinct >= cells * -np.expm1(-a / cells) / 2
    fine |= distinct * np.exp(np.minimum(step, 0.0) / 2) >= DISTINCT
    tell = fine & (distinct >= DISTINCT) & (other >= 2) & (b <= GAP * c) & (b * b < a * c)
    for i in np.flatnonzero(tell):
        means = np.geomspace(0.05, np.sqrt(a[i] * (2 * c[i] + 20)) + b[i] + 20, 400)
        chance = special.pdtr(b[i], means) * special.pdtrc(c[i] - 1, means**2 / a[i])
        yield int(i), float(np.max(chance))

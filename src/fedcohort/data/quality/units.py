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
C holds clearly more than B. So at most a share `CHANCE` of such columns is suspected wrongly. The
same is asked of whole sites: is a site's median a known factor from that of the others, and
further than three of the spread within sites?

Many columns have two clusters of their own, of which (1) does not hold. So only such factors are
tried as units of the quantity can have (`factors_of`): a share in % is in no pounds. Where more
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
from fedcohort.data.hints import words

#: Factor between two units of one quantity → an example.
Factors: TypeAlias = Mapping[float, str]

#: How many of one unit make the other.
FACTORS: Factors = {
    1000.0: "milligrams and grams",
    365.25: "days and years",
    100.0: "centimetres and metres",
    88.4: "creatinine in µmol/l and mg/dl",
    38.67: "cholesterol in mg/dl and mmol/l",
    30.4375: "days and months",
    18.02: "glucose in mg/dl and mmol/l",
    12.0: "months and years",
    10.0: "g/l and g/dl",
    7.0: "days and weeks",
    2.54: "centimetres and inches",
    2.2046: "pounds and kilograms",
}
#: The factors between units of time, and by a column's own unit those that may stand beside it.
TIMES: Factors = {f: FACTORS[f] for f in (365.25, 30.4375, 12.0, 7.0)}
_DURATIONS: Mapping[str, tuple[float, ...]] = {
    "years": (365.25, 12.0), "months": (30.4375, 12.0), "weeks": (7.0,),
    "days": (365.25, 30.4375, 7.0),
}  # fmt: skip
#: The factors that any quantity may have: its unit's thousandth, hundredth or tenth.
_DECIMAL = (1000.0, 100.0, 10.0)
#: The factors of one quantity: units, and what a column's name has a word of that begins so.
_QUANTITIES: Mapping[float, tuple[frozenset[str], tuple[str, ...]]] = {
    88.4: (frozenset(), ("crea", "krea")),
    38.67: (frozenset(), ("chol", "ldl", "hdl")),
    18.02: (frozenset(), ("gluc", "gluk", "bg", "fbg", "sugar")),
    2.54: (
        frozenset({"cm", "in", "inch", "inches"}),
        ("height", "length", "waist", "girth", "hip", "stature", "circumference"),
    ),
    2.2046: (
        frozenset({"kg", "lb", "lbs", "pound", "pounds"}), ("weight", "wt", "kg", "lbs", "mass"),
    ),
}  # fmt: skip
#: What a name has of a column that counts time.
_TIMED = frozenset(
    {"time", "duration", "followup", "fu", "age", "years", "months", "weeks", "days"}
)
#: A column with log-concave logs is suspected at most so often, whatever its size.
CHANCE = 1e-4
#: B may hold at most this share of C: between two units lies a gap.
GAP = 0.6
#: Fewer values than this are too few to say.
FEWEST = 20
#: The middle of a column needs so many distinct values; else it is a code or a small count.
DISTINCT = 5
#: Sites differ by more than this many spreads within sites, and hit the factor within half of one.
SPREADS = 3.0

#: The middle of the first cluster is looked for near these quantiles.
STARTS = (0.5, 0.25, 0.75)

#: Bits of a float that are not counted: what is left is an octave and 1/256 of it.
_DROPPED = 44
#: Cells of the histogram for each unit of log x.
_CELLS = 256 / np.log(2.0)


@dataclass(frozen=True)
class Suspicion:
    """Some values of a column, or a site's, may be in another unit.

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


def factors_of(name: str, unit: str, *, time: bool = False) -> Factors:
    """Return the factors that units of a column can have, by its own unit and its name.

    time : whether it is one by its type.
    """
    if unit == "%":
        return {100.0: "percent and shares"}
    parts, known = words(name), unit.lower()
    if known in _DURATIONS:
        return {f: FACTORS[f] for f in _DURATIONS[known]}
    if time or (not unit and _TIMED & set(parts)):
        return TIMES
    of_quantity = [
        factor
        for factor, (units, starts) in _QUANTITIES.items()
        if known in units or any(part.startswith(starts) for part in parts)
    ]
    return {f: FACTORS[f] for f in (*_DECIMAL, *of_quantity)}


def suspect_rows(counts: Counts, factors: Factors = FACTORS) -> Suspicion | None:
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


def suspect_sites(
    medians: Array, spread: float, rows: Array, factors: Factors = FACTORS
) -> dict[int, Suspicion]:
    """Look for sites in another unit.

    Parameters
    ----------
    medians : (s,) of log x at each site.
    spread : of log x within sites, a standard deviation.
    rows : (s,) values behind each median.

    Returns
    -------
    found : position of a site → how it differs from most rows' sites.
    """
    order = np.argsort(medians)
    half = np.searchsorted(np.cumsum(rows[order]), rows.sum() / 2)
    usual = float(medians[order[min(half, len(order) - 1)]])
    found: dict[int, Suspicion] = {}
    known = list(factors)
    logs = np.log(known)
    for i, away in enumerate(medians - usual):
        miss = np.abs(np.abs(away) - logs)
        nearest = int(np.argmin(miss))
        if abs(away) > SPREADS * spread and miss[nearest] <= max(spread / 2, 0.02):
            factor = known[nearest]
            found[i] = Suspicion(factor, factors[factor], usual, bool(away > 0))
    return found


@dataclass(frozen=True)
class Counts:
    """A histogram on the log scale: `at` (k,) ascending, cumulative counts `upto` (k + 1,)."""

    at: Array
    upto: Array

    @property
    def total(self) -> float:
        """How many values there are."""
        return float(self.upto[-1])

    @property
    def middle(self) -> tuple[float, float]:
        """Median and robust standard deviation of log x."""
        low, mid, high = self.quantile((0.25, 0.5, 0.75)).tolist()
        return mid, (high - low) / 1.349

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

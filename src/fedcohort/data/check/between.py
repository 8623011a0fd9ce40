"""Search for sites that have a whole column in another unit than the others.

It uses quartiles only, which Table 1 shows of each site anyway. Let m_i be the logarithm of
a site's median, s the median over sites of ln(q₃/q₁)/1.349, and the usual sites the largest set
near one of them: k sites, at least half of all, with middle c. Medians of hospitals that truly
differ have the variance

    t² = (`PRIOR` (`OWN` s + `LEAST`)² + Σ_usual (m_i - c)²) / ν,      ν = `PRIOR` + k - 1       (1)
    τ² = (1 + 1/k) t² + 2 (1.2533 s)²/n

Another site, of n values, has distance d from c, and r once its numbers are converted. With
Student's t for the differences of hospitals, the log-likelihood ratio of the conversion to a
hospital that truly differs is

    L = ½ (ν + 1) ln((ν + d²/τ²) / (ν + r²/τ²))                                                (2)

It is reported if L is `LIKELY` or more, `SURE` for rare conversions, r is within `COMES` τ, and
the spread is within a factor `WIDTH` of s. The constants were set on simulated hospitals and on
real centres (benchmarks/units).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.check.conversions import Conversion
from fedcohort.data.describe.summary import NORMAL_IQR
from fedcohort.privacy.disclosure.rounding import rounded

#: Prior standard deviation of the medians of hospitals: a share of the spread within them, and a
#: constant.
OWN, LEAST = 0.4, 0.03
#: Weight of this prior, in hospitals.
PRIOR = 5.0
#: Smallest L for units of the quantity, and for rare conversions.
LIKELY, SURE = 4.0, 7.0
#: Largest distance between usual sites, in `OWN` s + `LEAST`, and largest r, in τ.
NEAR, COMES = 2.5, 3.0
#: Largest ratio of the converted spread to that of the others.
WIDTH = 2.0
#: Standard error of a median over that of a mean, of a normal distribution.
_MEDIAN = 1.2533
#: Digits of a median in messages.
DIGITS = 2
REMEDY = (
    "Convert it at that site; or, if the numbers are right, say so in the study file: units: [{}]."
)
ACCEPTED = "The study accepts it (units)."


@dataclass(frozen=True)
class Middle:
    """Quartiles (q₁, median, q₃) of a column at one site, and the number of values behind them."""

    site: str
    quartiles: tuple[float, float, float]
    rows: int

    @property
    def comparable(self) -> bool:
        """Whether the quartiles can be compared on a log scale: none is negative, and they
        differ.
        """
        low, median, high = self.quartiles
        return low >= 0 and median > 0 and low < high and (low > 0 or median < high)

    @property
    def spread(self) -> float:
        """Standard deviation of log x, estimated from the quartiles."""
        low, median, high = self.quartiles
        if low > 0:
            return float(np.log(high / low)) / NORMAL_IQR
        return 2 * float(np.log(high / median)) / NORMAL_IQR


@dataclass(frozen=True)
class Difference:
    """One site's column in another unit than that of the usual sites.

    Attributes
    ----------
    site : its name.
    conversion : between the two units.
    smaller : whether the site has the smaller unit, and so larger numbers.
    median : of the site.
    low, high : smallest and largest median of the usual sites.
    alone : whether there are only two sites, so that either may be the one.
    """

    site: str
    conversion: Conversion
    smaller: bool
    median: float
    low: float
    high: float
    alone: bool

    def text(self, name: str, at: str = "") -> str:
        """Return the difference in words.

        Parameters
        ----------
        name : of the column.
        at : how the site is named; "" for its name.
        """
        c, where = self.conversion, at or f"site {self.site!r}"
        others = "the other site has" if self.alone else "the others have"
        if not c.decimal:
            units = (unit.rpartition(" in ")[2] for unit in (c.small, c.large))
            mine, theirs = units if self.smaller else reversed([*units])
            said = f"looks like {mine} where {others} {theirs}"
        else:
            size = "smaller" if self.smaller else "larger"
            said = (
                f"looks like a unit {c.factor:,.0f} times {size} than {others} (such as "
                f"{c.example})"
            )
        low, high = _digits(self.low), _digits(self.high)
        beside = low if low == high else f"{low} to {high}"
        return f"column {name!r} at {where} {said}: median {_digits(self.median)} beside {beside}"


def differing(sites: Sequence[Middle], conversions: Sequence[Conversion]) -> list[Difference]:
    """Return the sites that have a column in another unit than the usual sites.

    Parameters
    ----------
    sites : with quartiles of the column.
    conversions : that the column can need.
    """
    known = [s for s in sites if s.comparable]
    if len(known) < 2 or not conversions:
        return []
    m = np.log([s.quartiles[1] for s in known])
    spread = float(np.median([s.spread for s in known]))
    rows = np.array([s.rows for s in known], float)
    own = OWN * spread + LEAST
    usual = _usual(m, rows, NEAR * own)
    k = int(usual.sum())
    if 2 * k < len(known):
        return []
    centre = float(np.median(m[usual]))
    degrees = PRIOR + k - 1
    between = (PRIOR * own**2 + float(np.sum((m[usual] - centre) ** 2))) / degrees
    medians = [s.quartiles[1] for s, of in zip(known, usual, strict=True) if of]
    found: list[Difference] = []
    for i in np.flatnonzero(~usual):
        site, larger = known[i], bool(m[i] > centre)
        noise = 2 * (_MEDIAN * spread) ** 2 / float(rows[i])
        tau = math.sqrt((1 + 1 / k) * between + noise)
        best = _best(site, (centre, tau, degrees), spread, conversions, larger=larger)
        if best is not None:
            found.append(
                Difference(
                    site.site, best, larger, site.quartiles[1], min(medians), max(medians),
                    len(known) == 2,
                )
            )  # fmt: skip
    return found


def _usual(m: Array, rows: Array, near: float) -> Array:
    """Return which sites (s,) are near one of them: the most sites, of ties the most rows."""
    sets = np.abs(m[:, None] - m[None, :]) <= near
    best = max(range(len(m)), key=lambda i: (int(sets[i].sum()), float(rows[sets[i]].sum())))
    return sets[best]


def _best(
    site: Middle,
    usual: tuple[float, float, float],
    spread: float,
    conversions: Sequence[Conversion],
    *,
    larger: bool,
) -> Conversion | None:
    """Return the conversion that explains a site's numbers best; None if none does."""
    centre, tau, degrees = usual
    d = (math.log(site.quartiles[1]) - centre) / tau
    found: list[tuple[float, Conversion]] = []
    for c in conversions:
        low, median, high = ((c.to_large if larger else c.to_small)(x) for x in site.quartiles)
        there = Middle(site.site, (low, median, high), site.rows)
        if not there.comparable:
            continue
        r = (math.log(median) - centre) / tau
        likelier = (degrees + 1) / 2 * math.log((degrees + d * d) / (degrees + r * r))
        beyond = likelier - (SURE if c.rare else LIKELY)
        as_wide = abs(math.log(there.spread / spread)) <= math.log(WIDTH)
        if beyond >= 0 and abs(r) <= COMES and as_wide:
            found.append((beyond, c))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _digits(x: float) -> str:
    size = 10.0 ** (int(np.floor(np.log10(x))) - DIGITS + 1)
    return f"{rounded(x, size):,.10g}"

"""Mean and spread of numbers from sums of their powers over sites.

Σ v, Σ v², Σ v³, Σ v⁴ of v = value − centre add up over sites. The first two give mean and standard
deviation. A small fourth shows that a few values do not dominate them.
"""

from __future__ import annotations

import math

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.numbers import SHARE


class Moments:
    """Mean and sd of n values from sums of powers, and whether `few` of them dominate.

    With d_i the distances from the mean, S = Σ d², by Cauchy and Schwarz

        Σ of the m − 1 largest d² ≤ L = √((m − 1) Σ d⁴)                                         (1)

    so S − L ≥ `SHARE` · L implies the p % rule of `privacy.disclosure.numbers`.
    """

    def __init__(self, rows: float, powers: Array, centre: float = 0.0):
        self.n = float(rows)
        s1, s2, s3, s4 = (float(p) for p in powers)
        d = s1 / self.n if self.n else 0.0
        self.mean = centre + d
        self.squares = max(s2 - self.n * d**2, 0.0)
        self.fourths = max(s4 - 4 * d * s3 + 6 * d**2 * s2 - 3 * self.n * d**4, 0.0)

    @property
    def sd(self) -> float:
        """The standard deviation, with n − 1."""
        return math.sqrt(self.squares / (self.n - 1)) if self.n > 1 else 0.0

    def may_be_shown(self, least: int) -> bool:
        """Return whether there are at least 2 `least` values, and a few do not dominate the
        moments.
        """
        m = max(least, 1)
        if self.n < 2 * m:
            return False
        largest = math.sqrt((m - 1) * self.fourths)
        return self.squares > 0 and self.squares - largest >= SHARE * largest

"""Share of the gap between a hospital alone and pooled data that an arm closes.

With a_i, l_i, u_i the metric of the arm, the lower and the upper bound in repeat i of n:

    share  ρ = d̄ / ḡ,   d_i = a_i − l_i,   g_i = u_i − l_i                                (1)

Repeats draw their test sets from the same patients, so their spread alone is too small. The
corrected variance of a mean (Nadeau and Bengio, Mach. Learn. 52, 2003), with f the fraction of
patients in the test set, is

    v_xy = (1/n + f/(1−f)) s_xy                                                         (2)

and the interval of ρ is Fieller's (Q. J. R. Stat. Soc. 1954): all ρ with
(d̄ − ρḡ)² ≤ t² (v_dd − 2ρ v_dg + ρ² v_gg), t the 97.5 % quantile with n−1 degrees of freedom.
It is bounded only if the gap itself clearly differs from 0; otherwise no share is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from fedcohort.metrics import intervals


@dataclass(frozen=True)
class Mean:
    """A mean difference over repeats, with its 95 % interval (NaN below `intervals.FEWEST`)."""

    value: float
    low: float
    high: float
    n: int

    @property
    def side(self) -> int:
        """1 where the interval lies above 0, −1 below, 0 where it does not tell."""
        return int(self.low > 0) - int(self.high < 0)


@dataclass(frozen=True)
class Share:
    """The share of the gap that an arm closes.

    Attributes
    ----------
    value, low, high : ρ and its interval; NaN where there is none.
    gain : arm against lower bound, positive where the arm is better.
    gap : upper against lower bound, the same way round.
    """

    value: float
    low: float
    high: float
    gain: Mean
    gap: Mean


def paired(
    arm: Mapping[int, float], against: Mapping[int, float], test_fraction: float, sign: int = 1
) -> Mean:
    """Return the mean of sign·(arm − against) over the repeats that both have, with eq. (2)."""
    common = sorted(arm.keys() & against.keys())
    a, b = ([sign * v[r] for r in common] for v in (arm, against))
    d, low, high, _, n = intervals.paired(a, b, test_fraction / (1 - test_fraction))
    return Mean(d, low, high, n)


def share(
    lower: Mapping[int, float],
    arm: Mapping[int, float],
    upper: Mapping[int, float],
    test_fraction: float,
    sign: int = 1,
) -> Share:
    """Return ρ of eq. (1) with Fieller's interval.

    Parameters
    ----------
    lower, arm, upper : value of the metric by repeat; incomplete repeats are left out.
    test_fraction : f of eq. (2).
    sign : 1 if a higher metric is better, −1 if a lower one is.
    """
    common = sorted(lower.keys() & arm.keys() & upper.keys())
    low, mid, top = ({r: v[r] for r in common} for v in (lower, arm, upper))
    gain = paired(mid, low, test_fraction, sign)
    gap = paired(top, low, test_fraction, sign)
    none = Share(math.nan, math.nan, math.nan, gain, gap)
    if not common or not gap.value > 0:
        return none
    ratio = gain.value / gap.value
    n = len(common)
    if n < intervals.FEWEST:
        return Share(ratio, math.nan, math.nan, gain, gap)
    d = np.array([mid[r] - low[r] for r in common]) * sign
    g = np.array([top[r] - low[r] for r in common]) * sign
    v = _quantile(n) ** 2 * _factor(n, test_fraction) * np.cov(d, g)
    a = gap.value**2 - v[1, 1]
    if a <= 0:
        return none
    b = gain.value * gap.value - v[0, 1]
    c = gain.value**2 - v[0, 0]
    root = math.sqrt(max(b * b - a * c, 0.0))
    return Share(ratio, float((b - root) / a), float((b + root) / a), gain, gap)


def _factor(n: int, test_fraction: float) -> float:
    """Return 1/n + f/(1−f) of eq. (2)."""
    return 1 / n + test_fraction / (1 - test_fraction)


def _quantile(n: int) -> float:
    """Return the 97.5 % quantile of Student's t with n−1 degrees of freedom."""
    return float(stdtrit(n - 1, 0.975))

"""Intervals from a bootstrap over patients, and paired comparison of two arms.

Repeats draw test records from one cohort, so their results are correlated: an interval from their
spread, and the usual paired t-test, are too narrow. A metric's interval comes from drawing the
patients again (`resampled`). A difference between two arms uses the variance of Nadeau & Bengio,
Mach. Learn. 52, 2003: for differences x_1 … x_n of mean x̄ and variance s², on n − 1 degrees of
freedom,

    e² = (1/n + n_test/n_train) s²,    t = x̄/e,    x̄ ± t_{n−1, (1+level)/2} e              (1)

The interval excludes 0 exactly if p < 1 − level.

Few repeats estimate (1) poorly. If both arms' metrics are known for the same draws b of the
patients, these judge the difference (Efron & Tibshirani, An Introduction to the Bootstrap, 1993,
ch. 8 and 13): with d_b the mean over repeats of the difference in draw b of B,

    interval: percentiles of d_b,    p = 2 (1 + min(#{d_b ≤ 0}, #{d_b ≥ 0})) / (B + 1)       (2)

The fits are fixed: (2) is about other patients, not other training rows.

A distance between distributions, and any other maximum or absolute value, is larger in a draw than
on the original patients: resampling adds its own noise to theirs. Its percentiles can lie above the
value. So its draws are shifted to the value θ̂ of the original patients (`centred`),

    θ_b − (θ̄ − θ̂),   θ̄ = mean of θ_b                                                        (3)

The interval is then of the mean of θ̂ over cohorts of this size. The distance between the whole
populations is smaller: θ̂ itself is above it by about as much as θ̄ is above θ̂, or more.

Results that are nan are left out, and n counts the others. nan: a spread from one value; an
interval or p-value of a comparison from fewer than `FEWEST` repeats.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from fedcohort.arrays import Array

#: Fewest repeats for an interval or a p-value.
FEWEST = 3


class Interval(NamedTuple):
    """A two-sided interval; nan if it cannot be given."""

    low: float
    high: float


class Summary(NamedTuple):
    """Mean and standard deviation over ``n`` repeats."""

    mean: float
    sd: float
    n: int


class Comparison(NamedTuple):
    """Mean difference of two arms over ``n`` common repeats, its interval and p-value."""

    difference: float
    low: float
    high: float
    p: float
    n: int


def summarise(values: ArrayLike) -> Summary:
    """Return mean and sd (n − 1) of a metric's values over repeats."""
    kept = _finite(values)
    n = len(kept)
    mean = float(kept.mean()) if n else math.nan
    return Summary(mean, float(kept.std(ddof=1)) if n > 1 else math.nan, n)


def percentile_interval(draws: ArrayLike, level: float = 0.95) -> Interval:
    """Return the percentile interval of a metric.

    Parameters
    ----------
    draws : (B,), the metric of each draw of patients; nan where a draw has none.
    level : coverage.
    """
    kept = _finite(draws)
    if len(kept) < 2:
        return Interval(math.nan, math.nan)
    low, high = np.quantile(kept, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high))


def centred(draws: ArrayLike, value: float) -> Array:
    """Return a metric's draws (B,) shifted so that their mean is its value, eq. (3)."""
    draws = np.asarray(draws, float)
    kept = _finite(draws)
    return draws - (kept.mean() - value) if len(kept) and math.isfinite(value) else draws


def interval_of(draws: ArrayLike, value: float, *, biased: bool, level: float = 0.95) -> Interval:
    """Return the interval of a metric, which contains its value.

    Parameters
    ----------
    draws, level : as in `percentile_interval`.
    value : of the original patients.
    biased : whether draws are larger than the value in the mean. Then, and if the percentiles do
        not contain the value, the draws are shifted, eq. (3); numbers that are never negative have
        no negative end.
    """
    found = percentile_interval(draws, level)
    if not (biased or value < found.low or value > found.high):
        return found
    kept = _finite(draws)
    low, high = percentile_interval(centred(draws, value), level)
    if len(kept) and min(kept.min(), value) >= 0:
        low = max(low, 0.0)
    return Interval(min(low, value), max(high, value)) if math.isfinite(low) else found


def paired(a: ArrayLike, b: ArrayLike, test_train_ratio: float, level: float = 0.95) -> Comparison:
    """Compare two arms over the same repeats, eq. (1).

    Parameters
    ----------
    a, b : (n,), the metric of either arm in the same repeats, in the same order.
    test_train_ratio : test records over training records in a repeat, e.g. 1/3 for 25 % / 75 %.
    level : coverage of the interval, which is nan below `FEWEST` common repeats, as is p.
    """
    x = _finite(np.asarray(a, float) - np.asarray(b, float))
    mean, sd, n = summarise(x)
    if n < FEWEST:
        return Comparison(mean, math.nan, math.nan, math.nan, n)
    error = math.sqrt(1.0 / n + test_train_ratio) * sd
    half = float(stdtrit(n - 1, (1.0 + level) / 2.0)) * error
    return Comparison(mean, mean - half, mean + half, _p_value(mean, error, n - 1), n)


def paired_draws(a: ArrayLike, b: ArrayLike, difference: float, level: float = 0.95) -> Comparison:
    """Compare two arms by the same draws of the patients, eq. (2).

    Parameters
    ----------
    a, b : (n, B), the metric of either arm in each of n repeats and B draws; nan if a draw has
        none.
    difference : the metric's mean difference over the repeats, on the original patients.
    level : coverage.
    """
    gap = np.asarray(a, float) - np.asarray(b, float)
    d = _finite(gap.mean(axis=0))
    low, high = percentile_interval(d, level)
    if not len(d):
        return Comparison(difference, low, high, math.nan, len(gap))
    fewer = 1 + min(int((d <= 0).sum()), int((d >= 0).sum()))
    return Comparison(difference, low, high, min(1.0, 2.0 * fewer / (len(d) + 1)), len(gap))


def drawn_share(
    low: ArrayLike, mid: ArrayLike, top: ArrayLike, sign: int = 1, level: float = 0.95
) -> Interval:
    """Return the interval of (mid − low)/(top − low) over draws of the patients, (n, B) each.

    nan unless the interval of the gap, sign·(top − low), is above 0.
    """
    under, part, whole = (sign * np.asarray(x, float).mean(axis=0) for x in (low, mid, top))
    gap = whole - under
    if not percentile_interval(gap, level).low > 0:
        return Interval(math.nan, math.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return percentile_interval(np.where(gap > 0, (part - under) / gap, np.nan), level)


def _finite(values: ArrayLike) -> Array:
    values = np.asarray(values, float)
    return values[np.isfinite(values)]


def _p_value(mean: float, error: float, freedom: int) -> float:
    """Return the two-sided p of Student's t; its limit if all differences are equal."""
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return 2.0 * float(stdtr(freedom, -abs(mean) / error))

"""How sure is a figure? Bootstrap intervals, spread over repeats, paired comparison of two arms.

Repeats draw their test records from one cohort, so their results are correlated and the usual
paired t-test is far too sure. Nadeau & Bengio, Mach. Learn. 52, 2003, widen its variance: with
differences x_1 … x_n of mean x̄ and variance s²,

    t = x̄ / √((1/n + n_test/n_train) s²),   on n − 1 degrees of freedom                     (1)

Results that are nan (a metric that a repeat could not give) are left out, and n says how many
stayed. What n cannot support is nan: no spread, interval or p-value comes from one value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr

from fedcohort.arrays import Array


class Interval(NamedTuple):
    """A two-sided interval; nan if it cannot be given."""

    low: float
    high: float


class Summary(NamedTuple):
    """Mean, standard deviation and interval of the mean over ``n`` repeats."""

    mean: float
    sd: float
    low: float
    high: float
    n: int


class Comparison(NamedTuple):
    """Mean difference of two arms over ``n`` common repeats, its interval and p-value."""

    difference: float
    low: float
    high: float
    p: float
    n: int


def bootstrap(
    metric: Callable[[Array], float],
    n_rows: int,
    draws: int,
    rng: np.random.Generator,
    level: float = 0.95,
) -> Interval:
    """Return the percentile interval of a metric over records.

    Parameters
    ----------
    metric : takes the row numbers (n_rows,) of one draw with replacement.
    n_rows : number of records.
    draws : how often the metric is computed; draws for which it is nan are left out.
    rng : source of the draws.
    level : coverage.
    """
    values = [metric(rng.integers(0, n_rows, n_rows)) for _ in range(draws)]
    return _percentiles(_finite(values), level)


def summarise(
    values: ArrayLike, rng: np.random.Generator, draws: int = 2000, level: float = 0.95
) -> Summary:
    """Return mean, sd (n − 1) and bootstrap interval of the mean of values over repeats."""
    kept = _finite(values)
    if not len(kept):
        return Summary(math.nan, math.nan, math.nan, math.nan, 0)
    sd = float(kept.std(ddof=1)) if len(kept) > 1 else math.nan
    low, high = _mean_interval(kept, rng, draws, level)
    return Summary(float(kept.mean()), sd, low, high, len(kept))


def paired(
    a: ArrayLike,
    b: ArrayLike,
    test_train_ratio: float,
    rng: np.random.Generator,
    draws: int = 2000,
    level: float = 0.95,
) -> Comparison:
    """Compare two arms over the same repeats, eq. (1).

    The interval is the bootstrap's over these repeats: it shows how much the difference varies
    from split to split, and does not have the correction that the p-value has.

    Parameters
    ----------
    a, b : (n,), the metric of either arm in the same repeats, in the same order.
    test_train_ratio : test records over training records in a repeat, e.g. 1/3 for 25 % / 75 %.
    rng : source of the bootstrap's draws.
    draws, level : as in `summarise`.
    """
    x = _finite(np.asarray(a, float) - np.asarray(b, float))
    n = len(x)
    if n < 2:
        mean = float(x[0]) if n else math.nan
        return Comparison(mean, math.nan, math.nan, math.nan, n)
    mean = float(x.mean())
    low, high = _mean_interval(x, rng, draws, level)
    error = math.sqrt((1.0 / n + test_train_ratio) * float(x.var(ddof=1)))
    return Comparison(mean, low, high, _p_value(mean, error, n - 1), n)


def _finite(values: ArrayLike) -> Array:
    values = np.asarray(values, float)
    return values[np.isfinite(values)]


def _p_value(mean: float, error: float, freedom: int) -> float:
    """Return the two-sided p of Student's t; its limit where all differences are equal."""
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return 2.0 * float(stdtr(freedom, -abs(mean) / error))


def _mean_interval(x: Array, rng: np.random.Generator, draws: int, level: float) -> Interval:
    if len(x) < 2:
        return Interval(math.nan, math.nan)
    return _percentiles(x[rng.integers(0, len(x), (draws, len(x)))].mean(axis=1), level)


def _percentiles(values: Array, level: float) -> Interval:
    if len(values) < 2:
        return Interval(math.nan, math.nan)
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high))

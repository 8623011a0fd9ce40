"""Calibration of survival predictions: slope, groups, D-calibration.

Slope b (van Houwelingen, Stat. Med. 19, 2000): the Cox model whose one covariate is the predicted
log risk f; Breslow ties; b = 1 is right; b < 1: predictions are too extreme. With
S_m(t) = Σ_{j∈R(t)} f_j^m e^{b f_j},

    U(b) = Σ_deaths f − Σ_t d_t S_1/S_0,     I(b) = Σ_t d_t [S_2/S_0 − (S_1/S_0)²]          (1)

Groups: mean predicted survival at a horizon beside Kaplan–Meier in each quantile group, with its
interval on the scale of log(−log S). Neighbours are joined until a group's deaths by the horizon
and its survivors are each none, or enough. With m > 1, observed survival is the life table's in
cells of at least m deaths (`kaplan_meier`, eq. 5), whose value reveals no smaller count.

D-calibration (Haider et al., JMLR 21, 2020): for right curves S_i, S_i(T_i) is uniform on (0, 1). A
death counts in the bin of S_i(t_i); a censored record is spread evenly over (0, S_i(t_i)).
Pearson's χ² on B − 1 degrees of freedom compares the counts with n/B. The spread evens the counts,
so with much censoring the test is conservative.

Revealed: `SlopeSums`, `GroupSums`, `BinCounts`, only as sums over sites.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtri

from fedcohort.arrays import Array
from fedcohort.metrics.survival.censoring import Leavers, at_risk, product_limit
from fedcohort.metrics.survival.kaplan_meier import life_table_risk
from fedcohort.numerics.survival import count_at, dies_on_grid, risk_set_sums, slots
from fedcohort.privacy.disclosure.steps import even_ends, joined, merged, step_sums
from fedcohort.protocol.message import message

#: Largest number of Newton steps, and smallest information for a slope.
NEWTON_STEPS, FLAT = 50, 1e-12
_Z = float(ndtri(0.975))

# slope ------------------------------------------------------------------------------------


@message
class SlopeSums:
    """Terms of eq. (1) on a grid: ``deaths``, ``s0``, ``s1``, ``s2`` (T,), ``risk_of_dead`` ()."""

    deaths: Array
    risk_of_dead: Array
    s0: Array
    s1: Array
    s2: Array


class Slope(NamedTuple):
    """Calibration slope and its standard error; nan if no finite slope fits best."""

    value: float
    standard_error: float


def slope_sums(risk: Array, time: Array, event: Array, grid: Array, b: float) -> SlopeSums:
    """Return the terms of eq. (1) at slope b; risk (n,) is standardised."""
    slot = slots(time, event, grid)
    died = dies_on_grid(time, event, grid)
    weight = np.exp(np.clip(b * risk, -500.0, 500.0))
    powers = weight[:, None] * np.stack([np.ones_like(risk), risk, risk**2], axis=1)
    s0, s1, s2 = risk_set_sums(slot, len(grid), powers).T
    deaths = count_at(slot[died], len(grid))
    return SlopeSums(deaths, np.array(risk[died].sum()), s0, s1, s2)


def calibration_slope(risk: Array, time: Array, event: Array) -> Slope:
    """Return the calibration slope of predicted log risk (n,).

    nan if all risks are equal, nobody died, or the risks order all deaths perfectly.
    """
    risk, event = np.asarray(risk, float), np.asarray(event, bool)
    spread = float(risk.std()) if len(risk) else 0.0
    if not varies(spread, float(np.abs(risk).max(initial=0.0))):
        return Slope(math.nan, math.nan)
    standard = (risk - risk.mean()) / spread
    grid = np.unique(np.asarray(time)[event])
    return fit_slope(lambda b: slope_sums(standard, time, event, grid, b), spread)


def fit_slope(sums_at: Callable[[float], SlopeSums], spread: float) -> Slope:
    """Solve U(b) = 0, eq. (1), by Newton's method, within the bracket of U's sign.

    Parameters
    ----------
    sums_at : slope → pooled sums, for risks that were divided by `spread`.
    spread : standard deviation of the risks.
    """
    return solve_slope(lambda b: score_of(sums_at(b)), spread)


def solve_slope(score_at: Callable[[float], tuple[float, float]], spread: float) -> Slope:
    """Solve U(b) = 0 given U and I at any slope, eq. (1); parameters as `fit_slope`."""
    b, low, high = 0.0, -math.inf, math.inf
    for _ in range(NEWTON_STEPS):
        score, information = score_at(b)
        if information <= FLAT:
            break
        low, high = (b, high) if score > 0 else (low, b)
        step = score / information
        if abs(step) < 1e-10:
            return Slope(b / spread, 1.0 / (math.sqrt(information) * spread))
        tried = b + max(-2.0, min(2.0, step))
        b = tried if low < tried < high else (low + high) / 2.0
    return Slope(math.nan, math.nan)


def varies(spread: float, size: float) -> bool:
    """Return whether risks of this size differ by more than rounding."""
    return spread > 1e-12 * max(1.0, size)


def score_of(sums: SlopeSums) -> tuple[float, float]:
    """Return U and I, eq. (1)."""
    on = (sums.deaths > 0) & (sums.s0 > 0)
    d, s0 = sums.deaths[on], sums.s0[on]
    mean = sums.s1[on] / s0
    information = d @ (sums.s2[on] / s0 - mean**2)
    return float(sums.risk_of_dead - d @ mean), float(information)


# groups -----------------------------------------------------------------------------------


@message
class GroupSums:
    """By group: Σ ``predicted`` (g,), and ``deaths``, ``censored`` (g, T+1) by cell of the grid."""

    predicted: Array
    deaths: Array
    censored: Array


class Groups(NamedTuple):
    """Predicted and observed survival at a horizon, and the records ``n``: (g,), worst first.

    ``low`` and ``high`` are the 95 % interval of the observed survival, nan if that is 0 or 1.
    """

    predicted: Array
    observed: Array
    n: Array
    low: Array
    high: Array


def group_sums(predicted: Array, time: Array, event: Array, edges: Array, grid: Array) -> GroupSums:
    """Sum over records by group of predicted survival.

    Parameters
    ----------
    predicted : (n,), predicted survival at the horizon.
    time, event : (n,).
    edges : (g−1,), increasing; a record on an edge belongs to the group above.
    grid : (T,), increasing; its last time is the horizon.
    """
    g, t = len(edges) + 1, len(grid) + 1
    group = np.searchsorted(edges, predicted, side="right")
    cell = group * t + np.searchsorted(grid, time, side="left")
    died = np.asarray(event, bool)
    deaths, censored = (np.bincount(cell[s], minlength=g * t).reshape(g, t) for s in (died, ~died))
    return GroupSums(np.bincount(group, predicted, minlength=g), deaths, censored)


def groups_of(sums: GroupSums, at_least: int = 1) -> Groups:
    """Return the groups with records.

    Observed survival is nan if a group's follow-up ends before the horizon.

    Parameters
    ----------
    at_least : above 1, by the life table; `sums` are joined `with_enough`.
    """
    n = sums.deaths.sum(axis=1) + sums.censored.sum(axis=1)
    filled = n > 0
    mean = np.divide(sums.predicted, n, out=np.zeros(len(n)), where=filled)
    rows = zip(sums.deaths[filled], sums.censored[filled], strict=True)
    found = [survival_at_end(d, c, at_least) for d, c in rows]
    alive, variance = np.array(found).reshape(-1, 2).T
    with np.errstate(divide="ignore", invalid="ignore"):  # of no interval at 0 and 1
        scale = np.exp(_Z * np.sqrt(variance) / (-np.log(alive) * alive))
    inside = (alive > 0) & (alive < 1)
    low, high = (np.where(inside, alive**s, np.nan) for s in (scale, 1.0 / scale))
    return Groups(mean[filled], alive, n[filled], low, high)


def survival_at_end(deaths: Array, censored: Array, at_least: int = 1) -> tuple[float, float]:
    """Return survival at the end of a grid (T,), and Greenwood's variance.

    nan if the follow-up ends before.

    Parameters
    ----------
    deaths, censored : (T+1,), the last cell beyond the grid.
    at_least : above 1, by the life table in cells of this many deaths.
    """
    n = float(deaths.sum() + censored.sum())
    risk = at_risk(Leavers(deaths, censored))[:-1]
    died = deaths[:-1]
    gone = not risk[-1] and (product_limit(died, risk)[-1] > 0)
    if at_least > 1:
        ends = merged(died, at_least)
        died, lost = (np.diff(np.cumsum(c[:-1])[ends], prepend=0) for c in (deaths, censored))
        risk = life_table_risk(died, lost, n, at_least)
    alive = float(product_limit(died, risk)[-1]) if len(died) else 1.0
    left = risk * (risk - died)
    terms = np.divide(died, left, out=np.zeros(len(died)), where=left > 0)
    return (math.nan, math.nan) if gone else (alive, alive**2 * float(terms.sum()))


def with_enough(sums: GroupSums, at_least: int) -> GroupSums:
    """Return the sums of groups, joined with neighbours until no count is small.

    In each, deaths by the horizon, survivors, all, and all but the deaths are 0 or at least
    `at_least`; no group is left if all records are too few.
    """
    ends = enough_ends(sums, at_least)
    return GroupSums(*(step_sums(s, ends) for s in (sums.predicted, sums.deaths, sums.censored)))


def even(sums: GroupSums, groups: int) -> GroupSums:
    """Return the sums of neighbours joined to about n groups of equal size."""
    ends = even_ends(sums.deaths.sum(axis=1) + sums.censored.sum(axis=1), groups)
    return GroupSums(*(step_sums(s, ends) for s in (sums.predicted, sums.deaths, sums.censored)))


def enough_ends(sums: GroupSums, at_least: int) -> Array:
    """Return the last groups (s,) of those that `with_enough` joins."""
    risk = at_risk(Leavers(sums.deaths, sums.censored))
    died = sums.deaths[:, :-1].sum(axis=1)
    alive = risk[:, -2] - sums.deaths[:, -2]
    return joined(np.stack([died, alive, risk[:, 0], risk[:, 0] - died], axis=1), at_least)


def calibration_groups(
    predicted: Array,
    time: Array,
    event: Array,
    horizon: float,
    groups: int = 10,
    at_least: int = 1,
) -> Groups:
    """Compare predicted survival (n,) at `horizon` with Kaplan–Meier, by quantile group.

    Groups are joined by `with_enough`.
    """
    levels = np.arange(1, groups) / groups
    edges = np.unique(np.quantile(predicted, levels)) if len(predicted) else levels[:0]
    time = np.asarray(time, float)
    grid = np.unique(np.r_[time[time < horizon], horizon])
    sums = with_enough(group_sums(predicted, time, event, edges, grid), at_least)
    return groups_of(sums, at_least)


# D-calibration ----------------------------------------------------------------------------


@message
class BinCounts:
    """Records by bin of S_i(t_i), censored ones spread: ``counts`` (B,)."""

    counts: Array


class DCalibration(NamedTuple):
    """Counts by bin of predicted survival (B,), Pearson's χ² and its p-value."""

    counts: Array
    statistic: float
    p: float


def d_calibration(own: Array, event: Array, bins: int = 10) -> DCalibration:
    """Test whether predicted survival at each record's own time, `own` (n,), is uniform."""
    return d_test(bin_counts(own, event, bins))


def bin_counts(own: Array, event: Array, bins: int) -> BinCounts:
    """Count records by bin: deaths at their value, censored ones spread over (0, own)."""
    return BinCounts(bin_shares(own, event, bins).sum(axis=0))


def bin_shares(own: Array, event: Array, bins: int) -> Array:
    """Return each record's contribution to each bin: (n, bins), 1 in all; nan if `own` is nan."""
    own, event = np.asarray(own, float), np.asarray(event, bool)
    known = ~np.isnan(own)
    bin_of = np.minimum((own[known] * bins).astype(np.int64), bins - 1)
    spread = ~event & (own > 0)
    part = own[spread, None]
    shares = np.full((len(own), bins), np.nan)
    shares[known] = np.eye(bins)[bin_of]
    shares[spread] = np.clip(part - np.arange(bins) / bins, 0.0, 1.0 / bins) / part
    return shares


def d_test(sums: BinCounts) -> DCalibration:
    """Compare pooled counts with the uniform distribution; nan if there are none, or one is nan."""
    statistic, p = pearson(sums.counts)
    return DCalibration(sums.counts, float(statistic), float(p))


def pearson(counts: Array) -> tuple[Array, Array]:
    """Return χ² of counts (…, bins) against equal counts, and its p-value; nan if all are 0."""
    expected = counts.mean(axis=-1)
    squares = np.sum((counts - expected[..., None]) ** 2, axis=-1)
    nobody = np.full(np.shape(expected), np.nan)
    statistic = np.divide(squares, expected, out=nobody, where=expected > 0)
    return statistic, chdtrc(counts.shape[-1] - 1, statistic)


def own_survival(surv: Array, times: Array, time: Array, event: Array) -> tuple[Array, Array]:
    """Return predicted survival at each record's own time, and whether it died by then.

    Curves are linear between `times`, from 1 at time 0. A record beyond the last of `times` is
    censored there, so that no unknown part of a curve is used.

    Parameters
    ----------
    surv : (n, m), predicted survival at `times` (m,), which are positive and increasing.
    time, event : (n,).

    Returns
    -------
    own, died : (n,) each; without times, `own` is nan.
    """
    if not len(times):
        return np.full(len(surv), np.nan), np.zeros(len(surv), bool)
    knots = np.r_[0.0, times]
    curves = np.concatenate([np.ones((len(surv), 1)), surv], axis=1)
    time = np.asarray(time, float)
    until = np.minimum(time, knots[-1])
    k = np.clip(np.searchsorted(knots, until, side="left"), 1, len(times))
    along = (until - knots[k - 1]) / (knots[k] - knots[k - 1])
    row = np.arange(len(time))
    own = (1.0 - along) * curves[row, k - 1] + along * curves[row, k]
    return own, np.asarray(event, bool) & (time <= knots[-1])

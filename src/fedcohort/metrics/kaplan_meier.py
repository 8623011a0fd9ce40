"""Survival with its uncertainty, and how many are still followed: Kaplan–Meier with Greenwood.

Kaplan & Meier, JASA 53, 1958; Greenwood, Rep. Public Health Med. Subj. 33, 1926; intervals on the
scale of log(−log S), Kalbfleisch & Prentice, 2nd ed. 2002, eq. 1.13. With d_k deaths and n_k
records at risk in cell k of a grid, and z the normal quantile of the level,

    S(t_k) = Π_{l ≤ k} (1 − d_l/n_l)                                                        (1)
    v(t_k) = Σ_{l ≤ k} d_l / (n_l (n_l − d_l))                                              (2)
    low, high = S^exp(±z √v / −log S)     on the scale "log-log"                            (3)
    low, high = S exp(∓z √v)  "log",      S ∓ z √v S  "plain",    both cut to [0, 1]        (4)

On the grid of all distinct times this is the estimate of the ungridded records. Groups stand in
the rows of the counts (g, T+1), so that the counts of many curves are one sum over sites.

A curve that leaves a site's network must not follow single patients, and its values at double
precision give back the counts that they are of. So `shown_curve` is a life table (Cutler & Ederer,
J. Chronic Dis. 8, 1958) in cells that hold no event or m, the `at_least`, or more; those too few
for a cell of their own join the last. With c_k censored in cell k, told late: fewer than m wait
for those of the cells after them (`steps.late`), d_k deaths and n_k = n − Σ_{l<k} (d_l + c_l),

    S(t_k) = Π_{l ≤ k} (1 − d_l/(n_l − c_l/2)),     v(t_k) with n_l − c_l/2 for n_l          (5)

It goes on to the last round time at which m are still followed, if no event or m lie beyond that
time; else to the last round time beyond which m lie. With m = 1 its points lie on (1). Of several
groups (`shown_groups`), few events may lie beyond a curve's end, where of all groups together none
or m do: then the groups' numbers of events are not to be shown.

Numbers at risk (`shown_at_risk`) are given for all groups at a time or for none: at each time
shown, every group has nobody left or m, and nobody left it since the last time shown or m did, nor
since or until any n_k of its curve. That holds of all groups together first, so that the times at
which several groupings of the same records are shown tell no more. At other times a number is told
about: on a straight line between two n_k of the curve, or the last one and m at its end, and so
from nothing but what the curve tells.

Revealed: `Leavers` by group, only as sums over sites.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from fedcohort.arrays import Array
from fedcohort.metrics.censoring import Leavers, at_risk, leavers, product_limit
from fedcohort.privacy.disclosure.counts import few
from fedcohort.privacy.disclosure.steps import apart, late, merged

#: Scales on which an interval may be symmetric.
SCALES = ("log-log", "log", "plain")
#: A round step is one of these times a power of ten.
ROUND = (1.0, 2.0, 2.5, 5.0)
#: A shown curve has at most so many points.
POINTS = 100
#: A time is rounded to a step that is about a tenth of it: it has at most so many, to twice itself.
NEAR = 20


class Survival(NamedTuple):
    """A survival curve on a grid: each (…, T), the interval nan where S is 0."""

    times: Array
    survival: Array
    low: Array
    high: Array


def group_leavers(group: Array, groups: int, time: Array, event: Array, grid: Array) -> Leavers:
    """Count the records (n,) that end in each cell of `grid` (T,), by group: (groups, T+1).

    Parameters
    ----------
    group : (n,) integers in [0, groups).
    """
    by_group = [leavers(time[group == g], event[group == g], grid) for g in range(groups)]
    return Leavers(np.stack([c.deaths for c in by_group]), np.stack([c.censored for c in by_group]))


def kaplan_meier(grid: Array, counts: Leavers, level: float = 0.95) -> Survival:
    """Return S and its interval on the grid (T,), eqs. (1) to (3), from pooled counts (…, T+1)."""
    return survival_curve(grid, counts.deaths[..., :-1], at_risk(counts)[..., :-1], level)


def survival_curve(
    times: Array, deaths: Array, risk: Array, level: float = 0.95, scale: str = "log-log"
) -> Survival:
    """Return S and its interval, eqs. (1) to (4).

    Parameters
    ----------
    times : (T,), at which ``deaths`` of ``risk`` (…, T) at risk die.
    scale : one of `SCALES`, that of the interval.
    """
    alive = product_limit(deaths, risk)
    left = risk * (risk - deaths)
    terms = np.divide(deaths, left, out=np.zeros(left.shape), where=(deaths > 0) & (left > 0))
    z = float(ndtri((1.0 + level) / 2.0))
    spread = z * np.sqrt(np.cumsum(terms, axis=-1))
    inside = (alive > 0) & (alive < 1)
    if scale == "log-log":
        log = np.log(alive, out=np.full(alive.shape, -1.0), where=inside)
        bounds = [np.exp(log * np.exp(s / -log)) for s in (spread, -spread)]
    elif scale == "log":
        bounds = [np.minimum(alive * np.exp(s), 1.0) for s in (-spread, spread)]
    else:
        bounds = [np.clip(alive + s * alive, 0.0, 1.0) for s in (-spread, spread)]
    edge = np.where(alive > 0, 1.0, math.nan)
    low, high = (np.where(inside, b, edge) for b in bounds)
    return Survival(np.asarray(times, float), alive, low, high)


def first_below(times: Array, values: Array, level: float, *, steps: bool = True) -> float:
    """Return when a falling curve that starts at 1 comes to `level` or below; nan if never.

    Parameters
    ----------
    times, values : (T,). A value within rounding of the level counts as on it; nan is not below.
    steps : whether the curve falls at the times alone; along straight lines if not.
    """
    found = np.flatnonzero(values <= level + 1e-12)
    if not len(found):
        return math.nan
    i = int(found[0])
    if steps:
        return float(times[i])
    t0, s0 = (float(times[i - 1]), float(values[i - 1])) if i else (0.0, 1.0)
    return t0 + (float(times[i]) - t0) * min((s0 - level) / (s0 - float(values[i])), 1.0)


def followed(time: Array, at: Array) -> Array:
    """Return the numbers at risk: how many records (n,) have a time of at least each of `at`."""
    return len(time) - np.searchsorted(np.sort(time), at, side="left")


def round_times(low: float, high: float, most: int) -> Array:
    """Return the multiples of a round step in [low, high], by the finest step that gives ≤ `most`.

    Parameters
    ----------
    low, high : 0 ≤ low ≤ high, of any unit.

    Returns
    -------
    times : increasing; empty if no round number lies between or `high` is 0.
    """
    if not 0 <= low <= high or high == 0:
        return np.empty(0)
    power = math.floor(math.log10(max(high - low, high * 1e-6) / most))
    for scale in (10.0 ** (power + i) for i in range(3)):
        for step in (scale * r for r in ROUND):
            first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
            if last - first < most:
                times = np.round(step * np.arange(first, last + 1), 12 - power)
                return times[(times >= low) & (times <= high)]
    return np.empty(0)


def round_time(time: float, last: float) -> float:
    """Return a round time near one that may be a single record's own, up to `last` ≥ `time` > 0."""
    times = round_times(0.0, min(2.0 * time, last), NEAR)
    times = times[times > 0]
    return float(times[np.argmin(np.abs(times - time))]) if len(times) else time


def shown_at_risk(
    group: Array, time: Array, at: Array, at_least: int, event: Array | None = None
) -> tuple[Array, Array]:
    """Return the numbers at risk as they may be shown; the rule is the header's.

    Parameters
    ----------
    group : (n,) integers from 0.
    time : (n,).
    at : times (m,), increasing.
    event : (n,), where each group's `shown_curve` is shown as well.

    Returns
    -------
    times, numbers : those of `at` that may be shown (s,), and each group's (s, groups).
    """
    masks = [group == g for g in range(int(group.max()) + 1)]
    told = [] if event is None else [_shown(time[m], event[m], at_least).left for m in masks]
    return _at_risk(masks, time, at, at_least, told)


def _at_risk(
    masks: Sequence[Array], time: Array, at: Array, at_least: int, told: Sequence[Array]
) -> tuple[Array, Array]:
    """Return what `shown_at_risk` does; ``told`` are the numbers of each group's curve, if any."""
    numbers = np.stack([followed(time[mask], at) for mask in masks], axis=1)
    if told:
        between = [np.abs(n[:, None] - left) for n, left in zip(numbers.T, told, strict=True)]
        fine = ~few(np.concatenate(between, axis=1), at_least).any(axis=1)
        at, numbers = at[fine], numbers[fine]
    usual = apart(numbers.sum(axis=1, keepdims=True), at_least)
    kept = usual[apart(numbers[usual], at_least)]
    return at[kept], numbers[kept]


class Groups(NamedTuple):
    """Curves of g groups of records with their numbers at risk, as they may be shown.

    ``curves`` (g,); ``at`` (s,) and ``numbers`` (s, g), exact; ``times`` (t,), round ones up to the
    end of the longest curve, and ``about`` (t, g), nan after a curve's end; ``events_told`` says
    whether the groups' numbers of events may be shown beside the curves.
    """

    curves: list[Survival]
    at: Array
    numbers: Array
    times: Array
    about: Array
    events_told: bool


def shown_groups(
    group: Array, time: Array, event: Array, at_least: int, most: int, factor: float = 1.0
) -> Groups:
    """Return the curves of groups as they may be shown together; the rule is the header's.

    Parameters
    ----------
    group : (n,) integers from 0.
    time, event : (n,).
    most : how many times numbers at risk are given at; they are round times `factor`.
    """
    event = np.asarray(event, bool)
    masks = [group == g for g in range(int(group.max()) + 1)]
    parts = [(time[m], event[m]) for m in masks]
    shown = [_shown(t, e, at_least, beyond="any") for t, e in parts]

    def beyond() -> Array:  # how many events of each group lie beyond its curve
        return np.array([
            int((t[e] > s.curve.times[-1]).sum()) for (t, e), s in zip(parts, shown, strict=True)
        ])  # fmt: skip

    if few(beyond().sum(), at_least):  # one curve ends earlier, so that more lie beyond
        closed = [_shown(t, e, at_least, beyond="many") for t, e in parts]
        lost = [a.curve.times[-1] - b.curve.times[-1] for a, b in zip(shown, closed, strict=True)]
        many = [int(e.sum()) >= at_least for _, e in parts]
        if any(many):
            g = int(np.argmin(np.where(many, lost, math.inf)))
            shown[g] = closed[g]
    last = max(float(s.curve.times[-1]) for s in shown)
    times = round_times(0.0, last * factor, most) / factor
    at, numbers = _at_risk(masks, time, times, at_least, [s.left for s in shown])
    about = np.stack([_about(s, times, at_least) for s in shown], axis=1)
    told = not few(beyond(), at_least).any()
    return Groups([s.curve for s in shown], at, numbers, times, about, told)


def _about(shown: _Shown, times: Array, at_least: int) -> Array:
    """Return about how many records are followed at each of `times` (t,); nan after the curve."""
    ends, left = shown.curve.times, shown.left
    if len(left) < len(ends):  # the curve goes on, flat, to a time at which m are followed
        left = np.r_[left, min(at_least, left[-1])]
    return np.interp(times, ends, left[: len(ends)], right=math.nan)


def shown_curve(time: Array, event: Array, at_least: int) -> Survival:
    """Return the curve of records (n,) as it may be shown; the rule is the header's.

    Returns
    -------
    curve : from (0, 1) on; that point alone where the events are fewer than `at_least`.
    """
    return _shown(np.asarray(time, float), np.asarray(event, bool), at_least).curve


def shown_counts(grid: Array, counts: Leavers, at_least: int) -> Survival:
    """Return the curve that may be shown of records that are counted on a grid (T,).

    Parameters
    ----------
    counts : (T+1,), of all sites together.

    Returns
    -------
    curve : as `shown_curve`; its points are some of the grid's.
    """
    start = Survival(*(np.array([v]) for v in (0.0, 1.0, 1.0, 1.0)))
    n = int(counts.deaths.sum() + counts.censored.sum())
    last = int((at_risk(counts)[1:] >= max(at_least, 1)).sum())  # so many times have m behind them
    deaths, censored = (np.r_[c[:last], c[last:].sum()] for c in (counts.deaths, counts.censored))
    if n < at_least or not last:
        return start
    cuts, stop = _cuts(Leavers(deaths, censored), at_least)
    died, gone = (np.diff(np.cumsum(c)[cuts], prepend=0) for c in (deaths, censored))
    curve = _from(start, life_table(grid[cuts], died, gone, n, at_least), np.arange(len(cuts)))
    return _flat(curve, grid, cuts, stop)


class _Shown(NamedTuple):
    """A shown curve, and how many are ``left`` (k,) before and after each of its cells."""

    curve: Survival
    left: Array


def _shown(time: Array, event: Array, at_least: int, *, beyond: str = "safe") -> _Shown:
    """Return a curve; how many events lie beyond its end, says `_cuts`."""
    start = Survival(*(np.array([v]) for v in (0.0, 1.0, 1.0, 1.0)))
    nothing = _Shown(start, np.array([len(time)]))
    if len(time) < at_least:
        return nothing
    end = float(np.sort(time)[len(time) - max(at_least, 1)])
    grid = round_times(0.0, end, POINTS + 1)[1:]
    if not len(grid):
        return nothing
    counts = leavers(time, event, grid)
    cuts, stop = _cuts(counts, at_least, beyond)
    if at_least <= 1:
        every = np.unique(np.r_[time, grid])
        full = kaplan_meier(every, leavers(time, event, every))
        steps = np.unique(np.r_[cuts, len(grid) - 1]).astype(np.int64)
        at = np.searchsorted(every, grid[steps])
        left = followed(time, np.r_[0.0, np.nextafter(grid[steps], math.inf)])
        return _Shown(_from(start, full, at), left)
    deaths, censored = (
        np.diff(np.cumsum(c)[cuts], prepend=0) for c in (counts.deaths, counts.censored)
    )
    table = life_table(grid[cuts], deaths, censored, len(time), at_least)
    gone = np.cumsum(deaths + late(censored, at_least, len(time) - deaths.sum()))
    curve = _flat(_from(start, table, np.arange(len(cuts))), grid, cuts, stop)
    return _Shown(curve, len(time) - np.r_[0, gone])


def _flat(curve: Survival, grid: Array, cuts: Array, stop: int) -> Survival:
    """Return a curve that goes on to a cell's end, up to which nobody dies."""
    if stop <= (cuts[-1] if len(cuts) else -1):
        return curve
    return Survival(np.r_[curve.times, grid[stop]], *(np.r_[v, v[-1]] for v in curve[1:]))


def life_table(times: Array, deaths: Array, censored: Array, n: float, at_least: int) -> Survival:
    """Return S and its interval, eq. (5), of n records.

    Parameters
    ----------
    times : (k,), the ends of the cells that hold ``deaths``, ``censored`` (k,).
    """
    return survival_curve(times, deaths, life_table_risk(deaths, censored, n, at_least))


def life_table_risk(deaths: Array, censored: Array, n: float, at_least: int) -> Array:
    """Return the numbers at risk n_k − c_k/2 of eq. (5): (k,); parameters as `life_table`."""
    told = late(censored, at_least, n - deaths.sum())
    return n - np.r_[0, np.cumsum(deaths + told)[:-1]] - told / 2.0


def _cuts(counts: Leavers, at_least: int, beyond: str = "safe") -> tuple[Array, int]:
    """Return the last cells (k,) of those of a curve, and the cell at whose end the curve ends.

    Between the two nobody dies, and after them `at_least` or none are left that did not die. There
    is no such cell, −1, where a curve would be of few events.

    Parameters
    ----------
    counts : (T+1,), of which the last cell lies beyond the curve.
    beyond : how many events there are after the curve's end: "safe" for none or `at_least`, "many"
        for `at_least` where there are so many at all, "any".
    """
    deaths = counts.deaths[:-1]
    stop = len(deaths) - 1
    left = counts.deaths[-1]
    if (beyond == "many" and left < at_least) or (beyond == "safe" and few(left, at_least)):
        enough = np.flatnonzero(counts.deaths.sum() - np.cumsum(deaths) >= at_least)
        stop = int(enough[-1]) if len(enough) else -1
    ends = merged(deaths[: stop + 1], at_least)
    alive = counts.deaths.sum() + counts.censored.sum() - np.cumsum(deaths)
    while len(ends) and few(alive[ends[-1]], at_least):
        ends = ends[:-1]
        stop = int(ends[-1]) if len(ends) else -1
    if not len(ends) and deaths[: stop + 1].sum():
        stop = -1
    return ends, stop


def _from(start: Survival, curve: Survival, at: Array) -> Survival:
    """Return a curve at some of its points, behind its start."""
    return Survival(*(np.r_[a, b[at]] for a, b in zip(start, curve, strict=True)))

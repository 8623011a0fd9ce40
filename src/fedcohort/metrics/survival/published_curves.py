"""Survival curves and numbers at risk that may leave a network without revealing few patients.

A curve's exact values reveal its counts. So `published_curve` is a life table (`kaplan_meier`,
eq. 5) in cells of no event or at least m (`at_least`); smaller cells join the last. It ends at the
last round time at which m are still followed, if no event or m lie beyond; otherwise at the last
round time beyond which m lie. With m = 1 its points lie on Kaplan–Meier's. For several groups
(`published_groups`), few events may lie beyond one curve's end if none or m do for all groups
together; then the groups' numbers of events must not be shown.

Numbers at risk (`published_at_risk`) are given for all groups at a time or for none: at each shown
time every group has nobody left or m, and nobody or m left it since the last shown time, and since
or until any n_k of its curve. The same must hold for all groups together, so that the times of
several groupings of the same records reveal no more. At other times a number is approximate: on a
straight line between two n_k of the curve, or the last one and m at its end; so it reveals no more
than the curve.

Revealed: nothing; `published_counts` takes `Leavers`, only as sums over sites.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.survival.censoring import Leavers, at_risk, leavers
from fedcohort.metrics.survival.kaplan_meier import (
    Survival,
    followed,
    kaplan_meier,
    life_table,
    round_times,
)
from fedcohort.privacy.disclosure.counts import few
from fedcohort.privacy.disclosure.steps import late, merged, separated

#: Largest number of points of a published curve.
POINTS = 100


def published_curve(time: Array, event: Array, at_least: int) -> Survival:
    """Return the published curve of records (n,), by the rule of the module.

    Returns
    -------
    curve : from (0, 1) on; that point alone if there are fewer than `at_least` events.
    """
    return _published(np.asarray(time, float), np.asarray(event, bool), at_least).curve


def published_counts(grid: Array, counts: Leavers, at_least: int) -> Survival:
    """Return the published curve of records counted on a grid (T,).

    Parameters
    ----------
    counts : (T+1,), of all sites together.

    Returns
    -------
    curve : as `published_curve`; its points are some of the grid's.
    """
    start = Survival(*(np.array([v]) for v in (0.0, 1.0, 1.0, 1.0)))
    n = int(counts.deaths.sum() + counts.censored.sum())
    last = int(
        (at_risk(counts)[1:] >= max(at_least, 1)).sum()
    )  # number of times with m beyond them
    deaths, censored = (np.r_[c[:last], c[last:].sum()] for c in (counts.deaths, counts.censored))
    if n < at_least or not last:
        return start
    cuts, stop = _cuts(Leavers(deaths, censored), at_least)
    died, gone = (np.diff(np.cumsum(c)[cuts], prepend=0) for c in (deaths, censored))
    curve = _from(start, life_table(grid[cuts], died, gone, n, at_least), np.arange(len(cuts)))
    return _flat(curve, grid, cuts, stop)


class Groups(NamedTuple):
    """Published curves of g groups of records with their numbers at risk.

    ``curves`` (g,); ``at`` (s,) and ``numbers`` (s, g), exact; ``times`` (t,), round ones up to the
    end of the longest curve, and ``about`` (t, g), nan after a curve's end; ``events_told``: the
    groups' numbers of events may be shown beside the curves.
    """

    curves: list[Survival]
    at: Array
    numbers: Array
    times: Array
    about: Array
    events_told: bool


def published_groups(
    group: Array, time: Array, event: Array, at_least: int, most: int, factor: float = 1.0
) -> Groups:
    """Return the curves of groups that may be published together, by the rule of the module.

    Parameters
    ----------
    group : (n,) integers from 0.
    time, event : (n,).
    most : largest number of times with numbers at risk; they are round times `factor`.
    """
    event = np.asarray(event, bool)
    masks = [group == g for g in range(int(group.max()) + 1)]
    parts = [(time[m], event[m]) for m in masks]
    shown = [_published(t, e, at_least, beyond="any") for t, e in parts]

    def beyond() -> Array:  # how many events of each group lie beyond its curve
        return np.array([
            int((t[e] > s.curve.times[-1]).sum()) for (t, e), s in zip(parts, shown, strict=True)
        ])  # fmt: skip

    if few(beyond().sum(), at_least):  # one curve ends earlier, so that more lie beyond
        closed = [_published(t, e, at_least, beyond="many") for t, e in parts]
        lost = [a.curve.times[-1] - b.curve.times[-1] for a, b in zip(shown, closed, strict=True)]
        many = [int(e.sum()) >= at_least for _, e in parts]
        if any(many):
            g = int(np.argmin(np.where(many, lost, math.inf)))
            shown[g] = closed[g]
    last = max(float(s.curve.times[-1]) for s in shown)
    times = round_times(0.0, last * factor, most) / factor
    at, numbers = _at_risk(masks, time, times, at_least, [s.left for s in shown])
    about = np.stack([_about(s, times, at_least) for s in shown], axis=1)
    fine = not few(beyond(), at_least).any()
    return Groups([s.curve for s in shown], at, numbers, times, about, fine)


def _about(shown: _Shown, times: Array, at_least: int) -> Array:
    """Return the approximate number of followed records at `times` (t,); nan after the curve."""
    ends, left = shown.curve.times, shown.left
    if len(left) < len(ends):  # the curve goes on, flat, to a time at which m are followed
        left = np.r_[left, min(at_least, left[-1])]
    return np.interp(times, ends, left[: len(ends)], right=math.nan)


def published_at_risk(
    group: Array, time: Array, at: Array, at_least: int, event: Array | None = None
) -> tuple[Array, Array]:
    """Return the published numbers at risk, by the rule of the module.

    Parameters
    ----------
    group : (n,) integers from 0.
    time : (n,).
    at : times (m,), increasing.
    event : (n,), if each group's `published_curve` is shown as well.

    Returns
    -------
    times, numbers : the publishable times of `at` (s,), and each group's numbers (s, groups).
    """
    masks = [group == g for g in range(int(group.max()) + 1)]
    lefts = [] if event is None else [_published(time[m], event[m], at_least).left for m in masks]
    return _at_risk(masks, time, at, at_least, lefts)


def _at_risk(
    masks: Sequence[Array], time: Array, at: Array, at_least: int, lefts: Sequence[Array]
) -> tuple[Array, Array]:
    """Return the results of `published_at_risk`; ``lefts``: the numbers of each group's curve, if
    any.
    """
    numbers = np.stack([followed(time[mask], at) for mask in masks], axis=1)
    if lefts:
        between = [np.abs(n[:, None] - left) for n, left in zip(numbers.T, lefts, strict=True)]
        fine = ~few(np.concatenate(between, axis=1), at_least).any(axis=1)
        at, numbers = at[fine], numbers[fine]
    usual = separated(numbers.sum(axis=1, keepdims=True), at_least)
    kept = usual[separated(numbers[usual], at_least)]
    return at[kept], numbers[kept]


class _Shown(NamedTuple):
    """A shown curve, and the numbers ``left`` (k,) before and after each of its cells."""

    curve: Survival
    left: Array


def _published(time: Array, event: Array, at_least: int, *, beyond: str = "safe") -> _Shown:
    """Return a curve; for `beyond` see `_cuts`."""
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
    """Return a curve extended to a cell's end, until which nobody dies."""
    if stop <= (cuts[-1] if len(cuts) else -1):
        return curve
    return Survival(np.r_[curve.times, grid[stop]], *(np.r_[v, v[-1]] for v in curve[1:]))


def _cuts(counts: Leavers, at_least: int, beyond: str = "safe") -> tuple[Array, int]:
    """Return the last cells (k,) of a curve's steps, and the cell at whose end the curve ends.

    Between the two nobody dies; after them at least `at_least` or none of the survivors are left.
    The cell is −1 if there is none, because the curve would be of few events.

    Parameters
    ----------
    counts : (T+1,), of which the last cell is beyond the curve.
    beyond : number of events after the curve's end: "safe" for none or `at_least`, "many" for
        `at_least` if there are so many at all, "any".
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
    """Return a curve at some of its points, after its start."""
    return Survival(*(np.r_[a, b[at]] for a, b in zip(start, curve, strict=True)))

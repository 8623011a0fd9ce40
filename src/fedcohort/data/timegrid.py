"""A common grid of times for survival programs, fixed before the fit.

Risk-set sums at the exact times of deaths reveal patients: the difference of two consecutive sums
belongs to the few who left in between. So by default the sums are taken at the ends of
intervals (t_{k−1}, t_k] with at least `min_cell` deaths of the pooled sites each. Who dies in an
interval leaves with it, so it also has that many leavers. Intervals of leavers, dead or
censored, are finer if many are censored (`intervals`): all leavers of an interval stay at risk
until its end, and `min_cell` of them leave in each, of whom some died.

    "protected"  as many such intervals as a histogram sketch of the times of death resolves,
                 up to `MOST`; the last one ends above all deaths
    m            the same, with at most m intervals of about equally many deaths;
                 "quantiles(m)" is the same
    "exact"      the distinct times of death

The end of the follow-up is one patient's own time, and is not revealed. A curve ends at `known`,
while at least `min_cell` patients are still followed.

Revealed: for "exact", each site's distinct times of death; otherwise, and for `intervals`, `Times`,
and of the times `Spread` and `Cells`, only as sums over all sites. A cell may hold a single record.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.prepare import (
    Cells,
    Histogram,
    Moments,
    Spread,
    count_between,
    histograms,
    refine,
)
from fedcohort.data.tables import SurvivalTable
from fedcohort.numerics.coxph import Ties, hazard
from fedcohort.numerics.survival import Baseline
from fedcohort.privacy.disclosure.steps import interval_ends
from fedcohort.protocol.errors import NothingToLearn, SettingError
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, Step, gathered, summed

_QUANTILES = re.compile(r"quantiles\((\d+)\)")
#: Largest number of intervals of "protected", approximately.
MOST = 512
#: Instead of the number of a stratum: all records.
ALL = -1


class Intervals(NamedTuple):
    """Grid of times at which risk sets are summed.

    Attributes
    ----------
    times : (T,) strictly increasing, in the unit of the outcome; the times of death, or ends of
        intervals, the last above all times.
    single : (T,) whether all who leave in an interval leave at one time; None for times of death.
    known : time up to which survival is estimated: for intervals the start of the last, which
        at least `min_cell` records reach.
    """

    times: Array
    single: Array | None
    known: float

    @property
    def together(self) -> bool:
        """Whether all who leave in an interval are at risk until its end."""
        return self.single is not None

    def joined(self, last: Array) -> Intervals:
        """Return these intervals in groups, each up to one of `last` (J,), ascending."""
        if self.single is None or len(last) == len(self.times):
            return self
        alone = self.single[last] & (np.diff(last, prepend=-1) == 1)
        return Intervals(self.times[last], alone, self.known)

    def hazard(self, weight: Array, leaving: Array, s0: Array) -> Array:
        """Return Breslow's hazard of each interval (T,), the mean over all orders of its leavers.

        Parameters
        ----------
        weight, leaving, s0 : (T,) weight of the deaths, number of leavers, and S₀.
        """
        if self.single is None:
            return np.divide(weight, s0, out=np.zeros(len(s0)), where=s0 > 0)
        at = np.flatnonzero((weight > 0) & (leaving > 1) & ~self.single)
        ties = Ties(at, leaving[at], leaving[at])
        return hazard(weight, s0, -np.diff(s0, append=0.0)[at], ties).a

    def baseline(self, steps: Array, deaths: Array, least: int) -> Baseline:
        """Return the cumulative hazard of `steps` (T,) up to `known`.

        Intervals are joined until each holds `least` of the deaths (T,).
        """
        inside = np.flatnonzero(self.times <= self.known)
        total = float(steps[inside].sum())
        if self.together and deaths[inside].any():
            inside = interval_ends(deaths[inside], least)
        found = Baseline(self.times[inside], np.cumsum(steps)[inside])
        return found.until(self.known, total)


@message
class Times:
    """Number of deaths; and of deaths or of all leavers: number, sum of times, times not whole."""

    deaths: Array
    counted: Array
    total: Array
    fractional: Array


@message
class DeathTimes:
    """Distinct times of death, ascending."""

    times: Array


@summed(blocks="rows")
def death_moments(
    site: Site[SurvivalTable, None], *, stratum: int = ALL, leavers: bool = False
) -> Times:
    """Count the deaths, or all leavers, and sum their times."""
    t = _times(site.data, stratum, leavers)
    whole = t == np.floor(t)
    died = float(len(_times(site.data, stratum)))
    counts = (died, float(len(t)), float(t.sum()), float((~whole).sum()))
    return Times(*map(np.array, counts))


@summed(blocks="rows")
def death_spread(
    site: Site[SurvivalTable, None], *, centre: float, stratum: int = ALL, leavers: bool = False
) -> Spread:
    """Sum the squared deviations of the times from the pooled mean."""
    return Spread(np.array(np.sum((_times(site.data, stratum, leavers) - centre) ** 2)))


@summed(blocks="rows")
def death_cells(
    site: Site[SurvivalTable, None], *, edges: Array, stratum: int = ALL, leavers: bool = False
) -> Cells:
    """Count the deaths, or all leavers, between edges of time (1, m)."""
    return Cells(count_between([_times(site.data, stratum, leavers)], edges))


@gathered
def death_times(site: Site[SurvivalTable, None], *, stratum: int = ALL) -> DeathTimes:
    """Return the distinct times of death; only the grid "exact" asks for it."""
    return DeathTimes(np.unique(_times(site.data, stratum)))


#: Every step that a grid may call; a method with a grid declares them.
STEPS = (death_moments, death_spread, death_cells, death_times)


def asks(rule: str | int, *, known: bool = False) -> tuple[Step[..., Any], ...]:
    """Return the steps that find a grid of that rule, and with `known` also its last time."""
    cells = (death_moments, death_spread, death_cells)
    if rule == "exact":
        return (*cells, death_times) if known else (death_times,)
    return cells


def check_rule(rule: str | int) -> None:
    """Refuse a wrong rule of a time grid; settings call it before a fit.

    Raises
    ------
    SettingError : `rule` is neither "protected" nor "exact" nor a number of intervals.
    """
    most = intervals_of(rule)
    if rule not in ("protected", "exact") and (most is None or most < 1):
        raise SettingError(
            f"time_grid is {rule!r}; give 'protected', 'exact', or a number of intervals from 1, "
            f"as in 20 or 'quantiles(20)'."
        )


def intervals_of(rule: str | int) -> int | None:
    """Return m of a rule m or "quantiles(m)"; None for other rules."""
    if isinstance(rule, str):
        found = _QUANTILES.fullmatch(rule)
        return int(found[1]) if found else None
    return None if isinstance(rule, bool) else int(rule)


def time_grid(fed: Federation, rule: str | int, min_cell: int, stratum: int = ALL) -> Array:
    """Return the times at which risk sets are summed.

    Parameters
    ----------
    fed : sites that hold a `SurvivalTable`.
    rule : "protected", "exact", or a number of intervals, also as "quantiles(m)".
    min_cell : deaths that an interval must hold; "exact" ignores it. Fewer deaths than twice
        that in all give one interval.
    stratum : number of the stratum; all by default.

    Returns
    -------
    times : (T,) strictly increasing, in the unit of the outcome; no death is after the last.

    Raises
    ------
    NothingToLearn : no site has an event.
    SettingError : the rule is none of the above.
    """
    check_rule(rule)
    # a table without strata gets no `stratum`
    which: dict[str, Any] = {} if stratum == ALL else {"stratum": stratum}
    if rule == "exact":
        replies = fed.gather(death_times, **which)
        times = np.unique(np.concatenate([r.times for r in replies.values()]))
        if not len(times):
            raise no_events(fed)
        return times
    first = fed.sum(death_moments, **which)
    deaths = float(first.deaths)
    if deaths < 1:
        raise no_events(fed)
    share = deaths / (intervals_of(rule) or MOST)
    cells = _sketch(fed, which, first, max(2.0 * min_cell, share / 4, 2.0))
    ends = interval_ends(cells.counts, max(float(min_cell), 1.0), share)
    return cells.edges[ends + 1]


def intervals(fed: Federation, rule: str | int, min_cell: int, stratum: int = ALL) -> Intervals:
    """Return intervals of time in each of which `min_cell` records leave, dead or censored.

    Parameters
    ----------
    rule, stratum : as for `time_grid`; with "exact" the times are those of death. A number counts
        the intervals up to `known`; one more follows.
    min_cell : records that an interval must hold, and that must be followed beyond `known`.

    Raises
    ------
    NothingToLearn : no site has an event.
    """
    check_rule(rule)
    which: dict[str, Any] = {"leavers": True}
    if stratum != ALL:
        which["stratum"] = stratum
    first = fed.sum(death_moments, **which)
    if first.deaths < 1:
        raise no_events(fed)
    most = MOST if rule == "exact" else intervals_of(rule) or MOST
    share = float(first.counted) / most
    cells = _sketch(fed, which, first, max(2.0 * min_cell, share / 4, 2.0))
    at_least = max(float(min_cell), 1.0)
    start = _reached(cells, at_least)
    if rule == "exact":
        died = time_grid(fed, rule, min_cell, stratum)
        known = float(cells.edges[start]) if start else 0.0
        return Intervals(died, None, max(known, float(died[-1])))
    known, ends = _tail(cells, start, at_least, most)
    filled = np.flatnonzero(cells.counts)
    of = np.searchsorted(ends, filled)
    narrow = np.bincount(of, cells.widths[filled] >= 2 * cells.finest, minlength=len(ends)) == 0
    single = narrow & (np.bincount(of, minlength=len(ends)) == 1)
    return Intervals(cells.edges[ends + 1], single, known)


def _reached(cells: Histogram, at_least: float) -> int:
    """Return the cell that begins at the latest time that `at_least` records reach; 0 if none."""
    behind = np.cumsum(cells.counts[::-1])[::-1]
    start = int(np.flatnonzero((behind >= at_least) & (cells.counts > 0))[-1:].sum())
    return start if cells.counts[:start].sum() >= at_least else 0


def _tail(cells: Histogram, start: int, at_least: float, most: int) -> tuple[float, Array]:
    """Return the time of `_reached`, 0 if none, and the last cells of intervals.

    At most `most` intervals come before that time, and one after it; all hold `at_least`.
    """
    last = int(np.flatnonzero(cells.counts)[-1])
    if not start:
        return 0.0, np.array([last])
    before = cells.counts[:start]
    ends = interval_ends(before, at_least, float(before.sum()) / most)
    return float(cells.edges[start]), np.r_[ends[:-1], start - 1, last]


def _sketch(fed: Federation, which: dict[str, Any], first: Times, at_least: float) -> Histogram:
    """Return a histogram of times, in which cells with `at_least` of them are split."""
    mean = float(first.total) / float(first.counted)
    squares = float(fed.sum(death_spread, centre=mean, **which).squares)
    moments = Moments(
        n=np.array([float(first.counted)]),
        mean=np.array([mean]),
        sd=np.sqrt(np.array([squares / float(first.counted)])),
        whole=np.array([float(first.fractional) == 0]),
    )

    def ask(edges: Array) -> Array:
        return fed.sum(death_cells, edges=edges, **which).counts

    def anywhere(h: Histogram) -> Array:
        return np.arange(len(h.counts))

    column = np.array([0])
    tables = histograms(ask, moments, column)
    return refine(ask, tables, column, 1, anywhere, at_least)[0]


def _times(table: SurvivalTable, stratum: int, leavers: bool = False) -> Array:
    """Return the times of the deaths, or of all leavers, of a stratum."""
    kept = np.ones(len(table.x), bool) if leavers else np.asarray(table.event, bool)
    if stratum != ALL and table.stratum is not None:
        kept = kept & (table.stratum == stratum)
    return np.asarray(table.time, float)[kept]


def no_events(fed: Federation) -> NothingToLearn:
    """Return the error that no site has an event."""
    return NothingToLearn(
        f"none of the {len(fed.sites)} sites has seen an event, so there is no survival to model. "
        f"Check that the event column is 1 where the event was seen."
    )

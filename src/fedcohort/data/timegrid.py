"""A common grid of times for survival programs, fixed before the fit.

Risk-set sums at the exact times of deaths reveal patients: the difference of two consecutive
ones belongs to the few who left in between. So by default the sums are taken at the ends of
intervals (t_{k−1}, t_k] which each hold at least `min_cell` deaths of the pooled sites; those who
die in an interval leave with it, so it also has that many leavers. (Sums that tell deaths from
censored records need `numerics.survival.exits` besides.)

    "protected"  as many such intervals as a histogram sketch of the times of death resolves,
                 up to `MOST`; the last one ends above all deaths
    m            the same, with at most m intervals of about equally many deaths; "quantiles(m)"
                 says the same
    "exact"      the distinct times of death

Revealed: for "exact", each site's distinct times of death; otherwise `Times`, `Spread` and
`Cells`, only as sums over all sites. A cell may hold as little as one death.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.sketch import Histogram, Moments, count_between, histograms, refine
from fedcohort.data.tables import SurvivalTable
from fedcohort.privacy.disclosure.steps import interval_ends
from fedcohort.protocol.errors import NothingToLearn, SettingError
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, Step, gathered, summed

_QUANTILES = re.compile(r"quantiles\((\d+)\)")
#: "protected" gives at most about this many intervals, however many deaths there are.
MOST = 512
#: In place of the number of a stratum: the records of all.
ALL = -1


@message
class Times:
    """How many deaths, the sum of their times, and how many times are no whole number."""

    deaths: Array
    total: Array
    fractional: Array


@message
class Spread:
    """Σ (t − mean)² over deaths, in the square of the unit of time."""

    squares: Array


@message
class Cells:
    """Deaths between edges (1, m)."""

    counts: Array


@message
class DeathTimes:
    """Distinct times of death, ascending."""

    times: Array


@summed
def death_moments(site: Site[SurvivalTable, None], *, stratum: int = ALL) -> Times:
    """Count the deaths and sum their times."""
    t = _deaths(site.data, stratum)
    whole = t == np.floor(t)
    return Times(np.array(float(len(t))), np.array(t.sum()), np.array(float((~whole).sum())))


@summed
def death_spread(site: Site[SurvivalTable, None], *, centre: float, stratum: int = ALL) -> Spread:
    """Sum the squared deviations of the times of death from the pooled mean."""
    return Spread(np.array(np.sum((_deaths(site.data, stratum) - centre) ** 2)))


@summed
def death_cells(site: Site[SurvivalTable, None], *, edges: Array, stratum: int = ALL) -> Cells:
    """Count the deaths between edges of time (1, m)."""
    return Cells(count_between([_deaths(site.data, stratum)], edges))


@gathered
def death_times(site: Site[SurvivalTable, None], *, stratum: int = ALL) -> DeathTimes:
    """Reveal the distinct times of death: asked for by the grid "exact" alone."""
    return DeathTimes(np.unique(_deaths(site.data, stratum)))


#: Every step that `time_grid` may ask for; a method that has a time grid declares them.
STEPS = (death_moments, death_spread, death_cells, death_times)


def asks(rule: str | int) -> tuple[Step[..., Any], ...]:
    """Return the steps by which a time grid of that rule is found."""
    return (death_times,) if rule == "exact" else (death_moments, death_spread, death_cells)


def check_rule(rule: str | int) -> None:
    """Refuse what is no rule for a time grid, so that settings can do so before a fit.

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
    """Return m of a rule m or "quantiles(m)"; None of any other."""
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
    min_cell : deaths that an interval must hold; not heeded by "exact". Fewer deaths than twice
        that in all give one interval.
    stratum : the number of the stratum whose deaths these are; all by default.

    Returns
    -------
    times : (T,) strictly increasing, in the unit of the outcome; no death lies after the last.

    Raises
    ------
    NothingToLearn : no site has seen an event.
    SettingError : the rule is none of the above.
    """
    check_rule(rule)
    # a table without strata is asked without
    which = {} if stratum == ALL else {"stratum": stratum}
    if rule == "exact":
        replies = fed.gather(death_times, **which)
        times = np.unique(np.concatenate([r.times for r in replies.values()]))
        if not len(times):
            raise _no_events(fed)
        return times
    first = fed.sum(death_moments, **which)
    deaths = float(first.deaths)
    if deaths < 1:
        raise _no_events(fed)
    share = deaths / (intervals_of(rule) or MOST)
    cells = _sketch(fed, which, first, max(2.0 * min_cell, share / 4, 2.0))
    ends = interval_ends(cells.counts, max(float(min_cell), 1.0), share)
    return cells.edges[ends + 1]


def _sketch(fed: Federation, which: dict[str, int], first: Times, at_least: float) -> Histogram:
    """Ask for a histogram of the times of death; cells with `at_least` of them are split."""
    mean = float(first.total) / float(first.deaths)
    squares = float(fed.sum(death_spread, centre=mean, **which).squares)
    moments = Moments(
        n=np.array([float(first.deaths)]),
        mean=np.array([mean]),
        sd=np.sqrt(np.array([squares / float(first.deaths)])),
        whole=np.array([float(first.fractional) == 0]),
    )

    def ask(edges: Array) -> Array:
        return fed.sum(death_cells, edges=edges, **which).counts

    def anywhere(h: Histogram) -> Array:
        return np.arange(len(h.counts))

    column = np.array([0])
    tables = histograms(ask, moments, column)
    return refine(ask, tables, column, 1, anywhere, at_least)[0]


def _deaths(table: SurvivalTable, stratum: int) -> Array:
    dead = np.asarray(table.event, bool)
    if stratum != ALL and table.stratum is not None:
        dead = dead & (table.stratum == stratum)
    return np.asarray(table.time, float)[dead]


def _no_events(fed: Federation) -> NothingToLearn:
    return NothingToLearn(
        f"none of the {len(fed.sites)} sites has seen an event, so there is no survival to model. "
        f"Check that the event column is 1 where the event was seen."
    )

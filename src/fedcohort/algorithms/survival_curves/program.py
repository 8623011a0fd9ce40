"""Kaplan–Meier, Nelson–Aalen and the log-rank test, over sites.

Equations are in `metrics.survival.kaplan_meier` and `metrics.survival.log_rank`; `risk` has the
numbers at risk without exact times, and their error. Steps of a fit:

    1  Count records and deaths of each group.
    2  Find the common grid of times from the deaths of all groups (`data.timegrid`).
    3  Count each group's records in cells of that grid (`cells`), and sum their times: deaths and
       censored records for a curve; all leavers for the test, and the deaths of all groups
       together. With time_grid "exact", count deaths and censored records at each time of death.
    4  For a weighted test, sum the weights over each group's deaths.

With a number as time_grid, a curve shows that many points of the protected grid: several grids
reveal no more than the finest.

Published results depend only on 3 and 4: counts of 0 or at least `min_cell`, and sums over as many.
Total numbers of records and deaths are public: with a hidden group, others are hidden until its
numbers do not follow.

Revealed, only as sums over all sites: `Tally` once, `CellCounts` and `CellTimes` a few times,
`Weighted` once, and the sums of the grid. Counts of step 1, of the grid's histogram, and rarely of
a split that is undone, may be small; the coordinator sees them and does not publish them. "exact"
reveals `ExactCounts`, and each site's times of death.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import digamma

from fedcohort.algorithms.survival_curves.cells import Finder, Row
from fedcohort.algorithms.survival_curves.comparison import LogRankModel
from fedcohort.algorithms.survival_curves.groups import ALL, names_of
from fedcohort.algorithms.survival_curves.model import HAZARD, SURVIVAL, Curve, CurvesModel
from fedcohort.algorithms.survival_curves.risk import AtRisk, at_risk, exactly, left_at
from fedcohort.algorithms.survival_curves.settings import (
    CurveSettings,
    KaplanMeierSettings,
    LogRankSettings,
)
from fedcohort.algorithms.survival_curves.steps import (
    ANY,
    CENSORED,
    DEATHS,
    LEAVERS,
    Tally,
    exact_counts,
    group_tally,
    weighted_deaths,
)
from fedcohort.arrays import Array
from fedcohort.data.timegrid import intervals_of, time_grid
from fedcohort.metrics.survival.kaplan_meier import nelson_aalen, survival_curve
from fedcohort.metrics.survival.log_rank import log_rank_of, weights
from fedcohort.privacy.disclosure.counts import few, hidden_groups
from fedcohort.protocol import DataError, Federation, NothingToLearn, SiteUnavailable, Task

#: Note of a group that is large enough and has no curve.
BESIDE = "hidden as well: its numbers would reveal those of a small group (min_cell)"


def fit_kaplan_meier(fed: Federation, config: KaplanMeierSettings, task: Task) -> CurvesModel:
    """Estimate the survival of all records, or of each group; raises as `_fit_curves`."""

    def estimate(a: AtRisk) -> Curve:
        s = survival_curve(a.steps, a.step_deaths, a.step_risk, config.level, config.transform)
        value, low, high = (np.r_[1.0, v][a.steps] for v in s[1:])
        least, most = (survival_curve(a.times, a.deaths, n).survival for n in (a.least, a.most))
        return Curve(a.times, a.deaths, a.followed, a.about, value, low, high, least, most)

    return _fit_curves(fed, config, task, SURVIVAL, estimate, config.horizon)


def fit_nelson_aalen(fed: Federation, config: CurveSettings, task: Task) -> CurvesModel:
    """Estimate the cumulative hazard of all records, or of each group; raises as `_fit_curves`."""

    def estimate(a: AtRisk) -> Curve:
        tied = config.time_grid == "exact"
        h = nelson_aalen(a.steps, a.step_deaths, a.step_risk, config.level, tied=tied)
        value, low, high = (np.r_[0.0, v][a.steps] for v in h[1:])
        least = np.cumsum(a.deaths / np.maximum(a.most, 1))
        untied = digamma(a.least + 1.0) - digamma(a.least - a.deaths + 1.0)
        most = least if tied else np.cumsum(untied)
        return Curve(a.times, a.deaths, a.followed, a.about, value, low, high, least, most)

    return _fit_curves(fed, config, task, HAZARD, estimate, 0.0)


def _fit_curves(
    fed: Federation,
    config: CurveSettings,
    task: Task,
    kind: str,
    estimate: Callable[[AtRisk], Curve],
    horizon: float,
) -> CurvesModel:
    """Fit a curve for each group with enough records, or one of all records.

    Raises
    ------
    NothingToLearn : no records, no deaths, or no group with enough of both.
    SiteUnavailable : a site left during the fit.
    """
    names = names_of(task.features, config.by) if config.by else ()
    start = _started(fed, names or (ALL,), len(names), config, task)
    beside = start.hidden_for_others()
    lacks = [start.lacks(i) or beside[i] * BESIDE for i in range(len(start.names))]
    kept = [i for i, why in enumerate(lacks) if not why and start.records[i]]
    if not kept:
        who = f"any level of column {config.by!r}" if config.by else "the table"
        raise NothingToLearn(
            f"no curve of {who} can be shown: a curve needs {task.min_cell} records or more, and "
            f"no deaths or {task.min_cell} or more"
            f"{', and may not reveal the numbers of another level' * any(beside)}. Join levels, or "
            f"lower min_cell at every site."
        )
    exact = config.time_grid == "exact"
    times = time_grid(start.fed, "exact" if exact else "protected", task.min_cell)
    risks = _exact_risks if exact else _protected_risks
    points = None if exact else intervals_of(config.time_grid)
    found = {
        i: estimate(a).thinned(points or len(a.times))
        for i, a in risks(start, times, kept, len(names)).items()
    }
    start.check()
    fed.record(points=float(sum(len(c.times) for c in found.values())))
    hidden = start.hidden()
    return CurvesModel(
        kind=kind,
        by=config.by,
        groups=start.names,
        shown=tuple(found.get(i) for i in range(len(start.names))),
        records=tuple(None if h else int(n) for h, n in zip(hidden, start.records, strict=True)),
        events=tuple(None if why else int(n) for why, n in zip(lacks, start.deaths, strict=True)),
        notes=tuple(why or start.leaves_out(i) for i, why in enumerate(lacks)),
        exact=exact,
        level=config.level,
        horizon=horizon,
        min_cell=start.min_cell,
    )


def _started(
    fed: Federation,
    names: tuple[str, ...],
    groups: int,
    config: CurveSettings | LogRankSettings,
    task: Task,
) -> _Start:
    """Return the sites that answer, with each group's records and deaths."""
    tally: Tally = fed.sum(group_tally, groups=groups)
    if not tally.records[:-1].sum():
        what = f" with a value of column {config.by!r}" if config.by else ""
        raise NothingToLearn(
            f"the {len(fed.answered)} sites hold no records{what}; check their selection."
        )
    cell = 1 if config.time_grid == "exact" else task.min_cell
    answered = fed.only(fed.answered).awaiting()
    return _Start(
        answered, names, tally.records[:-1], tally.deaths[:-1],
        int(tally.records[-1]), int(tally.deaths[-1]), cell,
    )  # fmt: skip


def _exact_risks(
    start: _Start, times: Array, kept: Sequence[int], groups: int
) -> dict[int, AtRisk]:
    reply = start.fed.sum(exact_counts, times=times, groups=groups)
    return {i: exactly(times, reply.deaths[i], reply.censored[i]) for i in kept}


def _protected_risks(
    start: _Start, times: Array, kept: Sequence[int], groups: int
) -> dict[int, AtRisk]:
    censored = [i for i in kept if not start.leaves_out(i) and start.censored[i] > 0]
    rows = [Row(i, k) for i in kept for k in (DEATHS, CENSORED) if k == DEATHS or i in censored]
    finder = Finder(start.fed, times, groups, start.min_cell)
    cells = finder.find(rows, split_deaths=groups > 1 or start.ungrouped_deaths > 0)
    found: dict[int, AtRisk] = {}
    for i in kept:
        a = at_risk(times, cells[Row(i, DEATHS)], cells.get(Row(i, CENSORED)))
        hidden = few(np.round(a.about), start.min_cell) | bool(start.leaves_out(i))
        followed = np.full(len(a.followed), -1) if start.leaves_out(i) else a.followed
        found[i] = replace(a, followed=followed, about=np.where(hidden, np.nan, a.about))
    return found


def fit_log_rank(fed: Federation, config: LogRankSettings, task: Task) -> LogRankModel:
    """Test whether groups die at different rates.

    Raises
    ------
    DataError : a group has few records or deaths, or fewer than two groups have records.
    NothingToLearn : no records, or no deaths.
    SiteUnavailable : a site left during the fit.
    """
    names = names_of(task.features, config.by)
    start = _started(fed, names, len(names), config, task)
    kept = np.flatnonzero(start.records)
    if len(kept) < 2:
        raise DataError(
            f"column {config.by!r} has {len(kept)} level with records; a test compares two or more."
        )
    for i in kept.tolist():
        if reason := start.lacks(i):
            raise DataError(
                f"level {names[i]!r} of column {config.by!r}: {reason}. Join it with another "
                f"level, or leave its rows out."
            )
    times = time_grid(start.fed, config.time_grid, task.min_cell)
    exact = config.time_grid == "exact"
    died, risk = (_exact_table if exact else _protected_table)(start, times, kept)
    w = weights(config.weighting, died, risk.sum(axis=0), config.rho, config.gamma)
    observed, weighted = start.deaths[kept], None
    if (w != 1).any():
        reply = start.fed.sum(weighted_deaths, times=times, groups=len(names), weight=w)
        weighted = reply.total[kept]
    start.check()
    test = log_rank_of(observed, died, risk, w, weighted, tied=exact)
    fed.record(groups=float(len(kept)))
    return LogRankModel(
        by=config.by,
        groups=tuple(names[i] for i in kept),
        records=np.where(np.array(start.hidden())[kept], -1, start.records[kept]),
        observed=observed,
        expected=test.expected,
        chi2=test.chi2,
        df=test.df,
        p=test.p,
    )


def _exact_table(start: _Start, times: Array, kept: Array) -> tuple[Array, Array]:
    """Return deaths (T,) and the kept groups' numbers at risk (g, T) at all times of death."""
    reply = start.fed.sum(exact_counts, times=times, groups=len(start.names))
    found = [exactly(times, reply.deaths[i], reply.censored[i]) for i in kept]
    return reply.deaths[kept].sum(axis=0), np.stack([a.step_risk for a in found])


def _protected_table(start: _Start, times: Array, kept: Array) -> tuple[Array, Array]:
    """Return deaths of all groups (T,) and the kept groups' numbers at risk (g, T) on the grid.

    Of each group only the leavers are counted, in its own cells.
    """
    finder = Finder(start.fed, times, len(start.names), start.min_cell)
    leaving = [Row(int(i), LEAVERS) for i in kept]
    together = Row(ANY, DEATHS)
    cells = finder.find([together, *leaving], split_deaths=bool(start.ungrouped_deaths))
    counts, means, ends = cells[together].counts, cells[together].means, cells[together].edges[1:]
    at = np.where(counts > 0, means, times[ends - 2])
    risk = np.stack([left_at(times, at, cells[row]) for row in leaving])
    died, full = np.zeros(len(times)), np.ones((len(kept), len(times)))
    died[ends - 2], full[:, ends - 2] = counts, risk
    return died, full


@dataclass(frozen=True)
class _Start:
    """The sites that answered, and records and deaths of each group (g,) and of no group."""

    fed: Federation
    names: tuple[str, ...]
    records: Array
    deaths: Array
    ungrouped: int
    ungrouped_deaths: int
    min_cell: int

    @property
    def censored(self) -> Array:
        """Censored records (g,)."""
        return self.records - self.deaths

    def lacks(self, i: int) -> str:
        """Return why a group cannot have a curve; "" if it can."""
        for what, number in (("records", self.records[i]), ("deaths", self.deaths[i])):
            if few(number, self.min_cell):
                return f"it has fewer than {self.min_cell} {what} at all sites (min_cell)"
        return ""

    def hidden(self) -> list[bool]:
        """Return which groups' numbers of records are hidden (g,).

        Hidden are groups with few records, deaths or censored records, and as many more as
        necessary so that no small number follows from all records (`hidden_groups`). Records in no
        group count as one more group: their number is public unless it is small, their deaths are
        not.
        """
        groups = np.column_stack([self.records, self.deaths, self.censored])
        n, d = self.ungrouped, self.ungrouped_deaths
        none = np.array([[n, d, n - d]])
        small = few(none, self.min_cell)
        ways = [np.vstack([groups, none * part]) for part in (small[0, 0], small.any())]
        either: Array = np.any([hidden_groups(cells, self.min_cell) for cells in ways], axis=0)
        return either.tolist()[:-1]

    def hidden_for_others(self) -> list[bool]:
        """Return which groups (g,) are hidden only because another's numbers would follow."""
        cause = [bool(self.lacks(i) or self.leaves_out(i)) for i in range(len(self.records))]
        return [h and not c for h, c in zip(self.hidden(), cause, strict=True)]

    def leaves_out(self, i: int) -> str:
        """Return what a group's curve leaves out; "" if nothing."""
        if not few(self.censored[i], self.min_cell):
            return ""
        return f"its fewer than {self.min_cell} censored records are left out (min_cell)"

    def check(self) -> None:
        """Raise `SiteUnavailable` if a site has left."""
        if gone := sorted(set(self.fed.sites) - set(self.fed.answered)):
            raise SiteUnavailable(
                f"{', '.join(gone)} left during the fit; a curve needs all sums from the same "
                f"sites. Fit again without them, or when they are back."
            )

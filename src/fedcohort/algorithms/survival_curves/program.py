"""Kaplan–Meier, Nelson–Aalen and the log-rank test, over sites.

Equations stand in `metrics.survival.kaplan_meier`, `metrics.nelson_aalen` and
`metrics.survival.log_rank`; what is put in the place of exact times, and how far it can be off, in
`risk`. The course of a fit:

    1  records and deaths of each group;
    2  the common grid of times, from the deaths of all groups (`data.timegrid`);
    3  of each group, counts in cells of that grid, and the sums of their times: of deaths and of
       censored records for a curve, of all who leave for the test, which takes the deaths of all
       groups together. Cells are split while they hold many (`cells`), so that none holds few.
       Or, where time_grid is "exact", deaths and censored records at each time of death;
    4  for a weighted test, the sum of the weights over each group's deaths.

A number as the time_grid of a curve shows so many of the points of the protected one, so that
curves on several grids tell no more together than the finest alone.

All that is published is a function of 3 and 4: of counts that are 0 or `min_cell` and more, and
sums over so many. How many records and deaths there are in all is known: where one group is hidden,
others are hidden beside it until its numbers do not follow.

Revealed, only as sums over all sites: `Tally` once, `CellCounts` and `CellTimes` a few times,
`Weighted` once, and what the grid takes. Counts of step 1, of the grid's histogram, and seldom of a
split that is undone, may be small; the coordinator sees them, and shows none. "exact" reveals
`ExactCounts`, and each site's times of death.
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

#: Why a group that is large enough has no curve.
BESIDE = "with its numbers, those of a group of few would follow from all records (min_cell)"


def fit_kaplan_meier(fed: Federation, config: KaplanMeierSettings, task: Task) -> CurvesModel:
    """Estimate survival of all records, or of each group; raises as `fit_curves` does."""

    def estimate(a: AtRisk) -> Curve:
        s = survival_curve(a.steps, a.step_deaths, a.step_risk, config.level, config.transform)
        value, low, high = (np.r_[1.0, v][a.steps] for v in s[1:])
        least, most = (survival_curve(a.times, a.deaths, n).survival for n in (a.least, a.most))
        return Curve(a.times, a.deaths, a.followed, a.about, value, low, high, least, most)

    return _fit_curves(fed, config, task, SURVIVAL, estimate, config.horizon)


def fit_nelson_aalen(fed: Federation, config: CurveSettings, task: Task) -> CurvesModel:
    """Estimate the cumulative hazard of all records, or of each group; raises as `fit_curves`."""

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
    """Fit a curve for each group that has enough people, or one of all.

    Raises
    ------
    NothingToLearn : no records, no deaths, or no group with enough of both.
    SiteUnavailable : a site left during the fit.
    """
    names = names_of(task.features, config.by) if config.by else ()
    start = _started(fed, names or (ALL,), len(names), config, task)
    beside = start.beside()
    lacks = [start.lacks(i) or beside[i] * BESIDE for i in range(len(start.names))]
    kept = [i for i, why in enumerate(lacks) if not why and start.records[i]]
    if not kept:
        who = f"no level of column {config.by!r}" if config.by else "the table"
        raise NothingToLearn(
            f"{who} has {task.min_cell} records and no deaths or {task.min_cell}, so no curve can "
            f"be shown{' that tells of no other' * any(beside)}. Join levels, or lower min_cell at "
            f"every site."
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
    """Ask for the first counts."""
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
    """Return each group's numbers at risk at all times of death."""
    reply = start.fed.sum(exact_counts, times=times, groups=groups)
    return {i: exactly(times, reply.deaths[i], reply.censored[i]) for i in kept}


def _protected_risks(
    start: _Start, times: Array, kept: Sequence[int], groups: int
) -> dict[int, AtRisk]:
    """Return each group's numbers at risk in cells of its own."""
    whole = {i: not start.leaves_out(i) and start.censored[i] > 0 for i in kept}
    rows = [Row(i, kind) for i in kept for kind in (DEATHS, CENSORED) if kind == DEATHS or whole[i]]
    finder = Finder(start.fed, times, groups, start.min_cell)
    cells = finder.find(rows, whole=groups > 1 or start.ungrouped > 0)
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
    DataError : a group has few records or deaths, or there are fewer than two groups with records.
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
    """Return deaths (T,), and numbers at risk (g, T) of the kept groups, at all times of death."""
    reply = start.fed.sum(exact_counts, times=times, groups=len(start.names))
    found = [exactly(times, reply.deaths[i], reply.censored[i]) for i in kept]
    return reply.deaths[kept].sum(axis=0), np.stack([a.step_risk for a in found])


def _protected_table(start: _Start, times: Array, kept: Array) -> tuple[Array, Array]:
    """Return deaths (T,), and numbers at risk (g, T), in intervals of the grid.

    Deaths are those of all groups together; of each group it is asked only who left, in cells of
    its own.
    """
    finder = Finder(start.fed, times, len(start.names), start.min_cell)
    leaving = [Row(int(i), LEAVERS) for i in kept]
    together = Row(ANY, DEATHS)
    cells = finder.find([together, *leaving], whole=bool(start.ungrouped))
    counts, means, ends = cells[together].counts, cells[together].means, cells[together].edges[1:]
    at = np.where(counts > 0, means, times[ends - 2])
    risk = np.stack([left_at(times, at, cells[row]) for row in leaving])
    died, full = np.zeros(len(times)), np.ones((len(kept), len(times)))
    died[ends - 2], full[:, ends - 2] = counts, risk
    return died, full


@dataclass(frozen=True)
class _Start:
    """The sites that answered, each group's records and deaths (g,), and those in no group."""

    fed: Federation
    names: tuple[str, ...]
    records: Array
    deaths: Array
    alone: int
    ungrouped: int
    min_cell: int

    @property
    def censored(self) -> Array:
        """Censored records (g,)."""
        return self.records - self.deaths

    def lacks(self, i: int) -> str:
        """Return why a group cannot have a curve; "" where it can."""
        for what, number in (("records", self.records[i]), ("deaths", self.deaths[i])):
            if few(number, self.min_cell):
                return f"it has fewer than {self.min_cell} {what} at all sites (min_cell)"
        return ""

    def hidden(self) -> list[bool]:
        """Return which groups' records are not told (g,).

        Those of few, those of which the few censored are left out, and as many more as it takes
        that no such number is what the others leave of all records (`hidden_groups`). Records in no
        group are one more part: their number is known elsewhere unless it is small, and how many of
        them died is not.
        """
        groups = np.column_stack([self.records, self.deaths, self.censored])
        none = np.array([[self.alone, self.ungrouped, self.alone - self.ungrouped]])
        small = few(none, self.min_cell)
        ways = [np.vstack([groups, none * part]) for part in (small[0, 0], small.any())]
        either: Array = np.any([hidden_groups(cells, self.min_cell) for cells in ways], axis=0)
        return either.tolist()[:-1]

    def beside(self) -> list[bool]:
        """Return which groups (g,) have no curve since it would tell another's hidden numbers."""
        cause = [bool(self.lacks(i) or self.leaves_out(i)) for i in range(len(self.records))]
        return [h and not c for h, c in zip(self.hidden(), cause, strict=True)]

    def leaves_out(self, i: int) -> str:
        """Return what a group's curve cannot take in; "" where it takes in all."""
        if not few(self.censored[i], self.min_cell):
            return ""
        return f"its fewer than {self.min_cell} censored records are left out (min_cell)"

    def check(self) -> None:
        """Raise `SiteUnavailable` where a site has left."""
        if gone := sorted(set(self.fed.sites) - set(self.fed.answered)):
            raise SiteUnavailable(
                f"{', '.join(gone)} left during the fit, and sums over different sites make no "
                f"curve. Fit again without them, or once they are back."
            )

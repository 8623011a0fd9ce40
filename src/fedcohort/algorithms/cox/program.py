"""Cox regression over sites, exactly that of the pooled table.

D. R. Cox, "Regression models and life-tables", JRSS B 34(2), 1972; ties as Breslow (1974) or Efron
(1977). Distributed after Lu et al., "WebDISCO", JAMIA 22(6), 2015, but with less revealed. There,
each round gives the sums over every risk set of r, r x and r x xᵀ. Here, in the notation of
`numerics.coxph`, whose eqs. (1), (4) and (5) are used:

    1  sites sum r by the time a record leaves, the coordinator has S₀, ℓ(β) and the hazard a, b;
    2  sites know from a, b the deaths w_j expected of each record, and sum w x and w x xᵀ over
       *all* records: the score U(β), and the information but for the drift of m(t);
    3  once, at the end, sites sum r x by time: the drift, so the exact information.

Rounds repeat 1 and 2 with the drift estimated from the change of U (`ascent`). With a stratified
baseline, each site's hazard is its own: ℓ, U and I of the sites add up, no risk set is revealed.
At the end, whether effects change with time is tested (`algorithms.cox.proportional`): step 2 once
more, with the deaths expected of each record weighted by a function of time and by its square.

The protected grid is of intervals in which enough records leave, dead or censored; in which order
is averaged over, as Efron does over the order of tied deaths (`numerics.coxph`). How far the order
may move β is estimated, once, at the end (`SharedBaseline.disorder`).

Revealed, only as sums over all sites: over several, but on the grid "exact", what `data.exact`
asks; `Totals` and `Deaths` once; `RiskWeights` (T,) and `Expected` (p, p) every round;
`RiskMoments` (T, p) and `TrendMoments` (p + 2 p²) once; the second moment r x xᵀ by time never; on
a grid `Disorder` (p,) once. Stratified: `Totals` and `Deaths` once, `OwnLikelihood` (1 + p + p²)
every round, `OwnTrend` (p + 2 p²) and `RiskWeights` once. Sites learn β and the pooled hazard. The
grid "exact" also gathers each site's times of death. With a path of penalties, `RiskWeights` and
`Expected` for each of them, and what `elastic` says.

Strata have baseline hazards of their own and common coefficients. Their grids stand in a row
(`numerics.strata`), so that each question is asked once and for all of them: `RiskWeights` and
`RiskMoments` are over a stratum's intervals, by the same rules in each, the moments of all rounds
over all records. A stratified baseline is then one of each stratum at each site.

`disclosure` has how few records leave together, and what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from fedcohort.algorithms.cox import proportional
from fedcohort.algorithms.cox.ascent import Climb, Here, Top
from fedcohort.algorithms.cox.disclosure import (
    check_late,
    check_strata,
    least_cell,
    most_sums,
)
from fedcohort.algorithms.cox.elastic import cross_validate, follow
from fedcohort.algorithms.cox.likelihood import (
    Ground,
    SharedBaseline,
    StratifiedBaseline,
)
from fedcohort.algorithms.cox.model import CoxModel
from fedcohort.algorithms.cox.proportional import Trend
from fedcohort.algorithms.cox.settings import CoxSettings
from fedcohort.algorithms.cox.steps import Totals, deaths, stratum_sizes, totals
from fedcohort.arrays import Array
from fedcohort.data.exact import Exact, check_covariates, exact_sums
from fedcohort.data.timegrid import Intervals, intervals, no_events
from fedcohort.numerics.collinearity import scale_of
from fedcohort.numerics.strata import by_stratum
from fedcohort.privacy.disclosure.rounding import origins
from fedcohort.protocol import (
    Federation,
    NothingToLearn,
    Task,
    check_all_answered,
)

#: Of a stratum where nobody died.
NOTHING = Intervals(np.zeros(0), np.zeros(0, bool), 0.0)


def fit(fed: Federation, config: CoxSettings, task: Task) -> CoxModel:
    """Fit a Cox model on all sites that answer the first call.

    Raises
    ------
    DataError : no covariates, no records, or no deaths; or an offset that is far too large.
    NothingToLearn : a column, weights or an offset single out records, or few died, or are
        censored (`data.exact`).
    SettingError : patients enter late, and the grid would let sums show a few of them; or a
        stratum has too few records or deaths for a grid of its own.
    SiteUnavailable : a site left during the fit.
    SingularInformation : some covariates are collinear in every risk set; they are named.
    NotConverged : the likelihood is monotone (separation), or the rounds are over, or so many that
        the sums could be solved for patients.
    """
    names = task.features[:-1] if task.offset else task.features
    check_covariates(task)
    exact = config.time_grid == "exact"
    sites = None if exact else exact_sums(fed, task, "event", "log")
    total = (fed if sites is None else sites).sum(totals, offset=task.offset)
    if not total.rows:
        raise NothingToLearn(
            f"the {len(fed.answered)} sites hold no records; check their selection."
        )
    sites = sites or Exact.of(fed, task, None)
    fed = sites.fed
    p = len(names)
    cell = least_cell(config, task.min_cell, p)
    grid = grids(fed, config, task.strata, max(cell, task.min_cell))
    ground = survey(fed, total, grid, cell, task.min_cell, p)
    check_late(ground, config)
    choose = partial(cross_validate, fed, ground, config, task)
    climb = partial(
        Climb,
        fed,
        names=names,
        rounds=iter(fed.rounds(config.max_rounds * config.fits)),
        tol=config.tol,
        max_rounds=config.max_rounds,
    )
    spread = np.zeros(0)

    def look(begun: Climb[Here]) -> None:
        scale = ground.scale
        sites.related(begun.part * np.outer(scale, scale), ground.centre[:p])

    if config.baseline == "shared":
        one = SharedBaseline(fed, ground, config.ties)
        begun = climb(one, max_sums=most_sums(config, cell, p))
        look(begun)
        top, here, path = follow(begun, ground, config, choose)
        trend = partial(one.trend, here)
        hazard = _breslow(grid, ground, here.s0)
        if not (exact or top.lasso):
            spread = one.disorder(here, top.covariance) / ground.scale
    else:
        each = StratifiedBaseline(fed, ground, config.ties)
        begun = climb(each)
        look(begun)
        top, here, path = follow(begun, ground, config, choose)
        trend = partial(each.trend, here)
        if ground.late and not exact:
            hazard = by_stratum(each.hazard(top.gamma), ground.sizes)
        else:
            s0 = SharedBaseline(fed, ground, "breslow").at(top.gamma).s0
            hazard = _breslow(grid, ground, s0)
    died = by_stratum(ground.deaths, ground.sizes)
    baselines = tuple(
        g.baseline(steps, dead, task.min_cell)
        for g, steps, dead in zip(grid, hazard, died, strict=True)
    )
    covariance = top.covariance / np.outer(ground.scale, ground.scale)
    check = "none" if top.lasso else config.ph_check
    return CoxModel(
        features=names,
        coefficients=top.gamma / ground.scale,
        covariance=covariance,
        centre=ground.centre,
        baselines=baselines,
        strata=task.strata,
        log_likelihood=top.log_likelihood,
        null_log_likelihood=top.null,
        rows=ground.rows,
        events=int(ground.deaths.sum()),
        level=config.level,
        ph_transform=check,
        ph_chi2=change_with_time(check, ground, trend, top),
        grid_error=spread,
        path=path,
    )


def change_with_time(kind: str, ground: Ground, trend: Callable[[Array], Trend], top: Top) -> Array:
    """Return χ² of each covariate and of all, (p + 1,); nothing if no test is wanted.

    Parameters
    ----------
    kind : one of `proportional.TRANSFORMS`, or "none"; of time, the same in all strata.
    trend : the question to the sites, by g (T,). All deaths at one time need no question.
    """
    if kind == "none":
        return np.zeros(0)
    times, at = np.unique(ground.times, return_inverse=True)
    counts = (ground.deaths, ground.leaving, ground.weight)
    g = proportional.clock(kind, times, *(np.bincount(at, v) for v in counts))[at]
    if not g[ground.deaths > 0].any():
        return np.full(len(ground.scale) + 1, np.nan)
    found = proportional.score_tests(trend(g), top.last, top.covariance)
    return np.r_[found.each, found.joint]


def survey(
    fed: Federation, total: Totals, grid: Sequence[Intervals], cell: int, min_cell: int, p: int
) -> Ground:
    """Fix origin and scale of the covariates, and count who leaves.

    `grid` is that of each stratum; sums over some of the leavers of an interval are of `cell`.

    The origin is the pooled mean, rounded so that it tells no count below `min_cell`
    (`privacy.disclosure.rounding`): the model is saved with it, and no coefficient depends on it.
    """
    mean = total.x / total.rows
    times = np.concatenate([g.times for g in grid])
    sizes = np.array([len(g.times) for g in grid])
    single = [g.single for g in grid if g.single is not None]
    together = len(single) == len(grid)
    died = fed.sum(deaths, times=times, sizes=sizes, together=together, centre=mean)
    check_all_answered(fed)
    spread = np.sqrt(died.squares / total.rows)
    scale = scale_of(spread, mean)[:p]
    centre = origins(mean, spread, int(total.rows), min_cell)
    x_dead = died.x_dead + died.weight.sum() * (mean - centre)
    censored, enter = (by_stratum(v, sizes + 1) for v in (died.censored, died.enter))
    left = [leaving(*v) for v in zip(censored, enter, strict=True)]
    return Ground(
        times=times,
        sizes=sizes,
        single=np.concatenate(single) if together else np.zeros(0, bool),
        deaths=died.deaths.astype(float),
        weight=np.asarray(died.weight, float),
        leaving=died.deaths + np.concatenate(left),
        cell=cell,
        late=bool(died.enter.any()),
        centre=centre,
        scale=scale,
        x_dead=x_dead[:p] / scale,
        fixed=float(x_dead[p:].sum()),
        rows=int(total.rows),
        total=float(total.weight),
    )


def _breslow(grid: Sequence[Intervals], ground: Ground, s0: Array) -> list[Array]:
    """Return the hazard of each interval of each stratum, from S₀ (T,)."""
    parts = (by_stratum(v, ground.sizes) for v in (ground.weight, ground.leaving, s0))
    return [g.hazard(*each) for g, *each in zip(grid, *parts, strict=True)]


def leaving(censored: Array, enter: Array) -> Array:
    """Return how many of the censored records (T + 1,) leave at each time (T,).

    Less how many `enter` (T + 1,) at the next.
    """
    gone = np.array(censored[1:])
    gone[:-1] -= enter[1:-1]
    return gone


def grids(
    fed: Federation, config: CoxSettings, strata: Sequence[str], cell: int
) -> list[Intervals]:
    """Return the grid of each stratum.

    Parameters
    ----------
    strata : levels of their column; none for one stratum of all records.
    cell : leavers that an interval must have, and deaths that a stratum must, but on the grid
        "exact"; and records that must be followed beyond what is known.

    Raises
    ------
    NothingToLearn : nobody died.
    SettingError : a stratum has too few records or deaths for a grid; it is named.
    """
    if not strata:
        return [intervals(fed, config.time_grid, cell)]
    sizes = fed.sum(stratum_sizes, strata=len(strata))
    check_all_answered(fed)
    if not sizes.deaths.any():
        raise no_events(fed)
    check_strata(sizes, config.strata, strata, 1 if config.time_grid == "exact" else cell)
    return [
        intervals(fed, config.time_grid, cell, k) if died else NOTHING
        for k, died in enumerate(sizes.deaths.tolist())
    ]

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
At the end, whether effects change with time is tested (`numerics.proportional`): step 2 once more,
with the deaths expected of each record weighted by a function of time and by its square.

On a grid, how far it moves β is estimated (`SharedBaseline.gap`) from what it does to the score
under each site's own risk sets, which sites know at exact times as well as on the grid:

    β_grid − β_exact ≈ −I⁻¹ Σ_sites [U_exact(β) − U_grid(β)]                               (1)

A site's own deaths are a sample of those between which its patients leave, so that (1) is right on
average where sites are alike, and to first order where one site has all records.

Revealed, only as sums over all sites: `Totals` and `Deaths` once; `RiskWeights` (T,) and `Expected`
(p, p) every round; `RiskMoments` (T, p) and `TrendMoments` (p + 2 p²) once; the second moment
r x xᵀ by time never; on a grid `Moved` and `Gap` (p,) once. Stratified: `Totals` and `Deaths` once,
`OwnLikelihood` (1 + p + p²) every round, `OwnTrend` (p + 2 p²) and `RiskWeights` once. Sites learn
β and the pooled hazard. The grid "exact" also gathers each site's times of death. With a path of
penalties, `RiskWeights` and `Expected` for each of them, and what `elastic` says.

Where deaths tie, the sums over those who leave less those over the dead are sums over the censored.
So on every grid but "exact", with an interval leave m deaths or more, and m censored records or
none: these wait for company (`numerics.survival.exits`). Breslow's ties obey too, which need no
sums over the dead, because a fit with Efron's beside it gives those. K calls for `RiskWeights` and
one for `RiskMoments` make K + p equations about p covariates of each of m patients: too few to
solve while K < (m − 1) p, where the K (1 + p + p²) of WebDISCO are enough in a few rounds. So m is
`min_cell`, or more where few covariates, or a path of penalties, need it for so many calls; a fit
that asks on is ended. `TrendMoments` weighs whole intervals, so it is a sum of sums over m deaths,
or leavers, or more. `Gap` tells of those whom the grid moves: it is asked for if they are
`min_cell` or more.

Who enters late makes sums over an interval's leavers less those who enter at the next. Each may be
of m records, and yet combinations of two intervals be of few: of those who enter and leave with the
others but one. So with late entries a grid for all sites is refused; stratified needs none, and
its pooled baseline is then the mean of the sites' own (`OwnHazard`, once).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from fedcohort.algorithms.cox.ascent import Climb, Top
from fedcohort.algorithms.cox.elastic import cross_validate, follow
from fedcohort.algorithms.cox.likelihood import (
    Ground,
    SharedBaseline,
    StratifiedBaseline,
    check_all_answered,
)
from fedcohort.algorithms.cox.model import CoxModel
from fedcohort.algorithms.cox.settings import CoxSettings
from fedcohort.algorithms.cox.steps import Totals, deaths, totals
from fedcohort.arrays import Array
from fedcohort.data.suppression import origins
from fedcohort.data.timegrid import time_grid
from fedcohort.numerics import proportional
from fedcohort.numerics.proportional import Trend
from fedcohort.numerics.survival import Baseline, exits, leave_together
from fedcohort.protocol import DataError, Federation, NothingToLearn, SettingError, Task

#: The grid is so coarse that fewer sums over risk sets than this solve for no patient; fits of up
#: to five covariates took 3 to 10.
SUMS = 12
#: And so many more for each penalty of a path, which took 2 to 4.
SUMS_PER_PENALTY = 4


def fit(fed: Federation, config: CoxSettings, task: Task) -> CoxModel:
    """Fit a Cox model on all sites that answer the first call.

    Raises
    ------
    DataError : no covariates, no records, or no deaths.
    SettingError : patients enter late, and the grid would let sums show a few of them.
    SiteUnavailable : a site left during the fit.
    SingularInformation : some covariates are collinear in every risk set; they are named.
    NotConverged : the likelihood is monotone (separation), or the rounds are over, or so many that
        the sums could be solved for patients.
    """
    names = task.features[:-1] if task.offset else task.features
    if not names:
        raise DataError("there are no covariates; name at least one column besides the outcome.")
    total = fed.sum(totals)
    if not total.rows:
        raise NothingToLearn(
            f"the {len(fed.answered)} sites hold no records; check their selection."
        )
    fed = fed.only(fed.answered)
    p = len(names)
    exact = config.time_grid == "exact"
    cell = least_cell(config, task.min_cell, p)
    times = time_grid(fed, config.time_grid, cell)
    ground = survey(fed, total, times, cell, task.min_cell, p)
    if ground.late and config.baseline == "shared" and not exact:
        raise SettingError(
            "some records enter late, and sums over those who leave an interval, less those who "
            "enter, could show a few patients. Set baseline 'stratified', which shows no risk set, "
            "or time_grid 'exact' if the coordinator may see all of them."
        )
    choose = partial(cross_validate, fed, ground, config, task)
    climb = partial(
        Climb,
        fed,
        names=names,
        rounds=iter(fed.rounds(config.max_rounds * config.fits)),
        tol=config.tol,
        max_rounds=config.max_rounds,
    )
    gap = np.zeros(0)
    if config.baseline == "shared":
        one = SharedBaseline(fed, ground, config.ties)
        bearable = math.inf if exact else (cell - 1) * p - 1
        top, here, path = follow(climb(one, max_sums=bearable), ground, config, choose)
        trend = partial(one.trend, here)
        baseline = Baseline.breslow(ground.times, ground.weight, here.s0)
        if not (exact or top.lasso):
            gap = one.gap(top.gamma, task.min_cell)
    else:
        each = StratifiedBaseline(fed, ground, config.ties)
        top, here, path = follow(climb(each), ground, config, choose)
        trend = partial(each.trend, here)
        if ground.late and not exact:
            baseline = Baseline(ground.times, np.cumsum(each.hazard(top.gamma)))
        else:
            s0 = SharedBaseline(fed, ground, "breslow").at(top.gamma).s0
            baseline = Baseline.breslow(ground.times, ground.weight, s0)
    covariance = top.covariance / np.outer(ground.scale, ground.scale)
    check = "none" if top.lasso else config.ph_check
    return CoxModel(
        features=names,
        coefficients=top.gamma / ground.scale,
        covariance=covariance,
        centre=ground.centre,
        baseline=baseline,
        log_likelihood=top.log_likelihood,
        null_log_likelihood=top.null,
        rows=ground.rows,
        events=int(ground.deaths.sum()),
        level=config.level,
        ph_transform=check,
        ph_chi2=change_with_time(check, ground, trend, top),
        grid_shift=-covariance @ (gap * ground.scale) if len(gap) else gap,
        path=path,
    )


def least_cell(config: CoxSettings, min_cell: int, p: int) -> int:
    """Return how many deaths, and how many censored records, leave together at least."""
    if config.time_grid == "exact":
        return 1
    if config.baseline == "stratified":
        return min_cell
    sums = SUMS + (SUMS_PER_PENALTY * config.path if config.penalty == "auto" else 0)
    return max(min_cell, math.ceil(sums / p) + 1)


def change_with_time(kind: str, ground: Ground, trend: Callable[[Array], Trend], top: Top) -> Array:
    """Return χ² of each covariate and of all, (p + 1,); nothing if no test is wanted.

    Parameters
    ----------
    kind : one of `proportional.TRANSFORMS`, or "none".
    trend : the question to the sites, by g (T,). All deaths at one time need no question.
    """
    if kind == "none":
        return np.zeros(0)
    g = proportional.clock(kind, ground.times, ground.deaths, ground.leaving, ground.weight)
    if not g[ground.deaths > 0].any():
        return np.full(len(ground.scale) + 1, np.nan)
    found = proportional.score_tests(trend(g), top.last, top.covariance)
    return np.r_[found.each, found.joint]


def survey(
    fed: Federation, total: Totals, times: Array, cell: int, min_cell: int, p: int
) -> Ground:
    """Fix origin and scale of the covariates, and count who leaves, no fewer than `cell` together.

    The origin is the pooled mean, rounded so that it tells no count below `min_cell`
    (`data.suppression`): the model is saved with it, and no coefficient depends on it.
    """
    mean = total.x / total.rows
    died = fed.sum(deaths, times=times, centre=mean)
    check_all_answered(fed)
    spread = np.sqrt(died.squares / total.rows)
    scale = np.where(spread > 1e-12 * np.abs(mean), spread, 1.0)[:p]
    centre = origins(mean, spread, int(total.rows), min_cell)
    x_dead = died.x_dead + died.weight.sum() * (mean - centre)
    out = exits(died.censored, cell)
    return Ground(
        times,
        died.deaths.astype(float),
        np.asarray(died.weight, float),
        out,
        died.deaths + leaving(died.censored, out) - np.r_[died.enter[1:-1], 0],
        bool(died.enter.any()),
        centre,
        scale,
        x_dead[:p] / scale,
        float(x_dead[p:].sum()),
        int(total.rows),
        float(total.weight),
    )


def leaving(censored: Array, out: Array) -> Array:
    """Return how many of the censored records (T + 1,) leave at each time (T,), by the exits."""
    slot = np.arange(-1, len(censored) - 1)
    leaves = leave_together(slot, np.zeros(len(slot), bool), out)
    return np.bincount(leaves + 1, censored, minlength=len(censored))[1:]

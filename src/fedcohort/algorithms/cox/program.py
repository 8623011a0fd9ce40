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

Revealed, only as sums over all sites: `Totals` and `Deaths` once; `RiskWeights` (T,) and `Expected`
(p, p) every round; `RiskMoments` (T, p) and `TrendMoments` (p + 2 p²) once; the second moment
r x xᵀ by time never. Stratified: `Totals` and `Deaths` once, `OwnLikelihood` (1 + p + p²) every
round, `OwnTrend` (p + 2 p²) and `RiskWeights` once. Sites learn β and the pooled hazard. The grid
"exact" also gathers each site's times of death.

Where deaths tie, the sums over those who leave less those over the dead are sums over the censored.
So on every grid but "exact", with an interval leave m deaths or more, and m censored records or
none: these wait for company (`numerics.survival.exits`). Breslow's ties obey too, which need no
sums over the dead, because a fit with Efron's beside it gives those. K calls for `RiskWeights` and
one for `RiskMoments` make K + p equations about p covariates of each of m patients: too few to
solve while K < (m − 1) p, where the K (1 + p + p²) of WebDISCO are enough in a few rounds. So m is
`min_cell`, or more where few covariates need it for `SUMS` calls; a fit that asks on is ended.
`TrendMoments` weighs whole intervals, so it is a sum of sums over m deaths, or leavers, or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedcohort.algorithms.cox.ascent import Top, ascend
from fedcohort.algorithms.cox.likelihood import (
    Ground,
    SharedBaseline,
    StratifiedBaseline,
    check_all_answered,
)
from fedcohort.algorithms.cox.model import CoxModel
from fedcohort.algorithms.cox.steps import Totals, deaths, totals
from fedcohort.arrays import Array
from fedcohort.data.suppression import origins
from fedcohort.data.timegrid import check_rule, time_grid
from fedcohort.numerics import proportional
from fedcohort.numerics.proportional import Trend
from fedcohort.numerics.survival import Baseline, exits, leave_together
from fedcohort.protocol import DataError, Federation, NothingToLearn, SettingError, Task, setting

#: The grid is so coarse that fewer sums over risk sets than this solve for no patient; fits of up
#: to five covariates took 3 to 10.
SUMS = 12


@dataclass(frozen=True, kw_only=True)
class CoxSettings:
    """Settings of `cox`; the objective is −ℓ(β)/n + l2/2 ‖β‖²."""

    ties: str = setting("efron", "how equal times of death count", choices=("efron", "breslow"))
    baseline: str = setting(
        "shared",
        "one baseline hazard for all sites, or each site its own",
        choices=("shared", "stratified"),
    )
    l2: float = setting(0.0, "ridge penalty λ₂ ≥ 0", "squared unit of the covariate")
    time_grid: str | int = setting(
        "protected",
        "times at which risk sets are summed: 'protected', 'exact', or a number of intervals",
    )
    tol: float = setting(1e-7, "longest step at the end", "log hazard ratio per SD")
    max_rounds: int = setting(60, "rounds before the fit is given up", "rounds")
    level: float = setting(0.95, "coverage of the intervals")
    ph_check: str = setting(
        "km",
        "function of time with which effects are tested to change: 1 − Kaplan-Meier, the rank of "
        "deaths, time, its logarithm, or none",
        choices=(*proportional.TRANSFORMS, "none"),
    )

    def __post_init__(self) -> None:
        check_rule(self.time_grid)
        bounds = (
            ("l2", self.l2, 0 <= self.l2 < np.inf, "a number from 0"),
            ("tol", self.tol, 0 < self.tol < 1e-2, "a number between 0 and 0.01"),
            ("max_rounds", self.max_rounds, self.max_rounds >= 1, "a whole number from 1"),
            ("level", self.level, 0 < self.level < 1, "a number between 0 and 1"),
        )
        for name, value, fine, wanted in bounds:
            if not fine:
                raise SettingError(f"setting {name!r} of method 'cox' is {value!r}; give {wanted}.")


def fit(fed: Federation, config: CoxSettings, task: Task) -> CoxModel:
    """Fit a Cox model on all sites that answer the first call.

    Raises
    ------
    DataError : no covariates, no records, or no deaths.
    SiteUnavailable : a site left during the fit.
    SingularInformation : some covariates are collinear in every risk set; they are named.
    NotConverged : the likelihood is monotone (separation), or the rounds are over, or so many that
        the sums could be solved for patients.
    """
    if not task.features:
        raise DataError("there are no covariates; name at least one column besides the outcome.")
    total = fed.sum(totals)
    if not total.rows:
        raise NothingToLearn(
            f"the {len(fed.answered)} sites hold no records; check their selection."
        )
    fed = fed.only(fed.answered)
    p = len(task.features)
    cell = least_cell(config, task.min_cell, p)
    times = time_grid(fed, config.time_grid, cell)
    ground = survey(fed, total, times, cell, task.min_cell)
    penalty = ground.rows * config.l2 / ground.scale**2
    climb = partial(
        ascend,
        fed,
        penalty=penalty,
        names=task.features,
        tol=config.tol,
        max_rounds=config.max_rounds,
    )
    if config.baseline == "shared":
        bearable = math.inf if config.time_grid == "exact" else (cell - 1) * p - 1
        shared = SharedBaseline(fed, ground, config.ties)
        top, here = climb(shared, max_sums=bearable)
        s0, trend = here.s0, partial(shared.trend, here)
    else:
        stratified = StratifiedBaseline(fed, ground, config.ties)
        top, here = climb(stratified)
        s0 = SharedBaseline(fed, ground, "breslow").at(top.gamma).s0
        trend = partial(stratified.trend, here)
    return CoxModel(
        features=task.features,
        coefficients=top.gamma / ground.scale,
        covariance=top.covariance / np.outer(ground.scale, ground.scale),
        centre=ground.centre,
        baseline=Baseline.breslow(ground.times, ground.deaths, s0),
        log_likelihood=top.log_likelihood,
        null_log_likelihood=top.null,
        rows=ground.rows,
        events=int(ground.deaths.sum()),
        level=config.level,
        ph_transform=config.ph_check,
        ph_chi2=change_with_time(config.ph_check, ground, trend, top, top.gamma - here.gamma),
    )


def least_cell(config: CoxSettings, min_cell: int, p: int) -> int:
    """Return how many deaths, and how many censored records, leave together at least."""
    if config.time_grid == "exact":
        return 1
    if config.baseline == "stratified":
        return min_cell
    return max(min_cell, math.ceil(SUMS / p) + 1)


def change_with_time(
    kind: str, ground: Ground, trend: Callable[[Array], Trend], top: Top, last: Array
) -> Array:
    """Return χ² of each covariate and of all, (p + 1,); nothing if no test is wanted.

    Parameters
    ----------
    kind : one of `proportional.TRANSFORMS`, or "none".
    trend : the question to the sites, by g (T,). All deaths at one time need no question.
    last : the last step of the ascent (p,), which was not asked about.
    """
    if kind == "none":
        return np.zeros(0)
    g = proportional.clock(kind, ground.times, ground.deaths, ground.leaving)
    if not g[ground.deaths > 0].any():
        return np.full(len(ground.centre) + 1, np.nan)
    found = proportional.score_tests(trend(g), last, top.covariance)
    return np.r_[found.each, found.joint]


def survey(fed: Federation, total: Totals, times: Array, cell: int, min_cell: int) -> Ground:
    """Fix origin and scale of the covariates, and count who leaves, no fewer than `cell` together.

    The origin is the pooled mean, rounded so that it tells no count below `min_cell`
    (`data.suppression`): the model is saved with it, and no coefficient depends on it.
    """
    mean = total.x / total.rows
    died = fed.sum(deaths, times=times, centre=mean)
    check_all_answered(fed)
    spread = np.sqrt(died.squares / total.rows)
    scale = np.where(spread > 1e-12 * np.abs(mean), spread, 1.0)
    centre = origins(mean, spread, int(total.rows), min_cell)
    x_dead = died.x_dead + died.deaths.sum() * (mean - centre)
    out = exits(died.censored, cell)
    return Ground(
        times,
        died.deaths.astype(float),
        out,
        died.deaths + leaving(died.censored, out),
        centre,
        scale,
        x_dead / scale,
        int(total.rows),
    )


def leaving(censored: Array, out: Array) -> Array:
    """Return how many of the censored records (T + 1,) leave at each time (T,), by the exits."""
    slot = np.arange(-1, len(censored) - 1)
    leaves = leave_together(slot, np.zeros(len(slot), bool), out)
    return np.bincount(leaves + 1, censored, minlength=len(censored))[1:]

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

Revealed, only as sums over all sites: `Totals` and `Deaths` once; `RiskWeights` (T,) and `Expected`
(p, p) every round; `RiskMoments` (T, p) once; the second moment r x xᵀ by time never. Stratified:
`Totals` and `Deaths` once, `OwnLikelihood` (1 + p + p²) every round, `RiskWeights` once. Sites
learn β and the pooled hazard. The grid "exact" also gathers each site's times of death.

Where deaths tie, the sums over those who leave less those over the dead are sums over the censored.
So on every grid but "exact", with an interval leave m deaths or more, and m censored records or
none: these wait for company (`numerics.survival.exits`). Breslow's ties obey too, which need no
sums over the dead, because a fit with Efron's beside it gives those. K calls for `RiskWeights` and
one for `RiskMoments` make K + p equations about p covariates of each of m patients: too few to
solve while K < (m − 1) p, where the K (1 + p + p²) of WebDISCO are enough in a few rounds. So m is
`min_cell`, or more where few covariates need it for `SUMS` calls; a fit that asks on is ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedcohort.algorithms.cox.ascent import ascend
from fedcohort.algorithms.cox.model import CoxModel
from fedcohort.algorithms.cox.steps import (
    OwnLikelihood,
    Totals,
    deaths,
    expected_deaths,
    own_likelihood,
    risk_moments,
    risk_weights,
    totals,
)
from fedcohort.arrays import Array
from fedcohort.data.timegrid import check_rule, time_grid
from fedcohort.numerics.coxph import Hazard, at_risk, centred, drift, hazard, tied_times
from fedcohort.numerics.survival import Baseline, exits
from fedcohort.protocol import (
    DataError,
    Federation,
    SettingError,
    SiteUnavailable,
    Task,
    setting,
)

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


@dataclass(frozen=True)
class Ground:
    """What is fixed before the first round.

    Attributes
    ----------
    times : (T,), the grid; deaths : (T,), at each time.
    exits : slots at which censored records leave (`numerics.survival`).
    centre, scale : (p,), pooled mean and standard deviation of the covariates.
    x_dead : (p,), Σ of the standardised covariates of those who die.
    rows : records at all sites.
    """

    times: Array
    deaths: Array
    exits: Array
    centre: Array
    scale: Array
    x_dead: Array
    rows: int


@dataclass(frozen=True)
class OnGrid:
    """A point γ (p,), and S₀ (T,), D₀ (G,) and the hazard there."""

    gamma: Array
    log_likelihood: float
    s0: Array
    d0: Array
    hazard: Hazard


class SharedBaseline:
    """The partial likelihood of all sites under one baseline hazard; eqs. of `numerics.coxph`."""

    exact = False

    def __init__(self, fed: Federation, ground: Ground, ties: str):
        self._fed, self._ground = fed, ground
        self._tied = tied_times(ground.deaths, ties)
        self._mean = np.zeros(len(ground.centre))
        self._within = np.zeros((len(ground.centre), len(ground.centre)))

    def at(self, gamma: Array) -> OnGrid:
        """Return ℓ(γ), eq. (1), with S₀ and the hazard that it takes."""
        g = self._ground
        reply = self._fed.sum(
            risk_weights,
            times=g.times, exits=g.exits, centre=g.centre, scale=g.scale,
            tied=self._tied, beta=gamma,
        )  # fmt: skip
        check_all_answered(self._fed)
        s0 = at_risk(reply.leaving)
        h = hazard(g.deaths, s0, reply.dying, self._tied)
        value = float(g.x_dead @ gamma) - h.log_phi
        return OnGrid(gamma, value if np.isfinite(value) else -np.inf, s0, reply.dying, h)

    def slopes(self, here: OnGrid) -> tuple[Array, Array]:
        """Return U, eq. (4), and the first term of I, eq. (5)."""
        g = self._ground
        reply = self._fed.sum(
            expected_deaths,
            times=g.times, exits=g.exits, centre=g.centre, scale=g.scale,
            beta=here.gamma, a=here.hazard.a, b=here.hazard.b,
        )  # fmt: skip
        check_all_answered(self._fed)
        total = float(g.deaths.sum())
        self._mean, self._within = centred(reply.first, reply.second, total)
        return g.x_dead - total * self._mean, self._within

    def information(self, here: OnGrid) -> Array:
        """Return I, eq. (5)."""
        g = self._ground
        reply = self._fed.sum(
            risk_moments,
            times=g.times, exits=g.exits, centre=g.centre, scale=g.scale,
            tied=self._tied, beta=here.gamma,
        )  # fmt: skip
        check_all_answered(self._fed)
        s1 = at_risk(reply.leaving)
        return self._within - drift(
            g.deaths, self._tied, self._mean, here.s0, here.d0, s1, reply.dying
        )


@dataclass(frozen=True)
class AtSites:
    """A point γ (p,), and the sums of the sites' own ℓ, U and I there."""

    gamma: Array
    log_likelihood: float
    own: OwnLikelihood


class StratifiedBaseline:
    """The sum of the sites' partial likelihoods, each under a baseline hazard of its own."""

    exact = True

    def __init__(self, fed: Federation, ground: Ground, ties: str):
        self._fed, self._ground, self._ties = fed, ground, ties

    def at(self, gamma: Array) -> AtSites:
        """Return Σ ℓ(γ) over sites, with Σ U and Σ I."""
        g = self._ground
        own = self._fed.sum(
            own_likelihood, centre=g.centre, scale=g.scale, beta=gamma, ties=self._ties
        )
        check_all_answered(self._fed)
        value = float(own.log_likelihood)
        return AtSites(gamma, value if np.isfinite(value) else -np.inf, own)

    def slopes(self, here: AtSites) -> tuple[Array, Array]:
        """Return Σ U and Σ I."""
        return here.own.score, here.own.information

    def information(self, here: AtSites) -> Array:
        """Return Σ I."""
        return here.own.information


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
        raise DataError(f"the {len(fed.answered)} sites hold no records; check their selection.")
    fed = fed.only(fed.answered)
    p = len(task.features)
    cell = least_cell(config, task.min_cell, p)
    ground = survey(fed, total, time_grid(fed, config.time_grid, cell), cell)
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
        top, here = climb(SharedBaseline(fed, ground, config.ties), max_sums=bearable)
        s0 = here.s0
    else:
        top, _ = climb(StratifiedBaseline(fed, ground, config.ties))
        s0 = SharedBaseline(fed, ground, "breslow").at(top.gamma).s0
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
    )


def least_cell(config: CoxSettings, min_cell: int, p: int) -> int:
    """Return how many deaths, and how many censored records, leave together at least."""
    if config.time_grid == "exact":
        return 1
    if config.baseline == "stratified":
        return min_cell
    return max(min_cell, math.ceil(SUMS / p) + 1)


def survey(fed: Federation, total: Totals, times: Array, cell: int) -> Ground:
    """Fix the scale of the covariates, and count who leaves, no fewer than `cell` together."""
    centre = total.x / total.rows
    died = fed.sum(deaths, times=times, centre=centre)
    check_all_answered(fed)
    spread = np.sqrt(died.squares / total.rows)
    scale = np.where(spread > 1e-12 * np.abs(centre), spread, 1.0)
    return Ground(
        times,
        died.deaths.astype(float),
        exits(died.censored, cell),
        centre,
        scale,
        died.x_dead / scale,
        int(total.rows),
    )


def check_all_answered(fed: Federation) -> None:
    """Refuse a sum that lacks a site, whose deaths and totals are in the sums before it."""
    if missing := sorted(set(fed.sites) - set(fed.answered)):
        raise SiteUnavailable(
            f"{', '.join(missing)} left during the fit, and an exact fit needs the same sites in "
            f"every sum. Bring them back and --resume, or start again without them."
        )

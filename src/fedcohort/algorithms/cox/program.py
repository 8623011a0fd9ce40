"""Cox regression over sites, with exactly the result of the pooled table.

D. R. Cox, "Regression models and life-tables", JRSS B 34(2), 1972; ties as Breslow (1974) or Efron
(1977). Distributed after Lu et al., "WebDISCO", JAMIA 22(6), 2015, but with less revealed: there,
each round gives the sums over every risk set of r, r x and r x xᵀ. Here, with the notation and eqs.
(1), (4) and (5) of `numerics.coxph`:

    1  Sites sum r by the time a record leaves. The coordinator has S₀, ℓ(β) and the hazard a, b.
    2  Sites compute from a, b the expected deaths w_j of each record, and sum w x and w x xᵀ over
       *all* records. They give the score U(β), and the information without the drift of m(t).
    3  Once, at the end, sites sum r x by time. It gives the drift and the exact information.

Rounds repeat 1 and 2; the drift is estimated from the change of U (`ascent`). At the end the test
of proportional hazards (`algorithms.cox.proportional`) repeats step 2, with the expected deaths
weighted by a function of time and by its square. With a stratified baseline each stratum of each
site has its own hazard: ℓ, U and I are sums over sites, and no risk set is revealed.

On the protected grid the fit averages over the order of the records that leave in an interval, as
Efron does over tied deaths (`numerics.coxph`). The effect of the unknown order on β is estimated
once, at the end (`SharedBaseline.disorder`).

Revealed, only as sums over all sites: with several sites, except on the grid "exact", the sums of
`data.exact`; `Totals` and `Deaths` once; `RiskWeights` (T,) and `Expected` (p, p) every round;
`RiskMoments` (T, p) and `TrendMoments` (p + 2 p²) once; on a grid `Disorder` (p,) once; never the
second moment r x xᵀ by time. Stratified: `Totals` and `Deaths` once, `OwnLikelihood` (1 + p + p²)
every round, `OwnTrend` (p + 2 p²) and `RiskWeights` once. Sites learn β and the pooled hazard. The
grid "exact" also gathers each site's times of death. With a path of penalties: `RiskWeights` and
`Expected` for each penalty, and the sums of `elastic`.

`bayes_cox` has the prior β_j ~ N(0, (s/sd_j)²), sd_j the standard deviation of the covariate. The
posterior is approximated by Laplace's normal distribution at the mode β̂ of ℓ(β) + log p(β):

    β | D ~ N(β̂, V),   V = (I(β̂) + diag(sd²)/s²)⁻¹                                          (1)
    log p(D) ≈ ℓ(β̂) + log p(β̂) + ½ log |2π V|                                             (2)

The partial likelihood stands for a likelihood, because it is proportional to the marginal one under
a gamma-process prior of the baseline hazard, as its precision falls to 0 (J. D. Kalbfleisch, JRSS B
40(2), 1978; with Breslow's ties Sinha, Ibrahim & Chen, Biometrika 90(3), 2003). Besides the sums of
`cox`, `Squares` (p, p) once.

Strata have their own baseline hazards and common coefficients. Their grids are concatenated
(`numerics.strata`), so one call serves all strata: `RiskWeights` and `RiskMoments` are by the
intervals of each stratum, `Expected` over all records. `disclosure` has the rules for few records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from fedcohort.algorithms.cox import proportional
from fedcohort.algorithms.cox.ascent import Climb, Here, Penalty, Top
from fedcohort.algorithms.cox.checks import Hazards, Law, checked
from fedcohort.algorithms.cox.disclosure import (
    check_late,
    check_strata,
    least_cell,
    most_sums,
)
from fedcohort.algorithms.cox.elastic import Path, cross_validate, follow
from fedcohort.algorithms.cox.hierarchical import BySite, posterior_by_site
from fedcohort.algorithms.cox.likelihood import (
    Ground,
    SharedBaseline,
    StratifiedBaseline,
)
from fedcohort.algorithms.cox.model import BayesCoxModel, CoxModel, of_cox
from fedcohort.algorithms.cox.proportional import Trend
from fedcohort.algorithms.cox.settings import (
    BayesCoxSettings,
    CoxSettings,
    LikelihoodSettings,
)
from fedcohort.algorithms.cox.site_model import BayesCoxBySite
from fedcohort.algorithms.cox.steps import Totals, deaths, squares, stratum_sizes, totals
from fedcohort.arrays import Array
from fedcohort.data.exact import Exact, check_covariates, exact_sums
from fedcohort.data.timegrid import Intervals, intervals, no_events
from fedcohort.numerics.collinearity import CONSTANT, RIDGE, quoted, scale_of
from fedcohort.numerics.strata import by_stratum
from fedcohort.privacy.disclosure.rounding import origins
from fedcohort.protocol import (
    Federation,
    NothingToLearn,
    Row,
    SingularInformation,
    Task,
    check_all_answered,
)

#: Grid of a stratum without deaths.
NOTHING = Intervals(np.zeros(0), np.zeros(0, bool), 0.0)


def fit(fed: Federation, config: CoxSettings, task: Task) -> CoxModel:
    """Fit a Cox model on all sites that answer the first call.

    Raises
    ------
    DataError : no covariates, or an offset beyond ± `steps.FAR`.
    NothingToLearn : no records or no deaths; or a column, weights or an offset single out records,
        or few died or are censored (`data.exact`).
    SettingError : patients enter late, and sums on the grid could show a few of them; or a
        stratum has too few records or deaths for a grid of its own.
    SiteUnavailable : a site left during the fit.
    SingularInformation : some covariates are collinear in every risk set; they are named.
    NotConverged : the likelihood is monotone (separation), `max_rounds` is reached, or more sums
        could be solved for patients.
    """
    sites, total = opened(fed, config, task)

    def highest(begun: Climb[Here], ground: Ground) -> Summit[Here]:
        choose = partial(cross_validate, sites.fed, ground, config, task)
        return follow(begun, ground, config, choose)

    return fitted(sites, total, config, task, highest)


def fit_bayes(fed: Federation, config: BayesCoxSettings, task: Task) -> BayesCoxModel:
    """Return the posterior of a Cox model on all sites that answer the first call.

    Raises
    ------
    SingularInformation : a covariate is constant; it is named.
    DataError, NothingToLearn, SettingError, SiteUnavailable, NotConverged : as of `fit`.
    """
    sites, total = opened(fed, config, task)
    mean = (total.x / total.rows)[: len(sites.names)]
    scatter = sites.sum(squares, centre=mean).inner / total.rows
    sd = np.sqrt(np.diag(scatter))
    constant = sd <= CONSTANT * np.abs(mean)
    if constant.any():
        named = quoted([sites.names[j] for j in np.flatnonzero(constant).tolist()])
        raise SingularInformation(
            f"{named} has the same value in all records, so its coefficient has no scale. Leave it "
            f"out."
        )
    prior = Penalty(0.0, config.prior_scale**-2.0, np.ones(len(sd)))
    by_site: list[BySite] = []

    def highest(begun: Climb[Here], ground: Ground) -> Summit[Here]:
        if not config.own_effects:
            return begun.to(prior), begun.here, None
        found = posterior_by_site(sites, begun, ground, config, task)
        by_site.append(found)
        return begun.given(found.middle, found.total), begun.here, None

    checks: list[Row] = []

    def after(ground: Ground, top: Top, shared: Hazards | None) -> None:
        one = Law.of(top) if not by_site else Law.of_sites(by_site[0])
        checks.extend(checked(sites, ground, task, one, config.predictive_draws, shared))

    model = fitted(
        sites, total, config, task, highest, "give a smaller prior_scale",
        after if config.predictive_draws else None,
    )  # fmt: skip
    exact = config.time_grid == "exact"
    common: dict[str, Any] = of_cox(model) | {
        "mean": mean[: len(mean) * (not exact)],
        "scatter": scatter[: len(mean) * (not exact)],
        "checks": tuple(checks),
    }
    if by_site:
        return BayesCoxBySite.of(common, by_site[0], sd)
    gamma = model.coefficients * sd
    spread = np.linalg.slogdet(model.covariance * np.outer(sd, sd) / config.prior_scale**2)[1]
    return BayesCoxModel(
        **common,
        log_evidence=model.log_likelihood - prior.of(gamma) + 0.5 * float(spread),
    )


#: The maximum, the last position on the way there at which the sites were asked, and a path.
Summit = tuple[Top, Here, Path | None]


class Highest(Protocol):
    """Way to the maximum, from a position of an ascent."""

    def __call__(self, begun: Climb[Here], ground: Ground, /) -> Summit[Here]:
        """Return the maximum."""
        ...


def opened(fed: Federation, config: LikelihoodSettings, task: Task) -> tuple[Exact, Totals]:
    """Return the sites that answer, after the checks of their columns, and their totals."""
    check_covariates(task)
    sites = None if config.time_grid == "exact" else exact_sums(fed, task, "event", "log")
    total = (fed if sites is None else sites).sum(totals, offset=task.offset)
    if not total.rows:
        raise NothingToLearn(
            f"the {len(fed.answered)} sites hold no records; check their selection."
        )
    return sites or Exact.of(fed, task, None), total


def fitted(
    sites: Exact,
    total: Totals,
    config: LikelihoodSettings,
    task: Task,
    highest: Highest,
    remedy: str = RIDGE,
    after: Callable[[Ground, Top, Hazards | None], None] | None = None,
) -> CoxModel:
    """Return the model at the maximum that `highest` finds.

    Parameters
    ----------
    after : called at the end with the shared baseline hazard, or None where sites have their own.
    remedy : of a monotone likelihood, for errors.
    """
    fed, names, p = sites.fed, tuple(sites.names), len(sites.names)
    exact = config.time_grid == "exact"
    cell = least_cell(config, task.min_cell, p)
    grid = grids(fed, config, task.strata, max(cell, task.min_cell))
    ground = survey(fed, total, grid, cell, task.min_cell, p)
    check_late(ground, config)
    climb = partial(
        Climb,
        fed,
        names=names,
        rounds=iter(fed.rounds(config.max_rounds * config.fits)),
        tol=config.tol,
        max_rounds=config.max_rounds,
        remedy=remedy,
    )
    spread = np.zeros(0)

    def look(begun: Climb[Here]) -> None:
        scale = ground.scale
        sites.related(begun.part * np.outer(scale, scale), ground.centre[:p])

    if not config.stratified:
        one = SharedBaseline(fed, ground, config.ties)
        begun = climb(one, max_sums=most_sums(config, cell, p))
        look(begun)
        top, here, path = highest(begun, ground)
        trend = partial(one.trend, here)
        hazard = _breslow(grid, ground, here.s0)
        if after is not None:
            after(ground, top, Hazards(np.concatenate(hazard), one.centres()))
        if not (exact or top.lasso):
            spread = one.disorder(here, top.covariance) / ground.scale
    else:
        each = StratifiedBaseline(fed, ground, config.ties)
        begun = climb(each)
        look(begun)
        top, here, path = highest(begun, ground)
        trend = partial(each.trend, here)
        if after is not None:
            after(ground, top, None)
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
    check = "none" if top.lasso else config.trend
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
    """Return χ² of each covariate and of all, (p + 1,); (0,) without a test.

    Parameters
    ----------
    kind : one of `proportional.TRANSFORMS`, or "none"; the same in all strata.
    trend : calls the sites with g (T,). If all deaths are at one time, there is no call.
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
    """Return origin and scale of the covariates, and counts at each time of the strata's grids.

    The origin is the pooled mean, rounded so that it tells no count below `min_cell`
    (`privacy.disclosure.rounding`): it is saved in the model. No coefficient depends on it.
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
    """Return the hazard in each interval of each stratum, from S₀ (T,)."""
    parts = (by_stratum(v, ground.sizes) for v in (ground.weight, ground.leaving, s0))
    return [g.hazard(*each) for g, *each in zip(grid, *parts, strict=True)]


def leaving(censored: Array, enter: Array) -> Array:
    """Return the censored records that leave at each time, less entries at the next: (T,).

    Both arguments are (T + 1,).
    """
    gone = np.array(censored[1:])
    gone[:-1] -= enter[1:-1]
    return gone


def grids(
    fed: Federation, config: LikelihoodSettings, strata: Sequence[str], cell: int
) -> list[Intervals]:
    """Return the grid of each stratum.

    Parameters
    ----------
    strata : levels of their column; empty for one stratum of all records.
    cell : smallest number of leavers of an interval and of deaths of a stratum (not on the grid
        "exact"), and of records followed beyond the last known time.

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

"""Cox regression: shared or stratified baseline, both tie rules, elastic net, weights, entries.

`bayes_cox` is the same with a prior in place of the penalty, and a posterior.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fedcohort.algorithms.cox import checks, own_steps, site_steps, steps
from fedcohort.algorithms.cox.model import BayesCoxModel, CoxModel
from fedcohort.algorithms.cox.own_steps import STEPS as OWN_STEPS
from fedcohort.algorithms.cox.program import fit, fit_bayes
from fedcohort.algorithms.cox.settings import (
    BayesCoxSettings,
    CoxSettings,
    LikelihoodSettings,
)
from fedcohort.algorithms.cox.site_model import BayesCoxBySite
from fedcohort.algorithms.cox.steps import STEPS as COX_STEPS
from fedcohort.data import exact, timegrid
from fedcohort.protocol import Method, Step, Task

_ONCE = (
    "Only sums over all sites. Once: how many records differ in each column, and how far (not on "
    "the grid 'exact'); covariate totals; deaths and censored records by time; "
)
_SHARED = (
    "per round, risk weights by time on the grid and one p x p moment; covariate sums by time "
    "once, at the end, and moments weighted by time for the check of proportional hazards."
)
_STRATIFIED = (
    "per round, the log-likelihood, its score and information; once, at the end, risk weights by "
    "time, and moments weighted by time for the check of proportional hazards."
)
_EXACT = " The grid 'exact' shows each site's times of death."
_GRID = " For the error of the grid, a sum of squares for each covariate, once."
_PRODUCTS = " For the scale of the prior, products of the covariates about their means, once."
_AUTO = " Penalty 'auto': deaths by fold; per round, the stratified sums without each fold."
_BY_SITE = (
    " With by_site: all, sums of the sites' scores and informations at few coefficients, when a "
    "site's own effects are integrated out at several standard deviations: with few sites they can "
    "be solved for each site's own coefficients and their covariance. So sites whose sums would "
    "tell of fewer than min_cell records are left out."
)
_EFFECTS = " With site_effects, each site's own effects, shrunken means, if records suffice."
_CHECKS = (
    " With predictive_draws, once sums of a risk score and its square over deaths by quarter of "
    "the deaths, and numbers of deaths and sums that sites draw from the model."
)
_STRATA = " Strata: records and deaths of each; sums by time are by time in each stratum."


def reveals_with(config: LikelihoodSettings) -> str:
    """Describe what leaves a site with these settings."""
    stratified, gathered = config.stratified, config.time_grid == "exact"
    rounds = _STRATIFIED if stratified else _SHARED
    moved = not (stratified or gathered)
    return (
        _ONCE
        + rounds
        + _GRID * moved
        + _of_bayes(config)
        + _AUTO * bool(config.tried)
        + _EXACT * gathered
        + _STRATA * bool(config.strata)
    )


def _of_bayes(config: LikelihoodSettings) -> str:
    if not isinstance(config, BayesCoxSettings):
        return ""
    return (
        _PRODUCTS
        + _BY_SITE * config.own_effects
        + _EFFECTS * config.site_effects
        + _CHECKS * (config.predictive_draws > 0)
    )


def asks(config: LikelihoodSettings) -> Iterator[Step[..., Any]]:
    """Yield the steps that a fit with these settings can ask for."""
    gathered, stratified = config.time_grid == "exact", config.stratified
    if not gathered:
        yield from exact.STEPS
    yield from (steps.totals, steps.deaths, steps.risk_weights)
    if isinstance(config, BayesCoxSettings):
        yield steps.squares
        if config.own_effects:
            yield from site_steps.STEPS[: 3 + config.site_effects]
        if config.predictive_draws:
            yield from checks.STEPS
    if config.strata:
        yield steps.stratum_sizes
    if stratified:
        yield from (own_steps.own_likelihood, own_steps.own_hazard)
    else:
        yield from (steps.expected_deaths, steps.risk_moments)
        if not (gathered or config.lasso):
            yield steps.disorder
    if config.trend != "none":
        yield own_steps.own_trend if stratified else steps.trend_moments
    if config.tried:
        yield from (own_steps.fold_sizes, own_steps.fold_likelihood, own_steps.held_out)
    yield from timegrid.asks(config.time_grid, known=True)


def bounds(config: LikelihoodSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    found: dict[str, Collection[Any]] = {
        "ties": (config.ties,),
        "link": ("log",),
        "kinds": (True,),
        "together": (config.time_grid != "exact",),
    }
    if isinstance(config, BayesCoxSettings):
        found["covariates"] = (len(task.features) - task.offset,)
        found["number"] = (config.predictive_draws,)
    if isinstance(config, CoxSettings):
        found |= {"folds": range(1, config.n_folds + 1), "without": range(config.n_folds)}
    return found


METHOD = Method(
    name="cox",
    title="Cox proportional hazards, exactly as on the pooled table",
    tasks=("survival",),
    paper="Cox, JRSS B 34(2), 1972; after Lu et al. (WebDISCO), JAMIA 22(6), 2015",
    reveals=f"{_ONCE}{_SHARED}{_GRID} Stratified: {_STRATIFIED}{_AUTO}{_EXACT}{_STRATA}",
    reveals_with=reveals_with,
    settings=CoxSettings,
    fit=fit,
    model=CoxModel,
    steps=(*COX_STEPS, *OWN_STEPS, *timegrid.STEPS),
    asks=asks,
    bounds=bounds,
    preprocess={"scale": "none", "impute": "median"},
    entries=True,
)

BAYES = Method(
    name="bayes_cox",
    title="Bayesian Cox regression, with the posterior of the pooled table",
    tasks=("survival",),
    paper="Kalbfleisch, JRSS B 40(2), 1978; Tierney and Kadane, JASA 81(393), 1986",
    reveals=f"{_ONCE}{_SHARED}{_GRID}{_PRODUCTS} Stratified: {_STRATIFIED}{_EXACT}{_STRATA}"
    f"{_BY_SITE}{_EFFECTS}{_CHECKS}",
    reveals_with=reveals_with,
    settings=BayesCoxSettings,
    fit=fit_bayes,
    model=BayesCoxBySite,
    steps=(
        *COX_STEPS,
        steps.squares,
        own_steps.own_likelihood,
        own_steps.own_trend,
        own_steps.own_hazard,
        *site_steps.STEPS,
        *checks.STEPS,
        *timegrid.STEPS,
    ),
    asks=asks,
    bounds=bounds,
    preprocess={"scale": "none", "impute": "median"},
    entries=True,
)

__all__ = [
    "BAYES",
    "METHOD",
    "BayesCoxModel",
    "BayesCoxSettings",
    "CoxModel",
    "CoxSettings",
    "fit",
    "fit_bayes",
]

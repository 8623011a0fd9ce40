"""Cox regression: shared or stratified baseline, Breslow and Efron ties, ridge."""

from fedcohort.algorithms.cox.model import CoxModel
from fedcohort.algorithms.cox.program import CoxSettings, fit
from fedcohort.algorithms.cox.steps import STEPS as COX_STEPS
from fedcohort.data import timegrid
from fedcohort.protocol import Method

_ONCE = "Only sums over all sites: covariate totals and deaths and censored records by time once; "
_SHARED = (
    "per round, risk weights by time on the grid and one p x p moment; covariate sums by time "
    "once, at the end, and moments weighted by time for the check of proportional hazards."
)
_STRATIFIED = (
    "per round, the log-likelihood, its score and information; once, at the end, risk weights by "
    "time, and moments weighted by time for the check of proportional hazards."
)
_EXACT = " The grid 'exact' shows each site's times of death."


def reveals_with(config: CoxSettings) -> str:
    """Say in plain words what leaves a site with these settings."""
    rounds = _STRATIFIED if config.baseline == "stratified" else _SHARED
    return _ONCE + rounds + _EXACT * (config.time_grid == "exact")


METHOD = Method(
    name="cox",
    title="Cox proportional hazards, exactly as on the pooled table",
    tasks=("survival",),
    paper="Cox, JRSS B 34(2), 1972; after Lu et al. (WebDISCO), JAMIA 22(6), 2015",
    reveals=f"{_ONCE}{_SHARED} Stratified: {_STRATIFIED}{_EXACT}",
    reveals_with=reveals_with,
    settings=CoxSettings,
    fit=fit,
    model=CoxModel,
    steps=(*COX_STEPS, *timegrid.STEPS),
    gives=frozenset({"predict", "predict_survival", "summary", "proportional_hazards"}),
    preprocess={"scale": "none", "impute": "median"},
    alone={"time_grid": "exact"},
)

__all__ = ["METHOD", "CoxModel", "CoxSettings", "fit"]

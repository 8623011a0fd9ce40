"""Cox regression: shared or stratified baseline, Breslow and Efron ties, ridge."""

from fedcohort.algorithms.cox.model import CoxModel
from fedcohort.algorithms.cox.program import CoxSettings, fit
from fedcohort.algorithms.cox.steps import STEPS as COX_STEPS
from fedcohort.data import timegrid
from fedcohort.protocol import Method

METHOD = Method(
    name="cox",
    title="Cox proportional hazards, exactly as on the pooled table",
    tasks=("survival",),
    paper="Cox, JRSS B 34(2), 1972; after Lu et al. (WebDISCO), JAMIA 22(6), 2015",
    reveals=(
        "Only sums over all sites: covariate totals and deaths and censored records by time once; "
        "per round, risk weights by time on the grid and one p x p moment; covariate sums by time "
        "once, at the end, and moments weighted by time for the check of proportional hazards. "
        "Stratified: per round the log-likelihood, its score and information. "
        "The grid 'exact' shows each site's times of death."
    ),
    settings=CoxSettings,
    fit=fit,
    model=CoxModel,
    steps=(*COX_STEPS, *timegrid.STEPS),
    gives=frozenset({"predict", "predict_survival", "summary", "proportional_hazards"}),
    preprocess={"scale": "none", "impute": "median"},
    alone={"time_grid": "exact"},
)

__all__ = ["METHOD", "CoxModel", "CoxSettings", "fit"]

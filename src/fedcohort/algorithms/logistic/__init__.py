"""Logistic regression by Newton's method over sites, with a ridge penalty."""

from fedcohort.algorithms.logistic.model import LogisticModel
from fedcohort.algorithms.logistic.program import LogisticSettings, fit
from fedcohort.algorithms.logistic.steps import STEPS
from fedcohort.protocol import Method

METHOD = Method(
    name="logistic",
    title="Logistic regression, exactly as on the pooled table",
    tasks=("classification",),
    paper="McCullagh & Nelder, Generalized Linear Models, 1989; ridge as D6.2, eq. 3.6",
    reveals=(
        "Only sums over all sites: once the number of records, those of class 1, and totals and "
        "squares of the covariates; per round the log-likelihood, its gradient and one p x p "
        "matrix."
    ),
    settings=LogisticSettings,
    fit=fit,
    model=LogisticModel,
    steps=STEPS,
    gives=frozenset({"predict", "summary"}),
    preprocess={"scale": "none", "impute": "median"},
)

__all__ = ["METHOD", "LogisticModel", "LogisticSettings", "fit"]

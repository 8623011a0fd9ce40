"""Regression with a random intercept for each site: linear, logistic, Poisson."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.mixed.ground import LINKS, family_of
from fedcohort.algorithms.mixed.model import MixedModel
from fedcohort.algorithms.mixed.program import fit
from fedcohort.algorithms.mixed.settings import MixedSettings
from fedcohort.algorithms.mixed.steps import STEPS
from fedcohort.protocol import Method, Task

_SUMS = (
    "Only sums over all sites: once how many records differ in each column, and how far; the "
    "numbers of records and of sites with records, and totals of covariates and outcome. Gaussian: "
    "p x p products once; each round squares of the sites' totals. With few sites these can be "
    "solved for each site's number of records and means, so sites with fewer than min_cell records "
    "are left out. Binomial and Poisson: weighted squares of the covariates once; each round the "
    "log-likelihood with its two derivatives."
)
_EFFECTS = " With site_effects, each site's own effect, a shrunken mean, if records suffice."


def reveals_with(config: MixedSettings) -> str:
    """Describe what leaves a site with these settings."""
    return _SUMS + _EFFECTS * config.site_effects


def bounds(config: MixedSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    family = family_of(config.family, task)
    gaussian = family == "gaussian"
    return {
        "family": (family,),
        "link": (LINKS.get(family, "identity"),),
        "kinds": (not gaussian,),
        **({} if gaussian else {"least": (1,)}),  # their sums reveal no site's own
    }


METHOD = Method(
    name="mixed",
    title="Regression with a random intercept for each site",
    tasks=("regression", "classification"),
    paper="Laird & Ware, Biometrics 38, 1982; Pinheiro & Bates, J. Comput. Graph. Stat. 4, 1995",
    reveals=_SUMS + _EFFECTS,
    reveals_with=reveals_with,
    settings=MixedSettings,
    fit=fit,
    model=MixedModel,
    steps=STEPS,
    bounds=bounds,
    preprocess={"scale": "none", "impute": "median"},
)

__all__ = ["METHOD", "MixedModel", "MixedSettings", "fit"]

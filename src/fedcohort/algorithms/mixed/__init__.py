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
    "number of records, of sites that have some, and totals of covariates and outcome. Gaussian: "
    "p x p products once; each round squares of the sites' totals, from which each site's number "
    "of records and means can be solved for where sites are few, so that sites with fewer than "
    "min_cell records stay out. Binomial and Poisson: weighted squares of the covariates once; "
    "each round the log-likelihood with its two slopes."
)
_EFFECTS = " With site_effects, each site's own effect, a shrunken mean, where records suffice."


def reveals_with(config: MixedSettings) -> str:
    """Say in plain words what leaves a site with these settings."""
    return _SUMS + _EFFECTS * config.site_effects


def bounds(config: MixedSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return what the steps of a fit with these settings are asked with (`Method.bounds`)."""
    family = family_of(config.family, task)
    gaussian = family == "gaussian"
    return {
        "family": (family,),
        "link": (LINKS.get(family, "identity"),),
        "kinds": (not gaussian,),
        **({} if gaussian else {"least": (1,)}),  # of these no site's own sums are told
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

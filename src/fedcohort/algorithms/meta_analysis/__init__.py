"""Meta-analysis of regressions that each site fits by itself."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.meta_analysis.model import MetaModel
from fedcohort.algorithms.meta_analysis.program import fit, model_of
from fedcohort.algorithms.meta_analysis.settings import MetaSettings
from fedcohort.algorithms.meta_analysis.steps import STEPS
from fedcohort.protocol import Method, Task

_OWN = (
    "Each site's own coefficients and standard errors, once; or, if they could be those of "
    "fewer than min_cell records, or there are none, only the reason and the covariates concerned."
)
_FULL = " With pool 'multivariate', also the covariance of each site's coefficients."


def reveals_with(config: MetaSettings) -> str:
    """Describe what leaves a site with these settings."""
    return _OWN + _FULL * (config.pool == "multivariate")


def bounds(config: MetaSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the step's arguments may take (`Method.bounds`)."""
    family, link = model_of(config, task)
    return {
        "family": (family,),
        "link": (link,),
        "ties": (config.ties,),
        "full": (config.pool == "multivariate",),
        "max_rounds": (config.max_rounds,),
    }


METHOD = Method(
    name="meta_analysis",
    title="Meta-analysis of regressions that each site fits by itself",
    tasks=("regression", "classification", "survival"),
    paper="DerSimonian & Laird, Control. Clin. Trials 7, 1986; Hartung & Knapp, Stat. Med. 2001",
    reveals=_OWN + _FULL,
    reveals_with=reveals_with,
    unguarded=(
        "Each site checks its own rows before it returns anything "
        "(`algorithms.meta_analysis.cells`)."
    ),
    settings=MetaSettings,
    fit=fit,
    model=MetaModel,
    steps=STEPS,
    bounds=bounds,
    preprocess={"scale": "none", "impute": "median"},
)

__all__ = ["METHOD", "MetaModel", "MetaSettings", "fit"]

"""Adapted Ndoye factor: transfer of other sites' models to one user's rows, before training."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fedcohort.algorithms.ndoye.model import NdoyeModel
from fedcohort.algorithms.ndoye.program import fit
from fedcohort.algorithms.ndoye.settings import NdoyeSettings
from fedcohort.algorithms.ndoye.steps import STEPS, own_model, pooled_here
from fedcohort.protocol import Method, Step, Task
from fedcohort.training.coalitions import FITS, judge_here, law_of

_OWN = (
    "Once, each site's own coefficients and their cross-validated loss; if these could be of fewer "
    "than min_cell rows, only the reason and its columns. Of the user's site the loss of each of "
    "these models."
)
_TRAINED = (
    " Each round, as sums over the user and the sites chosen: the number of rows, the deviance, "
    "its gradient and one p x p matrix."
)


def reveals_with(config: NdoyeSettings) -> str:
    """Return what leaves a site, in plain words."""
    return _OWN + _TRAINED * config.train


def asks(config: NdoyeSettings) -> Iterator[Step[..., Any]]:
    """Yield the steps of a fit."""
    yield from (own_model, judge_here)
    if config.train:
        yield pooled_here


def bounds(config: NdoyeSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    law = law_of(config.model, task, "ndoye")
    return {
        "law": (law.name,),
        "classes": (law.classes,),
        "n_folds": (config.n_folds,),
        "user": (config.user,),
        "held": (0,),
    }


METHOD = Method(
    name="ndoye",
    title="A model for one site's patients, trained with the sites whose own models suit them best",
    tasks=("classification", "regression"),
    outcomes=tuple(FITS),
    paper="Grimberg, Personalized Federated Machine Learning for Medical Data, EPFL 2020, sec. 4.3",
    reveals=_OWN + _TRAINED,
    reveals_with=reveals_with,
    unguarded=("Each site looks at its own rows before it tells of them (`training.disclosure`)."),
    settings=NdoyeSettings,
    fit=fit,
    model=NdoyeModel,
    steps=STEPS,
    asks=asks,
    bounds=bounds,
    preprocess={"scale": "standard", "impute": "median"},
    ranking={"train": False},
)

__all__ = ["METHOD", "NdoyeModel", "NdoyeSettings", "fit"]

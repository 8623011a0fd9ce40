"""Differences between sites: in features, in the outcome, in the outcome given a feature."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from fedcohort.algorithms.shift.model import ShiftModel
from fedcohort.algorithms.shift.program import fit, law_of, places_of, reading_of
from fedcohort.algorithms.shift.settings import ShiftSettings
from fedcohort.algorithms.shift.steps import STEPS, count_cells, pull_here
from fedcohort.data.describe import describe_columns
from fedcohort.data.outcome import Outcome
from fedcohort.protocol import Method, Step, Task

_COUNTS = (
    "Of each site, once, its part of Table 1, and the counts of each variable's histogram cells"
)
_CROSSED = ", also by the outcome"
_HIDDEN = "; the site hides counts of few patients"
_PULL = (
    "; and of each site, once, its mean gradient at a model without covariates and the standard "
    "deviations of its parts, rounded, without columns in which few patients differ"
)


def reveals_with(config: ShiftSettings) -> str:
    """Describe what leaves a site with these settings."""
    return _COUNTS + _CROSSED * config.conditional + _HIDDEN + _PULL * config.gradients + "."


def asks(config: ShiftSettings) -> Iterator[Step[..., Any]]:
    """Yield the steps that a fit with these settings can ask for."""
    yield from (describe_columns, count_cells)
    if config.gradients:
        yield pull_here


def bounds(config: ShiftSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the values that the steps' arguments may take (`Method.bounds`)."""
    if task.dictionary is None:
        return {"label": (), "other": (), "law": ()}
    reading, outcome = reading_of(task), cast("Outcome | None", task.outcome_of)
    label, other = places_of(reading, outcome)
    return {"label": (-1, label), "other": (other,), "law": (law_of(reading, outcome),)}


METHOD = Method(
    name="shift",
    title="How different sites are: features, outcome, outcome given a feature, gradients",
    tasks=("survival", "classification", "regression", "clustering", "latent"),
    paper=(
        "Lin, IEEE Transactions on Information Theory 37(1), 1991; Torgerson, Psychometrika 17, "
        "1952; Sattler et al., IEEE Transactions on Neural Networks 32(8), 2021"
    ),
    reveals=_COUNTS + _CROSSED + _HIDDEN + _PULL + ".",
    reveals_with=reveals_with,
    unguarded=(
        "Each site hides small counts, and gradients of columns in which few patients differ "
        "(`algorithms.shift.steps`)."
    ),
    settings=ShiftSettings,
    fit=fit,
    model=ShiftModel,
    steps=(describe_columns, *STEPS),
    asks=asks,
    bounds=bounds,
    raw=True,
)

__all__ = ["METHOD", "ShiftModel", "ShiftSettings", "fit"]

"""RadialGAN: rows of other sites, translated into each site's own columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.radialgan import private
from fedcohort.algorithms.radialgan.model import RadialModel
from fedcohort.algorithms.radialgan.program import asks, fit, own_model
from fedcohort.algorithms.radialgan.settings import RadialSettings
from fedcohort.algorithms.radialgan.steps import STEPS
from fedcohort.protocol import Method, PrivateFits, Task
from fedcohort.training.outcome_moments import sum_times

COLUMNS = (
    "Once which columns each site has; for survival the number of rows and the sum of the "
    "logarithms of the times, as sums over sites."
)
GROUPS = (
    " Each round, and at the end, of each site and each class of the outcome with min_cell rows or "
    "more: their number, and mean and covariance of their latent codes, which the coordinator and "
    "the other sites see. By carry: shared the codes hold the columns that all sites have, and so "
    "do these means and covariances. The mean losses, as sums over sites."
)
CODES = (
    " The latent code of each patient: in each step of a batch, and at the end of all of them, "
    "which the coordinator sees; at the end the other sites see them too. By carry: shared a code "
    "holds, unchanged, the patient's outcome and the columns that all sites have; by carry: "
    "outcome the outcome. This is no protection of single patients. The slopes of each site's "
    "losses by these codes, and its losses."
)
ALONE = " Of a single site, its own predictor."


def reveals_with(config: RadialSettings) -> str:
    """Return what leaves a site, in plain words."""
    if not config.every:
        return ALONE.strip()
    return f"{COLUMNS}{GROUPS if config.shares == 'mixture' else CODES}"


def bounds(config: RadialSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    return {
        "plan": (config.plan(task).text,),
        "epochs": (config.internal_epochs, config.rounds * config.internal_epochs),
        # a single site tells its own predictor; of several none tells groups of fewer rows
        "least": (task.min_cell,) if config.every else (task.min_cell, 1),
    }


METHOD = Method(
    name="radialgan",
    title="Virtual rows: other sites' rows, translated into each site's own columns (RadialGAN)",
    tasks=("classification", "survival"),
    outcomes=("survival", "binary", "category", "ordinal"),
    paper="GenoMed4All D6.2 (2021), chapter 5; Yoon, Jordon, van der Schaar, ICML 2018",
    reveals=f"{COLUMNS} With shares: mixture:{GROUPS} With shares: codes:{CODES}{ALONE}",
    reveals_with=reveals_with,
    unguarded=(
        "Means and covariances of codes of min_cell rows or more, or each patient's code on "
        "request (`algorithms.radialgan.records`)."
    ),
    settings=RadialSettings,
    fit=fit,
    model=RadialModel,
    steps=(sum_times, *STEPS, *private.STEPS),
    asks=asks,
    own_model=own_model,
    bounds=bounds,
    private=PrivateFits(
        releases=private.releases, reveals=private.reveals, held=private.held, clips=private.CLIPS
    ),
    preprocess={"scale": "standard", "impute": "none"},
    not_for={
        "synthesis": (
            "Each site has a model of its own, of its own columns, so no table of all columns can "
            "be drawn and judged. Fit it in a study of the outcome; 'fedcohort synthesise' draws "
            "from the model of one site (models/ARM/sites/SITE)."
        )
    },
)

__all__ = ["METHOD", "RadialModel", "RadialSettings", "fit"]

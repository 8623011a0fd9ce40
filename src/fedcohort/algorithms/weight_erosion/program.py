"""Weight Erosion: a model for one site, from the sites whose gradients agree with its own.

Grimberg, semester project at EPFL, 2020, section 4.4: Algorithm 1, see
`algorithms.weight_erosion.erosion`, for a linear predictor, which starts at 0, or a perceptron. The
penalty is ½λ₂‖W‖² on the first layer's weights W; the paper also penalised the intercepts.

A Cox model has Breslow's baseline hazard over all sites' rows at θ (`training.hazard`).

Revealed: once `data.isolation`; each round see `algorithms.weight_erosion.erosion`; for cox also
`data.timegrid` and `training.hazard`.
"""

from __future__ import annotations

from typing import Any

from fedcohort.algorithms.weight_erosion import erosion
from fedcohort.algorithms.weight_erosion.model import ErosionModel
from fedcohort.algorithms.weight_erosion.settings import ErosionSettings
from fedcohort.data import timegrid
from fedcohort.data.exact import exact_sums, isolation
from fedcohort.models.predictor import KINDS, LINKS, start_of
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import Federation, NothingToLearn, SettingError, Step, Task
from fedcohort.training import hazard


def fit(fed: Federation, config: ErosionSettings, task: Task) -> ErosionModel:
    """Train a model for the user's site.

    Raises
    ------
    SettingError : no such user, two sites, batches of fewer than `min_cell` rows, or a model that
        does not fit the outcome.
    DataError : no covariates.
    NothingToLearn : the user's rows carry no information.
    NotConverged : the learning rate is too high.
    SiteUnavailable : the user's site, or more sites than the quorum allows, did not answer.
    """
    model = config.model_of(task)
    levels = task.levels if model == "softmax" else ()
    user = erosion.owner(fed, config.user)
    least = task.min_cell if len(fed.sites) > 1 else 1
    if config.visit == "batch" and 0 < config.batch_size < least:
        raise SettingError(
            f"batch_size is {config.batch_size}, and gradients of fewer than {least} rows "
            f"(min_cell) would tell of single ones. Raise it, or give 0 for all rows."
        )
    exact_sums(fed, task, KINDS.get(model, "number"), LINKS[model], levels)
    plan = config.plan(task, model)
    start = start_of(plan.network, task.seed)
    found = erosion.train_eroding(
        fed, config.user, start, plan, config.rounds,
        config.rate_of(model), visit=config.visit, by=config.erosion, min_cell=least,
    )  # fmt: skip
    if found.flat == config.rounds:
        raise NothingToLearn(
            f"site {user!r} has nothing to learn from: it has fewer than {least} rows, or of "
            f"one of several classes, or its gradient was 0 in every round. Take another user, or "
            f"more rows."
        )
    baselines: dict[int, Baseline] = {}
    if model == "cox":
        grid = timegrid.intervals(fed, GRID, task.min_cell)
        baselines = hazard.baseline(fed, plan, grid, {0: found.theta}, task.min_cell)
    return ErosionModel(
        features=task.features,
        model=model,
        levels=levels,
        network=plan.network,
        theta=found.theta,
        user=user,
        alpha=found.alpha,
        rounds=config.rounds,
        flat=found.flat,
        alone=found.alone,
        baseline=baselines.get(0),
    )


#: Time grid of a Cox model's risk sets.
GRID = "protected"

STEPS: tuple[Step[..., Any], ...] = (
    isolation, *erosion.STEPS, *timegrid.STEPS[:-1], *hazard.STEPS,
)  # fmt: skip


def asks(config: ErosionSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps of a fit."""
    timed = (*timegrid.asks(GRID), *hazard.STEPS) if config.model in ("auto", "cox") else ()
    return (isolation, *erosion.STEPS, *timed)

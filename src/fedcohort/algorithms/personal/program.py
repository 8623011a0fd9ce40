"""Model for one site, or for each, by a personalised baseline: local, global, and seven between.

The ways are those of `training.personal`, for a linear predictor, which starts at 0, or a
perceptron. The loss is averaged over a site's rows; the penalty is ½λ₂‖W‖² on the first layer's
weights W. Means over sites are weighted by rows (FedAvg, McMahan et al. 2017). Cox's loss has each
site's own risk sets, so training allows every site its own baseline hazard; the model has
Breslow's, over all sites' rows at the user's model (`training.hazard`).

In fedper and fedrep a network's last layer is each site's own. A linear predictor has only that
layer; there the intercept is each site's own, with the coefficients of `own_features`; with all of
them it is `local`.

With rows of the coordinator all ways start from a first model (`training.networks.validated`), and
``monitor: validation`` takes R of the sites' models on its validation rows.

With a monitor (`training.heterogeneity`) sites share one model until its alarm; the remaining
rounds make the user's own.

Revealed: once `data.isolation`, except for `local`; see `training.personal`; with a monitor
`training.heterogeneity`; and for cox, unless `baseline` is false, `data.timegrid` and
`training.hazard`, over all sites, also for `local`. For these sums all sites receive the user's
model, which otherwise only the coordinator sees. With a model for each site none of them is sent,
and its baseline is this site's own (`training.personal.own_baseline`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.algorithms.personal.model import PersonalModel
from fedcohort.algorithms.personal.settings import PersonalSettings, server
from fedcohort.arrays import Array
from fedcohort.data import timegrid
from fedcohort.data.exact import check_covariates, exact_sums, isolation
from fedcohort.models.losses import units_of
from fedcohort.models.predictor import KINDS, LINKS, start_of
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import Federation, SettingError, Step, Task
from fedcohort.training import hazard, heterogeneity, personal
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.server import fedavg
from fedcohort.training.networks.strategies import train_here, visit
from fedcohort.training.networks.switching import personalise_as_set
from fedcohort.training.networks.validated import begun
from fedcohort.training.personal import Way
from fedcohort.training.personal.own_baseline import STEPS as OWN_BASELINE
from fedcohort.training.personal.own_baseline import baseline_kept, keep_baselines


def fit(fed: Federation, config: PersonalSettings, task: Task) -> PersonalModel:
    """Train a model for the user's site, or a model for each site, which stays there.

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
    plan, schedule = config.plan(task, model), config.schedule(model)
    way = config.way_of(task.features, plan)
    user = personal.owner(fed, way)
    least = task.min_cell if len(fed.sites) > 1 else 1
    if 0 < config.batch_size < least:
        raise SettingError(
            f"batch_size is {config.batch_size}, and steps on fewer than {least} rows (min_cell) "
            f"would tell of single ones. Raise it, or give 0 for all rows."
        )
    check_covariates(task)
    if config.way != "local":
        exact_sums(fed, task, KINDS.get(model, "number"), LINKS[model], levels)
    own, plan, start = begun(task, plan, start_of(plan.network, task.seed), schedule)
    found = personalise_as_set(
        fed, plan, schedule, fedavg, server, start, way, config, min_cell=least, seed=task.seed,
        own=own,
    )  # fmt: skip
    switched = found.common_rounds < found.rounds
    parted = config.way in personal.PARTED and switched
    baselines: dict[int, Baseline] = {}
    if model == "cox" and config.baseline:
        grid = timegrid.intervals(fed, GRID, task.min_cell)
        stages = {**found.kept, config.rounds: found.theta}
        if config.every:
            keep_baselines(fed, plan, grid, way, task.min_cell)
        else:
            baselines = hazard.baseline(fed, plan, grid, stages, task.min_cell)
    return PersonalModel(
        features=task.features,
        model=model,
        levels=levels,
        network=plan.network,
        theta=found.theta,
        user=user,
        way=config.way,
        common=found.common,
        rounds=found.rounds,
        loss=found.loss,
        alpha=found.alpha,
        counts=found.counts,
        parts=int(way.mask(len(start)).sum()) if parted else -1,
        kept=found.kept,
        common_rounds=found.common_rounds,
        baseline=baselines.pop(config.rounds, None),
        baselines=baselines,
    )


def own_model(
    site: str, design: Any, asked: Mapping[str, Any], left: Mapping[str, Array]
) -> PersonalModel | None:
    """Return the model that a step has finished at a site (`Method.own_model`)."""
    own = personal.Own.finished(left)
    if own is None:
        return None
    plan, way = Plan.of(asked["plan"]), Way.of(asked["way"])
    curve = baseline_kept(own)
    if curve is not None:
        curve = replace(curve, cumulative=curve.cumulative * math.exp(-float(own.centre[0])))
    model, *_ = units_of(plan.loss)
    return PersonalModel(
        features=design.features,
        model=model,
        levels=design.classes if model == "softmax" else (),
        network=plan.network,
        theta=own.model,
        user=site,
        way=way.name,
        common=np.zeros(0),
        rounds=0,
        loss=float(own.loss[0]) if len(own.loss) else math.nan,
        alpha=float(own.alpha) if way.name == "apfl" else math.nan,
        parts=int(way.mask(len(own.model)).sum()) if way.name in personal.PARTED else -1,
        baseline=curve,
    )


#: Time grid of a Cox model's risk sets.
GRID = "protected"

STEPS: tuple[Step[..., Any], ...] = (
    isolation, train_here, visit, personal.tell_alone, personal.keep_alone, *personal.STEPS,
    *heterogeneity.STEPS, *timegrid.STEPS[:-1], *hazard.STEPS, *OWN_BASELINE,
)  # fmt: skip


def asks(config: PersonalSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps of a fit."""
    own = config.asks_own(config.way)
    if config.baseline and config.model in ("auto", "cox"):
        curve = OWN_BASELINE if config.every else hazard.STEPS
        own = (*own, *timegrid.asks(GRID), *curve)
    return own if config.way == "local" else (isolation, *own)

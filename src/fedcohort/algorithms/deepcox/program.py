"""DeepCox: a network's output as the log risk of Cox's model, by seven federated strategies.

Faraggi and Simon, Stat. Med. 14(1), 1995; federated in GenoMed4All D6.2, section 8.2. The loss is
the partial likelihood averaged over rows, with penalties on the weights W of the first layer:

    L(θ) = −ℓ(θ)/n + λ₁‖W‖₁ + ½λ₂‖W‖²,   ℓ(θ) = Σ_j δ_j f_j − Σ_t d(t) log S_0(t)         (1)

Most strategies train on each site's own ℓ. Their sum is not the pooled ℓ, because each risk set has
the records of one site only. (D6.2 calls the federated loss incomplete; see errata.) The strategy
"exact" uses the pooled ℓ. Per optimiser step, over all sites:

    S_0(t) = Σ_{j: t_j ≥ t} e^{f_j − c}                                      first sum    (2)
    ∇(−ℓ) = Σ_j (A_j e^{f_j − c} − δ_j) ∇f_j,   A_j = Σ_{t ≤ t_j} d(t)/S_0(t)  second sum (3)

which is the gradient of the pooled ℓ for any split (on the protected grid, with records moved to
the ends of its intervals). The shift c, the same at all sites, is the mean log risk of the step
before. It cancels, and prevents overflow of e^f.

A gradient (3) has no bound for arbitrary data. Its terms are martingale residuals: if the model
fits all sites equally well, their sum grows as √n_k with the site's n_k rows. If single replies are
visible, ‖∇‖/√(n_k + 10) is compared between sites (`protocol.updates`, docs/robustness.md). This
does not detect a wrong direction of usual length, or more rows claimed in all replies.

Revealed, besides the replies of `data.timegrid` and of the strategy
(`training.networks.strategies`), only as sums over all sites: `Deaths`, at most once for each of
training rows, held-out rows and all rows; `RiskSums` and `Slope` every round of "exact"; `RiskSums`
of held-out rows, or `Counts` (`training.networks.counts`), every round with a patience or
``lr_rule: plateau``; `RiskSums` once for the baseline hazard and once for each kept round. A bound
of a study asks its only site once for all rounds of "exact" (`training.networks.alone`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedcohort.algorithms.deepcox import private
from fedcohort.algorithms.deepcox.model import DeepCoxModel
from fedcohort.algorithms.deepcox.settings import DeepCoxSettings
from fedcohort.algorithms.deepcox.steps import descend_alone, mean_loss, pull, ratio
from fedcohort.arrays import Array
from fedcohort.data import timegrid
from fedcohort.models.network import initial
from fedcohort.protocol import (
    Federation,
    ReplyRejected,
    Step,
    Task,
)
from fedcohort.training import hazard, heterogeneity, personal
from fedcohort.training.hazard import (
    ONE,
    Deaths,
    Pool,
    RiskSums,
    count_deaths,
    sum_risks,
)
from fedcohort.training.networks import alone, fits, strategies
from fedcohort.training.networks.counts import counting
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.pooled import Descent, Slope
from fedcohort.training.networks.schedule import Course, HeldOut, Schedule, course_of, follow
from fedcohort.training.networks.validated import begun
from fedcohort.training.personal import own_counts
from fedcohort.training.personal.own_baseline import STEPS as OWN_BASELINE
from fedcohort.training.personal.own_baseline import baseline_kept, keep_baselines

# coordinator --------------------------------------------------------------------------


def fit(fed: Federation, config: DeepCoxSettings, task: Task) -> DeepCoxModel:
    """Train by the strategy of the settings, then estimate Breslow's baseline hazard.

    Raises
    ------
    DataError : no site has an event.
    SettingError, NothingToLearn : of a personal model, see `training.personal`.
    SiteUnavailable : a call fell below the quorum.
    """
    if task.dp is not None:
        return private.fit(fed, config, task, task.dp)
    plan, schedule = config.plan(len(task.features)), config.schedule
    grid = timegrid.intervals(fed, config.time_grid, config.least_cell(task.min_cell))
    start = initial(plan.network, task.seed)
    own, plan, theta = begun(task, plan, start, schedule, counts=config.counts)
    held_out = pooled_held_out_loss(fed, plan, grid)
    if own is not None and own.validation is not None:
        held_out = own.loss
    found = fits.train_as_set(
        fed, config, plan, theta, task, held_out=held_out, own=own,
        exact=lambda: exact(fed, plan, schedule, theta, grid, held_out),
    )  # fmt: skip
    if config.every:
        every = replace(plan, validation_fraction=0.0)
        keep_baselines(fed, every, grid, config.personal_way(plan), task.min_cell)
        return DeepCoxModel(plan.network, found.thetas, ONE, 0.0, None, found.rounds, every=True)
    return _with_baseline(fed, plan, grid, task.min_cell, found)


def own_model(
    site: str, design: Any, asked: Mapping[str, Any], left: Mapping[str, Array]
) -> DeepCoxModel | None:
    """Return the model that a step has finished at a site (`Method.own_model`)."""
    own = personal.Own.finished(left)
    if own is None:
        return None
    centre = float(own.centre[0]) if len(own.centre) else 0.0
    network = Plan.of(asked["plan"]).network
    return DeepCoxModel(network, own.model[None], ONE, centre, baseline_kept(own), 0)


def exact(
    fed: Federation,
    plan: Plan,
    schedule: Schedule,
    theta: Array,
    grid: timegrid.Intervals,
    held_out: HeldOut,
) -> Course:
    """Minimise the pooled loss, eq. (1), by its exact gradient, from θ (P,); one step per round."""
    if alone.can(fed, schedule):
        course = alone.at_once(
            fed, schedule, theta, descend_alone, times=grid.times, together=grid.together,
            plan=plan.text,
        )  # fmt: skip
        if course is not None:
            return course
    descent = Descent(plan, theta)
    pool = Pool(fed, grid, plan.text, held_out=False)
    asked = {k: v for k, v in pool.asked.items() if k != "held_out"}
    shift, step = 0.0, 0

    def sums(theta: Array) -> tuple[RiskSums, Slope]:
        draw = step if descent.net.draws else -1
        while True:
            risk = pool.fed.sum(
                sum_risks, thetas=theta[None], weights=ONE, shift=shift, draw=draw, **pool.asked
            )
            if not pool.settled():
                continue
            slope = pool.fed.sum(
                pull, theta=theta, increments=ratio(pool.events.d, risk.s0), shift=shift,
                draw=draw, **asked,
            )  # fmt: skip
            if pool.settled():
                _check_same_rows(pool.events, slope)
                return risk, slope

    def advance(theta: Array, rate: float) -> tuple[Array, float]:
        nonlocal shift, step
        risk, slope = sums(theta)
        events = pool.events
        shift, step = shift + math.log(float(risk.s0[0] / events.rows)), step + 1
        return descent.step(theta, slope.gradient / events.rows, loss_of(events, risk), rate)

    course = course_of(
        schedule, theta, held_out=held_out, rounds=fed.rounds, record=fed.record,
        counted=counting(fed, plan),
    )  # fmt: skip
    return follow(advance, course)


def loss_of(events: Deaths, risk: RiskSums) -> float:
    """Return −ℓ/n, eq. (1), of the summed rows."""
    return mean_loss(events.d, float(events.rows), risk.s0, float(risk.dead))


def pooled_held_out_loss(fed: Federation, plan: Plan, grid: timegrid.Intervals) -> HeldOut:
    """Return a function of θ that sums −ℓ/n of the sites' held-out rows."""
    pool: Pool | None = None

    def loss(theta: Array) -> float:
        nonlocal pool
        pool = pool or Pool(fed, grid, plan.text, held_out=True)
        return loss_of(*pool.risks(theta[None], ONE))

    return loss


def _with_baseline(
    fed: Federation,
    plan: Plan,
    grid: timegrid.Intervals,
    min_cell: int,
    found: fits.Trained,
) -> DeepCoxModel:
    """Return the trained model and that of each kept round, each with its baseline."""
    text = replace(plan, validation_fraction=0.0).text
    pool = Pool(fed, grid, text, held_out=False)

    def model(thetas: Array, rounds: int, kept: Mapping[int, DeepCoxModel]) -> DeepCoxModel:
        centre, baseline = hazard.centred(pool, grid, thetas, found.weights, min_cell)
        return DeepCoxModel(plan.network, thetas, found.weights, centre, baseline, rounds, kept)

    kept = {r: model(stage, r, {}) for r, stage in found.kept.items()}
    return model(found.thetas, found.rounds, kept)


def _check_same_rows(events: Deaths, slope: Slope) -> None:
    """Refuse a gradient over other rows than those with counted deaths."""
    if slope.rows != events.rows:
        raise ReplyRejected(
            f"the gradients are over {float(slope.rows):g} rows and the deaths of "
            f"{float(events.rows):g}, at the same sites: one of them changed its table, or reports "
            f"false numbers. Only sums are known, so the site cannot be named. Ask the sites, and "
            f"start again without it."
        )


STEPS = (
    *hazard.STEPS, pull, descend_alone, *strategies.STEPS, *heterogeneity.STEPS, *personal.STEPS,
    *own_counts.STEPS,
    *OWN_BASELINE, *timegrid.STEPS, *private.STEPS,
)  # fmt: skip


def asks(config: DeepCoxSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps that a fit with these settings can ask for."""
    trained = fits.asks(config, pull)
    if config.every:
        return (*trained, *OWN_BASELINE, *timegrid.asks(config.time_grid, known=True))
    return (count_deaths, sum_risks, *trained, *timegrid.asks(config.time_grid, known=True))

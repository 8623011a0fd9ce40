"""DeepCox with differential privacy: the releases of a private fit, and its training.

    unit "record"   strategy "exact": every round, one noisy sum of the clipped gradients of random
                    groups of records, each with the partial likelihood of its own risk sets. A
                    small group is enough: the expected gradient is that of Cox's model sampled
                    within sites (Langholz and Goldstein, Stat. Sci. 11(1), 1996), which has its
                    maximum at the same hazard ratios.
                    fedavg, fedprox, fedadam, fedyogi, sequential, ensemble: the same noisy
                    gradients in each site's training, so that each site's model is private. Each
                    site adds all of the noise, so the fit is noisier than "exact" at the same ε.
    unit "site"     fedavg, fedprox, fedadam, fedyogi: every round, the noisy mean of the sites'
                    clipped changes of the model.

With unit "record", one more release gives a baseline hazard that is constant in each of `INTERVALS`
equal parts of the usual times (dictionary). With u_jk the share of part k in which record j was
followed, and w_j = e^{min(f_j, B) − B} ≤ 1,

    d_k = Σ_j δ_j 1(t_j in k),   E_k = Σ_j w_j u_jk,   H_k = e^{−B} Σ_{l ≤ k} d_l / E_l      (1)

The (d, E) of one record has a norm of √(1 + INTERVALS) at most; `training.private` proves the other
sensitivities. Without usual times, or with unit "site", there is no baseline, and the model
predicts only risks. The centre c is 0: the mean risk of the records is not released.

Revealed: the replies of `training.private`, and `Hazards` once, with noise, as a sum over sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.algorithms.deepcox import noisy
from fedcohort.algorithms.deepcox.model import DeepCoxModel
from fedcohort.algorithms.deepcox.settings import STRATEGIES, DeepCoxSettings
from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.network import initial, network
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import (
    Dp,
    Federation,
    InputError,
    Private,
    Release,
    SettingError,
    Site,
    Task,
    message,
    summed,
)
from fedcohort.training import private
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Course, Schedule
from fedcohort.training.networks.server import RULES
from fedcohort.training.rows import tensor

#: Parts of the follow-up with a hazard each, steps of the curve in each, and B of eq. (1).
INTERVALS, STEPS_IN, BOUND = 6, 8, 2.0
#: Largest number of noisy steps of a fit that protects records, divided by √ε.
STEPS_BY_ROOT = 8
#: The baseline takes one part in `PART` of the total Σ 1/z².
PART = 5
#: Strategies with a private fit, by what is protected.
PRIVATE = {"record": STRATEGIES, "site": tuple(RULES)}
#: Clip C by what is protected.
CLIPS = {"record": 0.3, "site": 1.0}
#: Training step by strategy, if records are protected; the other strategies average.
TRAINS = {
    "exact": private.pull_privately,
    "sequential": private.leave_privately,
    "ensemble": private.leave_privately,
}


@message
class Hazards:
    """(d, E) of eq. (1), (2 INTERVALS,)."""

    told: Array


@summed
def hazards_privately(
    site: Site[SurvivalTable, None], *, thetas: Array, weights: Array, plan: str, horizon: float
) -> Private[Hazards]:
    """Count deaths and sum exposures in equal parts of the time up to `horizon`, eq. (1).

    f = Σ_m weights_m f_m, with thetas (M, P).

    Raises
    ------
    InputError : the horizon is not a finite number above 0.
    """
    if not (math.isfinite(horizon) and horizon > 0):
        raise InputError("the horizon of a baseline hazard must be a number above 0.")
    p = Plan.of(plan)
    net, x = network(p.network, p.dtype, p.device), tensor(site.data.x, p)
    f = np.zeros(len(x))
    for theta, weight in zip(thetas, weights, strict=True):
        net.load(theta)
        f += weight * np.asarray(net.outputs(x), float)
    f = np.nan_to_num(f)
    parts = record_hazards(f, site.data.time, site.data.event, horizon)
    return Private(Hazards(parts.sum(axis=0)), {"told": math.sqrt(1.0 + INTERVALS)})


def record_hazards(f: Array, time: Array, event: Array, horizon: float) -> Array:
    """Return each record's part of eq. (1), (n, 2 INTERVALS); 0 if it is not finite."""
    width = horizon / INTERVALS
    starts = width * np.arange(INTERVALS)
    with np.errstate(all="ignore"):
        share = np.clip((time[:, None] - starts) / width, 0.0, 1.0)
        k = np.ceil(time / width) - 1
        weight = np.exp(np.minimum(f, BOUND) - BOUND)
        died = (k[:, None] == np.arange(INTERVALS)) & np.asarray(event, bool)[:, None]
        parts = np.column_stack([died.astype(float), weight[:, None] * share])
    return np.where(np.isfinite(parts).all(axis=1, keepdims=True), parts, 0.0)


STEPS = (hazards_privately, *private.STEPS)


def releases(config: DeepCoxSettings, dp: Dp) -> Sequence[Release]:
    """Return all releases of a private fit.

    Raises
    ------
    SettingError : these settings have no private fit; or (ε, δ) cannot be met.
    """
    if config.strategy not in PRIVATE[dp.unit]:
        able = ", ".join(map(repr, PRIVATE[dp.unit]))
        raise SettingError(
            f"setting 'strategy' of method 'deepcox' is {config.strategy!r}, which has no private "
            f"fit that protects a {dp.unit}; choose {able}."
        )
    if config.aggregation != "mean":
        raise SettingError(
            f"setting 'aggregation' of method 'deepcox' is {config.aggregation!r}, which needs "
            f"each site's own model; a private fit returns only sums with noise. Choose 'mean'."
        )
    if config.personal != "none":
        raise SettingError(
            f"setting 'personal' of method 'deepcox' is {config.personal!r}, which returns the "
            f"user's own model without noise; choose 'none' for a private fit."
        )
    if config.patience is not None:
        raise SettingError(
            "setting 'patience' of method 'deepcox' needs the loss of held-out rows, which a "
            "private fit does not return; leave it out."
        )
    if config.lr_rule == "plateau":
        raise SettingError(
            "setting 'lr_rule' of method 'deepcox' is 'plateau', which needs the loss of held-out "
            "rows; a private fit does not return it. Choose another."
        )
    if config.optimiser_state != "fresh":
        raise SettingError(
            f"setting 'optimiser_state' of method 'deepcox' is {config.optimiser_state!r}; a "
            f"private fit has no optimiser that goes on at a site. Choose 'fresh'."
        )
    if config.monitor != "none":
        raise SettingError(
            f"setting 'monitor' of method 'deepcox' is {config.monitor!r}, which returns sums of "
            f"gradients without noise; choose 'none' for a private fit."
        )
    if config.dropout and dp.unit == "record":
        raise SettingError(
            "setting 'dropout' of method 'deepcox' draws hidden units for each gradient; a private "
            "fit computes one gradient for each group of records. Set it to 0."
        )
    rounds = rounds_of(config, dp)
    if dp.unit == "site":
        return _releases(private.move_privately.name, rounds, 1, 1.0, dp)
    step = TRAINS.get(config.strategy, private.train_privately)
    count = rounds * visit(config)
    draws = count if config.strategy == "ensemble" else visit(config)
    return _releases(step.name, count, draws, draws_of(config, dp).sampling, dp)


#: What the training step reveals if records are protected; the other strategies average.
TRAINED = {
    "exact": "the sum over sites of clipped gradients of random groups of records",
    "sequential": "one site's own model as it left it, which the coordinator sees, trained on "
    "noisy gradients alone",
    "ensemble": "every site's own model, which the coordinator sees, trained on noisy gradients "
    "alone",
}


def reveals(config: DeepCoxSettings, dp: Dp) -> str:
    """Describe what leaves a site in a private fit."""
    trained = releases(config, dp)[0]
    times = "Once" if trained.replies == 1 else f"{trained.replies} times"
    if dp.unit == "site":
        return f"{times}, the sum over sites of what training changed, clipped, with noise."
    what = TRAINED.get(
        config.strategy, "the sum over sites of their models, each trained on noisy gradients alone"
    )
    how = ", with noise" if config.strategy == "exact" else f" ({trained.count} at each site)"
    return (
        f"{times}, {what}{how}. If the dictionary gives usual times, once a sum over sites of "
        f"deaths and exposures in {INTERVALS} parts of them, with noise."
    )


def rounds_of(config: DeepCoxSettings, dp: Dp) -> int:
    """Return the number of rounds of a private fit: as set, or by ε up to `rounds`.

    The noise of T steps grows as √T/ε, their progress as T.
    """
    if config.dp_rounds is not None:
        return config.dp_rounds
    if dp.unit == "site":
        return config.rounds
    return min(config.rounds, max(1, round(STEPS_BY_ROOT * math.sqrt(dp.epsilon) / visit(config))))


def visit(config: DeepCoxSettings) -> int:
    """Return the number of noisy steps per round at one site, if records are protected."""
    return 1 if config.strategy == "exact" else config.internal_epochs * config.internal_batches


def draws_of(config: DeepCoxSettings, dp: Dp) -> private.Draws:
    """Return how a site draws records in each noisy step."""
    batches = 1 if config.strategy == "exact" else config.internal_batches
    return private.Draws.dealt(config.dp_groups, dp.norm, config.dp_sampling, batches)


def asked_of(config: DeepCoxSettings, dp: Dp, features: int) -> tuple[Plan, Schedule]:
    """Return the plan of each site and the schedule; both depend on the study alone."""
    plan, rounds = config.plan(features), rounds_of(config, dp)
    keep = tuple(r for r in config.schedule.keep if r < rounds)
    schedule = replace(config.schedule, rounds=rounds, keep=keep)
    if dp.unit == "record":
        # plain steps: noise cancels in their sum; Adam's steps are as long with noise alone
        plan = replace(plan, optimiser="sgd")
        schedule = replace(schedule, learning_rate=config.dp_learning_rate / dp.norm)
    return plan, schedule


def held(config: DeepCoxSettings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return by step the arguments that a site requires: all except models and weights."""
    assert task.dp is not None
    plan, schedule = asked_of(config, task.dp, len(task.features))
    drawn = {"plan": plan.text, **draws_of(config, task.dp).asked}
    rate = schedule.learning_rate
    alone = config.strategy == "ensemble"
    return {
        private.pull_privately.name: drawn,
        private.train_privately.name: {**drawn, "rate": rate},
        private.leave_privately.name: {
            **drawn, "rate": rate, "rounds": schedule.rounds if alone else 1,
            "keep": noisy.kept(schedule, schedule.rounds if alone else 1),
        },
        private.move_privately.name: {"plan": plan.text, "rate": rate, "clip": task.dp.norm},
        hazards_privately.name: {
            "plan": plan.text, "horizon": None if task.reach is None else task.reach[1],
        },
    }  # fmt: skip


@lru_cache(maxsize=64)
def _releases(step: str, count: int, draws: int, q: float, dp: Dp) -> tuple[Release, ...]:
    """Return the releases of `count` training steps and of the baseline."""
    from fedcohort.privacy import accounting  # slow to import: only where noise is asked for

    def make(z: float) -> tuple[Release, ...]:
        trained = Release(step=step, noise=z, count=count, sampling=q, draws=draws)
        if dp.unit != "record":
            return (trained,)
        noise = z * math.sqrt((PART - 1) / count)
        return trained, Release(step=hazards_privately.name, noise=noise)

    return make(accounting.calibrate(make, dp))


def fit(fed: Federation, config: DeepCoxSettings, task: Task, dp: Dp) -> DeepCoxModel:
    """Train privately, from the seed's initial network.

    Raises
    ------
    Refused : a site has too few rows, or its budget is spent.
    """
    plan, schedule = asked_of(config, dp, len(task.features))
    rounds, keep = schedule.rounds, schedule.keep
    theta = initial(plan.network, task.seed)
    weights = np.ones(1)
    if config.strategy == "ensemble":
        draws = draws_of(config, dp)
        stages, weights = noisy.noisy_members(fed, plan, schedule, theta, draws)
        thetas, kept = stages[0], dict(zip(keep, stages[1:], strict=True))
    else:
        course = _course(fed, config, plan, schedule, theta, task, dp)
        thetas, kept = course.theta[None], {r: v[None] for r, v in course.kept.items()}

    def model(thetas: Array, rounds: int) -> DeepCoxModel:
        return DeepCoxModel(plan.network, thetas, weights, 0.0, None, rounds)

    models = {r: model(stage, r) for r, stage in kept.items()}
    baseline = None
    if dp.unit == "record" and task.reach is not None:
        horizon = task.reach[1]
        sums = fed.sum(
            hazards_privately, thetas=thetas, weights=weights, plan=plan.text, horizon=horizon
        ).told
        release = next(r for r in releases(config, dp) if r.step == hazards_privately.name)
        noise = release.noise * math.sqrt((1.0 + INTERVALS) * len(fed.sites))
        baseline = baseline_of(sums, horizon, noise)
    return DeepCoxModel(plan.network, thetas, weights, 0.0, baseline, rounds, models)


def _course(
    fed: Federation,
    config: DeepCoxSettings,
    plan: Plan,
    schedule: Schedule,
    theta: Array,
    task: Task,
    dp: Dp,
) -> Course:
    draws = draws_of(config, dp)
    if config.strategy == "exact":
        return noisy.noisy_descent(fed, plan, schedule, theta, draws)
    if config.strategy == "sequential":
        return noisy.noisy_tour(fed, plan, schedule, theta, task.rng, draws)
    rule, server = RULES[config.strategy], config.server(theta)
    if dp.unit == "site":
        return noisy.noisy_averaging(fed, plan, schedule, rule, server, clip=dp.norm)
    return noisy.noisy_visits(fed, plan, schedule, rule, server, draws)


def baseline_of(sums: Array, horizon: float, noise: float) -> Baseline:
    """Return H of eq. (1) on a fine grid; counts are at least 0, exposures at least `noise`."""
    deaths = np.maximum(sums[:INTERVALS], 0.0)
    exposure = np.maximum(sums[INTERVALS:], max(noise, 1e-9))
    ends = np.linspace(0.0, horizon, INTERVALS + 1)
    times = np.linspace(0.0, horizon, INTERVALS * STEPS_IN + 1)[1:]
    cumulative = np.r_[0.0, np.cumsum(deaths / exposure)] * math.exp(-BOUND)
    return Baseline(times, np.interp(times, ends, cumulative))

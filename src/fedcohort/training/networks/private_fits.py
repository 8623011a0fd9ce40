"""Differentially private training of one network by any strategy, at the coordinator.

    unit "record"   strategy "exact": every round, one noisy sum of the clipped gradients of random
                    groups of records.
                    The other strategies: the same noisy gradients in each site's training, so that
                    each site's model is private. Each site adds all of the noise, so the fit is
                    noisier than "exact" at the same ε.
    unit "site"     strategies that average: every round, the noisy mean of the sites' clipped
                    changes of the model.

`training.private` proves the sensitivities.

Revealed: the replies of `training.private`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Dp, Federation, Release, SettingError, Task
from fedcohort.training import private
from fedcohort.training.networks import noisy
from fedcohort.training.networks.fit_settings import STRATEGIES, FitSettings
from fedcohort.training.networks.fits import Trained
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Course, Schedule
from fedcohort.training.networks.server import RULES

#: Largest number of noisy steps of a fit that protects records, divided by √ε.
STEPS_BY_ROOT = 8
#: Another release besides training takes one part in `PART` of the total Σ 1/z².
PART = 5
#: Values with which a fit that protects records is possible, whatever the other settings are. A
#: private fit refuses others, but for some of strategy, lr_rule and dropout (`releases`).
ABLE: Mapping[str, Any] = {
    "strategy": "exact", "aggregation": "mean", "personal": "none", "patience": None,
    "lr_rule": "constant", "optimiser_state": "fresh", "compression": "none", "monitor": "none",
    "halt": False, "dropout": 0.0,
}  # fmt: skip
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
#: What the training step reveals if records are protected; the other strategies average.
TRAINED = {
    "exact": "the sum over sites of clipped gradients of random groups of records",
    "sequential": "one site's own model as it left it, which the coordinator sees, trained on "
    "noisy gradients alone",
    "ensemble": "every site's own model, which the coordinator sees, trained on noisy gradients "
    "alone",
}


def releases(config: FitSettings, dp: Dp, more: str = "") -> Sequence[Release]:
    """Return all releases of a private fit.

    Parameters
    ----------
    more : name of a step with one more release, if records are protected; "" for none.

    Raises
    ------
    SettingError : these settings have no private fit; or (ε, δ) cannot be met.
    """
    able = ", ".join(map(repr, PRIVATE[dp.unit]))
    told = "which needs the loss of held-out rows, and a private fit does not return it"
    allowed = {
        "strategy": config.strategy in PRIVATE[dp.unit],
        "lr_rule": config.lr_rule != "plateau",
        "dropout": config.dropout == 0 or dp.unit != "record",
    }
    refused = {
        "strategy": f"which has no private fit that protects a {dp.unit}; choose {able}",
        "aggregation": "which needs each site's own model; a private fit returns only sums with "
        "noise. Choose 'mean'",
        "personal": "which returns the user's own model without noise; choose 'none' for a private "
        "fit",
        "patience": f"{told}; leave it out",
        "lr_rule": f"{told}. Choose another",
        "optimiser_state": "and a private fit has no optimiser that goes on at a site. Choose "
        "'fresh'",
        "compression": "and the updates of a private fit have noise in each coordinate and are not "
        "compressed. Choose 'none'",
        "monitor": "which needs replies without noise; choose 'none' for a private fit",
        "dropout": "which draws hidden units for each gradient; a private fit computes one "
        "gradient for each group of records. Set it to 0",
    }
    for name, why in refused.items():
        value = getattr(config, name)
        if not allowed.get(name, value == ABLE[name]):
            raise SettingError(f"setting {name!r} of method {config.method!r} is {value!r}, {why}.")
    rounds = rounds_of(config, dp)
    if dp.unit == "site":
        return _releases(private.move_privately.name, rounds, 1, 1.0, dp, more)
    step = TRAINS.get(config.strategy, private.train_privately)
    count = rounds * visit(config)
    draws = count if config.strategy == "ensemble" else visit(config)
    return _releases(step.name, count, draws, draws_of(config, dp).sampling, dp, more)


def reveals(config: FitSettings, dp: Dp, more: str = "") -> str:
    """Describe what leaves a site in a private training; `more` as in `releases`."""
    trained = releases(config, dp, more)[0]
    times = "Once" if trained.replies == 1 else f"{trained.replies} times"
    if dp.unit == "site":
        return f"{times}, the sum over sites of what training changed, clipped, with noise."
    what = TRAINED.get(
        config.strategy, "the sum over sites of their models, each trained on noisy gradients alone"
    )
    how = ", with noise" if config.strategy == "exact" else f" ({trained.count} at each site)"
    return f"{times}, {what}{how}."


def rounds_of(config: FitSettings, dp: Dp) -> int:
    """Return the number of rounds of a private fit: as set, or by ε up to `rounds`.

    The noise of T steps grows as √T/ε, their progress as T.
    """
    if config.dp_rounds is not None:
        return config.dp_rounds
    if dp.unit == "site":
        return config.rounds
    return min(config.rounds, max(1, round(STEPS_BY_ROOT * math.sqrt(dp.epsilon) / visit(config))))


def visit(config: FitSettings) -> int:
    """Return the number of noisy steps per round at one site, if records are protected."""
    return 1 if config.strategy == "exact" else config.internal_epochs * config.private_batches


def draws_of(config: FitSettings, dp: Dp) -> private.Draws:
    """Return how a site draws records in each noisy step."""
    batches = 1 if config.strategy == "exact" else config.private_batches
    return private.Draws.dealt(config.dp_groups, dp.norm, config.dp_sampling, batches)


def asked_of(config: FitSettings, dp: Dp, plan: Plan) -> tuple[Plan, Schedule]:
    """Return the plan of each site and the schedule; both depend on the study alone."""
    rounds = rounds_of(config, dp)
    keep = tuple(r for r in config.schedule.keep if r < rounds)
    schedule = replace(config.schedule, rounds=rounds, keep=keep)
    if dp.unit == "record":
        # plain steps: noise cancels in their sum; Adam's steps are as long with noise alone
        plan = replace(plan, optimiser="sgd")
        schedule = replace(schedule, learning_rate=config.dp_learning_rate / dp.norm)
    return plan, schedule


def held(config: FitSettings, dp: Dp, plan: Plan) -> Mapping[str, Mapping[str, Any]]:
    """Return by step the arguments that a site requires: all except models."""
    plan, schedule = asked_of(config, dp, plan)
    drawn = {"plan": plan.text, **draws_of(config, dp).asked}
    rate = schedule.learning_rate
    alone = config.strategy == "ensemble"
    return {
        private.pull_privately.name: drawn,
        private.train_privately.name: {**drawn, "rate": rate},
        private.leave_privately.name: {
            **drawn, "rate": rate, "rounds": schedule.rounds if alone else 1,
            "keep": noisy.kept(schedule, schedule.rounds if alone else 1),
        },
        private.move_privately.name: {"plan": plan.text, "rate": rate, "clip": dp.norm},
    }  # fmt: skip


@lru_cache(maxsize=64)
def _releases(
    step: str, count: int, draws: int, q: float, dp: Dp, more: str
) -> tuple[Release, ...]:
    """Return the releases of `count` training steps and of one more."""
    from fedcohort.privacy import accounting  # slow to import: only where noise is asked for

    def make(z: float) -> tuple[Release, ...]:
        trained = Release(step=step, noise=z, count=count, sampling=q, draws=draws)
        if dp.unit != "record" or not more:
            return (trained,)
        noise = z * math.sqrt((PART - 1) / count)
        return trained, Release(step=more, noise=noise)

    return make(accounting.calibrate(make, dp))


def train(
    fed: Federation, config: FitSettings, plan: Plan, theta: Array, task: Task, dp: Dp
) -> Trained:
    """Train privately from θ (P,), which must not depend on records.

    Parameters
    ----------
    plan : without noise; `asked_of` adapts it.

    Raises
    ------
    Refused : a site has too few rows, or its budget is spent.
    """
    plan, schedule = asked_of(config, dp, plan)
    draws = draws_of(config, dp)
    if config.strategy == "ensemble":
        stages, weights = noisy.noisy_members(fed, plan, schedule, theta, draws)
        kept = dict(zip(schedule.keep, stages[1:], strict=True))
        return Trained(stages[0], weights, schedule.rounds, kept)
    course = _course(fed, config, plan, schedule, theta, task.rng, dp, draws)
    return replace(Trained.of(course), rounds=schedule.rounds)


def _course(
    fed: Federation,
    config: FitSettings,
    plan: Plan,
    schedule: Schedule,
    theta: Array,
    rng: np.random.Generator,
    dp: Dp,
    draws: private.Draws,
) -> Course:
    if config.strategy == "exact":
        return noisy.noisy_descent(fed, plan, schedule, theta, draws)
    if config.strategy == "sequential":
        return noisy.noisy_tour(fed, plan, schedule, theta, rng, draws)
    rule, server = RULES[config.strategy], config.server(theta)
    if dp.unit == "site":
        return noisy.noisy_averaging(fed, plan, schedule, rule, server, clip=dp.norm)
    return noisy.noisy_visits(fed, plan, schedule, rule, server, draws)

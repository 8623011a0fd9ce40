"""Private training at the coordinator, by strategy.

The coordinator steps by the plan's optimiser or the server's rule. It returns the mean of the later
half of its points, in which noise cancels (Polyak and Juditsky, 1992). Sites return no loss, so the
learning rate is constant, and no round is selected. Revealed: see `training.private`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.models.forest import leaf_count
from fedcohort.protocol import Federation
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.pooled import Descent
from fedcohort.training.networks.schedule import Course, Schedule
from fedcohort.training.networks.server import Rule, Server
from fedcohort.training.private import (
    Draws,
    LaterMean,
    Left,
    leave_privately,
    move_privately,
    pull_privately,
    train_privately,
)


def noisy_descent(
    fed: Federation, plan: Plan, schedule: Schedule, theta: Array, draws: Draws
) -> Course:
    """Train from θ (P,) by one step per round along the noisy gradient of all sites."""
    descent = Descent(plan, theta)

    def advance(theta: Array) -> Array:
        pulled = fed.sum(pull_privately, theta=theta, plan=plan.text, **draws.asked)
        expected = max(1, draws.groups * len(fed.answered))
        return descent.step(theta, pulled.gradient / expected, 0.0, schedule.learning_rate)[0]

    return _follow(fed, schedule, theta, advance)


def noisy_averaging(
    fed: Federation, plan: Plan, schedule: Schedule, rule: Rule, server: Server, *, clip: float
) -> Course:
    """Train by rounds of local training and the noisy mean of the sites' changes."""
    state = replace(server, plain=leaf_count(plan.network))

    def advance(theta: Array) -> Array:
        nonlocal state
        moved = fed.sum(
            move_privately, theta=theta, plan=plan.text, rate=schedule.learning_rate, clip=clip
        )
        state = rule(state, theta + moved.change / len(fed.answered))
        return state.x

    return _follow(fed, schedule, server.x, advance)


def noisy_visits(
    fed: Federation, plan: Plan, schedule: Schedule, rule: Rule, server: Server, draws: Draws
) -> Course:
    """Train by rounds of noisy steps at every site and the mean of the sites' models."""
    state = server

    def advance(theta: Array) -> Array:
        nonlocal state
        left = fed.sum(
            train_privately, theta=theta, plan=plan.text, rate=schedule.learning_rate, **draws.asked
        )
        state = rule(state, left.theta / len(fed.answered))
        return state.x

    return _follow(fed, schedule, server.x, advance)


def noisy_tour(
    fed: Federation,
    plan: Plan,
    schedule: Schedule,
    theta: Array,
    rng: np.random.Generator,
    draws: Draws,
) -> Course:
    """Train one model by noisy steps at one site after the other, in random order each round."""

    def advance(theta: Array) -> Array:
        visited: list[str] = []
        for name in rng.permutation(list(fed.sites)).tolist():
            there = fed.only([str(name)]).optional()
            for left in _left(there, plan, schedule, theta, draws, rounds=1).values():
                theta = left.thetas[0]
                visited.append(str(name))
        fed.enough(visited)
        return theta

    return _follow(fed, schedule, theta, advance)


def noisy_members(
    fed: Federation, plan: Plan, schedule: Schedule, theta: Array, draws: Draws
) -> tuple[Array, Array]:
    """Train one model per site by noisy steps from θ (P,); see `strategies.ensemble`."""
    members = _left(fed, plan, schedule, theta, draws, rounds=schedule.rounds)
    thetas = np.stack([m.thetas for m in members.values()], axis=1)
    return thetas, np.full(len(members), 1.0 / len(members))


def _left(
    fed: Federation, plan: Plan, schedule: Schedule, theta: Array, draws: Draws, *, rounds: int
) -> Mapping[str, Left]:
    return fed.gather(
        leave_privately, theta=theta, plan=plan.text, rate=schedule.learning_rate, **draws.asked,
        rounds=rounds, keep=kept(schedule, rounds),
    )  # fmt: skip


def kept(schedule: Schedule, rounds: int) -> Array:
    """Return the rounds (k,) after which a site that trains alone keeps its model."""
    return np.array(schedule.keep if rounds > 1 else (), np.int64)


def _follow(
    fed: Federation, schedule: Schedule, theta: Array, advance: Callable[[Array], Array]
) -> Course:
    """Advance θ (P,) in each round; return the mean of the later half of the points."""
    mean, kept = LaterMean(schedule.rounds), dict[int, Array]()
    result = theta
    for i in fed.rounds(schedule.rounds):
        theta = advance(theta)
        fed.record(learning_rate=schedule.learning_rate)
        result = mean.add(theta)
        if i + 1 in schedule.keep:
            kept[i + 1] = result
    return Course(result, schedule.rounds, kept)

"""Ensembles of networks: each site trains a model alone, and the models vote.

With a patience each site's model ends by the site's own held-out loss. Sites of one process whose
tables fit stacks (`networks.stacks`) are trained at once.

Revealed: `Member` of each site, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Federation, Site, gathered
from fedcohort.training.networks.local import Memory, evaluate, train_each, train_on
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.replies import Member
from fedcohort.training.networks.schedule import HeldOut, Schedule, course_of, follow_each
from fedcohort.training.rows import rows_of


def _members(
    sites: Sequence[Site[Any, None]],
    *,
    theta: Array,
    plan: str,
    rounds: int,
    rate: float,
    lr_rule: str,
    lr_factor: float,
    lr_patience: int,
    patience: int,
    keep: Array,
) -> list[Member]:
    """Train a model of each site alone; those that fit in stacks at once."""
    p = Plan.of(plan)
    schedule = Schedule(
        rounds=rounds,
        learning_rate=rate,
        lr_rule=lr_rule,
        lr_factor=lr_factor,
        lr_patience=lr_patience,
        patience=None if patience < 0 else patience,
        keep=tuple(keep.tolist()),
    )
    tables = [rows_of(s.data, p, s.entropy) for s in sites]
    losses: list[list[float]] = [[] for _ in sites]
    memories = [Memory.empty(p, len(theta))] * len(sites)

    def held_out(k: int) -> HeldOut:
        rows = rows_of(sites[k].data, p, sites[k].entropy, held_out=True)
        return lambda theta: evaluate(theta, rows, p)

    def advance(asked: Mapping[int, tuple[Array, float]]) -> list[tuple[Array, float]]:
        draws = {k: (*sites[k].entropy, len(losses[k])) for k in asked}
        told: list[tuple[Array, float]] = []
        if p.optimiser_state == "kept":
            for k, (theta, rate) in asked.items():
                left, loss, memories[k] = train_on(theta, tables[k], p, rate, draws[k], memories[k])
                told.append((left, loss))
        else:
            starts, rates = zip(*asked.values(), strict=True)
            told = train_each(
                np.stack(starts), [tables[k] for k in asked], p, np.array(rates),
                list(draws.values()),
            )  # fmt: skip
        for k, (_, loss) in zip(asked, told, strict=True):
            losses[k].append(loss)
        return told

    courses = follow_each(
        advance, [course_of(schedule, theta, held_out=held_out(k)) for k in range(len(sites))]
    )
    found: list[Member] = []
    for rows, course, of_site in zip(tables, courses, losses, strict=True):
        kept = (course.kept.get(r, course.theta) for r in schedule.keep)
        weight = float(len(rows.x)) if rows.informative else 0.0
        loss = of_site[-1] if of_site else 0.0
        found.append(Member(np.stack([course.theta, *kept]), np.array(weight), np.array(loss)))
    return found


@gathered(many=_members)
def train_alone(
    site: Site[Any, None],
    *,
    theta: Array,
    plan: str,
    rounds: int,
    rate: float,
    lr_rule: str,
    lr_factor: float,
    lr_patience: int,
    patience: int,
    keep: Array,
) -> Member:
    """Train a model of this site alone, and return it.

    A negative patience never stops early. Rounds are counted by this site's own held-out loss.
    """
    (found,) = _members(
        [site], theta=theta, plan=plan, rounds=rounds, rate=rate, lr_rule=lr_rule,
        lr_factor=lr_factor, lr_patience=lr_patience, patience=patience, keep=keep,
    )  # fmt: skip
    return found


def ensemble(fed: Federation, plan: Plan, schedule: Schedule, theta: Array) -> tuple[Array, Array]:
    """Train one model per site, each from θ (P,).

    Returns
    -------
    thetas : (1 + K, S, P) models of the S sites: the last, then those of `schedule.keep`.
    weights : (S,), n_k/n.
    """
    members = fed.gather(
        train_alone,
        theta=theta,
        plan=plan.text,
        rounds=schedule.rounds,
        rate=schedule.learning_rate,
        lr_rule=schedule.lr_rule,
        lr_factor=schedule.lr_factor,
        lr_patience=schedule.lr_patience,
        patience=-1 if schedule.patience is None else schedule.patience,
        keep=np.array(schedule.keep, int),
    )
    thetas = np.stack([m.thetas for m in members.values()], axis=1)
    weights = np.array([float(m.weight) for m in members.values()])
    weights = weights / weights.sum() if weights.any() else np.full(len(weights), 1 / len(weights))
    fed.record(loss=float(weights @ [float(m.loss) for m in members.values()]))
    return thetas, weights

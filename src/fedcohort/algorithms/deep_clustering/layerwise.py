"""Greedy layer-wise pretraining of an autoencoder over sites; see `models.stacking`.

Each pair of layers is trained by `strategies.averaging`, on the outputs of the finished pairs below
it. Revealed: `Update` of one pair every round, only as a sum over the sites; with a robust
aggregation, `Visit` of each site every round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import torch

from fedcohort.arrays import Array
from fedcohort.data.tables import remembered
from fedcohort.models.autoencoder import Autoencoder
from fedcohort.models.latent import encoded
from fedcohort.models.network import initial, network
from fedcohort.models.objectives import Reconstruction, loss_of
from fedcohort.models.stacking import lower, objectives, pairs, stack
from fedcohort.protocol import Federation, Keep, Site, gathered, summed
from fedcohort.training.networks.moments import Moments
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Rule, Server
from fedcohort.training.networks.strategies import PLAIN, Update, Visit, Visits, averaging
from fedcohort.training.robust import MEAN, Aggregation
from fedcohort.training.rows import Rows, tensor


def _rows(site: Site[Any, Any], plan: Plan, below: str, weights: Array) -> Rows:
    """Return the training rows of a pair."""
    return Rows(_seen(site, plan, below, weights), loss_of(plan.loss, site.data))


def _seen(site: Site[Any, Any], plan: Plan, below: str, weights: Array) -> torch.Tensor:
    """Return the outputs of the layers below; only the latest are kept in memory."""
    latest: dict[bytes, torch.Tensor] = remembered(
        site.data, ("below", plan.dtype, plan.device), dict
    )
    digest = blake2b(weights.tobytes() + below.encode()).digest()
    if digest not in latest:
        net = network(below, plan.dtype, plan.device)
        net.load(weights)
        latest.clear()
        latest[digest] = torch.from_numpy(encoded(net, tensor(site.data.x, plan))).to(net.theta)
    return latest[digest]


@summed
def train_pair(
    site: Site[Any, None], *, theta: Array, plan: str, rate: float, below: str, weights: Array
) -> Update:
    """Train a pair of layers from the common one.

    Parameters
    ----------
    below, weights : spec and θ of the layers below it.
    """
    p = Plan.of(plan)
    return Update.trained(theta, _rows(site, p, below, weights), p, rate, site.entropy)


@summed
def train_pair_kept(
    site: Site[Any, Moments | None], *, theta: Array, plan: str, rate: float, below: str,
    weights: Array,
) -> Keep[Update, Moments]:  # fmt: skip
    """Train a pair of layers; keep a state for the next visit at the site."""
    p = Plan.of(plan)
    return Update.kept(site, theta, _rows(site, p, below, weights), p, rate, below)


@gathered
def visit_pair(
    site: Site[Any, None], *, theta: Array, plan: str, rate: float, below: str, weights: Array
) -> Visit:
    """Train a pair of layers; return the pair itself, for a robust aggregation."""
    p = Plan.of(plan)
    return Visit.trained(theta, _rows(site, p, below, weights), p, rate, site.entropy)


def pretrain(
    fed: Federation,
    autoencoder: Autoencoder,
    objective: Reconstruction,
    plan: Plan,
    schedule: Schedule,
    rule: Rule,
    server: Callable[[Array], Server],
    seed: int,
    centre: Aggregation = MEAN,
    visits: Visits = PLAIN,
) -> Array:
    """Return θ (P,) of an autoencoder whose pairs were trained one after the other.

    Parameters
    ----------
    objective : of the first pair; see `stacking.objectives` for the others.
    plan : its network and loss are not used.
    schedule : of each pair; its patience, plateau and `keep` are not used.
    server : θ → the server's state before the first round of a pair.
    seed : seed of the pairs' first weights.
    visits : training steps of the first pair.

    Raises
    ------
    SettingError : there are fewer sites than `centre` needs.
    """
    rule_of = "constant" if schedule.lr_rule == "plateau" else schedule.lr_rule
    once = replace(schedule, patience=None, lr_rule=rule_of, keep=())
    thetas: list[Array] = []
    goals = objectives(autoencoder, objective)
    for k, (pair, goal) in enumerate(zip(pairs(autoencoder), goals, strict=True)):
        theta = initial(pair.spec, seed + k)
        asked = replace(plan, network=pair.spec, loss=goal.spec)
        by = _visits(autoencoder, thetas) if k else visits
        course = averaging(fed, asked, once, rule, server(theta), _never, centre, by)
        thetas.append(course.theta)
    return stack(autoencoder, thetas)


def _visits(autoencoder: Autoencoder, thetas: list[Array]) -> Visits:
    """Return the training steps of the next pair above the finished ones."""
    under = lower(autoencoder, len(thetas))
    more: Mapping[str, Any] = {"below": under.spec, "weights": stack(under, thetas)}
    return Visits(train_pair, visit_pair, lambda theta: more, train_pair_kept)


def _never(theta: Array) -> float:
    raise AssertionError("a schedule without patience and plateau asks for no held-out loss.")


STEPS = (train_pair, train_pair_kept, visit_pair)

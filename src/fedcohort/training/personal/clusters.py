"""Clusters of sites, each with its own mean model: IFCA, from sums over the sites of a cluster.

Ghosh et al., "An efficient framework for clustered federated learning", NeurIPS 2020, Algorithm 1
with model averaging. Site i chooses the one of K models θ_j with the least loss on its rows, and
trains it. Each model becomes the mean over its sites:

    j_i = argmin_j L_i(θ_j),   θ_j ← Σ_{i: j_i = j} n_i θ_i / Σ_{i: j_i = j} n_i             (1)

IFCA needs K different models to start from. Here the first rounds train one common model θ, which
is then split: T sets of K directions z are drawn, with

    θ_j = θ + ε z_j,   ‖ε z_j‖ = `APART` ‖θ − θ_start‖                                      (2)

in pairs z, −z. Near θ, L_i(θ_j) ≈ L_i(θ) + ε ∇L_iᵀz_j: sites choose by the direction of their
gradients, as in Sattler et al., "Clustered federated learning", IEEE TNNLS 32(8), 2021. The set
with the least Σ n_i min_j L_i(θ_j) is taken, among those in which enough sites choose each model.
If there is none, training goes on with one model.

A sum over few sites would tell their models. So each site tells its choice before each training. A
model with fewer than `least` sites is closed for the round, the one with the fewest first, and its
sites choose again. Each model is then summed over exactly the sites that chose it; a site that
chose another one refuses, so no site is hidden by sites that add nothing.

Revealed: once, as a sum over all sites, `Rated`; each round, once or more, each site's choice,
`Side`, to the coordinator; and for each model an `Update`, as a sum over its sites. The user's site
also tells its choice at the end. Not protected: sites that leave between the choice and the sum;
masks still hide three or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.models.forest import leaf_count
from fedcohort.protocol import Federation, Keep, Refused, Site, gathered, message, summed
from fedcohort.protocol.updates import count_fault
from fedcohort.training.networks.local import evaluate
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule, course_of, follow
from fedcohort.training.networks.server import Rule, Server
from fedcohort.training.networks.strategies import PLAIN, Update, Visits
from fedcohort.training.personal.steps import Finished, finished
from fedcohort.training.personal.visits import Own, begun
from fedcohort.training.personal.ways import Way, nothing
from fedcohort.training.rows import Rows, known_rows
from fedcohort.training.update_bounds import length

#: T, and ‖ε z‖ relative to the distance of the common rounds, eq. (2).
TRIES, APART = 30, 0.1
#: Default of the fewest sites of a model.
LEAST = 3


@message
class Rated:
    """n_i min_j L_i(θ_j) of each set (T,), and this site's choice in each set (T, K), one-hot."""

    loss: Array
    takes: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        k = asked["models"]
        return _takes_fault(self.takes, (len(asked["starts"]) // k, k))


@message
class Side:
    """Number () of the model that a site chooses; −1 if the site has nothing to learn from."""

    takes: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        there = {-1, *np.flatnonzero(asked["open_"]).tolist()}
        if self.takes.shape or self.takes.item() not in there:
            return "a model that may not be chosen."
        return ""


def _takes_fault(takes: Array, wanted: tuple[int, ...]) -> str:
    if takes.shape != wanted:
        return "another shape than one number for each model."
    if why := count_fault("takes", takes):
        return why
    return "more than one model taken." * bool((takes.sum(axis=-1) > 1).any())


# site ---------------------------------------------------------------------------------


@summed
def rate_starts(site: Site[Any, Any], *, starts: Array, plan: str, models: int) -> Rated:
    """Return the least loss in each set of trial models, and the model that has it.

    starts : models (T K, P), set after set. models : K, in each set.
    """
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    sets = len(starts) // models
    if not rows.informative:
        return Rated(np.zeros(sets), np.zeros((sets, models), np.int64))
    losses = np.array([evaluate(theta, rows, p) for theta in starts]).reshape(sets, models)
    takes = np.eye(models, dtype=np.int64)[losses.argmin(axis=1)]
    return Rated(len(rows.x) * losses.min(axis=1), takes)


@gathered
def tell_takes(site: Site[Any, Any], *, thetas: Array, plan: str, open_: Array) -> Side:
    """Return the number of the model with the least loss on the site's rows.

    thetas : models (K, P). open_ : models that may be chosen (K,).
    """
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    return Side(np.array(_side(rows, thetas, p, open_) if rows.informative else -1))


@summed
def train_taken(
    site: Site[Any, Any], *, theta: Array, thetas: Array, plan: str, rate: float, open_: Array,
    side: int, least: int,
) -> Update:  # fmt: skip
    """Train one model, in a sum over the sites that all chose it.

    theta : the model (P,), number ``side`` of thetas (K, P). open_ : as in `tell_takes`.

    Raises
    ------
    Refused : the site chose another model, or fewer than `least` sites are in the sum.
    """
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    mine = rows.informative and _side(rows, thetas, p, open_) == side
    if not mine or not np.array_equal(theta, thetas[side]):
        raise Refused("side", f"site {site.name!r} chose another model than this one.")
    if site.among and len(site.among) < least:
        raise Refused(
            "side",
            f"site {site.name!r} would be one of {len(site.among)} in the sum of models; {least} "
            f"are needed.",
        )
    return Update.trained(theta, rows, p, rate, site.entropy)


@gathered
def tell_side(
    site: Site[Any, Any], *, thetas: Array, plan: str, open_: Array, way: str, min_cell: int
) -> Side:  # fmt: skip
    """Return the number of the model that the user's site chooses."""
    w, p = Way.of(way), Plan.of(plan)
    if w.every or not w.is_of(site.name):
        raise Refused(
            "way", f"site {site.name!r} does not tell its model; only the user {w.user!r} does."
        )
    rows = known_rows(site.data, p, site.entropy)
    enough = len(rows.x) >= max(min_cell, 1) and rows.informative
    return Side(np.array(_side(rows, thetas, p, open_) if enough else -1))


@summed
def keep_side(
    site: Site[Any, Own | None], *, thetas: Array, plan: str, open_: Array, way: str
) -> Keep[Finished, Own]:
    """Keep the model that the site chooses; without rows to learn from, the first open one."""
    w, p = Way.of(way), Plan.of(plan)
    if not w.every:
        raise Refused("way", f"site {site.name!r} keeps no model; only {w.user!r} has one.")
    rows = known_rows(site.data, p, site.entropy)
    at = _side(rows, thetas, p, open_) if rows.informative else int(np.argmax(open_))
    model = thetas[at].astype(np.float64)
    return finished(begun(model, w), model, 0.0, rows, p)


def _side(rows: Rows, thetas: Array, plan: Plan, open_: Array) -> int:
    losses = [evaluate(t, rows, plan) if o else np.inf for t, o in zip(thetas, open_, strict=True)]
    return int(np.argmin(losses))


# coordinator --------------------------------------------------------------------------


@dataclass
class Clusters:
    """K models, with the number of sites of each.

    Attributes
    ----------
    servers : state of each model's server optimiser; the model is its x.
    counts : sites that chose each model in the latest round (K,).
    """

    servers: list[Server]
    counts: Array = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def thetas(self) -> Array:
        """Models (K, P)."""
        return np.stack([s.x for s in self.servers])


@dataclass(frozen=True)
class Clustered:
    """Result of training clusters.

    Attributes
    ----------
    theta : the model of the user's site (P,).
    models : all models (K, P); K is 1 without a split.
    counts : sites that chose each model in the last round (K,); empty without a split.
    kept : number of rounds → `theta` if that round were the last.
    finished : sums over sites that each keep their model; None with a user. `theta` is then the
        mean of the models.
    """

    theta: Array
    models: Array
    counts: Array
    kept: dict[int, Array]
    finished: Finished | None = None


def train_clusters(
    fed: Federation, user: str, plan: Plan, schedule: Schedule, rule: Rule, server: Server, *,
    n_clusters: int, warm: int, least: int, seed: int, min_cell: int, visits: Visits = PLAIN,
) -> Clustered:  # fmt: skip
    """Train by eq. (1) from `server.x`, after `warm` rounds of one common model.

    Parameters
    ----------
    user : name of the user's site, which tells its choice; `ways.ALL`: each site keeps its model.
    least : fewest sites of a model, 2 or more.
    seed : seed of the directions.
    min_cell : fewest rows of the user.
    visits : training steps before the split.

    Raises
    ------
    NothingToLearn : the user's rows cannot choose a model.
    """
    server = replace(server, plain=leaf_count(plan.network))
    held, start, done = Clusters([server]), server.x, 0
    stages: dict[int, tuple[Array, Array]] = {}
    many = n_clusters if len(fed.sites) >= n_clusters * least else 1

    def advance(_: Array, rate: float) -> tuple[Array, float]:
        nonlocal held, done
        if done == warm and many > 1:
            held = _split(fed, held, start, plan, many, least, seed)
        if len(held.servers) == 1:
            total = fed.sum(
                visits.sum, theta=plan.sent(held.servers[0].x), plan=plan.text, rate=rate
            )
            rows, loss = float(total.rows), float(total.loss)
            if rows:
                held.servers[0] = rule(held.servers[0], total.theta / rows)
        else:
            rows, loss = _round(fed, held, plan, rule, rate, least)
        done += 1
        if done in schedule.keep:
            stages[done] = held.thetas, held.counts.copy()
        return held.thetas, loss / max(rows, 1.0)

    def record(**values: float) -> None:
        split = held.counts if len(held.servers) > 1 else []
        fed.record(**values, **{f"sites {j + 1}": float(n) for j, n in enumerate(split)})

    course = course_of(schedule, server.x, held_out=lambda _: 0.0, rounds=fed.rounds, record=record)
    follow(advance, course)

    def of_user(models: Array, counts: Array) -> Array:
        if len(models) == 1:
            return models[0]
        found = fed.only([user]).gather(
            tell_side, thetas=models, plan=plan.text, open_=counts > 0,
            way=Way(name="cluster", user=user).text, min_cell=min_cell,
        )[user]  # fmt: skip
        if found.takes < 0:
            raise nothing(user, min_cell)
        return models[int(found.takes)]

    models = held.thetas
    if (way := Way(name="cluster", user=user)).every:
        split = len(models) > 1
        reply = fed.awaiting().sum(
            keep_side, thetas=models, plan=plan.text, way=way.text,
            open_=held.counts > 0 if split else np.ones(1, bool),
        )  # fmt: skip
        counts = held.counts if split else np.zeros(0, np.int64)
        return Clustered(models.mean(axis=0), models, counts, {}, reply)
    return Clustered(
        of_user(models, held.counts),
        models,
        held.counts if len(models) > 1 else np.zeros(0, np.int64),
        {r: of_user(*stage) for r, stage in stages.items()},
    )


def _split(
    fed: Federation, held: Clusters, start: Array, plan: Plan, k: int, least: int, seed: int
) -> Clusters:
    """Return k models around the common one, eq. (2), or the common one if too few sites choose
    any.
    """
    (server,) = held.servers
    rng = np.random.default_rng((seed, 0x736964))
    z = rng.standard_normal((TRIES, k, len(server.x)))
    z[:, 1::2] = -z[:, 0 : 2 * (k // 2) : 2]
    z *= APART * length(server.x - start) / np.linalg.norm(z, axis=2, keepdims=True)
    starts = (server.x + z).reshape(-1, len(server.x))
    ratings = fed.sum(rate_starts, starts=starts, plan=plan.text, models=k)
    enough = (ratings.takes >= least).all(axis=1)
    if not enough.any():
        return held
    best = int(np.where(enough, ratings.loss, np.inf).argmin())
    models = starts.reshape(z.shape)[best]
    size = {"rate": server.rate, "beta1": server.beta1, "beta2": server.beta2, "tau": server.tau}
    begun_at = [replace(Server.at(x, **size), plain=server.plain) for x in models]
    return Clusters(begun_at, ratings.takes[best])


def _round(
    fed: Federation, held: Clusters, plan: Plan, rule: Rule, rate: float, least: int
) -> tuple[float, float]:
    """Train each model once; return the number of rows, and Σ n L."""
    models = plan.sent(held.thetas)
    open_ = np.ones(len(models), bool)
    while True:
        sides = fed.gather(tell_takes, thetas=models, plan=plan.text, open_=open_)
        takes = {site: int(t.takes) for site, t in sides.items() if t.takes >= 0}
        counts = np.bincount([*takes.values()], minlength=len(models))
        few = (counts > 0) & (counts < least)
        if not few.any() or open_.sum() == 1:
            break
        open_[np.where(few, counts, np.inf).argmin()] = False
    held.counts = counts
    if few.any():
        return 0.0, 0.0
    rows = loss = 0.0
    for j in np.flatnonzero(counts):
        total = fed.only([site for site, side in takes.items() if side == j]).sum(
            train_taken, theta=models[j], thetas=models, plan=plan.text, rate=rate, open_=open_,
            side=int(j), least=least,
        )  # fmt: skip
        held.servers[j] = rule(held.servers[j], total.theta / float(total.rows))
        rows, loss = rows + float(total.rows), loss + float(total.loss)
    return rows, loss


#: Steps of every fit; the user then tells its choice, or each site keeps its model.
SHARED = (rate_starts, tell_takes, train_taken)
STEPS = (*SHARED, tell_side, keep_side)

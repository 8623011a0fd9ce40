"""Sites in groups, each with a mean of its own: IFCA, in sums that hide who is in which.

Ghosh et al., "An efficient framework for clustered federated learning", NeurIPS 2020, Algorithm 1
with model averaging. Of K models θ_j a site i takes the one of least loss on its rows, and trains
it; each becomes the mean of those that took it,

    j_i = argmin_j L_i(θ_j),   θ_j ← Σ_{i: j_i = j} n_i θ_i / Σ_{i: j_i = j} n_i             (1)

IFCA needs models to start from that are apart. Here the first rounds are those of one common model
θ, which is then split: T sets of K directions z are drawn, with

    θ_j = θ + ε z_j,   ‖ε z_j‖ = `APART` ‖θ − θ_start‖                                      (2)

in pairs z, −z. Near θ, L_i(θ_j) ≈ L_i(θ) + ε ∇L_iᵀz_j: sites take sides by the direction of their
gradients, by which Sattler et al. ("Clustered federated learning", IEEE TNNLS 32(8), 2021) split.
The set of the least Σ n_i min_j L_i(θ_j) is taken, of those in which each model is taken by enough
sites; without any, there is no split, and all goes on as one.

A sum over few sites would tell their models. So before each training sites tell which model they
take, and a model that fewer than `least` take is closed for the round, the one of fewest first: its
sites take the best of the others. Then each model is summed over the sites that take it and no
others: a site that takes another one refuses. So nobody is hidden by sites that add nothing,
whatever is said of their number.

Revealed: once, as a sum over all sites, `Rated`; each round, once or more, which model each site
takes, `Side`, to the coordinator; and of each model an `Update`, as a sum over the sites that take
it. The user's site tells which model it takes at the end, too. Not looked at: sites that leave
between the two, and are then in no sum; under masks it still hides three or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Federation, Refused, Site, gathered, message, summed
from fedcohort.protocol.updates import count_fault
from fedcohort.training.networks.local import evaluate
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule, follow
from fedcohort.training.networks.server import Rule, Server
from fedcohort.training.networks.strategies import PLAIN, Update, Visits
from fedcohort.training.personal.ways import Way, nothing
from fedcohort.training.rows import Rows, known_rows
from fedcohort.training.update_bounds import length

#: T, and ‖ε z‖ beside how far the common rounds came, eq. (2).
TRIES, APART = 30, 0.1
#: Fewest sites of a model, unless a study says 2.
LEAST = 3


@message
class Rated:
    """n_i min_j L_i(θ_j) of each set (T,), and by set which model this site takes (T, K)."""

    loss: Array
    takes: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return what is wrong with one site's reply; see `protocol.updates`."""
        k = asked["models"]
        return _takes_fault(self.takes, (len(asked["starts"]) // k, k))


@message
class Side:
    """The number () of the model that a site takes; −1 of one that can learn nothing."""

    takes: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return what is wrong with one site's reply; see `protocol.updates`."""
        there = {-1, *np.flatnonzero(asked["open_"]).tolist()}
        if self.takes.shape or self.takes.item() not in there:
            return "a model that it was not asked about."
        return ""


def _takes_fault(takes: Array, wanted: tuple[int, ...]) -> str:
    if takes.shape != wanted:
        return "other shapes than a number for each model."
    if why := count_fault("takes", takes):
        return why
    return "more than one model taken." * bool((takes.sum(axis=-1) > 1).any())


# site ---------------------------------------------------------------------------------


@summed
def rate_starts(site: Site[Any, Any], *, starts: Array, plan: str, models: int) -> Rated:
    """Rate sets of trial models: the least loss, and which model has it.

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
    """Tell which model the site takes: the one of least loss on its rows.

    thetas : models (K, P). open_ : those that may be taken (K,).
    """
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    return Side(np.array(_side(rows, thetas, p, open_) if rows.informative else -1))


@summed
def train_taken(
    site: Site[Any, Any], *, theta: Array, thetas: Array, plan: str, rate: float, open_: Array,
    side: int, least: int,
) -> Update:  # fmt: skip
    """Train a model, among sites that all take it.

    theta : the model (P,), of number ``side`` among thetas (K, P). open_ : as in `tell_takes`.

    Raises
    ------
    Refused : the site takes another model, or fewer than `least` sites are in the sum.
    """
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    mine = rows.informative and _side(rows, thetas, p, open_) == side
    if not mine or not np.array_equal(theta, thetas[side]):
        raise Refused("side", f"site {site.name!r} takes another model than it is asked to train.")
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
    """Tell which model the user's site takes."""
    w, p = Way.of(way), Plan.of(plan)
    if w.user not in ("", site.name):
        raise Refused(
            "way", f"site {site.name!r} tells nobody which model it takes; {w.user!r} does."
        )
    rows = known_rows(site.data, p, site.entropy)
    enough = len(rows.x) >= max(min_cell, 1) and rows.informative
    return Side(np.array(_side(rows, thetas, p, open_) if enough else -1))


def _side(rows: Rows, thetas: Array, plan: Plan, open_: Array) -> int:
    losses = [evaluate(t, rows, plan) if o else np.inf for t, o in zip(thetas, open_, strict=True)]
    return int(np.argmin(losses))


# coordinator --------------------------------------------------------------------------


@dataclass
class Clusters:
    """K models, and which may be taken.

    Attributes
    ----------
    servers : of each model, the server optimiser's state; the model is its x.
    counts : sites that took each in the latest round (K,).
    """

    servers: list[Server]
    counts: Array = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def thetas(self) -> Array:
        """Models (K, P)."""
        return np.stack([s.x for s in self.servers])


@dataclass(frozen=True)
class Clustered:
    """What a training of clusters came to.

    Attributes
    ----------
    theta : of the model that the user's site takes, (P,).
    models : all of them, (K, P); K is 1 where there was no split.
    counts : sites that took each in the last round (K,); empty without a split.
    kept : number of rounds → `theta`, had it been the last.
    """

    theta: Array
    models: Array
    counts: Array
    kept: dict[int, Array]


def train_clusters(
    fed: Federation, user: str, plan: Plan, schedule: Schedule, rule: Rule, server: Server, *,
    n_clusters: int, warm: int, least: int, seed: int, min_cell: int, visits: Visits = PLAIN,
) -> Clustered:  # fmt: skip
    """Train by eq. (1), from `server.x`, in one cluster for `warm` rounds.

    Parameters
    ----------
    user : the site of this name tells which model it takes.
    least : fewest sites of a model, 2 or more.
    seed : what directions are drawn from.
    min_cell : fewest rows of the user.
    visits : the steps that sites train by before the split.

    Raises
    ------
    NothingToLearn : the user's rows say nothing of which model is its own.
    """
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

    follow(schedule, server.x, advance, held_out=_no_loss, rounds=fed.rounds, record=record)

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
    return Clustered(
        of_user(models, held.counts),
        models,
        held.counts if len(models) > 1 else np.zeros(0, np.int64),
        {r: of_user(*stage) for r, stage in stages.items()},
    )


def _split(
    fed: Federation, held: Clusters, start: Array, plan: Plan, k: int, least: int, seed: int
) -> Clusters:
    """Return k models about the one there is, eq. (2), or that one where too few take a side."""
    (server,) = held.servers
    rng = np.random.default_rng((seed, 0x736964))
    z = rng.standard_normal((TRIES, k, len(server.x)))
    z[:, 1::2] = -z[:, 0 : 2 * (k // 2) : 2]
    z *= APART * length(server.x - start) / np.linalg.norm(z, axis=2, keepdims=True)
    starts = (server.x + z).reshape(-1, len(server.x))
    told = fed.sum(rate_starts, starts=starts, plan=plan.text, models=k)
    enough = (told.takes >= least).all(axis=1)
    if not enough.any():
        return held
    best = int(np.where(enough, told.loss, np.inf).argmin())
    models = starts.reshape(z.shape)[best]
    size = {"rate": server.rate, "beta1": server.beta1, "beta2": server.beta2, "tau": server.tau}
    return Clusters([Server.at(x, **size) for x in models], told.takes[best])


def _round(
    fed: Federation, held: Clusters, plan: Plan, rule: Rule, rate: float, least: int
) -> tuple[float, float]:
    """Train each model once; return all rows, and Σ n L."""
    models = plan.sent(held.thetas)
    open_ = np.ones(len(models), bool)
    while True:
        told = fed.gather(tell_takes, thetas=models, plan=plan.text, open_=open_)
        takes = {site: int(t.takes) for site, t in told.items() if t.takes >= 0}
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


def _no_loss(theta: Array) -> float:
    """Stand for the loss of rows held out: a course without a patience does not ask for it."""
    return 0.0


STEPS = (rate_starts, tell_takes, train_taken, tell_side)

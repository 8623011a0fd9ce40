"""Steps of personalised training; see the package's header for what they reveal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Keep, Refused, Site, gathered, message, summed
from fedcohort.protocol.updates import count_fault
from fedcohort.training.networks.local import evaluate, train
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.strategies import Update
from fedcohort.training.personal.visits import (
    Own,
    RowsAt,
    advanced,
    begun,
    draws,
    told,
    with_own_part,
)
from fedcohort.training.personal.ways import BESIDE, PARTED, Way
from fedcohort.training.rows import Rows, known_rows
from fedcohort.training.update_bounds import misfit


@message(parameters=["theta"])
class Told:
    """The user's model (P,), its loss on the user's rows (), α (), and whether it exists ()."""

    theta: Array
    loss: Array
    alpha: Array
    part: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if why := misfit(self.theta, asked["theta"], self.part, self.loss):
            return why
        if self.alpha.shape or not 0 <= self.alpha <= 1 or self.part not in (0, 1):
            return "an α outside [0, 1], or a part other than 0 or 1."
        return ""


@message
class Learners:
    """1 if a site has rows to learn from, else 0 ()."""

    sites: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        fine = not self.sites.shape and self.sites in (0, 1)
        return "" if fine else "a number of sites other than 0 or 1."


@message(parameters=["thetas"])
class Alone:
    """Models of the user's rows alone (1 + K, P), the last first; losses by round (R,)."""

    thetas: Array
    losses: Array
    part: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        wanted = (1 + len(asked["keep"]), len(asked["theta"]))
        if self.thetas.shape != wanted or self.thetas.dtype != np.float64:
            return "models of another shape or type than requested."
        if self.losses.shape != (asked["rounds"],) or self.part.shape or self.part not in (0, 1):
            return "another number of losses than of rounds, or a part other than 0 or 1."
        return ""


@message
class Finished:
    """Sums over sites: those with rows to learn from (), n_k (), n_k loss_k () and α_k ()."""

    sites: Array
    learnt: Array
    loss: Array
    alpha: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if any(np.shape(part) for part in (self.sites, self.learnt, self.loss, self.alpha)):
            return "arrays instead of single numbers."
        if self.sites not in (0, 1) or not 0 <= self.alpha <= 1:
            return "a number of sites other than 0 or 1, or an α outside [0, 1]."
        return count_fault("learnt", self.learnt)


@message
class Course:
    """Sums over sites with rows to learn from: n_k (), and n_k loss_k of each round (R,)."""

    learnt: Array
    losses: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if self.losses.shape != (asked["rounds"],) or self.learnt.shape:
            return "another number of losses than of rounds."
        return count_fault("learnt", self.learnt)


@summed
def train_with_own(
    site: Site[Any, Own | None], *, theta: Array, plan: str, rate: float, way: str
) -> Keep[Update, Own]:
    """Train the common model, or its common part; keep this site's own."""
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    return trained_with_own(site, theta, rows, lambda _: rows, p, Way.of(way), rate)


def trained_with_own(
    site: Site[Any, Own | None], theta: Array, rows: Rows, rows_at: RowsAt, plan: Plan, way: Way,
    rate: float,
) -> Keep[Update, Own]:  # fmt: skip
    """Return the reply of a visit from the common θ (P,), and the state that the site keeps.

    Parameters
    ----------
    rows : rows of the common training.
    rows_at : rows of the site's own model.
    """
    own = site.state or begun(theta, way)
    if way.name in PARTED:
        left, own, loss = with_own_part(own, theta, rows_at, plan, way, rate, site)
        n = len(rows.x)
        return Keep(Update(n * left, np.array(float(n)), np.array(n * loss)), own)
    mine = way.name in BESIDE and way.is_of(site.name)
    if mine and site.state is not None:
        own = advanced(site, own, theta, rows_at(own.theta), plan, way, rate)
    kept = own if mine else Own(np.zeros(0), np.array(0.0), np.array(0))
    return Keep(Update.trained(theta, rows, plan, rate, site.entropy), kept)


@summed
def count_learners(site: Site[Any, Any], *, plan: str) -> Learners:
    """Count the sites that have rows to learn from."""
    rows = known_rows(site.data, Plan.of(plan), site.entropy)
    return Learners(np.array(int(rows.informative)))


@gathered
def tell_personal(
    site: Site[Any, Own | None], *, theta: Array, plan: str, rate: float, way: str, min_cell: int
) -> Told:
    """Return the user's model, from the user's site."""
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    return told_of_own(site, theta, lambda _: rows, p, Way.of(way), rate, min_cell)


def told_of_own(
    site: Site[Any, Own | None], theta: Array, rows_at: RowsAt, plan: Plan, way: Way, rate: float,
    min_cell: int,
) -> Told:  # fmt: skip
    """Return the user's model beside the common θ (P,); no model if the rows are too few.

    Raises
    ------
    Refused : the model is for another site.
    """
    _check_asked(site, way)
    rows = rows_at(theta)
    if rows.few(min_cell) or not rows.informative:
        return Told(np.zeros(len(theta)), *(np.array(0.0) for _ in range(3)))
    v, alpha = told(site, theta, rows_at, plan, way, rate)
    return Told(v, np.array(evaluate(v, rows_at(v), plan)), np.array(alpha), np.array(1.0))


@gathered
def tell_alone(
    site: Site[Any, Own | None], *, theta: Array, plan: str, rate: float, rounds: int, keep: Array,
    way: str, min_cell: int,
) -> Alone:  # fmt: skip
    """Train on the user's rows alone, and return that model.

    keep : numbers of rounds (K,) whose models are returned, too.
    """
    p, w = replace(Plan.of(plan), mu=0.0), Way.of(way)
    _check_asked(site, w)
    rows = known_rows(site.data, p, site.entropy)
    wanted: list[int] = keep.tolist()
    if rows.few(min_cell) or not rows.informative:
        nothing = np.zeros((1 + len(wanted), len(theta)))
        return Alone(nothing, np.zeros(rounds), np.array(0.0))
    losses, kept = np.zeros(rounds), dict[int, Array]()
    v = theta.astype(np.float64)
    for k in range(rounds):
        v, losses[k] = train(v, rows, p, rate, draws(site, k))
        if k + 1 in wanted:
            kept[k + 1] = v
    return Alone(np.stack([v, *(kept.get(r, v) for r in wanted)]), losses, np.array(1.0))


@summed
def keep_personal(
    site: Site[Any, Own | None], *, theta: Array, plan: str, rate: float, way: str
) -> Keep[Finished, Own]:
    """Finish the site's own model beside the common one, and keep it at the site."""
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    return kept_of_own(site, theta, lambda _: rows, p, Way.of(way), rate)


def kept_of_own(
    site: Site[Any, Own | None], theta: Array, rows_at: RowsAt, plan: Plan, way: Way, rate: float
) -> Keep[Finished, Own]:
    """Return the sums of the finished models, and the state with this site's model.

    A site without rows to learn from takes the common θ (P,), in fedper and fedrep with the first
    own part.

    Raises
    ------
    Refused : the model is for one site alone.
    """
    _check_every(site, way)
    own = site.state or begun(theta, way)
    rows, v, alpha = rows_at(theta), theta.astype(np.float64), 0.0
    if rows.informative or way.name in PARTED:
        v, alpha = told(site, theta, rows_at, plan, way, rate)
    return finished(own, v, alpha, rows_at(v), plan)


def finished(own: Own, model: Array, alpha: float, rows: Rows, plan: Plan) -> Keep[Finished, Own]:
    """Return a finished model's part in the sums, and the state that holds it."""
    n = len(rows.x) if rows.informative else 0
    loss = evaluate(model, rows, plan) if n else 0.0
    kept = replace(
        own, model=model, alpha=np.array(alpha), loss=np.array([loss] if n else [], float)
    )
    reply = Finished(*map(np.array, (int(n > 0), float(n), n * loss, alpha if n else 0.0)))
    return Keep(reply, kept)


@summed
def keep_alone(
    site: Site[Any, Own | None], *, theta: Array, plan: str, rate: float, rounds: int, way: str
) -> Keep[Course, Own]:
    """Train on the site's rows alone from θ (P,), and keep that model at the site."""
    p, w = replace(Plan.of(plan), mu=0.0), Way.of(way)
    _check_every(site, w)
    rows, losses = known_rows(site.data, p, site.entropy), np.zeros(rounds)
    v = theta.astype(np.float64)
    for k in range(rounds * rows.informative):
        v, losses[k] = train(v, rows, p, rate, draws(site, k))
    n = float(len(rows.x) * rows.informative)
    last = losses[-1:] if n else losses[:0]
    return Keep(Course(np.array(n), n * losses), replace(begun(theta, w), model=v, loss=last))


def _check_every(site: Site[Any, Any], way: Way) -> None:
    if not way.every:
        raise Refused(
            "way", f"site {site.name!r} keeps no own model: the model is for {way.user!r}."
        )


def _check_asked(site: Site[Any, Any], way: Way) -> None:
    if way.every or not way.is_of(site.name):
        whose = "each site keeps its own" if way.every else f"the model is for {way.user!r}"
        raise Refused(
            "way",
            f"site {site.name!r} does not tell its own model: {whose}.",
        )


#: Steps of all ways but local; methods with local add `tell_alone` and `keep_alone`.
STEPS = (train_with_own, count_learners, tell_personal, keep_personal)

"""Strategies that train any torch model over a federation.

* averaging: each site trains from the same θ; the coordinator applies a server rule to their mean
  with weights n_k/n (McMahan et al. 2017; FedProx, Li et al. 2020, by a proximal term in the plan;
  FedAdam and FedYogi, Reddi et al. 2021, by the rule). Revealed: `Update` every round, only as a
  sum over the sites; with a robust aggregation (`training.robust`), `Visit` of each site every
  round.
* sequential: one model visits the sites in a new random order in every round (D6.2, 8.2); absent
  sites when they are back. Revealed: `Visit` of each site every round: the model after that site.
* ensemble: each site trains a model alone, and the models vote. Revealed: `Member` of each site,
  once.

With a patience, the caller returns the held-out loss of a vector; an ensemble's members compute
their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Federation, Site, gathered, message, per_site, summed
from fedcohort.protocol.step import Gathered, Summed
from fedcohort.protocol.updates import count_fault
from fedcohort.training.heterogeneity import Watch
from fedcohort.training.networks.local import evaluate, train, train_times_rows
from fedcohort.training.networks.plan import Plan, holds_out
from fedcohort.training.networks.schedule import Course, Enough, HeldOut, Schedule, follow
from fedcohort.training.networks.server import Rule, Server
from fedcohort.training.networks.validated import Validated
from fedcohort.training.robust import MEAN, Aggregation
from fedcohort.training.rows import Rows, rows_of
from fedcohort.training.update_bounds import WEIGHTLESS, leap, length, misfit, paces


@message(parameters=["theta"])
class Update:
    """A site's part in a mean of models: n_k θ_k (P,), n_k, n_k loss_k; see `local.train`."""

    some_rows = staticmethod(holds_out)

    theta: Array
    rows: Array
    loss: Array

    @classmethod
    def trained(
        cls, theta: Array, rows: Rows, plan: Plan, rate: float, entropy: tuple[int, ...]
    ) -> Update:
        """Train from θ (P,); the result is in memory that the next visit overwrites."""
        scaled, loss = train_times_rows(theta, rows, plan, rate, entropy)
        n = len(rows.x)
        return cls(scaled, np.array(float(n)), np.array(n * loss))

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""; see `protocol.updates`."""
        if why := misfit(self.theta, asked["theta"], self.rows, self.loss):
            return why
        if not self.rows and (self.theta.any() or self.loss):
            return WEIGHTLESS
        return leap(lambda: self._length(asked), asked, self.rows)

    def moved(self, asked: Mapping[str, Any]) -> tuple[float, ...]:
        """Return ‖θ_k − θ‖, the same per `pace`, and n_k ‖θ_k − θ‖; see `update_bounds`."""
        far = self._length(asked)
        return (*paces(far, asked, self.rows), float(self.rows) * far)

    def _length(self, asked: Mapping[str, Any]) -> float:
        return length(self.theta / self.rows - asked["theta"]) if self.rows else 0.0


@message
class Visit:
    """The model after a site: θ (P,), and n_k, n_k loss_k; see `local.train`."""

    theta: Array
    rows: Array
    loss: Array

    @classmethod
    def trained(
        cls, theta: Array, rows: Rows, plan: Plan, rate: float, entropy: tuple[int, ...]
    ) -> Visit:
        """Train from θ (P,)."""
        theta, loss = train(theta, rows, plan, rate, entropy)
        n = len(rows.x)
        return cls(theta, np.array(float(n)), np.array(n * loss))

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if why := misfit(self.theta, asked["theta"], self.rows, self.loss):
            return why
        if not self.rows and ((self.theta != asked["theta"]).any() or self.loss):
            return WEIGHTLESS
        return leap(lambda: self._length(asked), asked, self.rows)

    def moved(self, asked: Mapping[str, Any]) -> tuple[float, float]:
        """Return ‖θ_k − θ‖, and the same per `pace`."""
        return paces(self._length(asked), asked, self.rows)

    def _length(self, asked: Mapping[str, Any]) -> float:
        return length(self.theta - asked["theta"])


@message
class Member:
    """A site's own models (1 + K, P): the last first, then those after K requested rounds.

    The weight is n_k, or 0 if the rows carry no information.
    """

    thetas: Array
    weight: Array
    loss: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        wanted = np.broadcast_to(asked["theta"], (1 + len(asked["keep"]), len(asked["theta"])))
        if why := misfit(self.thetas, wanted, self.weight, self.loss):
            return why
        if why := count_fault("weight", self.weight):
            return why
        if not self.weight and ((self.thetas != wanted).any() or self.loss):
            return WEIGHTLESS

        def far() -> float:
            return max(map(length, self.thetas - wanted))

        return leap(far, asked, self.weight, asked["rounds"])

    def moved(self, asked: Mapping[str, Any]) -> tuple[float, float]:
        """Return ‖θ_k − θ‖ of the last model, and the same per `pace` of one visit."""
        return paces(length(self.thetas[0] - asked["theta"]), asked, self.weight)


# site ---------------------------------------------------------------------------------


@summed
def train_here(site: Site[Any, None], *, theta: Array, plan: str, rate: float) -> Update:
    """Train from the common model; return the site's part of the mean."""
    p = Plan.of(plan)
    return Update.trained(theta, rows_of(site.data, p, site.entropy), p, rate, site.entropy)


@gathered
def visit(site: Site[Any, None], *, theta: Array, plan: str, rate: float) -> Visit:
    """Train from the last site's model; return the model for the next site."""
    p = Plan.of(plan)
    return Visit.trained(theta, rows_of(site.data, p, site.entropy), p, rate, site.entropy)


@gathered
def train_alone(
    site: Site[Any, None],
    *,
    theta: Array,
    plan: str,
    rounds: int,
    rate: float,
    lr_rule: str,
    patience: int,
    keep: Array,
) -> Member:
    """Train a model of this site alone, and return it.

    A negative patience never stops early.
    """
    p = Plan.of(plan)
    rows = rows_of(site.data, p, site.entropy)
    held_out = rows_of(site.data, p, site.entropy, held_out=True)
    schedule = Schedule(
        rounds=rounds,
        learning_rate=rate,
        lr_rule=lr_rule,
        patience=None if patience < 0 else patience,
        keep=tuple(keep.tolist()),
    )
    losses: list[float] = []

    def advance(theta: Array, rate: float) -> tuple[Array, float]:
        theta, loss = train(theta, rows, p, rate, (*site.entropy, len(losses)))
        losses.append(loss)
        return theta, loss

    course = follow(schedule, theta, advance, held_out=lambda t: evaluate(t, held_out, p))
    thetas = np.stack([course.theta, *(course.kept.get(r, course.theta) for r in schedule.keep)])
    weight = float(len(rows.x)) if rows.informative else 0.0
    return Member(thetas, np.array(weight), np.array(losses[-1] if losses else 0.0))


# coordinator --------------------------------------------------------------------------


@dataclass(frozen=True)
class Visits:
    """The training steps of `averaging`, with the arguments of `train_here` and more.

    Attributes
    ----------
    sum : returns an `Update`.
    gather : the same training, but returns a `Visit`, for an aggregation that sees each site's
        model.
    given : θ (P,) → further arguments of both, computed in each round.
    """

    sum: Summed[..., Update] = train_here
    gather: Gathered[..., Visit] = visit
    given: Callable[[Array], Mapping[str, Any]] = lambda theta: {}


#: Training by the plan alone.
PLAIN = Visits()


def averaging(
    fed: Federation,
    plan: Plan,
    schedule: Schedule,
    rule: Rule,
    server: Server,
    held_out: HeldOut,
    centre: Aggregation = MEAN,
    visits: Visits = PLAIN,
    enough: Enough | None = None,
    watch: Watch | Validated | None = None,
) -> Course:
    """Train by rounds of local training and a mean, from `server.x`.

    Parameters
    ----------
    centre : aggregation; all but the plain mean see each site's model.
    visits : training steps of the sites.
    enough : called before each round, before `visits.given`; true ends the training.
    watch : called after it, to record R in the history. `Validated` sees each site's model, and
        may halt the mean.

    Raises
    ------
    SettingError : there are fewer sites than `centre` needs.
    """
    state = server
    centre.check(len(fed.sites))

    validated = watch if isinstance(watch, Validated) else None

    def seen(theta: Array, rate: float) -> tuple[Array, float]:
        """Train with each site's model visible, from θ or, halted, from each site's own."""
        nonlocal state
        assert validated is not None
        more, halted = visits.given(theta), validated.halted
        if not halted:
            validated.start_from(fed.sites, theta)
        sent = {s: plan.sent(model) for s, model in validated.models.items()}
        there = fed if halted else fed.awaiting(centre.fewest)
        left = there.gather(
            visits.gather, theta=per_site(sent) if halted else plan.sent(theta), plan=plan.text,
            rate=rate, **more,
        )  # fmt: skip
        rows = {s: float(v.rows) for s, v in left.items()}
        validated.hear(fed.sites, {s: v.theta for s, v in left.items()}, rows)
        n = sum(rows.values())
        if not halted and n:
            thetas = np.stack([v.theta for v in left.values()])
            counts = np.array([*rows.values()])
            state = rule(state, centre(thetas, counts, theta, caught=len(fed.refused)))
        elif halted and not validated.halted:
            state = replace(state, x=validated.mean)
        return state.x, sum(float(v.loss) for v in left.values()) / max(n, 1.0)

    def robustly(theta: Array, rate: float) -> tuple[Array, float]:
        nonlocal state
        more, sent = visits.given(theta), plan.sent(theta)
        there = fed.awaiting(centre.fewest)
        left = there.gather(visits.gather, theta=sent, plan=plan.text, rate=rate, **more).values()
        rows = np.array([float(v.rows) for v in left])
        thetas = np.stack([v.theta for v in left])
        state = rule(state, centre(thetas, rows, theta, caught=len(fed.refused)))
        return state.x, float(np.median([float(v.loss) / v.rows for v in left if v.rows]))

    def advance(theta: Array, rate: float) -> tuple[Array, float]:
        nonlocal state
        if validated is not None:
            return seen(theta, rate)
        if not centre.plain:
            return robustly(theta, rate)
        more, sent = visits.given(theta), plan.sent(theta)
        total = fed.sum(visits.sum, theta=sent, plan=plan.text, rate=rate, **more)
        n = max(float(total.rows), 1.0)
        if total.rows:
            state = rule(state, total.theta / n)
        return state.x, float(total.loss) / n

    asked = [one for one in (enough, watch) if one is not None]
    return follow(
        schedule, server.x, advance, held_out=held_out,
        rounds=lambda n: fed.rounds(n, first=schedule.first),
        record=fed.record if watch is None else watch.recording(fed.record),
        enough=(lambda theta: any(one(theta) for one in asked)) if asked else None,
        heard=lambda: fed.answered,
    )  # fmt: skip


def sequential(
    fed: Federation,
    plan: Plan,
    schedule: Schedule,
    theta: Array,
    rng: np.random.Generator,
    held_out: HeldOut,
) -> Course:
    """Train one model from site to site, from θ (P,), in a new random order in each round.

    An absent site is visited after the others. Otherwise the model would fit the sites that are
    often present, because it fits its latest sites best.
    """
    came: list[str] = []

    def advance(theta: Array, rate: float) -> tuple[Array, float]:
        rows = loss = 0.0
        came.clear()
        due = [str(name) for name in rng.permutation(list(fed.sites))]
        for fewest in (0, 1):
            late: list[str] = []
            for name in due:
                there = fed.only([name]).optional().awaiting(fewest)
                for left in there.gather(visit, theta=theta, plan=plan.text, rate=rate).values():
                    theta, rows, loss = left.theta, rows + float(left.rows), loss + float(left.loss)
                    came.append(name)
                if name not in (*came, *fed.refused):
                    late.append(name)
            due = late
        fed.enough(came)
        return theta, loss / max(rows, 1.0)

    return follow(
        schedule, theta, advance, held_out=held_out, rounds=fed.rounds, record=fed.record,
        heard=lambda: came,
    )  # fmt: skip


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
        patience=-1 if schedule.patience is None else schedule.patience,
        keep=np.array(schedule.keep, int),
    )
    thetas = np.stack([m.thetas for m in members.values()], axis=1)
    weights = np.array([float(m.weight) for m in members.values()])
    weights = weights / weights.sum() if weights.any() else np.full(len(weights), 1 / len(weights))
    fed.record(loss=float(weights @ [float(m.loss) for m in members.values()]))
    return thetas, weights


STEPS = (train_here, visit, train_alone)

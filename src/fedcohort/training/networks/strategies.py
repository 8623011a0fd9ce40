"""Strategies that train any torch model over a federation.

Optimisers of sites begin anew in each visit, or go on (`networks.moments`). The rate is cut and the
training ends by `networks.schedule`, which may ask the sites for counts (`networks.counts`).

* averaging: each site trains from the same θ; the coordinator applies a server rule to their mean
  with weights n_k/n (McMahan et al. 2017; FedProx, Li et al. 2020, by a proximal term in the plan;
  FedAdam and FedYogi, Reddi et al. 2021, by the rule). Revealed: `Update` every round, only as a
  sum over the sites; with a robust aggregation (`training.robust`), `Visit` of each site every
  round.
* sequential: one model visits the sites in a new random order in every round (D6.2, 8.2); absent
  sites when they are back. Revealed: `Visit` of each site every round: the model after that site.
* ensemble: `networks.ensembles`.

With a patience, the caller returns the held-out loss of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from fedcohort.arrays import Array
from fedcohort.models.forest import leaf_count
from fedcohort.protocol import Federation, Keep, Site, gathered, per_site, summed
from fedcohort.protocol.step import Gathered, Summed
from fedcohort.training.networks import compression, moments
from fedcohort.training.networks.compression import collected
from fedcohort.training.networks.counts import Counted, count_idle, counting
from fedcohort.training.networks.ensembles import train_alone
from fedcohort.training.networks.moments import Moments
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.replies import Update, Visit
from fedcohort.training.networks.schedule import (
    Course,
    Enough,
    HeldOut,
    Schedule,
    course_of,
    follow,
)
from fedcohort.training.networks.server import Rule, Server
from fedcohort.training.networks.settings import AveragingSettings
from fedcohort.training.networks.validated import Validated
from fedcohort.training.robust import MEAN, Aggregation
from fedcohort.training.rows import known_rows, rows_of

# site ---------------------------------------------------------------------------------


def _train_each(
    sites: Sequence[Site[Any, None]], *, theta: Array, plan: str, rate: float
) -> list[Update] | None:
    p = Plan.of(plan)
    tables = [rows_of(s.data, p, s.entropy) for s in sites]
    return Update.of_each(theta, tables, p, rate, [s.entropy for s in sites])


@summed(many=_train_each)
def train_here(site: Site[Any, None], *, theta: Array, plan: str, rate: float) -> Update:
    """Train from the common model; return the site's part of the mean."""
    p = Plan.of(plan)
    return Update.trained(theta, rows_of(site.data, p, site.entropy), p, rate, site.entropy)


@summed
def train_kept(
    site: Site[Any, Moments | None], *, theta: Array, plan: str, rate: float
) -> Keep[Update, Moments]:
    """Train from the common model; keep a state for the next visit at the site."""
    p = Plan.of(plan)
    return Update.kept(site, theta, known_rows(site.data, p, site.entropy), p, rate)


def _visit_each(
    sites: Sequence[Site[Any, None]], *, theta: Array, plan: str, rate: float
) -> list[Visit] | None:
    p = Plan.of(plan)
    tables = [rows_of(s.data, p, s.entropy) for s in sites]
    return Visit.of_each(theta, tables, p, rate, [s.entropy for s in sites])


@gathered(many=_visit_each)
def visit(site: Site[Any, None], *, theta: Array, plan: str, rate: float) -> Visit:
    """Train from the last site's model; return the model for the next site."""
    p = Plan.of(plan)
    return Visit.trained(theta, rows_of(site.data, p, site.entropy), p, rate, site.entropy)


# coordinator --------------------------------------------------------------------------


class Watching(Protocol):
    """Interface of what looks at the model before each round, and adds to the history."""

    def __call__(self, theta: Array) -> bool:
        """Look at θ (P,); return whether the training ends."""
        ...

    def recording(self, record: Callable[..., None]) -> Callable[..., None]:
        """Return `record` of a federation, with more values."""
        ...


@dataclass(frozen=True)
class Visits:
    """The training steps of `averaging`, with the arguments of `train_here` and more.

    Attributes
    ----------
    sum : returns an `Update`.
    kept : the same training, with a state that stays at the site (`Update.kept`).
    gather : the same training, but returns a `Visit`, for an aggregation that sees each site's
        model.
    given : θ (P,) → further arguments of both, computed in each round.
    """

    sum: Summed[..., Update] = train_here
    gather: Gathered[..., Visit] = visit
    given: Callable[[Array], Mapping[str, Any]] = lambda theta: {}
    kept: Summed[..., Update] = train_kept

    def by(self, asked: Plan | AveragingSettings) -> Visits:
        """Return the steps of a plan or of settings: `sum` is `kept` if they need it."""
        return replace(self, sum=self.kept) if keeps(asked) else self


def keeps(asked: Plan | AveragingSettings) -> bool:
    """Return whether a visit leaves a state at its site."""
    return asked.optimiser_state == "kept" or asked.compression != "none"


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
    watch: Watching | Validated | None = None,
    counted: Counted | None = None,
) -> Course:
    """Train by rounds of local training and a mean, from `server.x`.

    Parameters
    ----------
    centre : aggregation; all but the plain mean see each site's model.
    visits : training steps of the sites.
    enough : called before each round, before `visits.given`; true ends the training.
    watch : called after it, to record R in the history. `Validated` sees each site's model, and
        may halt the mean.
    counted : asks the sites for their counts of rounds; None: of the common model.

    Raises
    ------
    SettingError : there are fewer sites than `centre` needs.
    """
    state, visits = replace(server, plain=leaf_count(plan.network)), visits.by(plan)
    rest, number = moments.begun(plan, server.x), 0
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
        nonlocal state, rest, number
        if validated is not None:
            return seen(theta, rate)
        if not centre.plain:
            return robustly(theta, rate)
        if plan.compression != "none":
            more = {"rate": rate, **visits.given(theta)}
            number += 1
            delta, n, loss = collected(fed, visits.sum, theta, plan, number, more)
            state = rule(state, theta + delta) if n else state
            return state.x, loss
        more, sent = visits.given(theta), plan.sent(np.append(theta, rest) if len(rest) else theta)
        total = fed.sum(visits.sum, theta=sent, plan=plan.text, rate=rate, **more)
        n = max(float(total.rows), 1.0)
        if total.rows:
            mean, rest = moments.parted(total.theta / n, plan)
            state = rule(state, mean)
        return state.x, float(total.loss) / n

    asked = [one for one in (enough, watch) if one is not None]
    course = course_of(
        schedule, server.x, held_out=held_out,
        rounds=lambda n: fed.rounds(n, first=schedule.first),
        record=fed.record if watch is None else watch.recording(fed.record),
        enough=(lambda theta: any(one(theta) for one in asked)) if asked else None,
        heard=lambda: fed.answered, counted=counted or counting(fed, plan),
    )  # fmt: skip
    return follow(advance, course)


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

    course = course_of(
        schedule, theta, held_out=held_out, rounds=fed.rounds, record=fed.record,
        heard=lambda: came, counted=counting(fed, plan),
    )  # fmt: skip
    return follow(advance, course)


STEPS = (train_here, train_kept, visit, train_alone, count_idle, *compression.STEPS)

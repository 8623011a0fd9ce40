"""Personal model for one site, the user's, from all sites' rows or its own, with any torch plan.

With w the common model, F the user's loss and η the learning rate, after R rounds of FedAvg or
another server rule (`training.networks.strategies`), the user's model by way is

    local      v, trained on the user's rows alone: R visits                             (1)
    global     w
    finetune   v, from w by E passes over the user's rows (Yu, Bagdasaryan, Shmatikov, "Salvaging
               federated learning by local adaptation", 2020)                            (2)
    ditto      argmin_v F(v) + λ/2 ‖v − w‖², by a visit beside each w (Li et al., ICML 2021); after
               each step of the optimiser                                                (3)
                   v ← (v + ηλ w)/(1 + ηλ)
    apfl       v̄ = αv + (1 − α)w (Deng, Kamani, Mahdavi, "Adaptive personalized federated learning",
               2020): beside u, trained from w as at each site,                          (4)
                   v ← v − ηα∇F(v̄),  v̄ = αv + (1 − α)u;  the user's model is αv + (1 − α)w
                   α ← α − η(v − u)ᵀ∇F(v̄), cut to [0, 1], once a visit if α adapts        (5)
    fedper     θ = (common part, own part): each site trains both, and the common parts are averaged
               (Arivazhagan et al., "Federated learning with personalization layers", 2019)   (6)
    fedrep     the same, but a visit first trains the own part, then the common one (Collins et al.,
               ICML 2021); at the end the user's own part is trained once more                (7)
    cluster    `personal.clusters`

The implicit step (3) is stable for any λ, and its fixed point with plain descent is Ditto's. With
another optimiser λ is not scaled by it, like a decoupled weight decay. Printed Ditto and APFL visit
beside w_0, …, w_{R−1}; here it is w_1, …, w_R, so that the last visit is beside the final model. So
λ → ∞ and α = 0 give `global`, and λ = 0 and α = 1 give `local`, to the bit; w of finetune, ditto
and apfl is that of `global`, to the bit. FedProx's term applies to the common training only; fedper
and fedrep have none.

A site keeps its own part, and the user's v and α, as its state. An absent site continues from it.

With `ways.ALL` as the user every site is one, in one training: all sites have v and α of ditto and
apfl, and at the end each site finishes its model as the user does, and keeps it in its state. In
`local` each site trains alone. The draws of a site's own model do not depend on the user, so each
site's model is, to the bit, that of a training with this site as the user.

Revealed: each round the mean of models, `Update`, as a sum over all sites; in fedper and fedrep the
mean of the common part (the own part in it is the one that was sent). **The user's own model**,
`Told`, with its loss on the user's rows and α: at the end, and after each kept round. In `local`,
which involves no other site, `Alone`, with the loss of every round. In `global`, no own model.
With `ways.ALL` no site tells a model or a part: at the end `Finished`, of local `Course`, leave
only as sums over all sites, so that two sites are enough.

With the user's model known, a sum over two sites would nearly tell the other's: near convergence
both have hardly moved since, and with kept rounds it is exact. So two sites are refused, except in
`local` and `global`. If a round's sum is over two, because others are absent or, by `Learners`,
have nothing to learn from, the user is not asked for its model, and the fit ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import (
    Federation,
    NotConverged,
    NothingToLearn,
    SettingError,
    SiteUnavailable,
    Step,
)
from fedcohort.protocol.step import Gathered, Summed
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Enough, Schedule
from fedcohort.training.networks.server import Rule, Server
from fedcohort.training.networks.strategies import PLAIN, Update, Visits, averaging
from fedcohort.training.personal import clusters
from fedcohort.training.personal import steps as own_steps
from fedcohort.training.personal.clusters import LEAST, Clustered, train_clusters
from fedcohort.training.personal.own_counts import own_counting, turned_back
from fedcohort.training.personal.steps import (
    Alone,
    Finished,
    Told,
    count_learners,
    keep_alone,
    keep_personal,
    tell_alone,
    tell_personal,
    train_with_own,
)
from fedcohort.training.personal.visits import Own
from fedcohort.training.personal.ways import (
    AFTER,
    ALL,
    BESIDE,
    PARTED,
    TOLD,
    WAYS,
    Way,
    last_layer,
    nothing,
    of_columns,
)  # fmt: skip
from fedcohort.training.update_bounds import length

__all__ = [
    "AFTER", "ALL", "BESIDE", "LEAST", "PARTED", "STEPS", "TOLD", "WAYS", "Alone", "Clustered",
    "Own", "OwnSteps", "Personal", "Told", "Way", "asks", "check_number", "keep_alone",
    "last_layer", "of_columns", "owner", "personalise", "tell_alone", "train_clusters",
]  # fmt: skip

#: Steps of every way but local (`tell_alone`, `keep_alone`), beside those of the method.
STEPS: tuple[Step[..., Any], ...] = (*own_steps.STEPS, *clusters.STEPS)


@dataclass(frozen=True)
class OwnSteps:
    """Steps that train each site's own part and return the user's model.

    Attributes
    ----------
    train : takes the arguments of `train_with_own`, and those of `Visits.given`.
    tell : takes the arguments of `tell_personal`, and `given`.
    keep : takes the arguments of `keep_personal`, and `given`.
    """

    train: Summed[..., Update] = train_with_own
    tell: Gathered[..., Told] = tell_personal
    keep: Summed[..., Finished] = keep_personal
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Personal:
    """Result of a training.

    Attributes
    ----------
    theta : the user's model (P,); with `ways.ALL` the common one.
    common : w (P,); empty for `local`, the user's model for `cluster`.
    rounds : number of rounds that ran.
    loss : loss of the user's model on its rows; NaN if not told. With `ways.ALL` the mean over all
        rows, each by its site's model.
    alpha : final α of apfl, or its mean over sites; NaN for other ways.
    kept : number of rounds → the user's model if that round were the last.
    counts : in cluster, sites of each model in the last round; empty without a split.
    common_rounds : with a monitor, rounds before its alarm, or all without an alarm; else 0.
    """

    theta: Array
    common: Array
    rounds: int
    loss: float = math.nan
    alpha: float = math.nan
    kept: dict[int, Array] = field(default_factory=dict[int, Array])
    counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    common_rounds: int = 0


def personalise(
    fed: Federation,
    plan: Plan,
    schedule: Schedule,
    rule: Rule,
    server: Server,
    way: Way,
    *,
    min_cell: int,
    visits: Visits = PLAIN,
    own: OwnSteps | None = None,
    enough: Enough | None = None,
    n_clusters: int = 2,
    warm: int = 1,
    least: int = LEAST,
    seed: int = 0,
) -> Personal:
    """Train a model for the user's site, or for each site, from `server.x`.

    Parameters
    ----------
    schedule : of the common model; a patience or plateau only in fedper and fedrep, by the sites'
        own counts (`own_counts`), and without `keep`. With `ways.ALL` without `keep`. After each
        round in `keep` one further call asks for the user's model; later calls then draw other
        batches.
    rule, server : how the coordinator updates the model from the mean.
    min_cell : fewest rows of the user.
    visits : training steps of ways without state at sites; its `given` holds for all ways.
    own : steps of the other ways, and of the user; None uses the plan alone.
    enough : called before each round; true ends the training.
    n_clusters, warm, least, seed : of cluster, see `clusters.train_clusters`.

    Raises
    ------
    SettingError : no such user, or two sites.
    NothingToLearn : the user's rows carry no information, or those of too few sites do.
    NotConverged : θ left the range of floating point.
    SiteUnavailable : the user's site, or more sites than the quorum allows, did not answer.
    """
    user = owner(fed, way)
    steps = own or OwnSteps()
    told = way.name in TOLD and not way.every
    if told:  # else `_check_hidden` ends the fit
        fed = fed.awaiting(LEAST)
    keep = tuple(r for r in schedule.keep if r < schedule.rounds)
    if way.name == "cluster":
        found = train_clusters(
            fed, user, plan, schedule, rule, server, n_clusters=n_clusters, warm=warm, least=least,
            seed=seed, min_cell=min_cell, visits=visits,
        )  # fmt: skip
        _check_finite(found.theta, schedule)
        made = Personal(
            found.theta, found.theta, schedule.rounds, kept=found.kept, counts=found.counts
        )
        return made if found.finished is None else _with(made, found.finished, way)
    if way.name == "local" and way.every:
        return _each_alone(fed, plan, schedule, server.x, way)
    if way.name == "local":
        return _alone(fed, user, plan, schedule, server.x, way, keep, min_cell)
    kept: dict[int, Array] = {}
    done, fewest, idle = 0, len(fed.sites), -1

    def hidden() -> None:
        nonlocal fewest
        fewest = min(fewest, len(fed.answered))
        if told:
            _check_hidden(fed)

    def tell(theta: Array) -> Told:
        nonlocal idle
        _check_finite(theta, schedule)
        if idle < 0:
            there = int(fed.sum(count_learners, plan=plan.text).sites)
            idle = len(fed.answered) - there
        if len(fed.sites) > 1 and fewest - idle < LEAST:
            raise NothingToLearn(
                f"in a round at most {max(fewest - idle, 0)} sites had rows to learn from; {LEAST} "
                f"are needed, because the sum over fewer and the user's model could tell another "
                f"site's. Ask another site to join, or take the way 'local' or 'global'."
            )
        reply = fed.only([user]).gather(
            steps.tell, theta=plan.sent(theta), plan=plan.text, rate=schedule.learning_rate,
            way=way.text, min_cell=min_cell, **steps.given,
        )[user]  # fmt: skip
        if not reply.part:
            raise nothing(user, min_cell)
        return reply

    def between(theta: Array) -> bool:
        nonlocal done
        if done:
            hidden()
        if done in keep:
            kept[done] = tell(theta).theta if told else theta
        done += 1
        return enough is not None and enough(theta)

    counted = None
    if schedule.looks:
        counted = own_counting(fed, plan, schedule, way, hidden)
    if way.name in (*PARTED, *BESIDE):
        more = visits.given
        visits = Visits(sum=steps.train, given=lambda theta: {"way": way.text, **more(theta)})
    course = averaging(
        fed, plan, schedule, rule, server, lambda _: 0.0, visits=visits, enough=between,
        counted=counted,
    )  # fmt: skip
    hidden()
    turned_back(fed, plan, schedule, way, course)
    if schedule.lr_rule == "plateau":
        schedule = replace(schedule, learning_rate=course.rate)
    if way.every:
        _check_finite(course.theta, schedule)
        return finish(fed, plan, schedule, way, course.theta, course.rounds, steps)
    if not told:
        _check_finite(course.theta, schedule)
        return Personal(course.theta, course.theta, course.rounds, kept=kept)
    reply = tell(course.theta)
    _check_finite(reply.theta, schedule)
    alpha = float(reply.alpha) if way.name == "apfl" else math.nan
    return Personal(reply.theta, course.theta, course.rounds, float(reply.loss), alpha, kept)


def _alone(
    fed: Federation, user: str, plan: Plan, schedule: Schedule, theta: Array, way: Way,
    keep: tuple[int, ...], min_cell: int,
) -> Personal:  # fmt: skip
    """Ask the user for a model of its rows alone; its losses make the history."""
    reply = fed.only([user]).gather(
        tell_alone, theta=plan.sent(theta), plan=plan.text, rate=schedule.learning_rate,
        rounds=schedule.rounds, keep=np.array(keep, int), way=way.text, min_cell=min_cell,
    )[user]  # fmt: skip
    if not reply.part:
        raise nothing(user, min_cell)
    for r in fed.rounds(schedule.rounds):
        fed.record(**{schedule.named: reply.losses[r], "learning_rate": schedule.learning_rate})
    for model in reply.thetas:
        _check_finite(model, schedule)
    kept = dict(zip(keep, reply.thetas[1:], strict=True))
    return Personal(
        reply.thetas[0], np.zeros(0), schedule.rounds, float(reply.losses[-1]), kept=kept
    )


def finish(
    fed: Federation, plan: Plan, schedule: Schedule, way: Way, theta: Array, rounds: int,
    steps: OwnSteps | None = None,
) -> Personal:  # fmt: skip
    """Let each site finish its model beside the common θ (P,), and keep it; wait for all sites."""
    steps = steps or OwnSteps()
    reply = fed.awaiting().sum(
        steps.keep, theta=plan.sent(theta), plan=plan.text, rate=schedule.learning_rate,
        way=way.text, **steps.given,
    )  # fmt: skip
    return _with(Personal(theta, theta, rounds), reply, way)


def _with(made: Personal, reply: Finished, way: Way) -> Personal:
    """Return the result with the means of what sites finished.

    Raises
    ------
    NothingToLearn : no site has rows to learn from.
    """
    if not reply.sites:
        raise _nowhere()
    loss = float(reply.loss) / float(reply.learnt)
    if not math.isfinite(loss):
        raise NotConverged("a site's model left the range of numbers. Lower learning_rate.")
    alpha = float(reply.alpha) / float(reply.sites) if way.name == "apfl" else math.nan
    return replace(made, loss=loss, alpha=alpha)


def _each_alone(
    fed: Federation, plan: Plan, schedule: Schedule, theta: Array, way: Way
) -> Personal:
    """Let each site train on its rows alone; the mean losses make the history."""
    reply = fed.awaiting().sum(
        keep_alone, theta=plan.sent(theta), plan=plan.text, rate=schedule.learning_rate,
        rounds=schedule.rounds, way=way.text,
    )  # fmt: skip
    if not reply.learnt:
        raise _nowhere()
    losses = reply.losses / float(reply.learnt)
    for r in fed.rounds(schedule.rounds):
        fed.record(**{schedule.named: losses[r], "learning_rate": schedule.learning_rate})
    return Personal(theta, np.zeros(0), schedule.rounds, float(losses[-1]))


def _nowhere() -> NothingToLearn:
    return NothingToLearn("no site has rows to learn from. Ask sites with more rows, or events.")


def asks(way: str, visits: Visits = PLAIN, *, every: bool = False) -> tuple[Step[..., Any], ...]:
    """Return the steps that a training by a way can call; `every`: for a model of each site."""
    if way == "local":
        return (keep_alone,) if every else (tell_alone,)
    if way == "cluster":
        last = clusters.keep_side if every else clusters.tell_side
        return (visits.sum, *clusters.SHARED, last)
    train = train_with_own if way in (*PARTED, *BESIDE) else visits.sum
    if every:
        return (train, keep_personal)
    return (train, count_learners, tell_personal) if way in TOLD else (train,)


def owner(fed: Federation, way: Way) -> str:
    """Return the site that the model is for; `ways.ALL` for all sites.

    Raises
    ------
    SettingError : no site has this name, or there are two sites.
    """
    if way.every:
        if ALL in fed.sites:
            raise SettingError(
                f"setting 'user' is {ALL!r}, a model for each site, but a site has this name. "
                f"Rename the site."
            )
        return ALL
    check_number(way.name, len(fed.sites))
    if not way.user and len(fed.sites) == 1:
        return fed.sites[0]
    if way.user not in fed.sites:
        given = f"is {way.user!r}, which is no site" if way.user else "is not given"
        raise SettingError(
            f"setting 'user' {given}; name the site that the model is for: {', '.join(fed.sites)}."
        )
    return way.user


def check_number(way: str, sites: int) -> None:
    """Refuse two sites, if the user's model and a sum would tell the other site's model.

    Raises
    ------
    SettingError : there are two sites, and the way is neither local nor global.
    """
    if sites == 2 and way not in ("local", "global"):
        raise SettingError(
            f"way {way!r} over 2 sites could tell the other site's model, because the user's is "
            f"known. It needs 3 sites or more. Ask another site to join, or take 'local' or "
            f"'global'."
        )


def _check_hidden(fed: Federation) -> None:
    """Refuse to ask for the user's model after a sum over two sites.

    Raises
    ------
    SiteUnavailable : the latest call was over two sites; the error names them.
    """
    if len(fed.sites) > 1 and len(fed.answered) < LEAST:
        raise SiteUnavailable(
            f"only {', '.join(fed.answered)} answered; the sum over them and the user's model "
            f"could tell another site's. Bring the others back and --resume, or start again."
        )


def _check_finite(theta: Array, schedule: Schedule) -> None:
    if not math.isfinite(length(theta)):
        raise NotConverged(
            f"the model left the range of numbers. Lower learning_rate from "
            f"{schedule.learning_rate:g}."
        )

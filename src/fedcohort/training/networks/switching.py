"""A personal model once sites are seen to differ: one common training until then.

Nolte et al. 2023, section 3.5: where the R statistic says that clients are heterogeneous, federated
updates go on with a personalised layer. Here the common model is trained and watched
(`training.heterogeneity`); at the first alarm the training ends, and for the rounds that are left
goes on from there in a way of `training.personal`. Without an alarm all sites have the common
model.

A server rule with a memory (fedadam, fedyogi) begins anew at the alarm, and so does the learning
rate. What sites remember of their trajectories is forgotten with the first visit of the other
training.

Revealed: what both reveal, each in its rounds; and that there was an alarm, and when. Of ``global``
no more than the watched training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedcohort.arrays import Array
from fedcohort.protocol import Federation
from fedcohort.training.heterogeneity import Watch
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Rule, Server
from fedcohort.training.networks.strategies import PLAIN, Visits, averaging
from fedcohort.training.personal import Personal, Way, owner, personalise
from fedcohort.training.personal.settings import SWITCHED, OwnSettings


def personalise_as_set(
    fed: Federation,
    plan: Plan,
    schedule: Schedule,
    rule: Rule,
    server: Callable[[Array], Server],
    theta: Array,
    way: Way,
    config: OwnSettings,
    *,
    min_cell: int,
    seed: int,
    visits: Visits = PLAIN,
) -> Personal:
    """Train a model for the user from θ (P,): from the start on, or with a monitor from its alarm.

    Parameters
    ----------
    server : θ → the server rule's state.
    config : what `way` was made of.
    min_cell, seed, visits : as of `personalise`.

    Raises
    ------
    SettingError, NothingToLearn, NotConverged, SiteUnavailable : as `personalise`.
    """
    given: dict[str, Any] = {"min_cell": min_cell, "visits": visits}
    if config.monitor != "none":
        return personalise_once_apart(
            fed, plan, schedule, rule, server, theta, way, monitor=config.monitor, **given
        )
    return personalise(
        fed, plan, schedule, rule, server(theta), way, n_clusters=config.n_clusters,
        warm=config.warm_of(schedule.rounds), least=config.min_sites, seed=seed, **given,
    )  # fmt: skip


def personalise_once_apart(
    fed: Federation,
    plan: Plan,
    schedule: Schedule,
    rule: Rule,
    server: Callable[[Array], Server],
    theta: Array,
    way: Way,
    *,
    monitor: str,
    min_cell: int,
    visits: Visits = PLAIN,
) -> Personal:
    """Train a common model from θ (P,), and from the first alarm on the user's own.

    By the way ``global`` it stays common, and is watched to the end.

    Parameters
    ----------
    server : θ → the server rule's state.
    monitor : "gradient" or "loss", what `training.heterogeneity` looks at.
    min_cell : fewest rows of the user, and of a part that is watched.
    visits : the steps of ways in which sites keep nothing.

    Raises
    ------
    SettingError, NothingToLearn, NotConverged, SiteUnavailable : as `personalise`.
    """
    owner(fed, way)
    seen = Watch(fed, plan, monitor, least=min_cell, ends=way.name in SWITCHED)
    course = averaging(
        fed, plan, schedule, rule, server(theta), lambda _: 0.0, visits=visits, watch=seen
    )
    done = course.rounds
    if done == schedule.rounds:
        return Personal(course.theta, course.theta, done, kept=course.kept, common_rounds=done)
    rest = replace(
        schedule,
        rounds=schedule.rounds - done,
        first=done,
        keep=tuple(r - done for r in schedule.keep if r > done),
    )
    own = personalise(
        fed, plan, rest, rule, server(course.theta), way, min_cell=min_cell, visits=visits
    )
    later = {r + done: kept for r, kept in own.kept.items()}
    kept = {**course.kept, **later}
    return replace(own, rounds=done + own.rounds, kept=kept, common_rounds=done)

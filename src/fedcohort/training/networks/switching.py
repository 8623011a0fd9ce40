"""Personal model that starts when sites are found to differ, after a common training.

Nolte et al. 2023, section 3.5: when the R statistic finds that clients are heterogeneous, training
continues with a personalised layer. Here the common model is trained and monitored
(`training.heterogeneity`). At the first alarm this training ends. The remaining rounds continue
from it in a way of `training.personal`. Without an alarm all sites have the common model.

A server rule with state (fedadam, fedyogi) and the learning rate start anew at the alarm. Sites
drop the state of their trajectories at the first personal visit.

Revealed: what both trainings reveal, each in its rounds; and the round of the alarm. With
``global`` only what the monitored training reveals.
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
from fedcohort.training.networks.validated import CoordinatorRows, Validated, validating
from fedcohort.training.personal import Personal, Way, finish, owner, personalise
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
    own: CoordinatorRows | None = None,
) -> Personal:
    """Train a model for the user from θ (P,): from the start, or with a monitor from its alarm.

    Parameters
    ----------
    server : θ → the server rule's state.
    config : settings of `way`.
    min_cell, seed, visits : as in `personalise`.
    own : rows of the coordinator, for a monitor of the sites' models; None without.

    Raises
    ------
    SettingError, NothingToLearn, NotConverged, SiteUnavailable : as `personalise`.
    """
    given: dict[str, Any] = {"min_cell": min_cell, "visits": visits}
    if config.monitor != "none":
        seen = validating(own, config, ends=way.name in SWITCHED)
        return personalise_once_apart(
            fed, plan, schedule, rule, server, theta, way, monitor=config.monitor, seen=seen,
            **given,
        )  # fmt: skip
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
    seen: Validated | None = None,
) -> Personal:
    """Train a common model from θ (P,), and the user's own after the first alarm.

    With the way ``global`` the model stays common, and is monitored to the end.

    Parameters
    ----------
    server : θ → the server rule's state.
    monitor : "gradient" or "loss", see `training.heterogeneity`; not used with `seen`.
    min_cell : fewest rows of the user, and of a monitored part.
    visits : training steps of ways without state at sites.
    seen : the monitor of the sites' models, if it is that.

    Raises
    ------
    SettingError, NothingToLearn, NotConverged, SiteUnavailable : as `personalise`.
    """
    owner(fed, way)
    ends = way.name in SWITCHED
    watch = seen or Watch(fed, plan, monitor, least=min_cell, ends=ends)
    course = averaging(
        fed, plan, schedule, rule, server(theta), lambda _: 0.0, visits=visits, watch=watch
    )
    done = course.rounds
    if done == schedule.rounds and way.every:
        same = replace(way, name="global", epochs=0, own=(), pull=0.0, alpha=0.0, adapt=False)
        made = finish(fed, plan, schedule, same, course.theta, done)
        return replace(made, common_rounds=done)
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

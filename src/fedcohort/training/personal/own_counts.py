"""Rounds without a better loss, where a part of the model is each site's own.

Nolte et al. 2023, section 3.5: with a personal last layer "each client records the number of
non-improving epochs and the server averages them from all the clients so that the learning rate
reduction and early stopping can still be performed." The counts and their means are those of
`networks.counts`; here the loss of a site is that of its own model: the round's common part, with
the own part that the site's visit of this round left (fedper, fedrep), on its held-out rows.

The result is the model after round r = i − b, rounded (`networks.schedule`). So each site keeps its
own parts of the last rounds, at most `patience` + 1, and takes that of round r back when the
training has ended. A site that was away in round r takes the part that it had then.

Revealed: `Counts`, each round, and at the end `Turned`, only as sums over all sites. No loss and no
part leaves a site.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Federation, Keep, Refused, Site, Step, message, summed
from fedcohort.training.networks.counts import Counted, Counts, Streak, counted_on, means
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Course, Schedule
from fedcohort.training.personal.visits import Own, begun
from fedcohort.training.personal.ways import PARTED, Way
from fedcohort.training.rows import known_rows


@message
class Turned:
    """Number of sites that have an own part ()."""

    sites: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        return "" if self.sites.shape == () and self.sites == 1 else "a number of sites but 1."


@summed
def count_idle_own(
    site: Site[Any, Own | None], *, theta: Array, plan: str, way: str, since_cut: int, at: int,
    patience: int,
) -> Keep[Counts, Own]:  # fmt: skip
    """Count the rounds since the loss of the site's own model was least.

    theta : the common model (P,) after round `at`, from 0.
    since_cut : most rounds that `recent` counts.
    patience : number of earlier own parts that the site keeps; below 0 none.
    """
    p, w = Plan.of(plan), Way.of(way)
    _check_parted(site, w)
    own = site.state or begun(theta, w)
    model = theta.astype(np.float64)
    model[w.mask(len(model))] = own.theta
    rows = known_rows(site.data, p, site.entropy, held_out=True)
    least, idle = own.streak if len(own.streak) else (math.inf, 0.0)
    counts, after = counted_on(
        rows, model, p, Streak(np.array(least), np.array(int(idle))), since_cut
    )
    rounds, parts = own.parts_at, own.parts.reshape(-1, len(own.theta))
    old = np.flatnonzero(rounds <= at - patience)
    since = int(old[-1]) if len(old) else 0  # the part that the site had `patience` rounds ago
    return Keep(
        counts,
        replace(
            own,
            streak=np.array([float(after.least), float(after.since)]),
            parts_at=np.append(rounds[since:], float(at))[: patience + 1],
            parts=np.concatenate([parts[since:], own.theta[None]])[: patience + 1],
        ),
    )


@summed
def turn_back(site: Site[Any, Own | None], *, theta: Array, way: str, at: int) -> Keep[Turned, Own]:
    """Return to the own part that the site had after a chosen round, or else to its next one.

    at : the chosen round.
    """
    w = Way.of(way)
    _check_parted(site, w)
    own = site.state or begun(theta, w)
    if len(own.parts_at):
        before = np.flatnonzero(own.parts_at <= at)
        own = replace(own, theta=own.parts[before[-1] if len(before) else 0].copy())
    return Keep(Turned(np.array(1)), own)


def own_counting(
    fed: Federation, plan: Plan, schedule: Schedule, way: Way, before: Callable[[], None]
) -> Counted:
    """Return a function that asks all sites for b and b' of their own models.

    before : called before each question.
    """
    done = 0

    def counted(theta: Array, since_cut: int) -> tuple[float, float]:
        nonlocal done
        before()
        total = fed.sum(
            count_idle_own, theta=plan.sent(theta), plan=plan.text, way=way.text,
            since_cut=since_cut, at=done, patience=_patience(schedule),
        )  # fmt: skip
        done += 1
        return means(total)

    return counted


def turned_back(fed: Federation, plan: Plan, schedule: Schedule, way: Way, course: Course) -> None:
    """Let all sites take back their own parts of the round that gave the result; wait for all."""
    if way.name in PARTED and schedule.patience is not None and course.chosen < course.rounds:
        fed.awaiting().sum(
            turn_back, theta=plan.sent(course.theta), way=way.text, at=course.chosen - 1
        )


def _patience(schedule: Schedule) -> int:
    return -1 if schedule.patience is None else schedule.patience


def _check_parted(site: Site[Any, Any], way: Way) -> None:
    if way.name not in PARTED:
        raise Refused("way", f"site {site.name!r} has no own part in the way {way.name!r}.")


STEPS = (count_idle_own, turn_back)


def asks(*, looks: bool, ends: bool) -> tuple[Step[..., Any], ...]:
    """Return the steps of a training whose sites look at rows held out, and may end it early."""
    return STEPS[: 1 + ends] if looks else ()

"""A training by "exact" at one site, in one call, instead of one call or two in each round.

For the bounds of a study (`Federation.alone`): a fit of one site in this process, where nobody else
sees a reply. The operations are those of a fit over sites, in their order, so that the bits are the
same. If a number is not finite, the site returns no round, and the fit runs round by round, up to
the error that it always had.

Revealed: `Descended` once, to the process that holds the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Federation, message
from fedcohort.protocol.step import Gathered
from fedcohort.training.networks.schedule import Advance, Course, Schedule, course_of, follow


@message(parameters=["theta", "kept"])
class Descended:
    """θ (P,) at the end, the loss of each round (R,), and θ (K, P) after each kept round.

    R = 0 if a number was not finite.
    """

    theta: Array
    losses: Array
    kept: Array


def descended(schedule: Schedule, theta: Array, advance: Advance) -> Descended:
    """Return all rounds from θ (P,), at a site, with its `advance`; none if one is not finite."""
    losses: list[float] = []
    odd = False

    def checked(theta: Array, rate: float) -> tuple[Array, float]:
        nonlocal odd
        theta, loss = advance(theta, rate)
        losses.append(loss)
        odd = not (np.isfinite(loss) and np.isfinite(theta).all())
        return theta, loss

    course = follow(checked, course_of(schedule, theta, held_out=_nothing, enough=lambda _: odd))
    if odd:
        return Descended(theta, np.zeros(0), np.zeros((0, len(theta))))
    kept = [course.kept[r] for r in sorted(course.kept)]
    return Descended(course.theta, np.array(losses), np.array(kept).reshape(-1, len(theta)))


def can(fed: Federation, schedule: Schedule) -> bool:
    """Return whether a training can be asked in one call: at one site alone, without held-out rows.

    These are looked at after each round, by other steps.
    """
    return fed.alone and not schedule.looks and schedule.rounds > 0


def asked(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as arguments of a step; `asking` reads them."""
    return {
        "rounds": schedule.rounds, "rate": schedule.learning_rate, "lr_rule": schedule.lr_rule,
        "keep": np.array(schedule.keep, np.int64),
    }  # fmt: skip


def asking(rounds: int, rate: float, lr_rule: str, keep: Array) -> Schedule:
    """Return the schedule that the arguments of a step are."""
    return Schedule(rounds=rounds, learning_rate=rate, lr_rule=lr_rule, keep=tuple(keep.tolist()))


def at_once(
    fed: Federation,
    schedule: Schedule,
    theta: Array,
    step: Gathered[..., Descended],
    **arguments: Any,
) -> Course | None:
    """Ask the only site for all rounds from θ (P,); None if it returns none.

    The federation's rounds, and its history, are as if each had been asked.
    """
    (told,) = fed.gather(step, theta=theta, **arguments, **asked(schedule)).values()
    if not len(told.losses):
        return None
    stages = dict(
        zip(sorted({r for r in schedule.keep if r <= len(told.losses)}), told.kept, strict=True)
    )
    done = 0

    def advance(_: Array, __: float) -> tuple[Array, float]:
        nonlocal done
        done += 1
        return stages.get(done, told.theta), float(told.losses[done - 1])

    course = course_of(schedule, theta, held_out=_nothing, rounds=fed.rounds, record=fed.record)
    return follow(advance, course)


def _nothing(_: Array) -> float:
    raise AssertionError("no rows are held out.")

"""The course of a training: its learning rate, when it stops, and which vector is the result.

Rounds are alike whoever advances them: a site on its own, or a federation by any strategy.

Learning rate, D6.2 section 8.3: when the loss rises, loss⁽ⁱ⁺¹⁾ > loss⁽ⁱ⁾,

    lr⁽ⁱ⁺¹⁾ = max(lr⁽ⁱ⁾/√(i+1), 0.001)                                                   (1)

except that a rate below 0.001 is left as it is. Losses are counted from 0, and a round knows
the loss at the vector that it began with. Where sites come and go, a loss is held against the last
one of the same sites: those of others differ by their patients, and would slow the training down
for nothing. Falling as half a cosine over R rounds (Loshchilov and
Hutter, "SGDR", ICLR 2017, eq. 5, without restarts), whatever the losses are:

    lr⁽ⁱ⁾ = lr⁽⁰⁾ (1 + cos(πi/R)) / 2                                                     (2)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedcohort.arrays import Array

#: θ (P,) and the learning rate → the next θ, and the averaged loss at the given one.
Advance = Callable[[Array, float], tuple[Array, float]]

#: θ (P,) → its loss on the rows held out.
HeldOut = Callable[[Array], float]

#: θ (P,) → whether no further round is needed.
Enough = Callable[[Array], bool]

FLOOR = 0.001


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long, and how fast.

    Attributes
    ----------
    rounds : largest number of rounds.
    learning_rate : η > 0, of the first round.
    lr_rule : "d62", eq. (1), "cosine", eq. (2), or "constant".
    patience : stop after so many rounds without a better held-out loss; None never stops early.
    keep : numbers of rounds after which the result so far is kept.
    named : what the history calls the loss.
    first : what the history calls the first round, where a training goes on from another.
    """

    rounds: int
    learning_rate: float
    lr_rule: str = "d62"
    patience: int | None = None
    keep: tuple[int, ...] = ()
    named: str = "loss"
    first: int = 0


@dataclass(frozen=True)
class Course:
    """What a training came to.

    Attributes
    ----------
    theta : θ (P,): the last, or with a patience the one of the best held-out loss.
    rounds : how many were run.
    kept : number of rounds → what `theta` would be, had it been the last.
    """

    theta: Array
    rounds: int
    kept: dict[int, Array] = field(default_factory=dict[int, Array])


def next_rate(rate: float, i: int, before: float, after: float) -> float:
    """Return lr⁽ⁱ⁺¹⁾ by eq. (1), from lr⁽ⁱ⁾, loss⁽ⁱ⁾ and loss⁽ⁱ⁺¹⁾."""
    if after <= before:
        return rate
    return min(rate, max(rate / math.sqrt(i + 1), FLOOR))


def follow(
    schedule: Schedule,
    theta: Array,
    advance: Advance,
    *,
    held_out: HeldOut,
    rounds: Callable[[int], Iterable[int]] = range,
    record: Callable[..., None] | None = None,
    enough: Enough | None = None,
    heard: Callable[[], Iterable[str]] = tuple,
) -> Course:
    """Advance θ (P,) round by round until the schedule ends.

    Parameters
    ----------
    held_out : asked only where there is a patience.
    rounds, record : those of the federation, where there is one.
    enough : asked before each round whether to end without it.
    heard : the sites that the latest loss is of.
    """
    rate = schedule.learning_rate
    last: dict[frozenset[str], float] = {}
    best, best_loss, best_round = theta, math.inf, 0
    kept: dict[int, Array] = {}
    done = 0
    for i in rounds(schedule.rounds):
        if enough is not None and enough(theta):
            break
        theta, loss = advance(theta, rate)
        who = frozenset(heard())
        done = i + 1
        values = {schedule.named: loss, "learning_rate": rate}
        if schedule.patience is None:
            best = theta
        else:
            values["held_out_loss"] = held_out(theta)
            if values["held_out_loss"] < best_loss:
                best, best_loss, best_round = theta, values["held_out_loss"], i
        if record is not None:
            record(**values)
        if done in schedule.keep:
            kept[done] = best
        if schedule.patience is not None and i - best_round >= schedule.patience:
            break
        if i and schedule.lr_rule == "d62":
            rate = next_rate(rate, i - 1, last.get(who, math.inf), loss)
        elif schedule.lr_rule == "cosine":
            rate = schedule.learning_rate * (1 + math.cos(math.pi * done / schedule.rounds)) / 2
        last[who] = loss
    return Course(best, done, kept)

"""Schedule of a training: learning rate, end, and the resulting vector.

It is the same for a site alone and for a federation with any strategy.

Learning rate, D6.2 section 8.3: when the loss rises, loss⁽ⁱ⁺¹⁾ > loss⁽ⁱ⁾,

    lr⁽ⁱ⁺¹⁾ = max(lr⁽ⁱ⁾/√(i+1), 0.001)                                                   (1)

except that a rate below 0.001 stays. Losses are counted from 0, and a round has the loss at its
start vector. If sites come and go, a loss is compared with the last one over the same sites,
because losses of other sites differ by their patients. Or half a cosine over R rounds, whatever the
losses are (Loshchilov and Hutter, "SGDR", ICLR 2017, eq. 5, without restarts):

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
    """Number of rounds, learning rate and end.

    Attributes
    ----------
    rounds : largest number of rounds.
    learning_rate : η > 0, of the first round.
    lr_rule : "d62", eq. (1), "cosine", eq. (2), or "constant".
    patience : stop after so many rounds without a better held-out loss; None never stops early.
    keep : numbers of rounds after which the result so far is kept.
    named : name of the loss in the history.
    first : number of the first round in the history, if a training continues another.
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
    """Result of a training.

    Attributes
    ----------
    theta : θ (P,): the last, or with a patience the one with the best held-out loss.
    rounds : number of rounds.
    kept : number of rounds → `theta` if that round were the last.
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
    held_out : called only with a patience.
    rounds, record : those of the federation, if any.
    enough : called before each round; true ends the training.
    heard : returns the sites of the latest loss.
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

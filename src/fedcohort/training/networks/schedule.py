"""Schedule of a training: learning rate, end, and the resulting vector.

It is the same for a site alone and for a federation with any strategy.

Learning rate, D6.2 section 8.3: when the loss rises, loss⁽ⁱ⁺¹⁾ > loss⁽ⁱ⁾,

    lr⁽ⁱ⁺¹⁾ = max(lr⁽ⁱ⁾/√(i+1), 0.001)                                                   (1)

except that a rate below 0.001 stays. Losses are counted from 0, and a round has the loss at its
start vector. If sites come and go, a loss is compared with the last one over the same sites,
because losses of other sites differ by their patients. Or half a cosine over R rounds, whatever the
losses are (Loshchilov and Hutter, "SGDR", ICLR 2017, eq. 5, without restarts):

    lr⁽ⁱ⁾ = lr⁽⁰⁾ (1 + cos(πi/R)) / 2                                                     (2)

Or "plateau": after `lr_patience` rounds without a better held-out loss

    lr⁽ⁱ⁺¹⁾ = `lr_factor` lr⁽ⁱ⁾                                                           (3)

and the rounds are counted anew from the cut; `torch.optim.lr_scheduler.ReduceLROnPlateau` with
`threshold` and `eps` 0, whose patience is one less. Nolte et al. 2023 cut to a tenth
after 4 such rounds and stop after 8.

Rounds without a better loss are counted in one of two ways. "loss": of the held-out rows of all
sites, pooled. "count": each site counts those of its own, and b is their mean (`counts`). Then no
pooled loss is known. The result is the model after round i − b, rounded: the mean of the rounds
in which the sites' losses were least. For one site both ways are the same.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field

from fedcohort.arrays import Array
from fedcohort.training.networks.counts import Counted

#: θ (P,) and the learning rate → the next θ, and the averaged loss at the given one.
Advance = Callable[[Array, float], tuple[Array, float]]

#: θ (P,) → its loss on the rows held out.
HeldOut = Callable[[Array], float]

#: Rules of the learning rate; ways to count rounds without a better held-out loss.
RULES, COUNTED_BY = ("constant", "cosine", "plateau"), ("loss", "count")

#: θ (P,) → whether no further round is needed.
Enough = Callable[[Array], bool]

FLOOR = 0.001
#: Rounds of `Course.loss`: the loss of one round has draws in it.
RECENT = 3


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Number of rounds, learning rate and end.

    Attributes
    ----------
    rounds : largest number of rounds.
    learning_rate : η > 0, of the first round.
    lr_rule : "d62", eq. (1), "cosine", eq. (2), "plateau", eq. (3), or "constant".
    lr_factor, lr_patience : of "plateau".
    patience : stop after so many rounds without a better held-out loss; None never stops early.
    patience_by : "loss" or "count", how these rounds are counted.
    keep : numbers of rounds after which the result so far is kept.
    named : name of the loss in the history.
    first : number of the first round in the history, if a training continues another.
    """

    rounds: int
    learning_rate: float
    lr_rule: str = "d62"
    lr_factor: float = 0.1
    lr_patience: int = 4
    patience: int | None = None
    patience_by: str = "loss"
    keep: tuple[int, ...] = ()
    named: str = "loss"
    first: int = 0

    @property
    def looks(self) -> bool:
        """Whether rows are held out, and looked at after each round."""
        return self.patience is not None or self.lr_rule == "plateau"


@dataclass(frozen=True)
class Course:
    """Result of a training.

    Attributes
    ----------
    theta : θ (P,): the last, or with a patience that of the best round; see the header.
    rounds : number of rounds.
    kept : number of rounds → `theta` if that round were the last.
    chosen : number of rounds after which `theta` was the model.
    rate : learning rate of the last round.
    loss : mean loss of the last rounds, up to `RECENT`.
    """

    theta: Array
    rounds: int
    kept: dict[int, Array] = field(default_factory=dict[int, Array])
    chosen: int = 0
    rate: float = 0.0
    loss: float = math.nan


def next_rate(rate: float, i: int, before: float, after: float) -> float:
    """Return lr⁽ⁱ⁺¹⁾ by eq. (1), from lr⁽ⁱ⁾, loss⁽ⁱ⁾ and loss⁽ⁱ⁺¹⁾."""
    if after <= before:
        return rate
    return min(rate, max(rate / math.sqrt(i + 1), FLOOR))


class _Idle:
    """Rounds without a better held-out loss, and the best model so far; see the header."""

    def __init__(self, schedule: Schedule, held_out: HeldOut, counted: Counted | None):
        if schedule.patience_by == "count" and counted is None:
            raise TypeError("a schedule that counts needs a function that asks the sites.")
        self._schedule, self._held_out = schedule, held_out
        self._counted = counted if schedule.patience_by == "count" else None
        self._least, self._round, self._cut = math.inf, 0, 0
        self._latest: dict[int, Array] = {}
        self.best: Array | None = None
        self.chosen = 0
        self.rounds = self.recent = 0.0

    def look(self, theta: Array, i: int) -> dict[str, float]:
        """Look at θ (P,) after round i; return what the history says of it."""
        since = i - self._cut if self._schedule.lr_rule == "plateau" else 0
        if self._counted is not None:
            self.rounds, self.recent = self._counted(theta, since)
            self._latest[i] = theta
            wanted = max(min(self._latest), round(i - self.rounds))
            self.best, self.chosen = self._latest[wanted], wanted + 1
            most = 0 if self._schedule.patience is None else self._schedule.patience
            self._latest = {r: t for r, t in self._latest.items() if r >= i - most}
            return {"idle_rounds": self.rounds}
        loss = self._held_out(theta)
        if loss < self._least:
            self.best, self._least, self._round = theta, loss, i
            self.chosen = i + 1
        self.rounds = i - self._round
        self.recent = min(self.rounds, since)
        return {"held_out_loss": loss}

    def cuts(self, i: int) -> bool:
        """Return whether the rate is cut after round i, and count anew from it."""
        if self.recent < self._schedule.lr_patience:
            return False
        self._cut = i
        return True


#: The rounds of a training: yields θ and the rate of each, is sent what `Advance` returns.
Rounds = Generator[tuple[Array, float], tuple[Array, float], Course]


def follow(advance: Advance, course: Rounds) -> Course:
    """Advance θ (P,) round by round until the schedule of `course_of` ends."""
    return follow_each(lambda asked: [advance(*asked[0])], [course])[0]


def follow_each(
    advance: Callable[[dict[int, tuple[Array, float]]], Sequence[tuple[Array, float]]],
    courses: Sequence[Rounds],
) -> list[Course]:
    """Run several trainings, each round of all that have not ended at once.

    Parameters
    ----------
    advance : by training, θ (P,) and the learning rate → `Advance` of each, in this order.
    """
    asked: dict[int, tuple[Array, float]] = {}
    ended: dict[int, Course] = {}

    def go_on(k: int, told: tuple[Array, float] | None) -> None:
        try:
            asked[k] = next(courses[k]) if told is None else courses[k].send(told)
        except StopIteration as end:
            ended[k] = end.value
            asked.pop(k, None)

    for k in range(len(courses)):
        go_on(k, None)
    while asked:
        for k, told in zip(tuple(asked), advance(asked), strict=True):
            go_on(k, told)
    return [ended[k] for k in range(len(courses))]


def course_of(
    schedule: Schedule,
    theta: Array,
    *,
    held_out: HeldOut,
    rounds: Callable[[int], Iterable[int]] = range,
    record: Callable[..., None] | None = None,
    enough: Enough | None = None,
    heard: Callable[[], Iterable[str]] = tuple,
    counted: Counted | None = None,
) -> Rounds:
    """Yield θ (P,) and the learning rate of each round until the schedule ends.

    Parameters
    ----------
    held_out : called only where rounds are counted by the pooled loss.
    rounds, record : those of the federation, if any.
    enough : called before each round; true ends the training.
    heard : returns the sites of the latest loss.
    counted : called where each site counts its own rounds.
    """
    rate = schedule.learning_rate
    last: dict[frozenset[str], float] = {}
    best, idle = theta, _Idle(schedule, held_out, counted)
    kept: dict[int, Array] = {}
    done, now, recent = 0, rate, deque[float](maxlen=RECENT)
    for i in rounds(schedule.rounds):
        if enough is not None and enough(theta):
            break
        now = rate
        theta, loss = yield theta, rate
        who = frozenset(heard())
        done = i + 1
        recent.append(loss)
        values = {schedule.named: loss, "learning_rate": rate}
        if schedule.looks:
            values |= idle.look(theta, i)
        if schedule.patience is None:
            best = theta
        elif idle.best is not None:
            best = idle.best
        if record is not None:
            record(**values)
        if done in schedule.keep:
            kept[done] = best
        if schedule.patience is not None and idle.rounds >= schedule.patience:
            break
        if i and schedule.lr_rule == "d62":
            rate = next_rate(rate, i - 1, last.get(who, math.inf), loss)
        elif schedule.lr_rule == "cosine":
            rate = schedule.learning_rate * (1 + math.cos(math.pi * done / schedule.rounds)) / 2
        elif schedule.lr_rule == "plateau" and idle.cuts(i):
            rate *= schedule.lr_factor
        last[who] = loss
    chosen = done if schedule.patience is None or idle.best is None else idle.chosen
    mean = sum(recent) / len(recent) if recent else math.nan
    return Course(best, done, kept, chosen, now, mean)

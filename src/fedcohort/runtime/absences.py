"""Sites that are away for some rounds, and return: drawn, for studies of how much it costs.

Each site is a chain of two states, with the round as its clock. In the long run it is away for a
share a of rounds, and for L rounds at a time on average:

    P(returns) = 1/L        P(leaves) = a / ((1 − a) L)                                     (1)

With L = 1/(1 − a) rounds are independent of each other. All sites are there for what a fit does
before its first round, and in the first round; who is away misses every call of a round. Where
fewer than the quorum, or than a masked sum needs, would be there, some of those away are, by lot.
A call that waits for its sites (`Federation.awaiting`) lets rounds go by until they are back, and
so does one of some sites alone, such as a model's user, until their quorum is.

Nothing is revealed; it is a model of sites in this process.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedcohort.protocol import SettingError
from fedcohort.protocol.host import Call

#: What absences are drawn with, beside the seed of a fit.
TAG = 0x61776179
#: The most rounds that a call waits by default: 8 sites of which each is away from 30 % of rounds
#: are all there in one of 17, and 20 sites in one of 1,250.
WAIT = 1000


@dataclass(frozen=True, kw_only=True)
class Availability:
    """How often sites are away.

    Attributes
    ----------
    away : a of eq. (1), from 0 to below 1.
    rounds : L of eq. (1), at least 1 and a/(1 − a); None: each round is drawn by itself.
    always : sites that are never away.
    wait : the most rounds that a call waits until its sites are back.
    """

    away: float
    rounds: float | None = None
    always: tuple[str, ...] = ()
    wait: int = WAIT

    def __post_init__(self) -> None:
        if not 0 <= self.away < 1:
            raise SettingError(f"away is {self.away!r}; give a share of rounds from 0 to below 1.")
        if self.wait < 0:
            raise SettingError(f"wait is {self.wait}; give a number of rounds from 0.")
        if not math.isfinite(self.length):
            raise SettingError(f"rounds is {self.length}; give a mean length in rounds.")
        if self.length < self.least_length:
            raise SettingError(
                f"rounds is {self.length:g}; a site that is away for {self.away:g} of all rounds "
                f"is away for {self.least_length:g} of them at a time, or more."
            )

    @property
    def length(self) -> float:
        """Mean rounds of an absence, L."""
        return 1.0 / (1.0 - self.away) if self.rounds is None else self.rounds

    @property
    def least_length(self) -> float:
        """The least L that there is: a site leaves at the end of each stay of one round."""
        return max(1.0, self.away / (1.0 - self.away))

    def among(self, sites: Collection[str]) -> Availability:
        """Return the same of some of the sites, such as all but one that tuning leaves out."""
        return replace(self, always=tuple(s for s in self.always if s in sites))

    def of(self, sites: Sequence[str], quorum: float, seed: int, fewest: int = 1) -> Absences:
        """Return when each of some sites is away in a fit.

        fewest : sites that must be there whatever the quorum, as a masked sum needs.

        Raises
        ------
        SettingError : no such site as one that is always there.
        """
        if unknown := sorted({*self.always} - {*sites}):
            raise SettingError(
                f"availability: there is no site {unknown[0]!r}; there are {', '.join(sites)}."
            )
        least = min(len(sites), max(1, fewest, math.ceil(quorum * len(sites) - 1e-9)))
        return Absences(self, tuple(sites), least, seed)


@dataclass
class Absences:
    """Which sites are away in which rounds of one fit; the same in each process that asks.

    Attributes
    ----------
    law : how often. sites : all of them.
    least : sites that are there in every round.
    seed : of the fit.
    """

    law: Availability
    sites: tuple[str, ...]
    least: int
    seed: int
    _rounds: list[frozenset[str]] = field(default_factory=list[frozenset[str]])
    _rng: np.random.Generator = field(init=False)
    _chain: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng((self.seed, TAG))
        self._chain = np.zeros(len(self.sites), bool)
        self._rounds.append(frozenset())

    def misses(self, call: Call, site: str) -> bool:
        """Return whether a site does not answer a call."""
        return site in self.away(call.round + call.waited)

    def wait(self, call: Call, to: Collection[str]) -> int:
        """Return after how many rounds as many of some sites are there as a call awaits.

        It is the most that is waited where they are not.
        """
        now = call.round + call.waited
        for more in range(self.law.wait):
            if len({*to} - self.away(now + more)) >= call.awaits:
                return more
        return self.law.wait

    def away(self, number: int) -> frozenset[str]:
        """Return who is away in a round, which counts from 0."""
        while len(self._rounds) <= number:
            self._rounds.append(self._next())
        return self._rounds[number]

    def _next(self) -> frozenset[str]:
        """Draw one round more."""
        law, drawn = self.law, self._rng.random(len(self.sites))
        if len(self._rounds) == 1:
            self._chain = drawn < law.away
        else:
            stays, leaves = 1.0 - 1.0 / law.length, law.away / ((1.0 - law.away) * law.length)
            self._chain = drawn < np.where(self._chain, stays, leaves)
        here = self._rng.permutation(len(self.sites))[: self.least].tolist()
        gone = {s for s, out in zip(self.sites, self._chain, strict=True) if out} - {*law.always}
        for k in here:
            if len(self.sites) - len(gone) >= self.least:
                break
            gone.discard(self.sites[k])
        return frozenset(gone)

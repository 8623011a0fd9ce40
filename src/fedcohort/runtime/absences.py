"""Simulated absences of sites, for studies of their cost.

Each site is a two-state chain over rounds. In the long run it is away for a share a of the rounds,
for L rounds at a time on average:

    P(returns) = 1/L        P(leaves) = a / ((1 − a) L)                                     (1)

With L = 1/(1 − a) rounds are independent. All sites are present before and in the first round; an
absent site misses every call of a round. If fewer than the quorum, or than a masked sum needs,
would be present, absent sites drawn by lot are present. A call that waits
(`Federation.awaiting`), or a call of some sites alone, lets rounds pass until its quorum is back.

Revealed: nothing; it is a model of sites in this process.
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
    """Frequency of absences.

    Attributes
    ----------
    away : a of eq. (1), from 0 to below 1.
    rounds : L of eq. (1), at least 1 and a/(1 − a); None: independent rounds.
    always : sites that are never away.
    wait : largest number of rounds that a call waits for its sites.
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
        """The smallest possible L: a site leaves after each stay of one round."""
        return max(1.0, self.away / (1.0 - self.away))

    def among(self, sites: Collection[str]) -> Availability:
        """Return the same law for some of the sites, such as all but one that tuning leaves out."""
        return replace(self, always=tuple(s for s in self.always if s in sites))

    def of(self, sites: Sequence[str], quorum: float, seed: int, fewest: int = 1) -> Absences:
        """Return the absences of some sites in one fit.

        fewest : sites that must be present whatever the quorum, as a masked sum needs.

        Raises
        ------
        SettingError : a site that is always present is unknown.
        """
        if unknown := sorted({*self.always} - {*sites}):
            raise SettingError(
                f"availability: there is no site {unknown[0]!r}; there are {', '.join(sites)}."
            )
        least = min(len(sites), max(1, fewest, math.ceil(quorum * len(sites) - 1e-9)))
        return Absences(self, tuple(sites), least, seed)


@dataclass
class Absences:
    """Absent sites by round of one fit; every process draws the same.

    Attributes
    ----------
    law : their frequency. sites : all of them.
    least : number of sites present in every round.
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
        """Return the number of rounds until enough of some sites are present for a call.

        If they are not back in time, it is the largest wait.
        """
        now = call.round + call.waited
        for more in range(self.law.wait):
            if len({*to} - self.away(now + more)) >= call.awaits:
                return more
        return self.law.wait

    def away(self, number: int) -> frozenset[str]:
        """Return the absent sites of a round, which counts from 0."""
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

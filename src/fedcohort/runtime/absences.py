"""Simulated absences of sites, for studies of their cost.

Each site is a two-state chain over rounds. In the long run it is away for a share a of the rounds,
for L rounds at a time on average:

    P(returns) = 1/L        P(leaves) = a / ((1 − a) L)                                     (1)

With L = 1/(1 − a) rounds are independent; a may differ by site. All sites are present before and in
the first round; an absent site misses every call of a round. If fewer than the quorum, or than a
masked sum needs, would be present, absent sites drawn by lot are present. A call that waits
(`Federation.awaiting`), or a call of some sites alone, lets rounds pass until its quorum is back.

With a client fraction C (McMahan et al. 2017, algorithm 1) the coordinator asks ⌈C·K⌉ of the K
sites in a round, drawn evenly among those that are present. A call that waits for more sites, or
for all that it names, is asked of all: its sum has no meaning without them.

Revealed: nothing; it is a model of sites in this process.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedcohort.protocol import SettingError
from fedcohort.protocol.host import Call

#: What absences are drawn with, beside the seed of a fit.
TAG = 0x61776179
#: What a client fraction is drawn with.
LOT = 0x6C6F74
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
    by_site : a of single sites, in place of `away`.
    fraction : C of the header, above 0 and up to 1.
    """

    away: float = 0.0
    rounds: float | None = None
    always: tuple[str, ...] = ()
    wait: int = WAIT
    by_site: Mapping[str, float] = field(default_factory=dict[str, float])
    fraction: float = 1.0

    def __post_init__(self) -> None:
        for away in (self.away, *self.by_site.values()):
            if not 0 <= away < 1:
                raise SettingError(f"away is {away!r}; give a share of rounds from 0 to below 1.")
            self._check_length(away)
        if self.wait < 0:
            raise SettingError(f"wait is {self.wait}; give a number of rounds from 0.")
        if not 0 < self.fraction <= 1:
            raise SettingError(f"fraction is {self.fraction!r}; give a share above 0 and up to 1.")
        if twice := sorted({*self.always} & {*self.by_site}):
            raise SettingError(f"site {twice[0]!r} stands in 'always' and in 'by_site'.")

    def _check_length(self, away: float) -> None:
        length, least = self.length(away), max(1.0, away / (1.0 - away))
        if not math.isfinite(length):
            raise SettingError(f"rounds is {length}; give a mean length in rounds.")
        if length < least * (1 - 1e-12):
            raise SettingError(
                f"rounds is {length:g}; a site that is away for {away:g} of all rounds is away for "
                f"{least:g} of them at a time, or more."
            )

    def length(self, away: float) -> float:
        """Return the mean rounds of an absence, L, of a site that is away for a share `away`."""
        return 1.0 / (1.0 - away) if self.rounds is None else self.rounds

    def away_of(self, site: str) -> float:
        """Return a of eq. (1) of one site."""
        return 0.0 if site in self.always else self.by_site.get(site, self.away)

    def among(self, sites: Collection[str]) -> Availability:
        """Return the same law for some of the sites, such as all but one that tuning leaves out."""
        return replace(
            self,
            always=tuple(s for s in self.always if s in sites),
            by_site={s: away for s, away in self.by_site.items() if s in sites},
        )

    def of(self, sites: Sequence[str], quorum: float, seed: int, fewest: int = 1) -> Absences:
        """Return the absences of some sites in one fit.

        fewest : sites that must be present whatever the quorum, as a masked sum needs.

        Raises
        ------
        SettingError : a site that the law names is unknown.
        """
        if unknown := sorted({*self.always, *self.by_site} - {*sites}):
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
    _undrawn: list[frozenset[str]] = field(default_factory=list[frozenset[str]])
    _rng: np.random.Generator = field(init=False)
    _lot: np.random.Generator = field(init=False)
    _chain: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng((self.seed, TAG))
        self._lot = np.random.default_rng((self.seed, LOT))
        self._chain = np.zeros(len(self.sites), bool)
        self._rounds.append(frozenset())
        self._undrawn.append(frozenset())

    @property
    def asked(self) -> int:
        """Number of sites that the coordinator asks in a round, if so many are present."""
        return max(self.least, math.ceil(self.law.fraction * len(self.sites) - 1e-9))

    def misses(self, call: Call, site: str) -> bool:
        """Return whether a site does not answer a call."""
        return site in self._missing(call, call.round + call.waited)

    def _missing(self, call: Call, number: int) -> frozenset[str]:
        """Return the sites that are away, or not drawn for the call, in a round."""
        drawn = not call.whole and call.awaits <= self.asked
        return self.away(number) | (self.undrawn(number) if drawn else frozenset())

    def wait(self, call: Call, to: Collection[str]) -> int:
        """Return the number of rounds until enough of some sites are present for a call.

        If they are not back in time, it is the largest wait.
        """
        now = call.round + call.waited
        for more in range(self.law.wait):
            if len({*to} - self._missing(call, now + more)) >= call.awaits:
                return more
        return self.law.wait

    def away(self, number: int) -> frozenset[str]:
        """Return the absent sites of a round, which counts from 0."""
        while len(self._rounds) <= number:
            self._rounds.append(self._next())
        return self._rounds[number]

    def undrawn(self, number: int) -> frozenset[str]:
        """Return the present sites that the coordinator does not ask in a round."""
        self.away(number)
        while len(self._undrawn) <= number:
            order = [self.sites[k] for k in self._lot.permutation(len(self.sites)).tolist()]
            here = [s for s in order if s not in self._rounds[len(self._undrawn)]]
            self._undrawn.append(frozenset(here[self.asked :]))
        return self._undrawn[number]

    def _next(self) -> frozenset[str]:
        """Draw one round more."""
        law, drawn = self.law, self._rng.random(len(self.sites))
        away = np.array([law.by_site.get(s, law.away) for s in self.sites])
        if len(self._rounds) == 1:
            self._chain = drawn < away
        else:
            length = np.array([law.length(a) for a in away])
            stays, leaves = 1.0 - 1.0 / length, away / ((1.0 - away) * length)
            self._chain = drawn < np.where(self._chain, stays, leaves)
        here = self._rng.permutation(len(self.sites))[: self.least].tolist()
        gone = {s for s, out in zip(self.sites, self._chain, strict=True) if out} - {*law.always}
        for k in here:
            if len(self.sites) - len(gone) >= self.least:
                break
            gone.discard(self.sites[k])
        return frozenset(gone)

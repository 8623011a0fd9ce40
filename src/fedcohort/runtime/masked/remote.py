"""Masked sums over a line: the coordinator's side of each stage, over `RemoteTransport`.

    keys, shares    once an epoch: every site draws keys for some slots, and seals shares of its
                    secrets for every other site
    call            once a sum, as any call: the step is run, its reply comes masked
    sign, unmask    once a sum: each site signs the set of sites in it and, after enough equal
                    signatures, returns one kind of share for each of them

A site silent at a stage has dropped out there. The others go on if their threshold allows it;
otherwise the call ends with `QuorumLost` and nothing of it is revealed. With fewer sites than the
quorum, or not all of a call that waits for them (`SitesAway`), nobody is asked to sign: sites that
signed answer the call for the same sites alone, so it could not be asked again of all. A restarted
site reports its epoch lost: a new epoch is drawn and the call repeated on the same base. A call
that was revealed before this coordinator was killed is asked for exactly the same sites.

Revealed to the coordinator: the sum, and which sites are in it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fedcohort.protocol.errors import (
    FedcohortError,
    QuorumLost,
    Refused,
    ReplyRejected,
    SitesAway,
    SiteUnavailable,
)
from fedcohort.protocol.federation import away
from fedcohort.protocol.host import Call
from fedcohort.protocol.updates import rejected
from fedcohort.runtime.calls import Requests
from fedcohort.runtime.journal import Entry
from fedcohort.runtime.masked.calls import (
    LOST,
    Given,
    Part,
    Stage,
    about_of,
    question_of,
    read_part,
    read_said,
    slots_of,
)
from fedcohort.secure import (
    Advert,
    Answer,
    Context,
    Gathering,
    Layout,
    Sealed,
    Signed,
    Summing,
    ring,
)

T = TypeVar("T")

#: How often a call is asked anew, in another epoch or among other sites, before it is given up.
TRIES = 5


class Carrier(Protocol):
    """What the stages need of a transport over a line; see `RemoteTransport`."""

    head: tuple[str, str, str]
    cap: int

    def requests(self, call: Call, asked: int) -> Requests:
        """Return the requests of a call to n sites."""
        ...

    def held(self, call: Call, members: Sequence[str]) -> tuple[str, ...]:
        """Return the members that have a state."""
        ...

    def tell(self, site: str, mark: str) -> bool:
        """Return whether a site was told a view, and note that it is now."""
        ...

    def exchanged(
        self,
        due: dict[str, bytes],
        read: Callable[[str, bytes], T | None],
        what: str,
        whole: Callable[[str], bytes] | None = None,
    ) -> Iterator[tuple[str, T | FedcohortError]]:
        """Ask sites, and yield what comes of it."""
        ...


class _Lost(Exception):
    """Sites have lost the epoch's keys: a new epoch is needed."""


@dataclass
class _Epoch:
    """An epoch in use; `opened`: whose letters each site has opened."""

    gathering: Gathering
    opened: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])


@dataclass
class _Came:
    """The parts of a sum received so far.

    Attributes
    ----------
    summing : holds the parts of the layout that came first.
    layouts : by site.
    signed : by site, the sites for which it signed this call before.
    rejected : by site, why its own checks withheld the reply.
    """

    summing: Summing
    layouts: dict[str, Layout] = field(default_factory=dict[str, Layout])
    signed: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    rejected: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def settled(self) -> tuple[str, ...] | None:
        """The sites for which alone this call can be revealed; None: any.

        Killed coordinators may each have got signatures for other sites; a later set has no site
        that
        signed for an earlier one.
        """
        sets = sorted({*self.signed.values()})
        sound = [s for s in sets if all(self.signed.get(name, s) == s for name in s)]
        return next(iter([*sound, *sets]), None)


class MaskedSums:
    """Forms the sums of one federation.

    Parameters
    ----------
    transport : carries each stage to the sites.
    pinned : the public signing keys of the sites, by name.
    """

    def __init__(self, transport: Carrier, pinned: Mapping[str, bytes]):
        self._transport = transport
        self._pinned = pinned
        self._epochs: dict[tuple[str, ...], _Epoch] = {}
        self._silent: set[str] = set()
        self._made = 0
        self._last = 0

    def total(self, call: Call, to: Sequence[str], weights: Mapping[str, float]) -> Entry:
        """See `Transport`."""
        roster, members, floats = tuple(to), tuple(to), ()
        self._silent.clear()
        odd: dict[str, str] = {}
        for _ in range(TRIES):
            try:
                epoch = self._epoch(roster)
                members = tuple(s for s in members if s in epoch.gathering.ready)
                if call.whole and (gone := sorted({*roster} - {*members} - {*odd})):
                    raise away(gone)
                if len(members) < call.least:
                    return Entry(members, (), odd, masked=True)
                came = self._parts(call, epoch, members, weights, floats)
                odd |= came.rejected
                more, kept = _widened(came.layouts), _alike(came.layouts)
                if more and set(more) != set(floats):
                    floats = more
                    continue
                if len(kept) < len(came.layouts):
                    for site in sorted(set(came.layouts) - set(kept)):
                        odd[site] = str(_stranger(site, call))
                    members = kept
                    continue
                wanted = came.settled
                if wanted is not None and set(wanted) != set(came.layouts):
                    if not set(wanted) <= set(came.layouts):
                        raise QuorumLost(
                            f"{call.step.name} (call {call.number}) was revealed for "
                            f"{', '.join(wanted)}, and can be for them alone. Bring them back and "
                            f"--resume."
                        )
                    members = wanted
                    continue
                if call.whole and (gone := sorted({*roster} - {*came.layouts} - {*odd})):
                    raise away(gone)
                if len(came.layouts) < call.least:
                    return Entry(tuple(sorted(came.layouts)), (), odd, masked=True)
                return self._revealed(call, roster, came, odd)
            except _Lost:
                self._epochs.pop(roster, None)
            except SitesAway:
                raise
            except QuorumLost as error:
                silent = ", ".join(sorted(self._silent))
                if not silent:
                    raise
                raise QuorumLost(
                    f"{call.step.name} (call {call.number}) was not answered by {silent}: {error}"
                ) from None
        raise QuorumLost(
            f"{call.step.name} (call {call.number}) was asked {TRIES} times, and each time a site "
            f"had lost its keys or sent another part. Look at the sites' logs, and --resume."
        )

    # stages ---------------------------------------------------------------------------

    def _epoch(self, roster: tuple[str, ...]) -> _Epoch:
        """Return an epoch with a free slot, among all reachable sites of a roster."""
        known = self._epochs.get(roster)
        if known is not None and known.gathering.left and known.gathering.ready == roster:
            return known
        transport = self._transport
        if unknown := [s for s in roster if s not in self._pinned]:
            raise Refused(
                "secure",
                f"this coordinator's kit does not list the signing key of {unknown[0]!r}. Let "
                f"whoever made the network renew the kits.",
            )
        context = Context(*transport.head, {s: self._pinned[s] for s in roster})
        self._last = max(self._last + 1, time.time_ns() // 1_000_000)
        slots = slots_of(len(roster), self._made)
        found = Gathering(context, self._last, slots)
        asked = {"roster": list(roster), "epoch": self._last, "slots": slots}
        came = self._stage("keys", roster, asked, Advert.from_meta)
        for _, advert in sorted(came.items()):
            found.add_advert(advert)
        roll = found.roll()
        letters = self._stage("shares", roll.names, roll.to_meta(), Sealed.from_meta)
        for _, sealed in sorted(letters.items()):
            found.add_shares(sealed)
        self._made += 1
        self._epochs[roster] = _Epoch(found)
        return self._epochs[roster]

    def _parts(
        self,
        call: Call,
        epoch: _Epoch,
        members: tuple[str, ...],
        weights: Mapping[str, float],
        floats: tuple[str, ...],
    ) -> _Came:
        """Ask members for their masked replies, and add those of one layout."""
        transport, history = self._transport, self._transport.head[2]
        requests = transport.requests(call, len(members))
        question = question_of(history, call.number)
        one = call.arguments.parcel(members[0])
        held = transport.held(call, members)
        about = about_of(
            call.step.name, requests.mark or None, call.round, one, call.step.apart, held
        )
        summing = epoch.gathering.begin(question, members, weights or None, about)
        parts: dict[str, Part] = {}
        for site in members:
            due = set(members) - epoch.opened.get(site, frozenset()) - {site}
            post = epoch.gathering.post(site) if due else None
            parts[site] = Part(summing.asked, post, floats, held)

        def request(site: str, *, told: bool) -> bytes:
            return requests.to(site, told=told, part=parts[site].to_meta())

        came = _Came(summing)
        errors: dict[str, FedcohortError] = {}
        for site, given in transport.exchanged(
            {s: request(s, told=transport.tell(s, requests.mark)) for s in members},
            lambda s, body: read_part(body, s, history, call, parts[s], transport.cap),
            call.step.name,
            lambda s: request(s, told=False),
        ):
            if isinstance(given, Given):
                epoch.opened[site] = epoch.opened.get(site, frozenset()) | set(members)
                came.layouts[site] = given.masked.layout
                if given.settled is not None:
                    came.signed[site] = tuple(sorted(given.settled))
                if summing.layout in (None, given.masked.layout):
                    summing.add(given.masked)
            elif isinstance(given, ReplyRejected):
                came.rejected[site] = str(given)
            elif isinstance(given, SiteUnavailable):
                self._silent.add(site)
            else:
                errors[site] = given
        _raise(errors, members)
        return came

    def _revealed(
        self, call: Call, roster: tuple[str, ...], came: _Came, odd: Mapping[str, str]
    ) -> Entry:
        """Let the survivors sign and unmask; return the sum.

        Raises
        ------
        _Lost : too few hold their keys still, as nodes were started again.
        """
        lost: list[str] = []
        try:
            return self._unmasked(call, roster, came, odd, lost)
        except QuorumLost:
            if lost:
                raise _Lost from None
            raise

    def _unmasked(
        self,
        call: Call,
        roster: tuple[str, ...],
        came: _Came,
        odd: Mapping[str, str],
        lost: list[str],
    ) -> Entry:
        """Return the sum; note sites that have lost their keys."""
        summing = came.summing
        said = summing.survivors()
        votes = self._stage("sign", said.survivors, said.to_meta(), Signed.from_meta, lost)
        for _, signed in sorted(votes.items()):
            summing.add_signature(signed)
        ballot = summing.ballot().to_meta()
        told = self._stage("unmask", summing.signers, ballot, Answer.from_meta, lost)
        for _, answer in sorted(told.items()):
            summing.add_answer(answer)
        assert summing.layout is not None
        total = ring.decode(summing.total(), summing.layout)
        sites = tuple(s for s in roster if s in said.survivors)
        return Entry(sites, (total,), dict(odd), masked=True)

    def _stage(
        self,
        kind: str,
        sites: Sequence[str],
        body: Mapping[str, Any],
        read: Callable[[Any], T],
        lost: list[str] | None = None,
    ) -> dict[str, T]:
        """Return sites' answers to a stage; silent sites are left out.

        Parameters
        ----------
        lost : gets the sites that have lost their keys, which count as silent; None: they do not.
        """
        transport = self._transport
        stage = Stage(kind, *transport.head, body)

        def understood(site: str, answer: bytes) -> T:
            found = read(read_said(answer, site, stage, transport.cap))
            if getattr(found, "name", None) != site:
                raise Refused("malformed", f"site {site!r} answered {kind!r} as another site.")
            return found

        due = dict.fromkeys(sites, stage.to_bytes())
        came: dict[str, T] = {}
        errors: dict[str, FedcohortError] = {}
        for site, found in transport.exchanged(due, understood, f"{kind!r} of a masked sum"):
            if not isinstance(found, FedcohortError):
                came[site] = found
            elif isinstance(found, SiteUnavailable):
                self._silent.add(site)
            else:
                errors[site] = found
        if lost is not None and all(_is_lost(e) for e in errors.values()):
            lost += errors
            return came
        _raise(errors, sorted(sites))
        return came


def _raise(errors: Mapping[str, FedcohortError], order: Sequence[str]) -> None:
    """Raise the first site's error; `_Lost` where keys are gone and nothing else is wrong."""
    for site in order:
        if site in errors and not _is_lost(errors[site]):
            raise errors[site]
    if errors:
        raise _Lost


def _is_lost(error: FedcohortError) -> bool:
    return isinstance(error, Refused) and error.code == LOST


def _widened(layouts: Mapping[str, Layout]) -> tuple[str, ...]:
    """Return the fields that are whole at some sites and real at others, of one shape."""
    kinds: dict[str, set[str]] = {}
    for layout in layouts.values():
        for f in layout.fields:
            kinds.setdefault(f.name, set()).add(f.dtype)
    mixed = {"i8", "f8"}
    return tuple(sorted(name for name, found in kinds.items() if found == mixed))


def _alike(layouts: Mapping[str, Layout]) -> tuple[str, ...]:
    """Return the sites of the layout that most have."""
    if not layouts:
        return ()
    most = Counter(layouts.values()).most_common(1)[0][0]
    return tuple(sorted(s for s, layout in layouts.items() if layout == most))


def _stranger(site: str, call: Call) -> ReplyRejected:
    """Return the error of a part of other shapes than elsewhere."""
    return rejected(
        site, call.number, call.step.name,
        "fields of other shapes or types than most sites; a sum needs equal ones. Check that all "
        "sites hold the same columns.",
    )  # fmt: skip

"""The coordinator's half of every runtime: verbs, views, quorum, ledger, journal, history.

A runtime supplies a `Transport`, which carries one call to a set of sites.

A sum over three or more sites is exact (`secure.arithmetic.ring`): the same bits in any order, on
any runtime, masked or not. A sum over fewer sites (which hides nobody), or with exact sums switched
off, is one of floats.
"""

from __future__ import annotations

import copy
import logging
import math
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, Self, TypeVar

from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.errors import (
    QuorumLost,
    Refused,
    ReplyRejected,
    SettingError,
    SitesAway,
    SiteUnavailable,
)
from fedcohort.protocol.federation import PerSite, View, away
from fedcohort.protocol.host import Call
from fedcohort.protocol.ledger import Ledger
from fedcohort.protocol.private import Spent, threshold
from fedcohort.protocol.step import Gathered, Step, Summed
from fedcohort.protocol.totals import Known, check_total
from fedcohort.runtime.journal import Entry, Journal
from fedcohort.runtime.transport import Transport, Waiting
from fedcohort.runtime.validation import Replies
from fedcohort.secure import FEWEST

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """A call's outcome, for an observer of the run.

    Attributes
    ----------
    missing : sites that were asked and whose replies are not in the result.
    up, down : bytes from and to the sites, as in the ledger.
    rejected : of the missing, sites whose reply is unusable, and why.
    """

    call: int
    round: int
    rounds: int
    step: str
    answered: int
    asked: int
    seconds: float
    missing: Sequence[str] = ()
    up: int = 0
    down: int = 0
    rejected: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass
class _Run:
    """State shared by all views of one run.

    Attributes
    ----------
    known : what sites told of themselves before.
    call, round, rounds : position of the run.
    live : a site has been asked; until then, results come from the journal.
    answered, refused : sites in the latest result; sites whose reply was unusable.
    kept : by site, the last call that left a state there.
    waited : rounds spent waiting for sites.
    failed : calls that ended because sites were away, for the journal if the program goes on.
    missing : call and site of each reply that a result lacks.
    rejected : of those, why a received reply was unusable.
    waiting : the transport, if it knows for how long sites stay away.
    seen : by site, the spec of the view last sent to it.
    """

    transport: Transport
    ledger: Ledger
    journal: Journal | None
    observer: Callable[[Progress], None] | None
    secure: str = "auto"
    account: Callable[[str], Spent | None] | None = None
    known: Known = field(default_factory=Known)
    call: int = 0
    live: bool = False
    round: int = 0
    rounds: int = 0
    waited: int = 0
    failed: list[tuple[int, int, Entry]] = field(default_factory=list[tuple[int, int, Entry]])
    answered: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    kept: dict[str, int] = field(default_factory=dict[str, int])
    seen: dict[str, str] = field(default_factory=dict[str, str])
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    missing: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    rejected: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])
    waiting: Waiting | None = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = self.transport if isinstance(self.transport, Waiting) else None


class Coordinator:
    """A federation over a transport.

    Parameters
    ----------
    transport : carries the calls.
    quorum : share of the asked sites that must answer each call.
    ledger : records each call; a new one by default.
    journal : keeps each result for replay, if the run is resumable.
    observer : called after each call, for progress displays.
    secure : "false": sums of floats; "true": refuse a sum that is not masked; "auto".

    Raises
    ------
    SettingError : the quorum is not a fraction.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        quorum: float = 1.0,
        ledger: Ledger | None = None,
        journal: Journal | None = None,
        observer: Callable[[Progress], None] | None = None,
        secure: str = "auto",
    ):
        if not 0 <= quorum <= 1:
            raise SettingError(f"quorum is {quorum!r}; give a fraction of the sites, 0 to 1.")
        self._run = _Run(transport, ledger or Ledger(), journal, observer, secure)
        self._sites = tuple(sorted(transport.sites))
        self._quorum = quorum
        self._weights: Mapping[str, float] = {}
        self._view: View | None = None
        self._optional = False
        self._awaits: int | None = 0

    # views ----------------------------------------------------------------------------

    @property
    def sites(self) -> Sequence[str]:
        """See `Federation`."""
        return self._sites

    @property
    def answered(self) -> Sequence[str]:
        """See `Federation`."""
        return self._run.answered

    @property
    def alone(self) -> bool:
        """See `Federation`."""
        return self._run.transport.alone and not self._weights

    @property
    def refused(self) -> Mapping[str, str]:
        """See `Federation`."""
        return self._run.refused

    @property
    def missing(self) -> list[tuple[int, str]]:
        """Call and site of each reply that a result lacks."""
        return self._run.missing

    @property
    def rejected(self) -> Mapping[tuple[int, str], str]:
        """Of `missing`, received replies that were unusable, and why."""
        return self._run.rejected

    @property
    def waited(self) -> int:
        """Number of rounds spent waiting for sites; see `awaiting`."""
        return self._run.waited

    @property
    def ledger(self) -> Ledger:
        """The run's ledger."""
        return self._run.ledger

    @property
    def history(self) -> list[dict[str, float]]:
        """One row per `record`: the round and the values that the program gave."""
        return self._run.history

    def weighted(self, weights: Mapping[str, float]) -> Self:
        """See `Federation`."""
        if odd := sorted(set(self._sites) ^ set(weights)):
            raise ValueError(
                f"weights and sites differ in {odd}. Give one weight for each of "
                f"{list(self._sites)}, or ask fed.only(...) first."
            )
        view = copy.copy(self)
        view._weights = dict(weights)
        return view

    def only(self, sites: Iterable[str]) -> Self:
        """See `Federation`."""
        chosen = tuple(sorted(set(sites)))
        if unknown := sorted(set(chosen) - set(self._sites)):
            raise SiteUnavailable(f"there is no site {unknown}; the run has {list(self._sites)}.")
        view = copy.copy(self)
        view._sites = chosen
        return view

    def optional(self) -> Self:
        """See `Federation`."""
        view = copy.copy(self)
        view._optional = True
        return view

    def awaiting(self, fewest: int | None = None) -> Self:
        """See `Federation`."""
        view = copy.copy(self)
        view._awaits = fewest
        return view

    def enough(self, came: Collection[str]) -> None:
        """See `Federation`."""
        if len(came) < self._least:
            odd = {s: why for (_, s), why in self._run.rejected.items() if s not in came}
            raise self._too_few("in turn", came, odd)

    def through(self, view: View) -> Self:
        """See `Federation`."""
        other = copy.copy(self)
        other._view = view
        return other

    def accounted(self, account: Callable[[str], Spent | None]) -> None:
        """Record each reply's cost in the ledger: `account` gets each call's step, in order.

        The sites compute the same from the approved study.
        """
        self._run.account = account

    def expecting(self, known: Known) -> None:
        """Check the counts in all sums against those that sites told (`protocol.totals`)."""
        self._run.known = known

    def rounds(self, n: int, *, first: int = 0) -> Iterator[int]:
        """See `Federation`."""
        self._run.rounds = first + n
        for i in range(n):
            self._run.round = first + i
            yield i

    def record(self, **values: float) -> None:
        """See `Federation`."""
        row = {"round": float(self._run.round), **{k: float(v) for k, v in values.items()}}
        self._run.history.append(row)

    # verbs ----------------------------------------------------------------------------

    def gather(self, step: Gathered[P, R], /, *args: P.args, **kwargs: P.kwargs) -> dict[str, R]:
        """See `Federation`."""
        entry = self._ask(step, "gather", args, kwargs)
        replies = zip(entry.sites, entry.replies, strict=True)
        return {site: step.reply(**reply) for site, reply in replies}

    def sum(self, step: Summed[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Federation`."""
        (total,) = self._ask(step, "sum", args, kwargs).replies
        return step.reply(**total)

    def _ask(
        self,
        step: Step[..., Any],
        verb: str,
        positional: tuple[Any, ...],
        arguments: Mapping[str, Any],
    ) -> Entry:
        """Ask all sites of this view, or take the answer from the journal; note it; return it."""
        if positional:
            raise TypeError(f"pass the arguments of step {step.name} by name.")
        run = self._run
        began = time.perf_counter()
        number = run.call
        run.call += 1
        weights = self._weights if verb == "sum" else {}
        if weights and step.private:
            raise Refused(
                "dp",
                f"{step.name} leaves each site with noise, and a weighted sum of it has other "
                f"noise than the fit is accounted for. Ask for the sum without weights.",
            )
        if verb == "sum":
            check_alike(step, arguments)
            if step.once and not self._exact:
                raise Refused(
                    "secure",
                    f"{step.name} would be summed over {len(self._sites)} sites, each of whose "
                    f"parts would be seen, and tells what a site hides. It is summed under masks "
                    f"alone, of {FEWEST} sites or more.",
                )
        given = Arguments(arguments, self._sites)
        share = threshold(len(self._sites)) if step.private and verb == "sum" and self._exact else 1
        among = tuple(self._sites) if verb == "sum" and self._exact else ()
        n = len(self._sites)
        enough = 0 if self._optional and verb == "gather" else self._least
        call = Call(
            number, step, verb, self._view, given, run.round, share, among=among,
            waited=run.waited, whole=self._awaits is None, least=enough,
            awaits=n if self._awaits is None else min(max(self._awaits, enough), n),
        )  # fmt: skip
        waiting = run.waiting if call.awaits else None
        if waiting is not None and (passed := waiting.wait(call, self._sites)):
            run.waited += passed
            call = replace(call, waited=run.waited)
        mark = 0 if run.journal is None else self._mark(call, weights)
        entry = None if run.journal is None else run.journal.replay(number, mark)
        if entry is not None and call.whole:
            try:
                self._check_whole(entry.sites, entry.rejected)
            except SitesAway as error:
                self._miss(call, error.sites, began)
                raise
        if entry is None:
            if not run.live:
                run.transport.resume(call, run.kept)
                run.live = True
            if step.keeps and run.journal is not None:
                run.journal.flush()
            try:
                entry = self._collect(call, weights)
            except SitesAway as error:
                there = tuple(s for s in self._sites if s not in error.sites)
                run.failed.append((number, mark, Entry(there, ())))
                if len(there) < self._least:
                    raise self._too_few(step.name, there, {}) from None
                self._miss(call, error.sites, began)
                raise
            if run.journal is not None:
                while run.failed:
                    run.journal.append(*run.failed.pop(0))
                run.journal.append(number, mark, entry)
                if step.keeps:
                    run.journal.flush()
        if verb == "sum" and not weights:
            check_total(step, number, entry.replies[0], entry.sites, run.known, arguments)
        if step.keeps:
            run.kept.update(dict.fromkeys(entry.sites, number))
        absent = [s for s in self._sites if s not in entry.sites]
        run.missing += [(number, s) for s in absent]
        run.rejected.update({(number, s): why for s, why in entry.rejected.items()})
        up, down = self._note(call, entry)
        run.answered, run.refused = entry.sites, entry.rejected
        self._tell(call, entry.sites, began, up, down, entry.rejected)
        return entry

    def _miss(self, call: Call, away: Collection[str], began: float) -> None:
        """Note a call that revealed nothing because these sites are away: the program may go on."""
        self._run.missing += [(call.number, s) for s in away]
        self._tell(call, [s for s in self._sites if s not in away], began)

    def _tell(
        self, call: Call, came: Sequence[str], began: float, up: int = 0, down: int = 0,
        rejected: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Tell the observer, if there is one, of a call that has ended."""
        run = self._run
        if run.observer is not None:
            absent = [s for s in self._sites if s not in came]
            run.observer(
                Progress(
                    call.number, run.round, run.rounds, call.step.name, len(came),
                    len(self._sites), time.perf_counter() - began, absent, up, down, rejected or {},
                )
            )  # fmt: skip

    def _collect(self, call: Call, weights: Mapping[str, float]) -> Entry:
        """Combine the replies of one call.

        Raises
        ------
        SiteUnavailable : fewer than the quorum answered; those missing are named.
        """
        if call.verb == "sum" and self._masked(call):
            return self._total(call, weights)
        exact = len(self._sites) if self._exact else 0
        came = Replies(call, weights, exact=exact if call.verb == "sum" else 0)
        for site, reply in self._run.transport.ask(call, self._sites):
            came.take(site, reply)
        replies, present, odd = came.close(), came.present, came.rejected
        for why in odd.values():
            _log.warning("%s", why)
        if len(present) < self._least and not (self._optional and call.verb == "gather"):
            raise self._too_few(call.step.name, present, odd)
        if call.whole:
            self._check_whole(present, odd)
        return Entry(tuple(present), replies, odd)

    def _check_whole(self, came: Collection[str], odd: Collection[str]) -> None:
        """Refuse a result that lacks a site, unless its reply was unusable.

        Raises
        ------
        SitesAway : some are.
        """
        if gone := [s for s in self._sites if s not in came and s not in odd]:
            raise away(gone)

    def _too_few(self, step: str, came: Collection[str], odd: Mapping[str, str]) -> QuorumLost:
        """Return the error of a call that fewer than the quorum answered."""
        missing = ", ".join(s for s in self._sites if s not in came)
        other = (
            ", or lower the quorum: that makes it another study, with another hash, which begins "
            "anew and which each site of a network has to approve again"
        )
        if self._exact and self._run.transport.masks and len(came) < FEWEST:
            other = f"; a masked sum takes {FEWEST} sites, whatever the quorum"
        return (ReplyRejected if odd else QuorumLost)(
            f"{' '.join([*odd.values(), ''])}{len(came)} of {len(self._sites)} sites answered "
            f"{step}, quorum is {self._quorum:g}; missing: {missing}. Bring them back and "
            f"--resume{other}."
        )

    @property
    def _least(self) -> int:
        """How many sites must answer."""
        return max(1, math.ceil(self._quorum * len(self._sites) - 1e-9))

    @property
    def hides(self) -> bool:
        """See `Federation`; true in a simulation without masks too, where nobody looks."""
        return self._exact

    @property
    def _exact(self) -> bool:
        """Whether a sum is exact, by the number of asked sites alone."""
        return self._run.secure != "false" and len(self._sites) >= FEWEST

    def _masked(self, call: Call) -> bool:
        """Return whether a sum is masked.

        Raises
        ------
        Refused : it must be, but there are too few sites or this runtime cannot.
        """
        masks = self._run.transport.masks
        if self._run.secure == "true" and not (self._exact and masks):
            raise Refused(
                "secure",
                f"{call.step.name} would be summed over {len(self._sites)} sites without masks, "
                f"and secure_aggregation is true: it needs {FEWEST} sites or more. Set it to auto.",
            )
        return self._exact and masks

    def _total(self, call: Call, weights: Mapping[str, float]) -> Entry:
        """Return the masked sum of one call.

        Raises
        ------
        QuorumLost : fewer than the quorum are in it.
        """
        entry = self._run.transport.total(call, self._sites, weights)
        for why in entry.rejected.values():
            _log.warning("%s", why)
        if len(entry.sites) < self._least:
            raise self._too_few(call.step.name, entry.sites, entry.rejected)
        return entry

    def _note(self, call: Call, entry: Entry) -> tuple[int, int]:
        """Write the ledger's lines of one call; return the bytes up and down."""
        run = self._run
        spec = "" if call.view is None else call.view.spec
        head = (call.number, run.round, call.step.name, call.verb)
        down, size = sum(map(call.arguments.nbytes, self._sites)), len(spec.encode())
        for site in self._sites:
            if run.seen.get(site, "") != spec:
                down += size
                run.seen[site] = spec
        run.ledger.sent(down)
        spent = run.account(call.step.name) if run.account and call.step.private else None
        if call.verb == "sum":
            size = run.ledger.write(
                *head, entry.sites, entry.replies[0], masked=entry.masked, spent=spent
            )
            return size * len(entry.sites), down
        replies = zip(entry.sites, entry.replies, strict=True)
        up = sum(run.ledger.write(*head, (site,), reply, spent=spent) for site, reply in replies)
        return up, down

    def _mark(self, call: Call, weights: Mapping[str, float]) -> int:
        """Return a checksum of all that determines a call's result besides the data."""
        view = "" if call.view is None else call.view.spec
        text = f"{call.step.name} {call.verb} {self._sites} {sorted(weights.items())} {view}"
        text += self._run.secure
        return call.arguments.checksum(zlib.crc32(text.encode()))


def check_alike(step: Step[..., Any], arguments: Mapping[str, Any]) -> None:
    """Refuse, as sites of a network do, a sum of answers to different questions.

    Raises
    ------
    Refused : "secure".
    """
    for name, value in arguments.items():
        if not isinstance(value, PerSite):
            continue
        kinds = {type(v) for v in value.values()}
        if name not in step.apart or not kinds <= {bool, int}:
            raise Refused(
                "secure",
                f"{step.name} is asked with another {name} at some sites, which would be alone in "
                f"the sum. Give all sites one value, or, if it is a whole number or yes or no, "
                f"declare the step @summed(apart=({name!r},)).",
            )

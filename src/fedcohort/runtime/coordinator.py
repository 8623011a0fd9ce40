"""The coordinator's half of every runtime: verbs, views, quorum, ledger, journal, history.

A runtime supplies a `Transport`, which carries one call to a set of sites; everything that must
be the same on all runtimes is here, once.
"""

from __future__ import annotations

import copy
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from fedcohort.arrays import Array
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.errors import QuorumLost, SettingError, SiteUnavailable
from fedcohort.protocol.federation import View
from fedcohort.protocol.host import Call
from fedcohort.protocol.ledger import Ledger
from fedcohort.protocol.message import Total
from fedcohort.protocol.step import Gathered, Step, Summed
from fedcohort.runtime.journal import Entry, Journal

P = ParamSpec("P")
R = TypeVar("R")


class Transport(Protocol):
    """What carries one call to the sites."""

    @property
    def sites(self) -> Sequence[str]:
        """See `Federation`."""
        """Names of all sites that can be asked."""
        ...

    def ask(
        self, call: Call, to: Sequence[str]
    ) -> Iterator[tuple[str, dict[str, Array] | SiteUnavailable]]:
        """Yield each site's reply, or why there is none, in the order of `to`."""
        ...

    def resume(self, call: Call, kept: Mapping[str, int]) -> None:
        """Put every site into the state that it had before `call`, the first that is asked.

        Parameters
        ----------
        call : number 0 in a new run, where all sites begin without a state.
        kept : by site, the number of the last call that left a state there and counts; from now
            on the caller keeps it up to date.

        Raises
        ------
        JournalMismatch : a site has lost that state, or is ahead of the journal.
        """
        ...


@dataclass(frozen=True)
class Progress:
    """What an observer of a run is told after each call.

    Attributes
    ----------
    missing : the sites that were asked and whose replies are not in the result.
    up, down : bytes that the sites sent, and were sent, as the ledger counts them.
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


@dataclass
class _Run:
    """What all views of one run share.

    Attributes
    ----------
    call, round, rounds : where the run is.
    live : whether a site has been asked; until then, results come from the journal.
    answered : the sites in the latest result.
    kept : by site, the last call that left a state there.
    missing : call and site, of each reply that a result lacks.
    seen : by site, the spec of the view that was last sent to it.
    """

    transport: Transport
    ledger: Ledger
    journal: Journal | None
    observer: Callable[[Progress], None] | None
    call: int = 0
    live: bool = False
    round: int = 0
    rounds: int = 0
    answered: Sequence[str] = ()
    kept: dict[str, int] = field(default_factory=dict[str, int])
    seen: dict[str, str] = field(default_factory=dict[str, str])
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    missing: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])


class Coordinator:
    """A federation over a transport.

    Parameters
    ----------
    transport : carries the calls.
    quorum : fraction of the sites asked that must answer each call.
    ledger : where each call is noted; a new one by default.
    journal : where each result is kept for replay, if the run shall be resumable.
    observer : called after each call, for progress displays.

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
    ):
        if not 0 <= quorum <= 1:
            raise SettingError(f"quorum is {quorum!r}; give a fraction of the sites, 0 to 1.")
        self._run = _Run(transport, ledger or Ledger(), journal, observer)
        self._sites = tuple(sorted(transport.sites))
        self._quorum = quorum
        self._weights: Mapping[str, float] = {}
        self._view: View | None = None

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
    def missing(self) -> list[tuple[int, str]]:
        """The number of each call whose result lacks a site that was asked, and that site."""
        return self._run.missing

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

    def through(self, view: View) -> Self:
        """See `Federation`."""
        other = copy.copy(self)
        other._view = view
        return other

    def rounds(self, n: int) -> Iterator[int]:
        """See `Federation`."""
        self._run.rounds = n
        for i in range(n):
            self._run.round = i
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
        given = Arguments(arguments, self._sites)
        call = Call(number, step, verb, self._view, given, run.round)
        mark = 0 if run.journal is None else self._mark(call, weights)
        entry = None if run.journal is None else run.journal.replay(number, mark)
        if entry is None:
            if not run.live:
                run.transport.resume(call, run.kept)
                run.live = True
            if step.keeps and run.journal is not None:
                run.journal.flush()
            entry = self._collect(call, weights)
            if run.journal is not None:
                run.journal.append(number, mark, entry)
                if step.keeps:
                    run.journal.flush()
        if step.keeps:
            run.kept.update(dict.fromkeys(entry.sites, number))
        absent = [s for s in self._sites if s not in entry.sites]
        run.missing += [(number, s) for s in absent]
        up, down = self._note(call, entry)
        run.answered = entry.sites
        if run.observer is not None:
            seconds = time.perf_counter() - began
            run.observer(
                Progress(
                    number, run.round, run.rounds, step.name,
                    len(entry.sites), len(self._sites), seconds, absent, up, down,
                )
            )  # fmt: skip
        return entry

    def _collect(self, call: Call, weights: Mapping[str, float]) -> Entry:
        """Combine the replies of one call.

        Raises
        ------
        SiteUnavailable : fewer than the quorum answered; those missing are named.
        """
        total = Total()
        replies: list[dict[str, Array]] = []
        present: list[str] = []
        missing: list[str] = []
        for site, reply in self._run.transport.ask(call, self._sites):
            if isinstance(reply, SiteUnavailable):
                missing.append(site)
                continue
            present.append(site)
            if call.verb == "sum":
                total.add(site, reply, weights.get(site, 1.0))
            else:
                replies.append(reply)
        if len(present) < max(1, math.ceil(self._quorum * len(self._sites) - 1e-9)):
            raise QuorumLost(
                f"{len(present)} of {len(self._sites)} sites answered {call.step.name}, quorum is "
                f"{self._quorum:g}; missing: {', '.join(missing)}. Bring them back and --resume, "
                f"or lower the quorum."
            )
        return Entry(tuple(present), (total.arrays,) if call.verb == "sum" else tuple(replies))

    def _note(self, call: Call, entry: Entry) -> tuple[int, int]:
        """Write the ledger's lines of one call; return the bytes up and down."""
        run = self._run
        spec = "" if call.view is None else call.view.spec
        head = (call.number, run.round, call.step.name, call.verb)
        down = 0
        for site in self._sites:
            fresh = run.seen.get(site, "") != spec
            run.seen[site] = spec
            size = len(spec.encode()) if fresh else 0
            down += size + call.arguments.nbytes(site)
        run.ledger.sent(down)
        if call.verb == "sum":
            size = run.ledger.write(*head, entry.sites, entry.replies[0])
            return size * len(entry.sites), down
        replies = zip(entry.sites, entry.replies, strict=True)
        return sum(run.ledger.write(*head, (site,), reply) for site, reply in replies), down

    def _mark(self, call: Call, weights: Mapping[str, float]) -> int:
        """Return a checksum of everything that determines a call's result, besides the data."""
        view = "" if call.view is None else call.view.spec
        text = f"{call.step.name} {call.verb} {self._sites} {sorted(weights.items())} {view}"
        return call.arguments.checksum(zlib.crc32(text.encode()))

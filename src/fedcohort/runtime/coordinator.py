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

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import SiteUnavailable
from fedcohort.protocol.federation import View, at
from fedcohort.protocol.host import Call
from fedcohort.protocol.ledger import Ledger
from fedcohort.protocol.message import Total
from fedcohort.protocol.step import Gathered, Step, Summed
from fedcohort.runtime.journal import SEPARATOR, Entry, Journal

P = ParamSpec("P")
R = TypeVar("R")


class Transport(Protocol):
    """What carries one call to the sites."""

    @property
    def sites(self) -> Sequence[str]:
        """Names of all sites that can be asked."""
        ...

    def ask(
        self, call: Call, to: Sequence[str]
    ) -> Iterator[tuple[str, dict[str, Array] | SiteUnavailable]]:
        """Yield each site's reply, or why there is none, in the order of `to`."""
        ...

    def resume_at(self, call: int) -> None:
        """Put every site into the state that it had before call number `call`."""
        ...


@dataclass(frozen=True)
class Progress:
    """What an observer of a run is told after each call."""

    call: int
    round: int
    rounds: int
    step: str
    answered: int
    asked: int
    seconds: float


@dataclass
class _Run:
    """What all views of one run share."""

    transport: Transport
    ledger: Ledger
    journal: Journal | None
    observer: Callable[[Progress], None] | None
    call: int = 0
    round: int = 0
    rounds: int = 0
    answered: Sequence[str] = ()
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])


class Coordinator:
    """A federation over a transport.

    Parameters
    ----------
    transport : carries the calls.
    quorum : fraction of the sites asked that must answer each call.
    ledger : where each call is noted; a new one by default.
    journal : where each result is kept for replay, if the run shall be resumable.
    observer : called after each call, for progress displays.
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
        self._run = _Run(transport, ledger or Ledger(), journal, observer)
        self._sites = tuple(sorted(transport.sites))
        self._quorum = quorum
        self._weights: Mapping[str, float] = {}
        self._view: View | None = None

    # views ----------------------------------------------------------------------------

    @property
    def sites(self) -> Sequence[str]:
        return self._sites

    @property
    def answered(self) -> Sequence[str]:
        return self._run.answered

    @property
    def ledger(self) -> Ledger:
        """The run's ledger."""
        return self._run.ledger

    @property
    def history(self) -> list[dict[str, float]]:
        """One row per `record`: the round and the values that the program gave."""
        return self._run.history

    def weighted(self, weights: Mapping[str, float]) -> Self:
        view = copy.copy(self)
        view._weights = weights
        return view

    def only(self, sites: Iterable[str]) -> Self:
        chosen = tuple(sorted(set(sites)))
        if unknown := sorted(set(chosen) - set(self._sites)):
            raise SiteUnavailable(f"there is no site {unknown}; the run has {list(self._sites)}.")
        view = copy.copy(self)
        view._sites = chosen
        return view

    def through(self, view: View) -> Self:
        other = copy.copy(self)
        other._view = view
        return other

    def rounds(self, n: int) -> Iterator[int]:
        self._run.rounds = n
        for i in range(n):
            self._run.round = i
            yield i

    def record(self, **values: float) -> None:
        row = {"round": float(self._run.round), **{k: float(v) for k, v in values.items()}}
        self._run.history.append(row)

    # verbs ----------------------------------------------------------------------------

    def gather(self, step: Gathered[P, R], /, *args: P.args, **kwargs: P.kwargs) -> dict[str, R]:
        entry = self._ask(step, "gather", args, kwargs)
        return {site: step.reply(**entry.of(site)) for site in entry.sites}

    def sum(self, step: Summed[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return step.reply(**self._ask(step, "sum", args, kwargs).arrays)

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
        print_ = None
        entry = None
        if run.journal is not None:
            print_ = self._fingerprint(step, verb, arguments, weights)
            entry = run.journal.replay(number, print_)
        if entry is None:
            if run.journal is not None and run.journal.just_ended(number):
                run.transport.resume_at(number)
            call = Call(number, step, verb, self._view, arguments)
            entry = self._collect(call, weights)
            if run.journal is not None and print_ is not None:
                run.journal.append(number, print_, entry)
        self._note(number, step, verb, entry)
        run.answered = entry.sites
        if run.observer is not None:
            seconds = time.perf_counter() - began
            run.observer(
                Progress(
                    number, run.round, run.rounds, step.name,
                    len(entry.sites), len(self._sites), seconds,
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
        gathered: dict[str, Array] = {}
        present: list[str] = []
        missing: list[str] = []
        for site, reply in self._run.transport.ask(call, self._sites):
            if isinstance(reply, SiteUnavailable):
                missing.append(site)
                continue
            present.append(site)
            if call.verb == "sum":
                total.add(reply, weights.get(site, 1.0))
            else:
                gathered |= {f"{site}{SEPARATOR}{k}": a for k, a in reply.items()}
        if len(present) < max(1, math.ceil(self._quorum * len(self._sites) - 1e-9)):
            raise SiteUnavailable(
                f"{len(present)} of {len(self._sites)} sites answered {call.step.name}, quorum is "
                f"{self._quorum:g}; missing: {', '.join(missing)}. Bring them back and --resume, "
                f"or lower the quorum."
            )
        return Entry(tuple(present), total.arrays if call.verb == "sum" else gathered)

    def _note(self, number: int, step: Step[..., Any], verb: str, entry: Entry) -> None:
        """Write the ledger's lines of one call."""
        ledger, round_ = self._run.ledger, self._run.round
        if verb == "sum":
            ledger.write(number, round_, step.name, verb, entry.sites, entry.arrays)
        else:
            for site in entry.sites:
                ledger.write(number, round_, step.name, verb, (site,), entry.of(site))

    def _fingerprint(
        self,
        step: Step[..., Any],
        verb: str,
        arguments: Mapping[str, Any],
        weights: Mapping[str, float],
    ) -> int:
        """Return a checksum of everything that determines a call's result, besides the data."""
        view = "" if self._view is None else self._view.spec
        text = f"{step.name} {verb} {self._sites} {sorted(weights.items())} {view}"
        mark = zlib.crc32(text.encode())
        for name, value in arguments.items():
            mark = zlib.crc32(name.encode(), mark)
            for part in (at(s, {"": value})[""] for s in self._sites) if isinstance(
                value, dict
            ) else (value,):
                raw = np.ascontiguousarray(part) if isinstance(part, np.ndarray) else None
                mark = zlib.crc32(repr(part).encode() if raw is None else raw.data, mark)
        return mark

"""The sites of a deployed study, reached over the coordinator's sealed line.

Every federation of a study is a `runtime.remote` coordinator over one line. The line narrows the
network to the participating sites, notes reply times and bytes, and ends at once, even during a
call, when the study is cancelled or the coordinator stops.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from fedcohort.protocol.ledger import Ledger
from fedcohort.protocol.line import Line, Silence
from fedcohort.protocol.wire import encode
from fedcohort.runtime.coordinator import Coordinator, Progress
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.remote import remote
from fedcohort.study.sites.sites import Unanswered

#: Seconds between two looks at whether a run shall end.
LOOK = 0.05


class Halt(BaseException):
    """A run must end now. Not an `Exception`, so that no arm takes it for its own failure."""


@dataclass
class Traffic:
    """Traffic between coordinator and sites during a run, for displays.

    Attributes
    ----------
    calls : exchanges begun.
    up, down : bytes from and to each site, before the engine's own framing.
    seconds : duration of each site's latest reply.
    silent : by site, why it did not answer the latest exchange.
    session, round, rounds, step : position of the program.
    answered, asked : of the latest call.
    """

    calls: int = 0
    up: dict[str, int] = field(default_factory=dict[str, int])
    down: dict[str, int] = field(default_factory=dict[str, int])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    silent: dict[str, str] = field(default_factory=dict[str, str])
    session: str = ""
    round: int = 0
    rounds: int = 0
    step: str = ""
    answered: int = 0
    asked: int = 0

    def progress(self) -> dict[str, Any]:
        """Return where the run is, for a message."""
        return {
            "calls": self.calls, "up": sum(self.up.values()), "down": sum(self.down.values()),
            "session": self.session, "round": self.round, "rounds": self.rounds,
            "step": self.step, "answered": self.answered, "asked": self.asked,
        }  # fmt: skip


class Watched:
    """A counted, stoppable line to some sites of another line.

    Parameters
    ----------
    line : to all sites.
    names : the participating sites.
    halted : whether the run must end; asked often.
    """

    def __init__(
        self, line: Line, names: Sequence[str], traffic: Traffic, halted: Callable[[], bool]
    ):
        self._line = line
        self._names = tuple(sorted(names))
        self._traffic = traffic
        self._halted = halted

    def among(self, names: Sequence[str]) -> Watched:
        """Return the line to some of its sites."""
        return Watched(self._line, names, self._traffic, self._halted)

    @property
    def sites(self) -> Sequence[str]:
        """See `Line`: those that take part."""
        return self._names

    @property
    def connected(self) -> frozenset[str]:
        """See `Line`."""
        return self._line.connected & frozenset(self._names)

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        """See `Line`.

        Raises
        ------
        Halt : the run shall end; replies that are still under way are left alone.
        """
        if self._halted():
            raise Halt
        traffic, began = self._traffic, time.monotonic()
        traffic.calls += 1
        for site, blob in requests.items():
            traffic.down[site] = traffic.down.get(site, 0) + len(blob)
        for site, reply in self._as_they_come(requests, timeout):
            if isinstance(reply, Silence):
                traffic.silent[site] = reply.text
            else:
                traffic.silent.pop(site, None)
                traffic.up[site] = traffic.up.get(site, 0) + len(reply)
                traffic.seconds[site] = time.monotonic() - began
            yield site, reply

    def _as_they_come(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        """Yield replies from a thread that may be left behind."""
        found: queue.SimpleQueue[tuple[str, bytes | Silence] | BaseException] = queue.SimpleQueue()

        def work() -> None:
            try:
                for pair in self._line.exchange(requests, timeout):
                    found.put(pair)
            except BaseException as error:
                found.put(error)

        threading.Thread(target=work, daemon=True, name="exchange").start()
        left = len(requests)
        while left:
            try:
                item = found.get(timeout=LOOK)
            except queue.Empty:
                if self._halted():
                    raise Halt from None
                continue
            if isinstance(item, BaseException):
                raise item
            left -= 1
            yield item


class RemoteSites:
    """The sites of a study over a network: their names, and federations over them.

    Parameters
    ----------
    line : to the participating sites.
    run : the study's hash.
    timeout : seconds after which a silent site counts as missing.
    absent : by name, why a site of the network takes no part; part of the results.
    pinned : returns the public signing keys of the network's sites.
    consents : why each site that withdrew after a ranking did so; None where they were not asked.
    withdrew : hears which sites withdrew, once the study goes on without them.
    """

    noise = "system"

    def __init__(
        self,
        line: Watched,
        run: str,
        traffic: Traffic,
        timeout: float,
        absent: Mapping[str, str] | None = None,
        pinned: Callable[[], Mapping[str, bytes]] = dict,
        consents: Mapping[str, str] | None = None,
        withdrew: Callable[[Mapping[str, str]], None] = lambda gone: None,
    ):
        self._consents, self._withdrew = consents, withdrew
        self._line = line
        self._run = run
        self._traffic = traffic
        self._timeout = timeout
        self.absent = dict(absent or {})
        self._pinned = pinned

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites that take part, sorted."""
        return tuple(self._line.sites)

    def federation(
        self,
        session: str,
        *,
        quorum: float = 1.0,
        ledger: Ledger | None = None,
        journal: Journal | None = None,
        observer: Callable[[Progress], None] | None = None,
        secure: str = "auto",
    ) -> Coordinator:
        """Return one federation of the study; `session` names it to the sites."""
        traffic = self._traffic
        traffic.session, traffic.round, traffic.rounds = session, 0, 0
        traffic.step, traffic.answered, traffic.asked = "", 0, 0

        def observe(progress: Progress) -> None:
            traffic.round, traffic.rounds = progress.round, progress.rounds
            traffic.step = progress.step
            traffic.answered, traffic.asked = progress.answered, progress.asked
            if observer is not None:
                observer(progress)

        return remote(
            self._line,
            self._run,
            session,
            quorum=quorum,
            ledger=ledger,
            journal=journal,
            observer=observe,
            timeout=self._timeout,
            secure=secure,
            masks=None if secure == "false" else self._pinned(),
        )

    def close(self, session: str) -> None:
        """Tell the sites that a federation is over; one that does not hear it forgets by itself."""
        blob = encode({}, {"kind": "close", "run": self._run, "session": session})
        here = [n for n in self._line.sites if n in self._line.connected]
        for _ in self._line.exchange(dict.fromkeys(here, blob), min(5.0, self._timeout)):
            pass

    def consents(self, told: Mapping[str, str]) -> Mapping[str, str]:
        """See `Sites`.

        Raises
        ------
        Unanswered : the people at the sites have to be asked first.
        """
        if self._consents is None:
            raise Unanswered(told)
        return self._consents

    def without(self, gone: Mapping[str, str]) -> RemoteSites:
        """See `Sites`."""
        self._withdrew(gone)
        left = copy(self)
        left._line = self._line.among([n for n in self.names if n not in gone])
        left.absent = {**self.absent, **gone}
        return left

"""The sites of one fit divided among processes of this machine.

Each worker is a fork of this process, and so has the hosts, their tables, their states and what was
prepared of them; nothing is sent to start it. A call goes to it as a record of `protocol.wire`
through a pipe (`arena`), its replies come back the same way, and of an exact sum only the words of
what its sites add up to: ring words add in any order to the same bits (`secure.ring`). So all that
a fit leaves, is what the local runtime leaves, to the last bit, on one thread: here one thread a
process is used throughout, since the workers are the parallelism.

A fit begins in this process. Its calls are timed, and as soon as those so far would together have
been `START` seconds shorter if divided, taking `CALL` seconds and `BYTE` for each byte sent or
answered as the cost of dividing a call, workers are started. A fit of small calls stays in process.
Where the system cannot fork (Windows, macOS), where a GPU is in use, and in a process that may have
no children, every fit does.

A worker ends with this process, whatever ends it; if one dies, the run ends with `WorkerLost`, and
goes on from its journal and the sites' stores. Nothing listens anywhere.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fedcohort.arrays import Array
from fedcohort.protocol import views
from fedcohort.protocol.errors import SiteUnavailable
from fedcohort.protocol.federation import View
from fedcohort.protocol.host import Call, Host
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.coordinator import Coordinator, Progress
from fedcohort.runtime.intake import Part
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import Absent, LocalTransport
from fedcohort.runtime.store import StateStore
from fedcohort.runtime.team import Team, one_thread

#: Seconds that dividing must have been worth before workers are started.
START = 0.1
#: What dividing a call costs, in seconds, and what a byte of its arguments and replies does.
CALL, BYTE = 0.01, 1e-9


class DividedTransport(LocalTransport):
    """Calls the hosts one after the other, or each worker's share of them at once.

    Parameters
    ----------
    workers : the most processes.
    start : see `START`.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        store: StateStore | None = None,
        absent: Absent | None = None,
        masks: bool = False,
        *,
        workers: int,
        start: float = START,
    ):
        super().__init__(hosts, store, absent, masks)
        self._workers = min(workers, len(hosts)) if can_fork() else 1
        self._start = start
        self._took: dict[str, float] = {}
        self._cost: dict[str, float] = dict.fromkeys(self._hosts, 0.0)
        self._moved = self._gain = 0.0
        self._most = 0
        self._team: Team | None = None
        self._view: View | None = None

    @property
    def workers(self) -> Sequence[int]:
        """Return the numbers of the worker processes, if there are any."""
        return () if self._team is None else self._team.pids

    def ask(
        self, call: Call, to: Sequence[str]
    ) -> Iterator[tuple[str, dict[str, Array] | SiteUnavailable]]:
        """See `Transport`."""
        team = self._ready(call)
        if team is None:
            yield from super().ask(call, to)
            return
        self._check(call, to)
        yield from team.ask(call, to, self._kept or {})

    def add(
        self, call: Call, to: Sequence[str], weights: Mapping[str, float]
    ) -> Iterable[Part] | None:
        """See `Adding`."""
        team = self._ready(call)
        if team is None:
            return None
        self._check(call, to)
        return team.add(call, to, self._kept or {}, weights)

    def resume(self, call: Call, kept: Mapping[str, int]) -> None:
        """See `Transport`."""
        self.close()
        super().resume(call, kept)

    def close(self) -> None:
        """End the workers, and with them what their sites know."""
        if self._team is not None:
            self._team.close()
            self._team = None

    def _check(self, call: Call, to: Sequence[str]) -> None:
        """Refuse here what a host would: a worker is told the name of a step alone."""
        for name in to:
            self._hosts[name].agreed(call)

    def _answer(self, host: Host, call: Call) -> dict[str, Array]:
        began = time.perf_counter()
        reply = super()._answer(host, call)
        self._took[host.name] = time.perf_counter() - began
        size = sum(a.nbytes for a in reply.values())
        self._moved += size
        self._most = max(self._most, size, call.arguments.nbytes(host.name))
        return reply

    def _ready(self, call: Call) -> Team | None:
        """Return the workers, started now if it is time."""
        if self._team is not None or self._workers < 2:
            return self._team
        took, self._took = self._took, {}
        if took:
            shares = divided_by(took, self._workers)
            longest = max(sum(took[s] for s in share) for share in shares)
            self._gain += sum(took.values()) - longest - CALL - BYTE * self._moved
            self._moved = 0.0
            for site, seconds in took.items():
                self._cost[site] += seconds
        if self._gain < self._start or not _sendable(call.view) or _on_gpu():
            return None
        self._team = Team(self, divided_by(self._cost, self._workers), self._most, call.view)
        weakref.finalize(self, self._team.close)
        return self._team


def divided_by(cost: Mapping[str, float], workers: int) -> list[list[str]]:
    """Return the sites of each worker: the longest first, each to whoever has least so far."""
    shares: list[list[str]] = [[] for _ in range(min(workers, len(cost)))]
    loads = [0.0] * len(shares)
    for site in sorted(cost, key=lambda s: (-cost[s], s)):
        k = min(range(len(shares)), key=lambda i: (loads[i], len(shares[i])))
        shares[k].append(site)
        loads[k] += cost[site]
    return shares


def can_fork() -> bool:
    """Return whether this process can have workers that are forks of it."""
    return sys.platform == "linux" and not multiprocessing.current_process().daemon


def _sendable(view: View | None) -> bool:
    """Return whether a worker can be told a view."""
    if view is None:
        return True
    try:
        return bool(views.kind_of(view))
    except TypeError:
        return False


def _on_gpu() -> bool:
    """Return whether torch, if it is there, has begun to use a GPU, which no fork survives."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


@contextmanager
def divided(
    hosts: Sequence[Host],
    *,
    workers: int = 1,
    quorum: float = 1.0,
    ledger: Ledger | None = None,
    journal: Journal | None = None,
    store: StateStore | None = None,
    observer: Callable[[Progress], None] | None = None,
    absent: Absent | None = None,
    secure: str = "auto",
    start: float = START,
) -> Generator[Coordinator]:
    """Give a federation of sites in this process and at most so many workers; see `local`.

    With one worker it is the local runtime, and threads are left as they are.
    """
    masks = secure == "true"
    if workers < 2:
        transport = LocalTransport(hosts, store, absent, masks)
        yield Coordinator(
            transport, quorum=quorum, ledger=ledger, journal=journal, observer=observer,
            secure=secure,
        )  # fmt: skip
        return
    split = DividedTransport(hosts, store, absent, masks, workers=workers, start=start)
    with one_thread():
        try:
            yield Coordinator(
                split, quorum=quorum, ledger=ledger, journal=journal, observer=observer,
                secure=secure,
            )  # fmt: skip
        finally:
            split.close()

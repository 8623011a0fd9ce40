"""Runtime with every site in this process: the reference for every other runtime."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

from fedcohort.arrays import Array
from fedcohort.protocol.errors import (
    DataError,
    JournalMismatch,
    ReplyRejected,
    SiteUnavailable,
)
from fedcohort.protocol.federation import View
from fedcohort.protocol.host import Answer, Call, Host
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.absences import Absences
from fedcohort.runtime.coordinator import Coordinator, Progress
from fedcohort.runtime.journal import Entry, Journal
from fedcohort.runtime.masked import LocalMasks
from fedcohort.runtime.reply_store import StateStore

#: Who does not answer: a function of a call's number and a site, or absences that were drawn.
Absent = Callable[[int, str], bool] | Absences
#: Seconds of a site from which the other sites, and the next calls of the step, are answered by
#: several threads.
LONG = 0.02
#: Most sites whose replies are computed at once, which bounds memory.
MOST = 256
#: Fewest sites whose tables are seen at once, and most rows of these tables.
FEW, TOGETHER = 8, 2**15

_Reply = dict[str, Array] | SiteUnavailable


class LocalTransport:
    """Calls the hosts one after the other, or several at once if a step takes long.

    A step with a twin (`Step.many`) runs once for all hosts that are there.

    The number of threads changes no bit: replies are taken in the order of the sites, and each site
    has
    its own state and random numbers. The latest two answers with a state of each site are kept: a
    repeated call gets the first again and is never applied twice; the second undoes an answer that
    does
    not count.

    Parameters
    ----------
    hosts : the sites.
    store : keeps stateful answers for resuming; None: in memory alone.
    absent : (call number, site) → whether the site does not answer, or drawn absences; for studies
        of
        dropouts.
    masks : form sums by the real protocol between these sites.
    threads : largest number of sites that compute at once.
    alone : whether this is a fit of one site alone; it then answers steps for such a fit
        (`Step.alone`). No effect on several sites, or with consent, noise, masks or absences.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        store: StateStore | None = None,
        absent: Absent | None = None,
        masks: bool = False,
        threads: int = 1,
        alone: bool = False,
    ):
        self._hosts = {h.name: h for h in hosts}
        if not hosts:
            raise DataError("there are no sites: a federation needs at least one table.")
        if len(self._hosts) < len(hosts):
            raise DataError(f"two sites share a name among {sorted(h.name for h in hosts)}.")
        self._store = store
        self._absent = absent
        self._latest: dict[str, tuple[int, Answer]] = {}
        self._base: dict[str, tuple[int, Answer]] = {}
        self._kept: Mapping[str, int] | None = None
        self._masks = LocalMasks(sorted(self._hosts)) if masks else None
        self._threads = min(threads, len(hosts))
        self._alone = alone and len(hosts) == 1 and hosts[0].open and absent is None and not masks
        self._pools: list[ThreadPoolExecutor] = []
        self._took: dict[str, float] = {}

    @property
    def sites(self) -> Sequence[str]:
        """See `Transport`."""
        return tuple(self._hosts)

    @property
    def masks(self) -> bool:
        """See `Transport`."""
        return self._masks is not None

    @property
    def alone(self) -> bool:
        """See `Transport`."""
        return self._alone

    def total(self, call: Call, to: Sequence[str], weights: Mapping[str, float]) -> Entry:
        """See `Transport`."""
        assert self._masks is not None
        return self._masks.total(call, self.ask(call, to), to, weights)

    def ask(self, call: Call, to: Sequence[str]) -> Iterator[tuple[str, _Reply]]:
        """See `Transport`."""
        if call.view is not None:
            _look(call.view, [self._hosts[name] for name in to])
        if self._threads > 1 and self._took.get(call.step.name, 0.0) >= LONG:
            yield from self._at_once(call, to)
            return
        slowest = 0.0
        found: dict[str, Callable[[], Answer]] = {}
        for k, name in enumerate(to):
            began = time.perf_counter()
            if k % MOST == 0 and self._plain(call):
                found = self._finishing(call, to[k : k + MOST])
                began += (time.perf_counter() - began) * (1 - 1 / max(len(found), 1))
            away = self._is_away(call, name)
            reply = self._reply(call, name, away, finish=found.get(name))
            slowest = max(slowest, time.perf_counter() - began)
            yield name, reply
            if self._threads > 1 and slowest >= LONG and not found and k + 1 < len(to):
                self._took[call.step.name] = slowest
                yield from self._at_once(call, to[k + 1 :])
                return
        self._took[call.step.name] = slowest

    def _plain(self, call: Call) -> bool:
        """Return whether a step may run once for several sites: none of them holds a state."""
        return call.step.many is not None and call.arguments.common and not self._latest

    def _finishing(self, call: Call, to: Sequence[str]) -> dict[str, Callable[[], Answer]]:
        """Run a step's twin for those of `to` that are there; return how to finish each answer."""
        there = [name for name in to if not self._is_away(call, name)]
        hosts = [self._hosts[name] for name in there]
        if any(h.state is not None for h in hosts) or not hosts:
            return {}
        found = Host.answers(hosts, call, call.arguments.at(there[0]))
        return {} if found is None else dict(zip(there, found, strict=True))

    def wait(self, call: Call, to: Sequence[str]) -> int:
        """See `Waiting`; only drawn absences end by waiting."""
        return self._absent.wait(call, to) if isinstance(self._absent, Absences) else 0

    def host(self, site: str) -> Host:
        """Return the host of a site."""
        return self._hosts[site]

    def _at_once(self, call: Call, to: Sequence[str]) -> Iterator[tuple[str, _Reply]]:
        """Yield each site's reply in the order of `to`, with one thread per computing site.

        At most `threads` replies wait to be read, which bounds memory. Sites take the threads in
        turn, so that a thread begins its next step when its last reply has been read: that reply
        may be lent.
        """
        if not self._pools:
            self._pools = [
                ThreadPoolExecutor(1, f"site-{k}", _one_thread_here) for k in range(self._threads)
            ]
        rest, ahead = deque(enumerate(to)), deque[tuple[str, Future[_Reply]]]()
        try:
            while rest or ahead:
                while rest and len(ahead) < self._threads:
                    k, name = rest.popleft()
                    away, pool = self._is_away(call, name), self._pools[k % self._threads]
                    ahead.append((name, pool.submit(self._reply, call, name, away)))
                name, reply = ahead.popleft()
                yield name, reply.result()
        finally:
            wait([reply for _, reply in ahead])

    def _reply(
        self, call: Call, name: str, away: bool, finish: Callable[[], Answer] | None = None
    ) -> _Reply:
        if away:
            return SiteUnavailable(f"site {name!r} did not answer {call.step.name}.")
        try:
            if finish is not None:
                return finish().reply
            return self._answer(self._hosts[name], call)
        except ReplyRejected as error:
            return error

    def _is_away(self, call: Call, site: str) -> bool:
        if isinstance(self._absent, Absences):
            return self._absent.misses(call, site)
        return self._absent is not None and self._absent(call.number, site)

    def _answer(self, host: Host, call: Call) -> dict[str, Array]:
        number, latest = self._latest.get(host.name, (-1, None))
        if latest is not None and number == call.number:
            return latest.reply
        if self._kept is not None and latest is not None and self._kept.get(host.name) != number:
            self._undo(host, self._kept.get(host.name))
        # An exact sum has added a large reply before this thread asks the next site (`Replies`).
        lent = bool(call.among) and self._masks is None
        answer = host.answer(call, call.arguments.at(host.name), lent=lent, alone=self._alone)
        if answer.state is not None:
            if self._store is not None:
                self._store.save(host.name, call.number, answer)
            if host.name in self._latest:
                self._base[host.name] = self._latest[host.name]
            self._latest[host.name] = (call.number, answer)
            host.state = answer.state
        return answer.reply

    def _undo(self, host: Host, due: int | None) -> None:
        """Restore a site's state of call `due`, the last that counts, if the latest does not."""
        number, _ = self._latest.pop(host.name)
        base = self._base.pop(host.name, None)
        if due is not None and (base is None or base[0] != due):
            raise JournalMismatch(
                f"site {host.name!r} holds the state of call {number}, which does not count, and "
                f"not that of call {due}. Start again without --resume."
            )
        host.state = host.first
        if base is not None and due is not None:
            host.state, self._latest[host.name] = base[1].state, base
            if self._store is not None:
                self._store.save(host.name, *base)
        elif self._store is not None:
            self._store.forget(host.name)

    def resume(self, call: Call, kept: Mapping[str, int]) -> None:
        """See `Transport`; states come from the store."""
        self._latest.clear()
        self._base.clear()
        self._kept = kept
        for name, host in self._hosts.items():
            host.state = host.first
            if self._store is not None and call.number == 0:
                self._store.forget(name)
            held = None if self._store is None else self._store.load(name)
            due = kept.get(name)
            if held is None and due is None:
                continue
            last = call.number if call.step.keeps else call.number - 1
            if held is None or not (due or 0) <= held[0] <= last:
                found = "no state" if held is None else f"the state of call {held[0]}"
                raise JournalMismatch(
                    f"site {name!r} holds {found}, but the journal ends before call {call.number} "
                    f"and needs that of call {due}. Start again without --resume."
                )
            self._latest[name] = held
            host.state = held[1].state


def _look(view: View, hosts: Sequence[Host]) -> None:
    """Let small sites see their tables through a view, many at once if it can (`many`).

    A result has the same bits as a site's own. Where the view cannot, or fails, each site looks by
    itself when it is asked.
    """
    many: Callable[[list[Any]], list[Any] | None] | None = getattr(view, "many", None)
    if many is None or len(hosts) < FEW or hosts[-1].sees(view):
        return
    waiting: list[tuple[Host, Any]] = []
    rows = 0
    for host in hosts:
        data = host.data_through(None) if host.open and not host.sees(view) else None
        if data is None or len(data) > TOGETHER:
            continue
        if rows + len(data) > TOGETHER:
            if not _looked(view, many, waiting):
                return
            waiting, rows = [], 0
        waiting.append((host, data))
        rows += len(data)
    if waiting:
        _looked(view, many, waiting)


def _looked(
    view: View, many: Callable[[list[Any]], list[Any] | None], waiting: list[tuple[Host, Any]]
) -> bool:
    """Show these sites the view of their tables; return whether the view could."""
    began = time.thread_time()
    try:
        found = many([data for _, data in waiting])
    except Exception:  # each site then fails, or not, by itself, with an error that names it
        return False
    if found is None:
        return False
    share = (time.thread_time() - began) / len(waiting)
    for (host, _), seen in zip(waiting, found, strict=True):
        host.show(view, seen, share)
    return True


def local(
    hosts: Sequence[Host],
    *,
    quorum: float = 1.0,
    ledger: Ledger | None = None,
    journal: Journal | None = None,
    store: StateStore | None = None,
    observer: Callable[[Progress], None] | None = None,
    absent: Absent | None = None,
    secure: str = "auto",
    threads: int = 1,
    alone: bool = False,
) -> Coordinator:
    """Return a federation of sites in this process; see `Coordinator` and `LocalTransport`.

    With `secure` "true" sums are masked; with "auto" they are exact: nobody can look.
    """
    transport = LocalTransport(
        hosts, store, absent, masks=secure == "true", threads=threads, alone=alone
    )
    return Coordinator(
        transport, quorum=quorum, ledger=ledger, journal=journal, observer=observer, secure=secure
    )


@contextmanager
def one_thread() -> Generator[None]:
    """Compute on one thread, including PyTorch's oneMKL, which no other library controls.

    Matrix products on several threads round differently.
    """
    torch: Any = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    with threadpool_limits(1):
        try:
            _one_thread_here()
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


def _one_thread_here() -> None:
    """Let PyTorch compute on one thread where it is called from this one."""
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)

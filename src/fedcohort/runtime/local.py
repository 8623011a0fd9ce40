"""Run every site in this process: the reference that every other runtime must equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from fedcohort.arrays import Array
from fedcohort.protocol.errors import DataError, JournalMismatch, SiteUnavailable
from fedcohort.protocol.host import Answer, Call, Host
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.coordinator import Coordinator, Progress
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.store import StateStore


class LocalTransport:
    """Calls the hosts one after the other.

    The latest answer with a state of each site is remembered, and is given again when its call
    is repeated: a retried call is never applied twice.

    Parameters
    ----------
    hosts : the sites.
    store : where stateful answers are kept for resuming; None keeps them in memory alone.
    absent : (call number, site) → whether the site does not answer; for studies of dropouts.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        store: StateStore | None = None,
        absent: Callable[[int, str], bool] | None = None,
    ):
        self._hosts = {h.name: h for h in hosts}
        if not hosts:
            raise DataError("there are no sites: a federation needs at least one table.")
        if len(self._hosts) < len(hosts):
            raise DataError(f"two sites share a name among {sorted(h.name for h in hosts)}.")
        self._store = store
        self._absent = absent
        self._latest: dict[str, tuple[int, Answer]] = {}

    @property
    def sites(self) -> Sequence[str]:
        """See `Transport`."""
        return tuple(self._hosts)

    def ask(
        self, call: Call, to: Sequence[str]
    ) -> Iterator[tuple[str, dict[str, Array] | SiteUnavailable]]:
        """See `Transport`."""
        for name in to:
            if self._absent is not None and self._absent(call.number, name):
                yield name, SiteUnavailable(f"site {name!r} did not answer {call.step.name}.")
                continue
            yield name, self._answer(self._hosts[name], call)

    def _answer(self, host: Host, call: Call) -> dict[str, Array]:
        number, latest = self._latest.get(host.name, (-1, None))
        if latest is not None and number == call.number:
            return latest.reply
        answer = host.answer(call, call.arguments.at(host.name))
        if answer.state is not None:
            if self._store is not None:
                self._store.save(host.name, call.number, answer)
            self._latest[host.name] = (call.number, answer)
            host.state = answer.state
        return answer.reply

    def resume(self, call: Call, kept: Mapping[str, int]) -> None:
        """See `Transport`; states come from the store."""
        self._latest.clear()
        for name, host in self._hosts.items():
            host.state = None
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


def local(
    hosts: Sequence[Host],
    *,
    quorum: float = 1.0,
    ledger: Ledger | None = None,
    journal: Journal | None = None,
    store: StateStore | None = None,
    observer: Callable[[Progress], None] | None = None,
    absent: Callable[[int, str], bool] | None = None,
) -> Coordinator:
    """Return a federation of sites in this process; see `Coordinator` and `LocalTransport`."""
    transport = LocalTransport(hosts, store, absent)
    return Coordinator(transport, quorum=quorum, ledger=ledger, journal=journal, observer=observer)

"""Run every site in this process: the reference that every other runtime must equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fedcohort.arrays import Array
from fedcohort.protocol.errors import DataError, SiteUnavailable
from fedcohort.protocol.federation import at
from fedcohort.protocol.host import Call, Host
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.coordinator import Coordinator, Progress
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.store import StateStore


class LocalTransport:
    """Calls the hosts one after the other.

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

    @property
    def sites(self) -> Sequence[str]:
        return tuple(self._hosts)

    def ask(
        self, call: Call, to: Sequence[str]
    ) -> Iterator[tuple[str, dict[str, Array] | SiteUnavailable]]:
        for name in to:
            if self._absent is not None and self._absent(call.number, name):
                yield name, SiteUnavailable(f"site {name!r} did not answer {call.step.name}.")
                continue
            yield name, self._answer(self._hosts[name], call)

    def _answer(self, host: Host, call: Call) -> dict[str, Array]:
        stateful = call.step.state is not None
        if stateful and self._store is not None:
            kept = self._store.load(host.name)
            if kept is not None and kept[0] == call.number:
                host.state = kept[1].state
                return kept[1].reply
        answer = host.answer(call, at(host.name, call.arguments))
        if answer.state is not None:
            if self._store is not None:
                self._store.save(host.name, call.number, answer)
            host.state = answer.state
        return answer.reply

    def resume_at(self, call: int) -> None:
        """Load the sites' states; one that already answered `call` is left for `ask` to see."""
        if self._store is None:
            return
        for name, host in self._hosts.items():
            kept = self._store.load(name)
            if kept is not None and kept[0] < call:
                host.state = kept[1].state


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

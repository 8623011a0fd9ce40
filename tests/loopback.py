"""A line within one process: every byte as on a network, and its faults on demand.

For tests and rehearsals. Sites answer one after the other; no time passes in a fault, so that what
takes minutes on a network (a lost reply, a site that is away) is over at once here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum

from fedcohort.protocol.line import Answering, Silence


class Fault(Enum):
    """What happens to one request and its reply.

    Attributes
    ----------
    DOWN : the site is not connected.
    REQUEST_LOST, REPLY_LOST : either is lost on its way.
    TWICE : the request arrives twice; the second reply comes back.
    LATE : the request arrives only after the next one to this site; its reply is lost.
    """

    DOWN = "down"
    REQUEST_LOST = "request lost"
    REPLY_LOST = "reply lost"
    TWICE = "twice"
    LATE = "late"


class LoopbackLine:
    """A `Line` to sites of this process.

    Parameters
    ----------
    ends : by site, what answers its requests.
    fault : (site, request) → what goes wrong with it, or None.
    """

    def __init__(
        self,
        ends: Mapping[str, Answering],
        fault: Callable[[str, bytes], Fault | None] | None = None,
    ):
        self._ends = dict(ends)
        self._fault = fault
        self._late: dict[str, list[bytes]] = {}

    @property
    def sites(self) -> Sequence[str]:
        """See `Line`."""
        return tuple(sorted(self._ends))

    @property
    def connected(self) -> frozenset[str]:
        """See `Line`."""
        return frozenset(self._ends)

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        """See `Line`."""
        for site, request in requests.items():
            yield site, self._pass(site, request)

    def _pass(self, site: str, request: bytes) -> bytes | Silence:
        fault = self._fault(site, request) if self._fault is not None else None
        if fault is Fault.DOWN:
            return Silence("not connected", late=False)
        if fault is Fault.REQUEST_LOST:
            return Silence("no reply")
        waiting = self._late.pop(site, [])
        if fault is Fault.LATE:
            self._late[site] = [*waiting, request]
            return Silence("no reply")
        reply = self._ends[site](request)
        for late in waiting:
            self._ends[site](late)
        if fault is Fault.TWICE:
            reply = self._ends[site](request)
        return Silence("no reply") if fault is Fault.REPLY_LOST else reply

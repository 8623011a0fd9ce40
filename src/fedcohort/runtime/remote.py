"""Sites on other machines: the coordinator's calls over any `Line`.

All sites of a call are asked at once. A silent site is asked again until the call's time is over: a
node restarted in time answers, from its store if it answered before. Otherwise it is missing for
this call, and the quorum decides. Replies are taken in the order of the sites, so sums are
bit-equal to the local runtime's.

Each request names the call whose state counts at its site (`base`, see `calls`): a site whose reply
came too late continues as if it had not been asked.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from fedcohort.arrays import Array
from fedcohort.protocol.errors import (
    FedcohortError,
    Refused,
    ReplyRejected,
    SiteFailed,
    SiteUnavailable,
)
from fedcohort.protocol.host import Call
from fedcohort.protocol.ledger import Ledger
from fedcohort.protocol.line import LARGEST, Line, Silence
from fedcohort.runtime.calls import Requests, read_reply
from fedcohort.runtime.coordinator import Coordinator, Progress
from fedcohort.runtime.journal import Entry, Journal
from fedcohort.runtime.masked import MaskedSums

#: Seconds until a silent site is asked again, doubled each time.
PATIENCE = 5.0
#: First and longest pause in seconds before sites that are not connected are tried again.
PAUSE, LONGEST = 0.01, 1.0

Outcome = dict[str, Array] | FedcohortError
T = TypeVar("T")


class RemoteTransport:
    """Carries calls over a line; see `Transport`.

    Parameters
    ----------
    line : to the sites.
    run, session : names of the study and of this federation in it.
    history : drawn anew for each run from the beginning; see `calls`.
    timeout : seconds after which a silent site counts as missing for a call.
    cap : largest request or reply, in bytes.
    patience : seconds until a silent site is asked again, doubled each time.
    masks : the sites' public signing keys, for masked sums (`masked.remote`); None: no masks.
    """

    def __init__(
        self,
        line: Line,
        run: str,
        session: str,
        history: str,
        *,
        timeout: float = 60.0,
        cap: int = LARGEST,
        patience: float = PATIENCE,
        masks: Mapping[str, bytes] | None = None,
    ):
        self._line = line
        self.head = (run, session, history)
        self._timeout = timeout
        self.cap = cap
        self._patience = patience
        self._kept: Mapping[str, int] = {}
        self._told: dict[str, set[str]] = {}
        self._away: set[str] = set()
        self._sums = None if masks is None else MaskedSums(self, masks)

    @property
    def sites(self) -> Sequence[str]:
        """See `Transport`."""
        return tuple(self._line.sites)

    @property
    def alone(self) -> bool:
        """See `Transport`; never, because replies leave a process."""
        return False

    @property
    def masks(self) -> bool:
        """See `Transport`."""
        return self._sums is not None

    def total(self, call: Call, to: Sequence[str], weights: Mapping[str, float]) -> Entry:
        """See `Transport`."""
        assert self._sums is not None
        return self._sums.total(call, to, weights)

    def held(self, call: Call, members: Sequence[str]) -> tuple[str, ...]:
        """Return the members that have a state, for a call that reads one; else ()."""
        reads = call.step.state is not None
        return tuple(sorted(s for s in members if s in self._kept)) if reads else ()

    def resume(self, call: Call, kept: Mapping[str, int]) -> None:
        """See `Transport`; each request names its base state, which the site checks."""
        self._kept = kept

    def ask(
        self, call: Call, to: Sequence[str]
    ) -> Iterator[tuple[str, dict[str, Array] | SiteUnavailable]]:
        """See `Transport`."""
        due, came = list(to), dict[str, Outcome]()
        for site, outcome in self._outcomes(call, to):
            came[site] = outcome
            while due and due[0] in came:
                first = due.pop(0)
                found = came.pop(first)
                if isinstance(found, FedcohortError) and not isinstance(found, SiteUnavailable):
                    raise found
                yield first, found

    def _outcomes(self, call: Call, to: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
        """Yield the outcome of each site's own request, as it comes."""
        requests = self.requests(call, len(to))
        return self.exchanged(
            {site: requests.to(site, told=self.tell(site, requests.mark)) for site in to},
            lambda site, reply: read_reply(reply, site, self.head[2], call, self.cap),
            call.step.name,
            lambda site: requests.to(site, told=False),
        )

    def requests(self, call: Call, asked: int) -> Requests:
        """Return the requests of a call to n sites."""
        return Requests(self.head, call, self._kept, self.cap, asked)

    def exchanged(
        self,
        due: dict[str, bytes],
        read: Callable[[str, bytes], T | None],
        what: str,
        whole: Callable[[str], bytes] | None = None,
    ) -> Iterator[tuple[str, T | FedcohortError]]:
        """Ask sites until each has answered or the call's time is over; yield the outcomes.

        Parameters
        ----------
        due : by site, its request.
        read : (site, reply) → its content; None: the site lacks the text of the view.
        what : name of the request, for the line about silent sites.
        whole : site → its request with that text.
        """
        end = time.monotonic() + self._timeout
        patience, pause = self._patience, PAUSE
        repeated: set[str] = set()
        while due:
            again: dict[str, bytes] = {}
            why: dict[str, str] = {}
            heard: set[str] = set()
            wanting: set[str] = set()
            wait = max(0.0, min(patience, end - time.monotonic()))
            for site, reply in self._line.exchange(due, wait):
                if site not in due or site in heard:
                    continue
                heard.add(site)
                if isinstance(reply, Silence):
                    why[site] = reply.text
                    if not reply.late and site in self._away:
                        yield site, self._missing(site, what, reply.text)
                    else:
                        again[site] = due[site]
                    continue
                outcome = _read(site, reply, read)
                self._away.discard(site)
                if outcome is None and (site in repeated or whole is None):
                    yield site, SiteFailed(f"site {site!r} does not take the view it asks for.")
                elif outcome is None and whole is not None:
                    repeated.add(site)
                    wanting.add(site)
                    again[site] = whole(site)
                elif outcome is not None:
                    yield site, outcome
            again |= {site: due[site] for site in due if site not in heard}
            if again and time.monotonic() >= end:
                for site in again:
                    yield site, self._missing(site, what, why.get(site, "no reply"))
                return
            if set(again) - wanting:
                time.sleep(max(0.0, min(pause, end - time.monotonic())))
                pause = min(2 * pause, LONGEST)
            due, patience = again, 2 * patience

    def tell(self, site: str, mark: str) -> bool:
        """Return whether a site has the view of that mark, and note that it has it now."""
        told = self._told.setdefault(site, set())
        known = not mark or mark in told
        told.add(mark)
        return known

    def _missing(self, site: str, what: str, why: str) -> SiteUnavailable:
        self._away.add(site)
        return SiteUnavailable(f"site {site!r} did not answer {what}: {why}.")


def _read(
    site: str, reply: bytes, read: Callable[[str, bytes], T | None]
) -> T | FedcohortError | None:
    """Return a reply's content or its error; None: it lacks the view's text."""
    try:
        return read(site, reply)
    except ReplyRejected as error:
        return error
    except SiteUnavailable as error:  # a site has no say in whether it answered
        return Refused("malformed", str(error))
    except FedcohortError as error:
        return error


def remote(
    line: Line,
    run: str,
    session: str,
    *,
    quorum: float = 1.0,
    ledger: Ledger | None = None,
    journal: Journal | None = None,
    observer: Callable[[Progress], None] | None = None,
    timeout: float = 60.0,
    cap: int = LARGEST,
    patience: float = PATIENCE,
    secure: str = "auto",
    masks: Mapping[str, bytes] | None = None,
) -> Coordinator:
    """Return a federation of the sites of a line; see `Coordinator` and `RemoteTransport`.

    Parameters
    ----------
    masks : the sites' public signing keys, for masked sums; None: no masks.
    """
    history = secrets.token_hex(16) if journal is None else journal.history()
    transport = RemoteTransport(
        line, run, session, history, timeout=timeout, cap=cap, patience=patience,
        masks=masks,
    )  # fmt: skip
    return Coordinator(
        transport, quorum=quorum, ledger=ledger, journal=journal, observer=observer, secure=secure
    )

"""One exchange of a `caller`: several parties at once, each at its own stage of a `channel`."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedcohort.network import seal
from fedcohort.network.seal import Sealing
from fedcohort.network.trust import Peer
from fedcohort.protocol.errors import Refused
from fedcohort.runtime.line import Silence

if TYPE_CHECKING:
    from fedcohort.network.caller import Caller

#: How often a call is sent to one site within one exchange.
TRIES = 3
#: Seconds that a lane of its own may be late by.
GRACE = 0.5


@dataclass(frozen=True)
class Refusal(Silence):
    """A silence whose reason is known: one side does not accept the other, or a message.

    Attributes
    ----------
    code : one word for it, as `Refused.code`.
    """

    code: str = "refused"


@dataclass
class Hello:
    """A hello that was sent."""

    private: X25519PrivateKey
    signed: seal.Signed


@dataclass
class Open:
    """One session at its caller."""

    sealing: Sealing
    born: float
    peer: Peer
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> int:
        """Return a counter that was not used."""
        with self.lock:
            self.count += 1
            return self.count


@dataclass
class Sealed:
    """A call that was sent."""

    session: Open
    counter: int


class Exchange:
    """One exchange: several sites at once, each at its own stage."""

    def __init__(self, caller: Caller, requests: Mapping[str, bytes], timeout: float):
        self._caller, self._requests, self._timeout = caller, dict(requests), timeout
        self._end = time.monotonic() + timeout
        self._done: queue.SimpleQueue[tuple[str, bytes | Silence]] = queue.SimpleQueue()
        self._sent: dict[str, Hello | Sealed] = {}
        self._tries = dict.fromkeys(self._requests, 0)

    def run(self) -> Iterator[tuple[str, bytes | Silence]]:
        """Yield each site once. Sites with a session are asked here, others in lanes."""
        ready: dict[str, bytes] = {}
        for site, body in self._requests.items():
            if (refused := self._caller.too_long(site, body)) is not None:
                self._done.put((site, refused))
            elif (blob := self._sealed(site)) is not None:
                ready[site] = blob
            else:
                self._lane(site)
        waiting = set(self._requests)
        for site, found in self._settled(ready) if ready else ():
            waiting.discard(site)
            yield site, found
            while not self._done.empty():
                site, found = self._done.get()
                waiting.discard(site)
                yield site, found
        while waiting:
            try:
                left = max(self._end - time.monotonic(), 0) + GRACE
                site, found = self._done.get(timeout=left)
            except queue.Empty:
                break
            waiting.discard(site)
            yield site, found
        for site in sorted(waiting):
            late = isinstance(self._sent.get(site), Sealed)
            yield site, Silence(f"{site}: no answer within {self._timeout:g} s", late=late)

    def _sealed(self, site: str) -> bytes | None:
        """Return a site's body under seal, and remember that; None if there is no session."""
        made = self._caller.sealed(site, self._requests[site])
        if made is None:
            return None
        self._sent[site], blob = made
        self._tries[site] += 1
        return blob

    def _lane(self, site: str) -> None:
        """Go on with one site in a thread of its own: a hello if there is no session, or the call.

        A hello of another call that is under way is waited for.
        """

        def work() -> None:
            blob, greeting = self._sealed(site), self._caller.greeting(site)
            if blob is None:
                if not greeting.acquire(timeout=max(self._end - time.monotonic(), 0.0)):
                    return
                try:
                    blob = self._sealed(site)
                    if blob is None:
                        self._sent[site], blob = self._caller.hello(site)
                        self._tell({site: blob})
                        return
                finally:
                    greeting.release()
            self._tell({site: blob})

        threading.Thread(target=work, daemon=True, name="fedcohort-channel").start()

    def _tell(self, batch: dict[str, bytes]) -> None:
        """Ask some sites, and note which are done."""
        for pair in self._settled(batch):
            self._done.put(pair)

    def _settled(self, batch: dict[str, bytes]) -> Iterator[tuple[str, bytes | Silence]]:
        """Yield sites that are done; those that are not go on in a new lane."""
        open_ = set(batch)
        try:
            left = max(self._end - time.monotonic(), 0.0)
            for site, answer in self._caller.line.exchange(batch, left):
                if site not in open_:
                    continue
                open_.discard(site)
                found = self._settle(site, answer)
                if found is None:
                    self._lane(site)
                else:
                    yield site, found
        except Exception as error:
            kind = type(error).__name__
            for site in sorted(open_):
                yield site, Silence(f"{site}: the engine failed ({kind})", late=True)

    def _settle(self, site: str, answer: bytes | Silence) -> bytes | Silence | None:
        """Return what is known of a site; None where the body is to be sent (again)."""
        sent, caller = self._sent[site], self._caller
        late = isinstance(sent, Sealed)
        if isinstance(answer, Silence):
            return answer if late else Silence(answer.text, late=False)
        try:
            if seal.kind(answer) == seal.REFUSAL:
                return self._refused(site, sent, answer)
            if isinstance(sent, Hello):
                caller.welcomed(site, sent, answer)
                return None
            return caller.opened(site, sent, answer)
        except Refused as error:
            return caller.refusal(site, error.code, str(error), late=late)

    def _refused(self, site: str, sent: Hello | Sealed, blob: bytes) -> Silence | None:
        """Return a refusal without a seal; None where it is cured by sending anew."""
        code = _code(blob)
        if isinstance(sent, Sealed) and code in ("no key", "replayed"):
            if code == "no key":
                self._caller.forget(site, sent.session)
            if self._tries[site] < TRIES:
                return None
        return self._caller.told(site, blob, late=isinstance(sent, Sealed) and code != "oversized")


def _code(blob: bytes) -> str:
    """Return the code of a refusal; an empty text where it is malformed."""
    try:
        return seal.read_refusal(blob)[0]
    except Refused:
        return ""

"""The caller's end of a `channel`: says hello, seals calls, opens replies.

One exchange asks several parties at once, each at its own stage.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedcohort.protocol.errors import Refused
from fedcohort.protocol.line import LARGEST, Line, Silence
from fedcohort.secure.channel import seal
from fedcohort.secure.channel.rate_limit import Log, RateLimit
from fedcohort.secure.channel.seal import LIFETIME, MESSAGES, Party, Sealing
from fedcohort.secure.trust import Peer, Trust
from fedcohort.version import VERSION

_log = logging.getLogger("fedcohort.network")
#: How often a call is sent to one site within one exchange.
TRIES = 3
#: Seconds that a lane of its own may be late by.
GRACE = 0.5


@dataclass(frozen=True)
class Refusal(Silence):
    """A silence with a known reason: one side does not accept the other, or a message.

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


class Caller(Line):
    """A `Line` whose messages are sealed from end to end over another line.

    Both lines' `exchange` may be called from several threads. A refusal is yielded as a `Refusal`,
    a
    kind of `Silence`, whose text names site and reason.

    Parameters
    ----------
    kit, trust : this party, and the authority it trusts. A coordinator calls sites by their names;
        others call the coordinator.
    line : the engine's.
    cap : largest body, in bytes, either way.
    log : gets one line for each refusal, besides the reply.
    """

    def __init__(
        self,
        kit: Party,
        trust: Trust,
        line: Line,
        *,
        cap: int = LARGEST,
        log: Log = _log.info,
        version: str = VERSION,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._name, self._network, self._version = kit.name, trust.network, version
        self._key, self._certificate = kit.private_key(), kit.certificate.read_text("ascii")
        self._role = "site" if kit.role == "coordinator" else "coordinator"
        self._trust, self._revoked, self._line = trust, kit.revoked, line
        self._cap, self._clock = cap, clock
        self._log = RateLimit(log)
        self._sessions: dict[str, Open] = {}
        self._greeting: dict[str, threading.Lock] = {}

    @property
    def sites(self) -> Sequence[str]:
        """Names of all sites of the line, connected or not."""
        return self._line.sites

    @property
    def connected(self) -> frozenset[str]:
        """Names of the sites that the line reaches now."""
        return self._line.connected

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        """Send each named site its request, sealed; yield replies as they come."""
        return _Exchange(self, requests, timeout).run()

    def too_long(self, site: str, body: bytes) -> Refusal | None:
        """Return why a body cannot be sent, if it is too long."""
        if len(body) <= self._cap:
            return None
        text = f"a call of {len(body)} bytes; {self._cap} are allowed."
        return self.refusal(site, "oversized", text, late=False)

    def sealed(self, site: str, body: bytes) -> tuple[Sealed, bytes] | None:
        """Return a body under seal; None if there is no session that may go on."""
        session = self._sessions.get(site)
        if session is None or (
            session.count >= MESSAGES or self._clock() - session.born >= LIFETIME
        ):
            return None
        try:
            self._trust.check_dates(session.peer.certificate)
        except Refused:
            return None
        sent = Sealed(session, session.next())
        return sent, session.sealing.seal(seal.CALL, sent.counter, body)

    def greeting(self, site: str) -> threading.Lock:
        """Return the lock on a hello to a site, so that simultaneous calls share one."""
        return self._greeting.setdefault(site, threading.Lock())

    def hello(self, site: str) -> tuple[Hello, bytes]:
        """Return a hello to a site."""
        private = X25519PrivateKey.generate()
        hello = seal.signed(
            seal.HELLO,
            {
                "certificate": self._certificate,
                "from": self._name,
                "key": private.public_key().public_bytes_raw().hex(),
                "network": self._network,
                "nonce": os.urandom(32).hex(),
                "to": site,
                "version": self._version,
            },
            self._key,
            seal.HELLO_PURPOSE,
        )
        return Hello(private, hello), hello.blob

    def welcomed(self, site: str, sent: Hello, blob: bytes) -> None:
        """Take a welcome and begin a session.

        Raises
        ------
        Refused : it is none, or not that of the site.
        """
        if seal.kind(blob) != seal.WELCOME:
            raise Refused("malformed", "what came is no welcome.")
        welcome = seal.read_signed(blob)
        says = welcome.says
        peer = self._trust.verify(says["certificate"], (self._role,), site)
        if peer.certificate.fingerprint in self._revoked:
            raise Refused("revoked", f"the certificate of {site!r} was taken back.")
        if not welcome.by(peer.certificate, seal.welcome_context(sent.signed.blob)):
            raise Refused("forged", f"the welcome was not signed by {site!r}, or is an old one.")
        if says["from"] != site or says["to"] != self._name:
            raise Refused("name", "the welcome is between other parties.")
        if not seal.compatible(self._version, says["version"]):
            raise Refused(
                "version",
                f"it runs fedcohort {says['version']}, and this is {self._version}; the first two "
                f"numbers must agree: "
                f"{seal.upgrade(self._version, self._name, says['version'], site)}.",
            )
        session, public = bytes.fromhex(says["session"]), bytes.fromhex(says["key"])
        sealing = Sealing.derive(session, sent.private, public, sent.signed.blob, welcome.blob)
        self._sessions[site] = Open(sealing, self._clock(), peer)

    def opened(self, site: str, sent: Sealed, blob: bytes) -> bytes | Refusal:
        """Open a reply, or a refusal under seal.

        Raises
        ------
        Refused : it is neither, or it belongs to another call.
        """
        if len(blob) > self._cap + seal.OVERHEAD:
            raise Refused("oversized", f"a reply of {len(blob)} bytes; {self._cap} are allowed.")
        which = seal.kind(blob)
        name, counter = seal.address(blob)
        if which not in (seal.REPLY, seal.DENIAL):
            raise Refused("malformed", "what came is no reply.")
        if name != sent.session.sealing.session or counter != sent.counter:
            raise Refused("replayed", "a reply that belongs to another call.")
        body = sent.session.sealing.open(blob)
        if which == seal.REPLY:
            return body
        code, text = seal.read_denial(body)
        return self.refusal(site, code, text, late=code == "failed")

    def forget(self, site: str, session: Open) -> None:
        """Forget a session that the site does not know any longer."""
        if self._sessions.get(site) is session:
            self._sessions.pop(site, None)

    def refusal(self, site: str, code: str, text: str, *, late: bool) -> Refusal:
        """Return a refusal, and log its line."""
        line = f"{site}: {text}"
        self._log(f"{self._name}: {line} ({code})")
        return Refusal(line, late=late, code=code)

    def unsealed_refusal(self, site: str, blob: bytes, *, late: bool) -> Refusal:
        """Return our own words for an unsealed refusal; it proves nothing."""
        try:
            code, version = seal.read_refusal(blob)
        except Refused as error:
            return self.refusal(site, error.code, str(error), late=late)
        if code == "version":
            says = (
                f"refuses {self._name}: fedcohort {version} runs there, and {self._version} here; "
                f"the first two numbers must agree: "
                f"{seal.upgrade(self._version, self._name, version, site)}."
            )
        else:
            says = _SAYS.get(code, "refuses, for a reason that is not known here.").format(
                name=self._name
            )
        return self.refusal(
            site, code if code in (*_SAYS, "version") else "refused", says, late=late
        )

    @property
    def line(self) -> Line:
        """The line below."""
        return self._line


class _Exchange:
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
        """Go on with one site in its own thread: a hello if there is no session, or the call.

        It waits for another call's hello in progress.
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
        """Return a site's outcome; None if the body must be sent (again)."""
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
        return self._caller.unsealed_refusal(
            site, blob, late=isinstance(sent, Sealed) and code != "oversized"
        )


def _code(blob: bytes) -> str:
    """Return the code of a refusal; an empty text where it is malformed."""
    try:
        return seal.read_refusal(blob)[0]
    except Refused:
        return ""


class Single(Line):
    """A `Line` to one party over a function; a lead's to the coordinator.

    Parameters
    ----------
    name : the party's, as in its certificate.
    ask : sends the party a request, and waits so many seconds for its reply.
    connected : whether the party can be reached now.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[bytes, float], bytes | Silence],
        connected: Callable[[], bool] = lambda: True,
    ):
        self._name, self._ask, self._connected = name, ask, connected

    @property
    def sites(self) -> Sequence[str]:
        """The party's name."""
        return (self._name,)

    @property
    def connected(self) -> frozenset[str]:
        """The party's name, if it can be reached now."""
        return frozenset((self._name,)) if self._connected() else frozenset()

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        """Ask the party; any other name is not connected."""
        for name, blob in requests.items():
            if name == self._name:
                yield name, self._ask(blob, timeout)
            else:
                yield name, Silence(f"{name}: is not connected", late=False)


#: What a refusal without a seal means, by its code.
_SAYS = {
    "untrusted": "refuses {name}: it does not know the certificate's authority (another network?).",
    "network": "refuses {name}: it belongs to another network.",
    "expired": "refuses {name}: its certificate has expired, by the clock there.",
    "not yet valid": "refuses {name}: its certificate is not valid yet, by the clock there.",
    "revoked": "refuses {name}: its certificate was taken back.",
    "role": "refuses {name}: its certificate is for another role.",
    "name": "refuses {name}: the certificate is another's, or the message was for another party.",
    "forged": "refuses a message of {name}: it was changed on the way, or is not from {name}.",
    "malformed": "refuses a message of {name}: it is malformed.",
    "oversized": "refuses a message of {name}: it is too large.",
    "replayed": "refuses a message of {name}: it came before.",
    "no key": "forgets its sessions with {name} time and again.",
    "busy": "refuses {name} for now: too many parties say hello at once.",
    "failed": "failed at a message of {name}; its own log says at what.",
}

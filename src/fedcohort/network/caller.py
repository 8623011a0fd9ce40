"""The caller's end of a `channel`: says hello, seals calls, opens replies."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import fedcohort
from fedcohort.network import seal
from fedcohort.network.kit import Kit
from fedcohort.network.quiet import Log, Quiet, note_line
from fedcohort.network.seal import CAP, LIFETIME, MESSAGES, Sealing
from fedcohort.network.trust import Peer, Trust
from fedcohort.protocol.errors import Refused
from fedcohort.runtime.line import Line, Silence

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
class _Hello:
    """A hello that was sent."""

    private: X25519PrivateKey
    signed: seal.Signed


@dataclass
class _Open:
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
class _Sealed:
    """A call that was sent."""

    session: _Open
    counter: int


class Caller(Line):
    """A `Line` whose messages are sealed from end to end; the line below carries what it gives.

    The line's `exchange` must be safe to call from several threads, and so is this one's. What one
    side refuses is yielded as a `Refusal`, a kind of `Silence`, whose text names site and reason.

    Parameters
    ----------
    kit, trust : who this party is, and whom it believes. A coordinator calls sites by their names;
        anybody else calls the coordinator.
    line : the engine's.
    cap : the largest body, in bytes, either way.
    log : what gets one line for each refusal, besides who gets it as a reply.
    """

    def __init__(
        self,
        kit: Kit,
        trust: Trust,
        line: Line,
        *,
        cap: int = CAP,
        log: Log = note_line,
        version: str = fedcohort.__version__,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._name, self._network, self._version = kit.name, trust.network, version
        self._key, self._certificate = kit.private_key(), kit.certificate.read_text("ascii")
        self._role = "site" if kit.role == "coordinator" else "coordinator"
        self._trust, self._revoked, self._line = trust, kit.revoked, line
        self._cap, self._clock = cap, clock
        self._log = Quiet(log)
        self._sessions: dict[str, _Open] = {}

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

    def send(self, site: str, body: bytes) -> tuple[_Hello | _Sealed, bytes]:
        """Return what goes to a site next: the sealed body, or a hello if there is no session.

        Raises
        ------
        Refused : "oversized".
        """
        if len(body) > self._cap:
            raise Refused("oversized", f"a call of {len(body)} bytes; {self._cap} are allowed.")
        session = self._sessions.get(site)
        if session is not None:
            try:
                self._trust.check_dates(session.peer.certificate)
            except Refused:
                session = None
        if session is not None and (
            session.count < MESSAGES and self._clock() - session.born < LIFETIME
        ):
            sent = _Sealed(session, session.next())
            return sent, session.sealing.seal(seal.CALL, sent.counter, body)
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
        return _Hello(private, hello), hello.blob

    def welcomed(self, site: str, sent: _Hello, blob: bytes) -> None:
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
                "numbers must agree.",
            )
        session, public = bytes.fromhex(says["session"]), bytes.fromhex(says["key"])
        sealing = Sealing.derive(session, sent.private, public, sent.signed.blob, welcome.blob)
        self._sessions[site] = _Open(sealing, self._clock(), peer)

    def opened(self, site: str, sent: _Sealed, blob: bytes) -> bytes | Refusal:
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

    def forget(self, site: str, session: _Open) -> None:
        """Forget a session that the site does not know any longer."""
        if self._sessions.get(site) is session:
            self._sessions.pop(site, None)

    def refusal(self, site: str, code: str, text: str, *, late: bool) -> Refusal:
        """Return a refusal, and log its line."""
        line = f"{site}: {text}"
        self._log(f"{self._name}: {line} ({code})")
        return Refusal(line, late=late, code=code)

    def told(self, site: str, blob: bytes, *, late: bool) -> Refusal:
        """Return what a refusal without a seal says, in our own words; it proves nothing."""
        try:
            code, version = seal.read_refusal(blob)
        except Refused as error:
            return self.refusal(site, error.code, str(error), late=late)
        if code == "version":
            says = (
                f"refuses {self._name}: fedcohort {version} runs there, and {self._version} here; "
                "the first two numbers must agree."
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
        self._sent: dict[str, _Hello | _Sealed] = {}
        self._tries = dict.fromkeys(self._requests, 0)

    def run(self) -> Iterator[tuple[str, bytes | Silence]]:
        """Yield each site once. Sites with a session are asked here, others in lanes."""
        ready: dict[str, bytes] = {}
        greeted: dict[str, bytes] = {}
        for site in self._requests:
            try:
                blob = self._next(site)
            except Refused as error:
                found = self._caller.refusal(site, error.code, str(error), late=False)
                self._done.put((site, found))
                continue
            (ready if isinstance(self._sent[site], _Sealed) else greeted)[site] = blob
        if greeted:
            self._lane(greeted)
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
            late = isinstance(self._sent[site], _Sealed)
            yield site, Silence(f"{site}: no answer within {self._timeout:g} s", late=late)

    def _next(self, site: str) -> bytes:
        """Return what to send to a site next, and remember it."""
        self._sent[site], blob = self._caller.send(site, self._requests[site])
        self._tries[site] += isinstance(self._sent[site], _Sealed)
        return blob

    def _lane(self, batch: dict[str, bytes]) -> None:
        """Exchange with some sites in a thread of its own."""

        def work() -> None:
            for pair in self._settled(batch):
                self._done.put(pair)

        threading.Thread(target=work, daemon=True, name="fedcohort-channel").start()

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
                    self._lane({site: self._next(site)})
                else:
                    yield site, found
        except Exception as error:
            kind = type(error).__name__
            for site in sorted(open_):
                yield site, Silence(f"{site}: the engine failed ({kind})", late=True)

    def _settle(self, site: str, answer: bytes | Silence) -> bytes | Silence | None:
        """Return what is known of a site; None where the body is to be sent (again)."""
        sent, caller = self._sent[site], self._caller
        late = isinstance(sent, _Sealed)
        if isinstance(answer, Silence):
            return answer if late else Silence(answer.text, late=False)
        try:
            if seal.kind(answer) == seal.REFUSAL:
                return self._refused(site, sent, answer)
            if isinstance(sent, _Hello):
                caller.welcomed(site, sent, answer)
                return None
            return caller.opened(site, sent, answer)
        except Refused as error:
            return caller.refusal(site, error.code, str(error), late=late)

    def _refused(self, site: str, sent: _Hello | _Sealed, blob: bytes) -> Silence | None:
        """Return a refusal without a seal; None where it is cured by sending anew."""
        code = _code(blob)
        if isinstance(sent, _Sealed) and code in ("no key", "replayed"):
            if code == "no key":
                self._caller.forget(site, sent.session)
            if self._tries[site] < TRIES:
                return None
        return self._caller.told(site, blob, late=isinstance(sent, _Sealed) and code != "oversized")


def _code(blob: bytes) -> str:
    """Return the code of a refusal; an empty text where it is malformed."""
    try:
        return seal.read_refusal(blob)[0]
    except Refused:
        return ""


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

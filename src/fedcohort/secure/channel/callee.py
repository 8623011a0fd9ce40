"""The callee's end of a `channel`: checks hellos, opens calls, seals replies."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedcohort.protocol.errors import Refused
from fedcohort.protocol.line import LARGEST
from fedcohort.secure.certificates import is_name
from fedcohort.secure.channel import seal
from fedcohort.secure.channel.rate_limit import Log, RateLimit
from fedcohort.secure.channel.seal import LIFETIME, MESSAGES, Party, Sealing
from fedcohort.secure.trust import Peer, Trust
from fedcohort.version import VERSION

#: How far a call's counter may lie behind the highest one seen.
WINDOW = 1024
#: Provisional sessions, of one peer and of all; sessions in use of one peer; hellos at a time.
PROVISIONAL_EACH, PROVISIONAL, EACH, AT_ONCE = 8, 64, 8, 8


_log = logging.getLogger("fedcohort.network")


@dataclass
class _Session:
    """One session at its callee."""

    peer: Peer
    sealing: Sealing
    born: float
    count: int = 0
    highest: int = 0
    seen: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_new(self, counter: int) -> bool:
        """Return whether a counter was not taken yet, and is not too old to know."""
        behind = self.highest - counter
        return counter > 0 and (behind < 0 or (behind < WINDOW and not self.seen >> behind & 1))

    def take(self, counter: int) -> bool:
        """Take a counter; return whether it was free."""
        with self.lock:
            if not self.is_new(counter):
                return False
            if counter > self.highest:
                ahead = min(counter - self.highest, WINDOW)
                self.seen = (self.seen << ahead) & ((1 << WINDOW) - 1)
                self.highest = counter
            self.seen |= 1 << (self.highest - counter)
            self.count += 1
            return True


class Callee:
    """A party's end of channels on which it is called.

    Parameters
    ----------
    kit, trust : this party, and the authority it trusts.
    roles : who may call.
    inner : answers a peer's body. Its refusals reach the peer with code and text.
    cap : largest body, in bytes, either way.
    log : gets one line for each refusal.

    Attributes
    ----------
    versions : of authenticated parties, by name; also versions that do not fit.
    """

    def __init__(
        self,
        kit: Party,
        trust: Trust,
        roles: Iterable[str],
        inner: Callable[[Peer, bytes], bytes],
        *,
        cap: int = LARGEST,
        log: Log = _log.warning,
        version: str = VERSION,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._name, self._network, self._version = kit.name, trust.network, version
        self._key, self._certificate = kit.private_key(), kit.certificate.read_text("ascii")
        self._trust, self._revoked, self._roles = trust, kit.revoked, tuple(roles)
        self._inner, self._cap, self._clock = inner, cap, clock
        self._log = RateLimit(log)
        self._lock = threading.Lock()
        self._busy = threading.BoundedSemaphore(AT_ONCE)
        self._provisional: OrderedDict[bytes, _Session] = OrderedDict()
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self.versions: dict[str, str] = {}

    def handle(self, blob: bytes) -> bytes:
        """Answer one message, whatever it is."""
        try:
            which = seal.kind(blob)
            if which == seal.CALL:
                return self._call(blob)
            if which != seal.HELLO:
                raise Refused("malformed", "a message that no caller sends.")
            return self._hello(blob)
        except Refused as error:
            if error.code != "no key":
                self._log(f"{self._name}: refused ({error.code}): {error}")
            return seal.refusal(error.code, self._version)
        except Exception as error:
            self._log(f"{self._name}: failed at a message ({type(error).__name__}).")
            return seal.refusal("failed", self._version)

    def _hello(self, blob: bytes) -> bytes:
        """Check a hello and answer it by a welcome."""
        hello = seal.read_signed(blob)
        if not self._busy.acquire(blocking=False):
            raise Refused("busy", "too many hellos at once.")
        try:
            return self._welcome(hello)
        finally:
            self._busy.release()

    def _welcome(self, hello: seal.Signed) -> bytes:
        """Return the welcome to a hello that proves who sent it."""
        says = hello.says
        who = says["from"] if is_name(says["from"]) else "?"
        if says["network"] != self._network:
            raise Refused("network", f"a hello of {who!r} is for another network.")
        if says["to"] != self._name:
            raise Refused("name", f"a hello of {who!r} is for another party.")
        peer = self._trust.verify(says["certificate"], self._roles, says["from"])
        self._check_revoked(peer)
        if not hello.by(peer.certificate, seal.HELLO_PURPOSE):
            raise Refused("forged", f"a hello that {peer.name!r} did not sign.")
        self.versions[peer.name] = says["version"]
        if not seal.compatible(self._version, says["version"]):
            raise Refused(
                "version",
                f"{peer.name} runs fedcohort {says['version']}, and this is {self._version}; the "
                f"first two numbers must agree: "
                f"{seal.upgrade(self._version, self._name, says['version'], peer.name)}.",
            )
        private, session = X25519PrivateKey.generate(), os.urandom(seal.SESSION)
        welcome = seal.signed(
            seal.WELCOME,
            {
                "certificate": self._certificate,
                "from": self._name,
                "key": private.public_key().public_bytes_raw().hex(),
                "nonce": os.urandom(32).hex(),
                "session": session.hex(),
                "to": peer.name,
                "version": self._version,
            },
            self._key,
            seal.welcome_context(hello.blob),
        )
        public = bytes.fromhex(says["key"])
        sealing = Sealing.derive(session, private, public, hello.blob, welcome.blob)
        with self._lock:
            self._provisional[session] = _Session(peer, sealing, self._clock())
            _drop_oldest(self._provisional, peer.name, PROVISIONAL_EACH)
            while len(self._provisional) > PROVISIONAL:
                self._provisional.popitem(last=False)
        return welcome.blob

    def _call(self, blob: bytes) -> bytes:
        """Open a call, let it be answered, and seal the reply."""
        name, counter = seal.address(blob)
        if len(blob) > self._cap + seal.OVERHEAD:
            raise Refused("oversized", f"a call of {len(blob)} bytes; {self._cap} are allowed.")
        session = self._find(name)
        peer = session.peer
        if not session.is_new(counter):
            raise Refused("replayed", f"a call of {peer.name} came twice, or much too late.")
        body = session.sealing.open(blob)
        if not session.take(counter):
            raise Refused("replayed", f"a call of {peer.name} came twice, or much too late.")
        self._confirm(name, session)
        try:
            reply = self._inner(peer, body)
            if len(reply) > self._cap:
                raise Refused(
                    "oversized", f"a reply of {len(reply)} bytes; {self._cap} are allowed."
                )
            return session.sealing.seal(seal.REPLY, counter, reply)
        except Refused as error:
            self._log(f"{self._name}: refused {peer.name} ({error.code}): {error}")
            code, text = error.code, str(error)
        except Exception as error:
            self._log(f"{self._name}: failed at a call of {peer.name} ({type(error).__name__}).")
            code, text = "failed", "it failed at the call; its own log says at what."
        denial = seal.denial(code, text)
        return session.sealing.seal(seal.DENIAL, counter, denial)

    def _find(self, name: bytes) -> _Session:
        """Return a session that may go on."""
        with self._lock:
            session = self._sessions.get(name) or self._provisional.get(name)
        if session is None:
            raise Refused("no key", "a call of a session that is not known.")
        old = self._clock() - session.born > LIFETIME + 600
        if old or session.count > MESSAGES + WINDOW:
            self._forget(name)
            raise Refused("no key", f"a session with {session.peer.name} has ended.")
        try:
            self._trust.check_dates(session.peer.certificate)
            self._check_revoked(session.peer)
        except Refused:
            self._forget(name)
            raise
        return session

    def _check_revoked(self, peer: Peer) -> None:
        """Refuse a certificate that this party's kit lists as taken back."""
        if peer.certificate.fingerprint in self._revoked | self._trust.revoked:
            raise Refused(
                "revoked", f"the certificate of {peer.name!r} was taken back; it needs a new one."
            )

    def _confirm(self, name: bytes, session: _Session) -> None:
        """Note that a session is in use, which a first call has proven."""
        with self._lock:
            if self._provisional.pop(name, None) is not None:
                self._sessions[name] = session
                _drop_oldest(self._sessions, session.peer.name, EACH)
            elif name in self._sessions:
                self._sessions.move_to_end(name)

    def _forget(self, name: bytes) -> None:
        """Forget a session."""
        with self._lock:
            self._provisional.pop(name, None)
            self._sessions.pop(name, None)


def _drop_oldest(sessions: OrderedDict[bytes, _Session], peer: str, most: int) -> None:
    """Drop a peer's oldest sessions beyond so many."""
    names = [name for name, session in sessions.items() if session.peer.name == peer]
    for name in names[: max(len(names) - most, 0)]:
        del sessions[name]

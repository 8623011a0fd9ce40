"""The caller's end of a `channel`: says hello, seals calls, opens replies."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedcohort.network import seal
from fedcohort.network.exchange import Exchange, Hello, Open, Refusal, Sealed
from fedcohort.network.kit import Kit
from fedcohort.network.seal import LIFETIME, MESSAGES, Sealing
from fedcohort.network.trust import Trust
from fedcohort.protocol.errors import Refused
from fedcohort.runtime.line import LARGEST, Line, Silence
from fedcohort.runtime.quiet import Log, Quiet
from fedcohort.version import VERSION

_log = logging.getLogger("fedcohort.network")


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
        self._log = Quiet(log)
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
        return Exchange(self, requests, timeout).run()

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
        """Return what is held while a hello to a site is under way: calls at once share one."""
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

    def told(self, site: str, blob: bytes, *, late: bool) -> Refusal:
        """Return what a refusal without a seal says, in our own words; it proves nothing."""
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

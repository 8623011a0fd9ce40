"""The gate before Flower's node interface: allowed paths, body sizes and peers.

A node is known by its TLS certificate: of a site of this network, not revoked, with the key that
Flower then requires to have signed the time. So a kit for Flower holds nothing that other kits do
not, a renewed certificate is a renewed node, and a revoked one opens nothing.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from starlette.concurrency import run_in_threadpool

from fedcohort.engines.tls import Peer
from fedcohort.protocol.line import Answering

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_FLEET = "/v1/fleet/"
PULL, ACTIVATE, DEACTIVATE = (
    f"{_FLEET}{name}" for name in ("pull-messages", "activate-node", "deactivate-node")
)
#: What a node may ask of Flower. There is no registering, no run and no code to be had.
FLEET = frozenset(
    f"{_FLEET}{name}"
    for name in (
        "activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages", "push-messages",
        "pull-object", "push-object", "confirm-message-received",
    )
)  # fmt: skip
#: Those of them that carry parts of messages; the others are short.
LONG = frozenset({f"{_FLEET}push-object"})
SHORT_BYTES = 2**20
PEOPLE = "/people"
KEY_HEADER = FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode("ascii")

#: Where a connection's `Peer` stands in a request's state.
PEER = "peer"

#: Seconds for which a node's request for messages is held, at most.
HOLD = 10.0
#: Seconds after which a node that was not heard is not there.
SILENT = 20.0

_FORM = {b"content-type": b"application/octet-stream"}


@dataclass
class Presence:
    """State of a node.

    Attributes
    ----------
    heard : time of its last accepted request; minus infinity if it is not there.
    begun : number of its activations.
    active : whether it is activated; requests after it left do not bring it back.
    waiting : set when there is a message for it.
    held : number of its held requests for messages.
    """

    heard: float = float("-inf")
    begun: int = 0
    active: bool = False
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    held: int = 0


class Gate:
    """An ASGI application that lets through the requests of nodes and people, and no more.

    Parameters
    ----------
    inner : Flower's node interface.
    sites : all sites of the network.
    revoked : fingerprints of revoked certificates.
    people : answers posts to `/people`.
    admit : makes Flower ready to activate a site's node with a public key.
    wake : called when something came from a node.
    cap : longest body, in bytes.
    """

    def __init__(
        self,
        inner: App,
        sites: Collection[str],
        revoked: Collection[str],
        people: Answering,
        admit: Callable[[str, bytes], None],
        wake: Callable[[], None],
        cap: int,
    ):
        self._inner, self._revoked, self._people = inner, revoked, people
        self._admit, self._wake, self._cap = admit, wake, cap
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closing = False
        self.sites = {site: Presence() for site in sites}

    def connected(self) -> frozenset[str]:
        """Return the sites that were heard just now."""
        since = time.monotonic() - SILENT
        return frozenset(site for site, node in self.sites.items() if node.heard > since)

    def tell(self, site: str) -> None:
        """There is a message for a site. From any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.sites[site].waiting.set)

    def close(self) -> None:
        """Let go of all requests that are held. From any thread."""
        self.closing = True
        for site in self.sites:
            self.tell(site)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            self._loop = asyncio.get_running_loop()
            return await self._inner(scope, receive, send)
        if scope["type"] != "http":
            return None
        if self.closing:
            return await _answer(send, 503)
        path, method = scope["path"], scope["method"]
        peer: Peer | None = scope.get("state", {}).get(PEER)
        if peer is None or peer.fingerprint in self._revoked:
            return await _answer(send, 403)
        if method == "GET" and path == PEOPLE:
            return await _answer(send, 204)
        if method != "POST" or not (path == PEOPLE or path in FLEET):
            return await _answer(send, 404)
        headers = dict[bytes, bytes](scope["headers"])
        if path in FLEET and not self._is_node(peer, headers):
            return await _answer(send, 403)
        cap = self._cap if path in LONG or path == PEOPLE else SHORT_BYTES
        length = headers.get(b"content-length", b"")
        if not length.isdigit():
            return await _answer(send, 411)
        if int(length) > cap:
            return await _answer(send, 413)
        body = await _body(receive, int(length))
        if body is None:
            return None
        if path == PEOPLE:
            reply = await run_in_threadpool(self._people, body)
            return await _answer(send, 200, reply)
        return await self._fleet(peer, scope, body, receive, send)

    async def _fleet(
        self, peer: Peer, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Let Flower answer a node's request; hold a request for messages until there is one."""
        path, node = scope["path"], self.sites[peer.name]
        if not (node.active or path == ACTIVATE):
            return await _answer(send, 401)  # which makes it activate
        if path == PULL:
            node.waiting.clear()
        elif path == ACTIVATE:
            node.active, node.heard = False, float("-inf")
            await run_in_threadpool(self._admit, peer.name, public_key(peer.der))
        status, start, reply = await self._ask(scope, body)
        if status == 200:
            if path == ACTIVATE:
                node.begun, node.active = node.begun + 1, True
            elif path == DEACTIVATE:
                node.active, node.heard = False, float("-inf")
                node.waiting.set()
            if node.active:
                node.heard = time.monotonic()
            if path == PULL and not reply and node.active:
                told = await self._hold(node, receive)
                if told is None:
                    return None
                if told:
                    _, start, reply = await self._ask(scope, body)
            if path != PULL:
                self._wake()
        return await _pass(send, start, reply)

    async def _hold(self, node: Presence, receive: Receive) -> bool | None:
        """Wait until a node is told something, or long enough; return which, None if it went."""
        gone = asyncio.ensure_future(receive())
        told = asyncio.ensure_future(node.waiting.wait())
        node.held += 1
        life = node.begun
        try:
            until = time.monotonic() + HOLD
            while node.active and not (self.closing or told.done() or gone.done()):
                node.heard = time.monotonic()
                left = until - time.monotonic()
                if left <= 0:
                    break
                await asyncio.wait({gone, told}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                if node.begun == life and node.held == 1:
                    node.heard = float("-inf")
                    self._wake()
                return None
            return told.done()
        finally:
            node.held -= 1
            gone.cancel()
            told.cancel()

    async def _ask(self, scope: Scope, body: bytes) -> tuple[int, MutableMapping[str, Any], bytes]:
        """Give a request to Flower; return status, head and body of its answer."""
        start: MutableMapping[str, Any] = {"type": "http.response.start", "status": 500}
        parts = list[bytes]()
        asked = False

        async def receive() -> MutableMapping[str, Any]:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(event: MutableMapping[str, Any]) -> None:
            nonlocal start
            if event["type"] == "http.response.start":
                start = event
            elif event["type"] == "http.response.body":
                parts.append(event.get("body", b""))

        await self._inner({**scope, "state": dict(scope.get("state", {}))}, receive, send)
        return int(start["status"]), start, b"".join(parts)

    def _is_node(self, peer: Peer, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a peer is a site of the network, and speaks with its certificate's key."""
        try:
            key = b64decode(headers.get(KEY_HEADER, b""), validate=True)
        except ValueError:
            return False
        return peer.role == "site" and peer.name in self.sites and key == public_key(peer.der)


@lru_cache(maxsize=256)
def public_key(der: bytes) -> bytes:
    """Return a certificate's public key in Flower's form (PEM)."""
    key = x509.load_der_x509_certificate(der).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


async def _body(receive: Receive, length: int) -> bytes | None:
    """Read a request's body; None if its sender went away."""
    parts, got = list[bytes](), 0
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        parts.append(event.get("body", b""))
        got += len(parts[-1])
        if got > length:
            return None
        if not event.get("more_body"):
            return b"".join(parts)


async def _answer(send: Send, status: int, body: bytes = b"") -> None:
    """Send a whole answer."""
    headers = [(b"content-length", str(len(body)).encode()), *_FORM.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _pass(send: Send, start: MutableMapping[str, Any], body: bytes) -> None:
    """Send Flower's answer on."""
    await send(start)
    await send({"type": "http.response.body", "body": body})

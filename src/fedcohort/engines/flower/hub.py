"""Flower's SuperLink inside the coordinator: its node interface alone, on one TLS port.

The SuperLink as shipped serves three interfaces on one port: with the authority's certificate alone
one may submit code, list nodes and take over a run. Here the coordinator's own process serves the
Fleet interface of the same package (router, state, node authentication), behind

* mutual TLS 1.3: only peers with a certificate of the network's authority;
* a gate: eight calls for nodes, each with a limit on its body, and `/people`, where a lead's or a
  steward's command posts its bytes to `on_request`. No other path: no Control interface, no
  Runtime interface, no FAB;
* Flower's own check that a node's key, which must be its certificate's, signed the time
  (−5 to +305 s).

A node's request for messages is held until there is one, as any Flower node accepts: no call waits
for a sleep, and a dead node is noticed at once. State is in memory: a restarted coordinator has new
node numbers, and nodes activate again. A node that returns within Flower's patience, which Flower
alone would refuse (code 305), is let in.

Revealed to this process: nothing new; bodies are sealed above this layer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
import time
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.server.superlink.linkstate import InMemoryLinkState, LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.error import http_error_translator
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedcohort.engines import tls
from fedcohort.engines.flower.gate import PEER, App, Gate
from fedcohort.engines.flower.grid import HubLine, StateGrid
from fedcohort.engines.flower.line import silence_log
from fedcohort.engines.tls import Credentials, Peer
from fedcohort.protocol.errors import InputError
from fedcohort.protocol.line import CARRIED, Answering, Line
from fedcohort.secure.channel import Log, RateLimit


def fleet(state: LinkStateFactory) -> FastAPI:
    """Return Flower's node interface, with node authentication, over a state."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=cast(Any, http_error_translator)),
            Middleware(ProtobufTranslationMiddleware),
            Middleware(NodeAuthMiddleware),
        ],
    )
    app.state.linkstate_factory = state
    app.state.enable_supernode_auth = True
    app.include_router(router)
    return app


class Named(H11Protocol):
    """A connection that knows its peer's certificate."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin, with the peer in each request's state."""
        super().connection_made(transport)
        try:
            peer = Peer.of(transport.get_extra_info("ssl_object"))
        except Exception:  # an unreadable certificate is nobody's
            peer = None
        self.app_state = {**self.app_state, PEER: peer}


class Hub:
    """The coordinator's end of Flower.

    Parameters
    ----------
    kit : the coordinator's.
    on_request : answers what leads and stewards ask; it never raises.
    listen : host or address to listen on, if it is not the one in the kit.
    cap : bytes of the longest body that is read.
    """

    def __init__(
        self,
        kit: Credentials,
        on_request: Answering,
        log: logging.Logger | None = None,
        *,
        listen: str | None = None,
        cap: int = CARRIED,
    ):
        silence_log()
        self._kit, self._log = kit, log or logging.getLogger(__name__)
        self._listen = listen
        factory = LinkStateFactory(
            FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()
        )
        self._state = cast(InMemoryLinkState, factory.state())
        self._nodes = dict[str, int]()
        self._gate = Gate(
            cast(App, fleet(factory)),
            kit.sites,
            frozenset(kit.revoked),
            on_request,
            self._admit,
            self._wake,
            cap,
        )
        self._line = HubLine(
            StateGrid(self._state),
            kit.sites,
            self._nodes,
            self._gate.connected,
            lambda site: self._gate.sites[site].begun,
            self._gate.tell,
        )
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def line(self) -> Line:
        """What carries requests to the sites."""
        return self._line

    def start(self) -> None:
        """Listen.

        Raises
        ------
        InputError : the address or a file cannot be used.
        """
        rules = tls.context(self._kit, server=True)
        _hear_alerts(rules, RateLimit(self._log.warning))
        listening = tls.listener(self._kit.address, self._listen)
        config = uvicorn.Config(
            cast(Any, self._gate),
            ssl_certfile=self._kit.certificate,  # that there is TLS; by which rules is said below
            ssl_keyfile=self._kit.key,
            http=Named,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=1,
            backlog=64,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        config.load()
        config.ssl = rules
        server = self._server = uvicorn.Server(config)
        thread = self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="flower-hub", daemon=True
        )
        thread.start()
        until = time.monotonic() + 20
        while not server.started:
            if not thread.is_alive() or time.monotonic() > until:
                raise InputError(f"{self._kit.address}: Flower's interface did not start.")
            time.sleep(0.01)

    def stop(self) -> None:
        """Close all connections."""
        if self._server is not None and self._thread is not None:
            self._gate.close()
            self._server.should_exit = True
            self._thread.join(5)
            self._server = self._thread = None

    def _admit(self, site: str, key: bytes) -> None:
        """Let a site's node be activated: register its key, and forget an earlier activation."""
        known = self._nodes.get(site)
        if known is not None and self._state.get_node_id_by_public_key(key) == known:
            self._state.deactivate_node(known)
            return
        if known is not None:
            self._state.delete_node(NOOP_FLWR_AID, known)
        self._nodes[site] = self._state.create_node(
            NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0, name=site
        )

    def _wake(self) -> None:
        self._line.wake()


#: TLS alerts that this end sends when a peer's certificate is not good (RFC 8446, 6.2).
_ALERTS = {
    42: "its certificate is damaged",
    43: "its certificate is of another kind",
    45: "its certificate is expired or not yet valid",
    48: "its certificate is not of this network",
    51: "it has not its certificate's key",
    70: "it speaks an older TLS than 1.3",
    116: "it has no certificate",
}


def _hear_alerts(rules: ssl.SSLContext, log: Log) -> None:
    """Write a line for each peer that is turned away; asyncio would say nothing."""

    def hear(
        _conn: object, direction: str, _version: object, kind: object, _msg: object, data: bytes
    ) -> None:
        if direction == "write" and int(cast(Any, kind)) == 21 and len(data) == 2:
            why = _ALERTS.get(data[1])
            if why is not None:
                log(f"a peer was turned away: {why}.")

    with contextlib.suppress(AttributeError, TypeError):
        cast(Any, rules)._msg_callback = hear

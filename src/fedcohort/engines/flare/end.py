"""One party's end on FLARE's communication interface: asks endpoints, and answers requests.

The messages are those of `flare`; all others are dropped. Revealed: as by `flare`.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import nvflare
from nvflare.fuel.f3.cellnet.identity import CellIdentityResolver
from nvflare.fuel.f3.comm_config import CommConfigurator
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.communicator import Communicator, Mode
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.endpoint import Endpoint, EndpointMonitor, EndpointState
from nvflare.fuel.f3.message import AppIds, Message, MessageReceiver

from fedcohort.engines.flare.connection import SEVERAL, Door, TlsConnection, party
from fedcohort.engines.flare.driver import SCHEME, TlsDriver
from fedcohort.engines.tls import Credentials
from fedcohort.protocol.errors import InputError
from fedcohort.protocol.line import Answering, Silence

#: Version of nvflare whose classes this was written for; see `tests/engines/test_flare_pin.py`.
VERSION = "2.9"

#: Code of a reply without a body → why.
_WHY = {
    "failed": "broke while it answered",
    "large": "has an answer that is larger than a message may be",
    "none": "answers no requests",
}

_Heard = bytes | Silence


class _Coded(logging.Handler):
    """FLARE's own log: its messages can hold names, so that only their places are kept."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._log = logging.getLogger(__name__)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep module and line."""
        self._log.debug("nvflare %s:%d", record.name.rpartition(".")[2], record.lineno)


# FLARE would search the working directory, and all below it, for a file of settings, and obey it
CommConfigurator._config_loaded = True  # pyright: ignore[reportPrivateUsage]
CommConfigurator._configuration = None  # pyright: ignore[reportPrivateUsage]

_quiet = logging.getLogger("nvflare")
_quiet.handlers = [_Coded()]
_quiet.propagate = False


class Inline:
    """Replaces FLARE's pool of 100 threads: handles a frame in the thread that read it.

    The receiver hands on long work. Frames keep their order, and a peer that sends too fast waits.
    """

    def submit(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run now."""
        function(*arguments)

    def shutdown(self, wait: bool = True) -> None:
        """Nothing to end."""


class Daemons(Inline):
    """In the place of FLARE's other pool: threads that do not keep a process from ending."""

    def submit(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run in a thread of its own."""
        name = f"flare-{function.__name__.strip('_')}"
        threading.Thread(target=function, args=arguments, name=name, daemon=True).start()


class _Names(CellIdentityResolver):
    """FLARE's rule for who may use an endpoint's name: the party of that name, and nobody else."""

    def resolve(self, fqcn: str) -> str:
        return party(fqcn)


@dataclass
class _Waiting:
    """A request on its way; `heard` gets (endpoint asked, its reply)."""

    to: str
    heard: queue.SimpleQueue[tuple[str, _Heard]] = field(default_factory=queue.SimpleQueue)


class End(MessageReceiver, EndpointMonitor):
    """One party's end: asks, and answers what it is asked."""

    def __init__(
        self,
        kit: Credentials,
        name: str,
        on_request: Answering | None,
        log: logging.Logger,
        cap: int,
    ):
        if not nvflare.__version__.startswith(VERSION + "."):
            raise InputError(
                f"this needs NVIDIA FLARE {VERSION}, but {nvflare.__version__} is installed: pip "
                f"install 'nvflare=={VERSION}.*'."
            )
        self.kit, self.name, self.log, self.cap = kit, name, log, cap
        self.connected: frozenset[str] = frozenset()
        self.changed = threading.Condition()
        self._on_request = on_request
        self._waiting: dict[bytes, _Waiting] = {}
        self._workers = Daemons()
        self._f3: Communicator | None = None

    def start(self, mode: Mode, door: Door, host: str, port: int) -> None:
        """Listen or connect."""
        f3 = Communicator(Endpoint(self.name), _Names(self.name))
        manager = f3.conn_manager
        manager.conn_mgr_executor = Daemons()  # pyright: ignore[reportAttributeAccessIssue]
        manager.frame_mgr_executor = Inline()  # pyright: ignore[reportAttributeAccessIssue]
        f3.register_message_receiver(AppIds.DEFAULT, self)
        f3.register_monitor(self)
        params = {"scheme": SCHEME, "host": host, "port": port, "url": f"{SCHEME}://{host}:{port}"}
        f3.add_connector_advanced(TlsDriver(door), mode, params, True)
        self._f3 = f3
        f3.start()

    def stop(self) -> None:
        """Close all connections; requests on their way end in silence."""
        f3, self._f3 = self._f3, None
        if f3 is not None:
            f3.stop()
        with self.changed:
            self.connected = frozenset()
            self.changed.notify_all()
        self._lost(None)

    def ask(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        """Ask endpoints, all at once; give each one's answer, or why there is none."""
        until = time.monotonic() + timeout
        heard: queue.SimpleQueue[tuple[str, _Heard]] = queue.SimpleQueue()
        open_ = dict.fromkeys(requests)
        keys: list[bytes] = []
        try:
            for name, blob in requests.items():
                keys.append(key := secrets.token_bytes(16))
                self._waiting[key] = _Waiting(name, heard)
                if name not in self.connected:
                    heard.put((name, Silence(f"{name} is not connected.", late=False)))
                elif len(blob) > self.cap:
                    text = f"the request to {name} has {len(blob)} bytes, more than {self.cap}."
                    heard.put((name, Silence(text, late=False)))
                else:
                    self._workers.submit(self._send_request, name, key, blob, heard)
            while open_:
                try:
                    name, reply = heard.get(timeout=max(until - time.monotonic(), 0))
                except queue.Empty:
                    break
                if name in open_:
                    del open_[name]
                    yield name, reply
            for name in open_:
                yield name, Silence(f"{name} did not answer within {round(timeout, 2):g} s.")
        finally:
            for key in keys:
                self._waiting.pop(key, None)

    def _send_request(
        self, name: str, key: bytes, blob: bytes, heard: queue.SimpleQueue[tuple[str, _Heard]]
    ) -> None:
        try:
            self._send(name, {"kind": "ask", "id": key}, blob)
        except Exception:  # FLARE raises more kinds than its own
            heard.put((name, Silence(f"the connection to {name} was lost.")))

    def _send(self, name: str, headers: dict[str, Any], blob: bytes) -> None:
        f3 = self._f3
        if f3 is None:
            raise CommError(CommError.CLOSED, "stopped")
        f3.send(Endpoint(name), AppIds.DEFAULT, Message(headers, blob))

    def process_message(
        self, endpoint: Endpoint, connection: Connection, app_id: int, message: Message
    ) -> None:
        """Take one message; called by FLARE in the thread that read it."""
        match message.headers:
            case {"kind": "ask", "id": bytes(key), **rest} if len(key) == 16 and not rest:
                assert isinstance(connection, TlsConnection)
                payload = memoryview(message.payload or b"")
                connection.take(len(payload))
                self._workers.submit(self._answer, endpoint.name, connection, key, payload)
            case {"kind": "reply", "id": bytes(key), "code": str(code), **rest} if not rest:
                waiting = self._waiting.get(key)
                if waiting is None or waiting.to != endpoint.name:
                    return
                if self._waiting.pop(key, None) is not None:  # not lost at the same moment
                    waiting.heard.put((waiting.to, self._heard(endpoint.name, code, message)))
            case _:
                self.log.debug("%s: a message of no known kind was dropped.", endpoint.name)

    @staticmethod
    def _heard(name: str, code: str, message: Message) -> _Heard:
        if not code:
            return bytes(message.payload or b"")
        return Silence(f"{name} {_WHY.get(code, 'gave no answer')}.", late=code != "none")

    def _answer(
        self, asker: str, connection: TlsConnection, key: bytes, payload: memoryview
    ) -> None:
        code, reply, length = "", b"", len(payload)
        try:
            if self._on_request is None:
                code = "none"
            else:
                reply = self._on_request(bytes(payload))
                if len(reply) > self.cap:
                    code, reply = "large", b""
        except Exception as error:  # an answerer's fault must stay here: its text may hold values
            code = "failed"
            self.log.error("a request of %s failed: %s.", asker, type(error).__name__)
        finally:
            del payload
            connection.give(length)
        try:
            self._send(asker, {"kind": "reply", "id": key, "code": code}, reply)
        except Exception:
            self.log.info("an answer to %s could not be sent: the connection was lost.", asker)

    def state_change(self, endpoint: Endpoint) -> None:
        """Note who is connected; called by FLARE."""
        name = endpoint.name
        ready = endpoint.state == EndpointState.READY
        with self.changed:
            self.connected = self.connected | {name} if ready else self.connected - {name}
            self.changed.notify_all()
        self.log.info("%s %s.", party(name), "connected" if ready else "disconnected")
        if not ready:
            self._lost(name)
            if SEVERAL in name and self._f3 is not None:
                self._f3.remove_endpoint(name)  # it never comes back under this name

    def _lost(self, name: str | None) -> None:
        for key, waiting in self._waiting.copy().items():
            if name in (None, waiting.to) and self._waiting.pop(key, None) is not None:
                waiting.heard.put(
                    (waiting.to, Silence(f"the connection to {waiting.to} was lost."))
                )

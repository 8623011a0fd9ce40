"""A site's or a person's end of Flower: one process, one outgoing TLS connection.

A site is a Flower node without Flower's SuperNode. It speaks the Fleet interface with Flower's own
client (activate, heartbeat, pull messages and their parts, push replies), asks for the next message
at once instead of sleeping three seconds, starts no process for a message, and neither asks for a
run's FAB nor unpacks one: the installed fedcohort runs. After a fault it activates again, with
pauses of up to five seconds.

Nodes sign the time; Flower accepts −5 to +305 s. A node with a clock further off takes the
coordinator's time from the answer that refuses it.

People (leads, stewards) post their bytes to the coordinator's `/people`, over the same mutual TLS:
open-source Flower has no users.
"""

from __future__ import annotations

import logging
import threading
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from flwr.app import Context, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.clientapp import ClientApp
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
)
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supernode.fleet_http_client import FleetHttpClient

from fedcohort.engines.flower.http import OK, UNAUTHORIZED, client, named, status_text, why
from fedcohort.engines.flower.line import client_app, silence_log
from fedcohort.engines.tls import Credentials
from fedcohort.protocol.errors import InputError
from fedcohort.protocol.line import Answering, Silence

#: Seconds between two heartbeats, and what Flower is told (it waits for twice that).
BEAT, TOLD = 5.0, 10.0
#: Seconds between two attempts to connect, at most; and for any answer.
PAUSE, PATIENCE = 5.0, 30.0
#: Seconds without an answer after which the coordinator counts as out of reach.
LOST = 15.0


class Signed:
    """Signs the time of each request with a node's key, by the coordinator's clock if need be.

    Parameters
    ----------
    kit : the site's; its certificate's key is the node's.

    Raises
    ------
    InputError : the kit has no key of the kind that Flower's nodes use.
    """

    def __init__(self, kit: Credentials):
        try:
            key = load_pem_private_key(kit.key.read_bytes(), password=None)
        except (OSError, ValueError, TypeError):
            key = None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InputError(f"{kit.key}: no key that Flower's nodes have. Ask for a new kit.")
        self._key, self._named = key, named(kit)
        self.public = public_key_to_bytes(key.public_key())
        self._behind = timedelta()

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """Add the headers of Flower's node authentication."""
        stamp = (datetime.now(UTC) + self._behind).isoformat()
        context.request.headers.update(
            {
                FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(self.public).decode("ascii"),
                TIMESTAMP_HEADER: stamp,
                FLEET_HTTP_SIGNATURE_HEADER: b64encode(
                    sign_message(self._key, stamp.encode("ascii"))
                ).decode("ascii"),
            }
        )
        context.request.extensions.update(self._named)
        response = call_next(context)
        if response.status_code == UNAUTHORIZED and "date" in response.headers:
            self._behind = parsedate_to_datetime(response.headers["date"]) - datetime.now(UTC)
        return response


class Activated:
    """One activation of a site's node.

    Parameters
    ----------
    client, signed : Flower's client, and what signs its requests.
    app : the site's end.
    """

    def __init__(self, client: FleetHttpClient, signed: Signed, app: ClientApp):
        self._client, self._app = client, app
        answer = client.ActivateNode(
            ActivateNodeRequest(public_key=signed.public, heartbeat_interval=TOLD)
        )
        self._node = Node(node_id=answer.node_id)
        self._context = Context(0, answer.node_id, {}, RecordDict(), {})

    def beat(self) -> None:
        """Tell Flower that this node is there."""
        self._client.SendNodeHeartbeat(
            SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=TOLD)
        )

    def leave(self) -> None:
        """Tell Flower that this node goes."""
        self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))

    def serve_one(self, pool: ThreadPoolExecutor) -> bool:
        """Wait for a message, answer it; return whether one came."""
        got = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not got.messages_list:
            return False
        bare, tree = message_from_proto(got.messages_list[0]), got.message_object_trees[0]
        run = bare.metadata.run_id
        names = [branch.object_id for branch in iterate_object_tree(tree)]
        parts = pool.map(partial(self._pull, run), names)
        message = inflate_object_from_contents(tree.object_id, dict(zip(names, parts, strict=True)))
        if not isinstance(message, Message):
            raise ValueError("a message that is none")
        _number(message, bare.metadata.message_id)
        self._push(run, self._app(message, self._context), pool)
        return True

    def _pull(self, run: int, name: str) -> bytes:
        """Fetch a part of a message, as soon as the coordinator has it whole."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            got = self._client.PullObject(
                PullObjectRequest(node=self._node, run_id=run, object_id=name)
            )
            if got.object_available:
                return got.object_content
            if not got.object_found:
                break
            time.sleep(0.01)
        raise ValueError("a part of a message is missing")

    def _push(self, run: int, reply: Message, pool: ThreadPoolExecutor) -> None:
        """Bring a reply, and those of its parts that the coordinator lacks."""
        with no_object_id_recompute():
            nested = get_all_nested_objects(reply)
            tree: ObjectTree = get_object_tree(reply)
            parts = {name: part.deflate() for name, part in nested.items()}
        _number(reply, tree.object_id)
        answer = self._client.PushMessages(
            PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[tree],
                clientapp_runtime_list=[0.0],
            )
        )

        def push(name: str) -> None:
            self._client.PushObject(
                PushObjectRequest(
                    node=self._node,
                    run_id=run,
                    session_id=answer.session_id,
                    object_id=name,
                    object_content=parts[name],
                )
            )

        list(pool.map(push, answer.objects_to_push))


def _number(message: Message, number: str) -> None:
    """Flower sets a message's number by this way too; it is no part of what is signed."""
    message.metadata.__dict__["_message_id"] = number


class Spoke:
    """A site's or a person's end of Flower.

    Parameters
    ----------
    kit : the party's.
    on_request : a site's answerer; None for a person, who only asks.
    """

    def __init__(
        self, kit: Credentials, on_request: Answering | None, log: logging.Logger | None = None
    ):
        silence_log()
        self._kit, self._log = kit, log or logging.getLogger(__name__)
        self._app = None if on_request is None else client_app(lambda _: on_request)
        self._signed = None if on_request is None else Signed(kit)
        self._named = named(kit)
        self._people = client(kit, PATIENCE)
        self._heard = float("-inf")
        self._ending = threading.Event()
        self._threads = list[threading.Thread]()
        self._said = ""
        self._now: tuple[FleetHttpClient, Activated] | None = None
        self._left = False
        self._leaving = threading.Lock()

    @property
    def connected(self) -> bool:
        """Whether the coordinator answered just now."""
        return time.monotonic() - self._heard < LOST

    def ask(self, blob: bytes, timeout: float) -> bytes | Silence:
        """Ask the coordinator something."""
        try:
            answer = self._people.post(
                "/people",
                content=blob,
                timeout=timeout,
                extensions=self._named,
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return Silence(str(why(error, self._kit)), late=False)
        except httpx.HTTPError as error:
            return Silence(str(why(error, self._kit)))
        if answer.status_code != OK:
            where = f"the coordinator at {self._kit.address}"
            return Silence(status_text(answer.status_code, where), late=False)
        self._heard = time.monotonic()
        return answer.content

    def start(self) -> None:
        """Connect, and connect again whenever the connection is lost."""
        if self._app is None:
            try:
                self._people.get("/people", timeout=5, extensions=self._named)
                self._heard = time.monotonic()
            except httpx.HTTPError as error:
                self._say(str(why(error, self._kit)))
            return
        for work in (self._serve, self._beat):
            thread = threading.Thread(target=work, name="flower-spoke", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Close the connection. A message under way is not answered."""
        self._ending.set()
        now = self._now
        if now is not None:
            self._leave(now[1])
            now[0].close()
        for thread in self._threads:
            thread.join(2)
        self._people.close()
        self._heard = float("-inf")

    def _serve(self) -> None:
        """Activate and answer messages, until the end."""
        pause = 0.2
        while not self._ending.is_set():
            try:
                with self._client() as client, ThreadPoolExecutor(3) as pool:
                    node = self._activate(client)
                    self._now = client, node
                    self._heard, pause = time.monotonic(), 0.2
                    self._say("")
                    while not self._ending.is_set():
                        began = time.monotonic()
                        came = node.serve_one(pool)
                        self._heard = time.monotonic()
                        if not came and self._heard - began < 0.5:
                            self._ending.wait(0.5)  # a SuperLink that does not hold requests
                    self._leave(node)
            except Exception as error:
                if not self._ending.is_set():
                    self._say(str(why(error, self._kit)))
            self._now = None
            self._ending.wait(pause)
            pause = min(2 * pause, PAUSE)

    def _leave(self, node: Activated) -> None:
        """Tell the coordinator once that this node goes, before its connection is closed."""
        with self._leaving:
            if self._left:
                return
            self._left = True
            try:
                node.leave()
            except Exception as error:
                self._log.debug("leaving: %s", type(error).__name__)

    def _beat(self) -> None:
        """Send heartbeats, also while a message is being answered."""
        while not self._ending.wait(BEAT):
            now = self._now
            if now is not None:
                try:
                    now[1].beat()
                    self._heard = time.monotonic()
                except Exception as error:
                    self._log.debug("heartbeat: %s", type(error).__name__)

    def _activate(self, client: FleetHttpClient) -> Activated:
        """Activate; once more if this clock was wrong."""
        assert self._signed is not None and self._app is not None
        try:
            return Activated(client, self._signed, self._app)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != UNAUTHORIZED:
                raise
            return Activated(client, self._signed, self._app)

    def _client(self) -> FleetHttpClient:
        assert self._signed is not None
        made = FleetHttpClient(f"https://{self._kit.address}", interceptors=[self._signed])
        made._client.close()  # pyright: ignore[reportPrivateUsage]
        made._client = client(self._kit, PATIENCE)  # pyright: ignore[reportPrivateUsage]
        return made

    def _say(self, line: str) -> None:
        """Write a line to the log, once until there is another to write."""
        if line and line != self._said:
            self._log.warning("%s", line)
        if not line:
            self._log.info("connected to the coordinator at %s.", self._kit.address)
        self._said = line

"""Sites on Flower in one process: its messages, its `Grid`, its ClientApps, and no network.

`fedcohort run --runtime flower-sim` fits over these sites. Each call is a Flower message that is
taken apart into Flower's objects (SHA-256 of content as name), serialised, parsed and put together
at either end, exactly as on Flower's wire. Flower's own simulation runs nodes on Ray, in processes
of this computer: 8 to 10 s before the first answer, 700 MB for 8 nodes, 90 ms a call (a few here),
and a package of its own.

A failing site is reported as on a network: code, step and kind, without the error's text.

Revealed: nothing beyond any runtime; all of it stays in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedcohort.engines.flower.line import FlowerLine, client_app, silence_log
from fedcohort.protocol.host import Host
from fedcohort.protocol.ledger import Ledger
from fedcohort.protocol.line import Answering
from fedcohort.runtime.coordinator import Coordinator, Progress
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.masked import ANY, NEVER, Keys, SumRule
from fedcohort.runtime.remote import remote
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site import SiteEnd
from fedcohort.secure import Identity

#: Flower's code for a ClientApp that raised.
_RAISED = 8


def through_wire(message: Message) -> Message:
    """Serialise and parse a message; its number is its content's hash, as Flower has it."""
    with no_object_id_recompute():
        nested = get_all_nested_objects(message)
        parts = {name: part.deflate() for name, part in nested.items()}
        number = message.object_id
    whole = inflate_object_from_contents(number, parts)
    if not isinstance(whole, Message):
        raise ValueError("a message that is none")
    whole.metadata.__dict__["_message_id"] = number
    return whole


class LocalGrid(Grid):
    """Nodes of this process, which answer as soon as they are sent a message.

    Parameters
    ----------
    apps : node → its ClientApp.
    offline : nodes that cannot be reached; may change.
    """

    def __init__(self, apps: Mapping[int, ClientApp], offline: Iterable[int] = ()):
        self.apps, self.offline = dict(apps), set(offline)
        self.replies: dict[str, Message] = {}

    def set_run(self, run: Run) -> None:
        """There is one run."""

    @property
    def run(self) -> Run:
        """The run in which messages go."""
        return Run.create_empty(run_id=1)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message of this grid."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Not offered: it is what makes Flower's calls slow."""
        raise NotImplementedError("use push_messages and pull_messages")

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are online."""
        return set(self.apps) - self.offline

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let each message's node answer it; return the messages' numbers."""
        sent = [through_wire(message) for message in messages]
        for message in sent:
            self.deliver(message)
        return [message.metadata.message_id for message in sent]

    def deliver(self, message: Message) -> None:
        """Let a message be answered."""
        node = message.metadata.dst_node_id
        try:
            reply = self.apps[node](message, Context(1, node, {}, RecordDict(), {}))
        except Exception as error:  # as Flower does: the text goes to the coordinator
            reply = Message(Error(_RAISED, f"{type(error).__name__}: {error}"), reply_to=message)
        self.replies[message.metadata.message_id] = through_wire(reply)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there, each once."""
        return [self.replies.pop(i) for i in list(message_ids) if i in self.replies]


def line(
    sites: Mapping[str, Answering],
    made: Callable[[dict[int, ClientApp]], LocalGrid] = LocalGrid,
) -> FlowerLine:
    """Return a line to sites of this process.

    Parameters
    ----------
    sites : name → answerer.
    made : makes the grid.
    """
    silence_log()
    # Flower keeps a message's sender in a global
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    nodes = {site: 100 + i for i, site in enumerate(sites)}

    def app(answer: Answering) -> ClientApp:
        return client_app(lambda _: answer)

    return FlowerLine(made({nodes[site]: app(sites[site]) for site in sites}), nodes)


@contextmanager
def flower_local(
    hosts: Sequence[Host],
    *,
    quorum: float = 1.0,
    ledger: Ledger | None = None,
    journal: Journal | None = None,
    states: Path | None = None,
    observer: Callable[[Progress], None] | None = None,
    secure: str = "auto",
) -> Generator[Coordinator]:
    """Give a federation of sites in this process that are reached through Flower's messages.

    Parameters
    ----------
    states : folder for what sites remember, where a run shall be resumable.
    secure : with "true" sums are masked, under keys that are drawn here.
    """
    kept = [Answers(_place(host, states)) for host in hosts]
    keys = {host.name: Identity.new() for host in hosts} if secure == "true" else {}
    pinned = {name: key.public for name, key in keys.items()}

    def rule(site: str) -> Callable[[str], SumRule] | None:
        if secure == "false":
            return None
        plain = NEVER if keys else ANY
        made = SumRule(plain, lambda: Keys(keys[site], pinned), rehearsed=not keys)
        return lambda run: made

    ends = {
        host.name: SiteEnd(host.name, partial(_always, host), answers, sums=rule(host.name)).handle
        for host, answers in zip(hosts, kept, strict=True)
    }
    try:
        yield remote(
            line(ends),
            "study",
            "fit",
            quorum=quorum,
            ledger=ledger,
            journal=journal,
            observer=observer,
            secure=secure,
            masks=pinned or None,
        )
    finally:
        for answers in kept:
            answers.close()


def _place(host: Host, states: Path | None) -> Path:
    """Return a site's store; on disk only if it may remember anything."""
    if states is None or not host.keeps:
        return Path(":memory:")
    return states / f"{host.name.encode().hex()}.sqlite"


def _always(host: Host, _run: str, _session: str) -> Host:
    return host

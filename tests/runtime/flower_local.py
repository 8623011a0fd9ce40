"""A Flower `Grid` in this process: messages are taken apart and put together as on its wire."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

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

from fedcohort.runtime.flower_line import FlowerLine, client_app
from fedcohort.runtime.line import Answering


def wire(message: Message) -> Message:
    """Serialise and parse a message; its number is its content's hash."""
    with no_object_id_recompute():
        nested = get_all_nested_objects(message)
        parts = {name: part.deflate() for name, part in nested.items()}
        number = message.object_id
    whole = inflate_object_from_contents(number, parts)
    assert isinstance(whole, Message)
    whole.metadata.__dict__["_message_id"] = number
    return whole


class LocalGrid(Grid):
    """Nodes of this process, each in a thread of its own while it answers.

    Parameters
    ----------
    apps : node → its ClientApp.
    offline : nodes that cannot be reached.
    """

    def __init__(self, apps: dict[int, ClientApp], offline: Iterable[int] = ()):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.apps, self.offline = apps, set(offline)
        self.replies: dict[str, Message] = {}
        self.seen: list[Message] = []

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        return Run.create_empty(run_id=1)

    def create_message(self, *_: object, **__: object) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *_: object, **__: object) -> Iterable[Message]:
        raise AssertionError("it sleeps for three seconds")

    def get_node_ids(self) -> Iterable[int]:
        return set(self.apps) - self.offline

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in map(wire, messages):
            self.seen.append(message)
            threading.Thread(target=self._answer, args=(message,), daemon=True).start()
            numbers.append(message.metadata.message_id)
        return numbers

    def _answer(self, message: Message) -> None:
        node = message.metadata.dst_node_id
        try:
            reply = self.apps[node](message, Context(1, node, {}, RecordDict(), {}))
        except Exception as error:  # as Flower does: the text goes to the coordinator
            reply = Message(Error(8, f"{type(error).__name__}: {error}"), reply_to=message)
        self.replies[message.metadata.message_id] = wire(reply)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(i) for i in list(message_ids) if i in self.replies]


def line(sites: dict[str, Answering], offline: Iterable[str] = ()) -> FlowerLine:
    """Return a line over nodes of this process."""
    nodes = {site: 100 + i for i, site in enumerate(sites)}

    def app(answer: Answering) -> ClientApp:
        return client_app(lambda _: answer)

    grid = LocalGrid({nodes[site]: app(sites[site]) for site in sites}, [nodes[s] for s in offline])
    return FlowerLine(grid, nodes)


Opened = Callable[[dict[str, Answering]], FlowerLine]

"""Flower's `Grid` over a SuperLink's state in the same process, and the `Line` on top of it.

Flower's deployment grid speaks HTTP to the SuperLink; its simulation grid moves whole messages.
Here messages are taken apart into Flower's objects (SHA-256 of content as name), which nodes fetch
and bring one by one, exactly as through HTTP.

A grid needs a Flower run, which here lasts as long as the coordinator, not a study. It is claimed
and activated as Flower's ServerApp process would, and begun again if Flower has ended it (a laptop
that slept for a minute). It holds no study, code or setting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from flwr.app import Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.proto.message_pb2 import ObjectTree
from flwr.server.superlink.linkstate import InMemoryLinkState
from flwr.serverapp import Grid
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import NoObjectInStoreError
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedcohort.engines.flower.line import CALL, FlowerLine, pack
from fedcohort.protocol.line import Silence

#: Seconds for which Flower keeps a message, by the clocks of both ends: longer than they differ.
#: A line deletes its messages itself.
TTL = 1e7

_identity = threading.Lock()


class StateGrid(Grid):
    """A `Grid` over a SuperLink's state in this process.

    Parameters
    ----------
    state : the SuperLink's.
    """

    def __init__(self, state: InMemoryLinkState):
        self._state = state
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._came: dict[str, tuple[Message, ObjectTree]] = {}

    @property
    def run(self) -> Run:
        """The run in which messages go, begun anew if Flower ended it."""
        with self._lock:
            if self._run is None or not self._alive(self._run):
                self._run = self._begin()
            return self._run

    def set_run(self, run: Run) -> None:
        """Use another run."""
        self._run = run

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are online."""
        return self._state.get_nodes(self.run.run_id)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message of this grid's run. Flower keeps a message's sender in a global."""
        run = self.run
        with _identity:
            TaskIdentity.run_id, TaskIdentity.node_id = run.run_id, SUPERLINK_NODE_ID
            TaskIdentity.task_id = run.primary_task_id or 0
            return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Store messages for their nodes; return their numbers, empty for those not taken."""
        run = self.run.run_id
        with no_object_id_recompute():
            return [self._store(run, message) for message in messages]

    def _store(self, run: int, message: Message) -> str:
        """Store one message, in its parts."""
        parts = get_all_nested_objects(message)
        tree = get_object_tree(message)
        message.metadata.__dict__["_message_id"] = tree.object_id  # as Flower does
        session = self._state.start_session(run)
        bare = remove_content_from_message(message)
        taken, missing = self._state.store_message_and_object_tree(bare, tree, session)
        for name in missing:
            self._state.store_object(run, session, name, parts[name].deflate())
        return tree.object_id if taken else ""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are complete; a node brings a reply's parts one by one."""
        run = self.run.run_id
        new = set(message_ids) - set(self._came)
        for reply in self._state.get_message_res(new, run) if new else ():
            asked = reply.metadata.reply_to_message_id
            if reply.has_error() and not reply.metadata.message_id:
                yield reply
                continue
            try:
                tree = self._state.object_store.get_object_tree(reply.metadata.message_id)
            except NoObjectInStoreError:  # its push session ended before the reply was there
                tree = ObjectTree(object_id=reply.metadata.message_id)
            self._came[asked] = reply, tree
        for asked in [number for number in message_ids if number in self._came]:
            reply, tree = self._came[asked]
            whole = self._whole(run, tree)
            if whole is not None:
                yield whole if whole.metadata.reply_to_message_id == asked else reply
                self.forget([asked])

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Not offered: it is what makes Flower's calls slow."""
        raise NotImplementedError("use push_messages and pull_messages")

    def forget(self, numbers: Collection[str]) -> None:
        """Delete messages, their replies, and all that belongs to them."""
        for number in numbers:
            self._came.pop(number, None)
            reply = self._state.message_ins_id_to_message_res_id.get(number)
            for name in (number, reply):
                if name is not None:
                    self._state.object_store.delete(name)
        self._state.delete_messages(set(numbers))

    def _whole(self, run: int, tree: ObjectTree) -> Message | None:
        """Put a reply together, if all its parts are there."""
        parts = dict[str, bytes]()
        for branch in iterate_object_tree(tree):
            content = self._state.get_object(run, branch.object_id)
            if not content:
                return None
            parts[branch.object_id] = content
        whole = inflate_object_from_contents(tree.object_id, parts)
        if not isinstance(whole, Message):
            raise ValueError("a reply that is no message")
        return whole

    def _alive(self, run: Run) -> bool:
        """Keep a run alive; return whether it was."""
        task = run.primary_task_id
        return task is not None and self._state.acknowledge_task_heartbeat(task)

    def _begin(self) -> Run:
        """Begin a run and take the part of its ServerApp."""
        if self._run is not None:
            self._state.cleanup_run(self._run.run_id)
            self._came.clear()
        number = self._state.create_run(
            "fedcohort/network", "1", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID,
            TaskType.SERVER_APP,
        )  # fmt: skip
        run = next(iter(self._state.get_run_info(run_ids=[number])))
        task = run.primary_task_id
        if task is None or not self._state.claim_task(task) or not self._state.activate_task(task):
            raise RuntimeError("Flower began no run")
        return run


class HubLine(FlowerLine):
    """A line that wakes when something comes, and that knows when a node began again.

    Parameters
    ----------
    sites : all sites of the network.
    nodes : Flower's numbers of all nodes so far; grows.
    connected : names of the sites that were heard just now.
    begun : how often a site's node has been activated.
    tell : called when there is a message for a site.
    """

    def __init__(
        self,
        grid: StateGrid,
        sites: Sequence[str],
        nodes: Mapping[str, int],
        connected: Callable[[], frozenset[str]],
        begun: Callable[[str], int],
        tell: Callable[[str], None],
    ):
        super().__init__(grid, nodes)
        self._sites = tuple(sorted(sites))
        self._state_grid, self._here, self._begun, self._tell = grid, connected, begun, tell
        self._woken = threading.Condition()
        self._count = 0
        self._lives: dict[str, int] = {}

    @property
    def connected(self) -> frozenset[str]:
        """Names of the sites that were heard just now."""
        return self._here()

    @property
    def sites(self) -> Sequence[str]:
        """Names of all sites of the network, sorted."""
        return self._sites

    def wake(self) -> None:
        """Something came from a node."""
        with self._woken:
            self._count += 1
            self._woken.notify_all()

    def _message(self, site: str, body: bytes) -> Message:
        return self._state_grid.create_message(pack(body), CALL, self._nodes[site], "", TTL)

    def _send(self, site: str, body: bytes) -> str | None:
        life = self._begun(site)
        number = super()._send(site, body)
        if number is not None:
            self._lives[number] = life
            self._tell(site)
        return number

    def _look(self, sent: Mapping[str, str]) -> list[tuple[str, bytes | Silence]]:
        came = super()._look(sent)
        answered = {number for number, _ in came}
        here = self.connected
        for number, site in sent.items():
            if number in answered:
                continue
            if self._begun(site) != self._lives.get(number):
                came.append((number, Silence(f"site {site!r} began anew.")))
            elif site not in here:
                came.append((number, Silence(f"site {site!r} was lost.")))
        self._forget([number for number, _ in came])
        return came

    def _news(self) -> int:
        return self._count

    def _pause(self, seconds: float, news: int) -> None:
        with self._woken:
            self._woken.wait_for(lambda: self._count != news, seconds)

    def _forget(self, numbers: Collection[str]) -> None:
        for number in numbers:
            self._lives.pop(number, None)
        self._state_grid.forget(numbers)

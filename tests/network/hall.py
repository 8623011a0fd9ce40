"""A network within one process: real kits, channels, nodes and coordinator, and no engine.

    with Hall(folder) as hall:
        hall.start()
        office = hall.office("lead")

Every byte is sealed and decoded as on a network. A node can be stopped and started again, held in
the middle of a call, and the coordinator can be killed: its threads are cut off from the world, as
a process that is gone, and another one is started from a copy of what was on its disk then.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fedcohort.network.coordinator.coordinator import Coordinator
from fedcohort.network.coordinator.lead import Office, Status
from fedcohort.network.kits.make import Kit, Network
from fedcohort.network.node.node import Node
from fedcohort.network.state.policy import Config
from fedcohort.network.study_offer import Offer, offer
from fedcohort.protocol.line import Answering, Silence
from fedcohort.secure.channel import Callee
from fedcohort.study.file.terms import Terms
from network.parties import SAMPLES, SITES, shares

STUDY: dict[str, Any] = {
    "study": "hall", "task": "survival", "seed": 3,
    "data": {
        "source": "patients.csv", "dictionary": "dictionary.yaml",
        "outcome": {"time": "time", "event": "cens"},
    },
    "arms": [{"method": "cox", "scale": "none"}],
    "bounds": [],
    "final": False,
    "evaluate": {"test_fraction": 0.25, "repeats": 1, "draws": 2, "metrics": ["c_index"]},
}  # fmt: skip


class Wire:
    """The line of one coordinator to all nodes; dead once its process is."""

    def __init__(self, hall: Hall):
        self._hall = hall
        self.dead = False

    @property
    def sites(self) -> Sequence[str]:
        return self._hall.names

    @property
    def connected(self) -> frozenset[str]:
        return frozenset() if self.dead else frozenset(self._hall.up)

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        for site, blob in requests.items():
            if self.dead:
                threading.Event().wait()  # a killed process does not go on
            self._hall.calls += 1
            self._hall.before(site)
            node = self._hall.up.get(site)
            if node is None:
                yield site, Silence("is not connected", late=False)
                continue
            reply = node(blob)
            if self.dead:
                threading.Event().wait()
            yield site, reply


class Hub:
    """The coordinator's end."""

    def __init__(self, hall: Hall, on_request: Answering):
        self.line = Wire(hall)
        self.on_request = on_request

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self.line.dead = True


class Spoke:
    """A person's end."""

    def __init__(self, hall: Hall):
        self._hall = hall

    @property
    def connected(self) -> bool:
        return self._hall.hub is not None

    def ask(self, blob: bytes, timeout: float) -> bytes | Silence:
        hub = self._hall.hub
        return Silence("is not connected", late=False) if hub is None else hub.on_request(blob)

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


class Hall:
    """A network of three sites, or of those that are named.

    Parameters
    ----------
    approval : by site, "automatic" (the default) or "steward".
    policy : by site, further lines of [policy].
    """

    def __init__(
        self,
        folder: Path,
        approval: Mapping[str, str] | None = None,
        policy: Mapping[str, Mapping[str, str]] | None = None,
        names: Sequence[str] = SITES,
    ):
        self.folder = folder
        self.names = tuple(names)
        self.up: dict[str, Answering] = {}
        self.nodes: dict[str, Node] = {}
        self.hub: Hub | None = None
        self.coordinator: Coordinator | None = None
        self.said: list[str] = []
        self.calls = 0
        self.before: Callable[[str], None] = lambda site: None
        self.network = Network.new(folder / "net", sites=names, leads=("lead", "second"))
        self.home = self.network.kit("coordinator")
        for name, table in shares(names).items():
            place = folder / name
            place.mkdir()
            table.to_csv(place / "patients.csv", index=False)
            lines = {
                "methods": '"all"', "columns": '"all"', "submitters": '"all"',
                "approval": f'"{(approval or {}).get(name, "automatic")}"',
            } | dict((policy or {}).get(name, {}))  # fmt: skip
            text = "\n".join(f"{k} = {v}" for k, v in lines.items())
            (place / "node.toml").write_text(
                f'[data]\nsource = "patients.csv"\n\n[policy]\n{text}\n'
            )
        (folder / "dictionary.yaml").write_text((SAMPLES / "gbsg2.yaml").read_text())

    def kit(self, who: str) -> Kit:
        return Kit.read(self.network.kit(who))

    def begin(self, *names: str) -> None:
        """Start nodes."""
        for name in names or self.names:
            kit = self.kit(name)
            node = Node(kit, Config.read(self.folder / name / "node.toml"))
            self.nodes[name] = node
            self.up[name] = Callee(kit, kit.trust(), ("coordinator",), node.handle).handle

    def end(self, name: str) -> None:
        """End a node."""
        del self.up[name]
        self.nodes.pop(name).close()

    def open(self) -> None:
        """Start a coordinator."""
        made: list[Hub] = []

        def opened(answering: Answering) -> Hub:
            made.append(Hub(self, answering))
            return made[0]

        self.coordinator = Coordinator(Kit.read(self.home), opened, self.said.append)
        self.coordinator.start()
        self.hub = made[0]

    def kill(self) -> None:
        """Cut the coordinator off: nothing that it still does has an effect outside."""
        assert self.hub is not None
        self.hub.line.dead, self.hub = True, None
        left = self.home.with_name(f"{self.home.name}-2")
        shutil.copytree(self.home, left)
        self.home = left

    def start(self) -> None:
        self.begin()
        self.open()

    def office(self, lead: str = "lead") -> Office:
        return Office(self.kit(lead), Spoke(self))

    def terms(self, **changes: Any) -> Terms:
        path = self.folder / "study.yaml"
        path.write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))
        return Terms.of(path)

    def offer(self, lead: str = "lead", **changes: Any) -> Offer:
        return offer(self.terms(**changes).to_json(), self.kit(lead))

    def until(self, office: Office, first: Status, state: str, seconds: float = 60) -> Status:
        """Wait until a run is in a state; fail where it ends in another."""
        limit = time.monotonic() + seconds
        while True:
            _, meta = office.insist("status", run=first.run)
            status = Status.of(meta)
            if status.state == state:
                return status
            assert status.open, (status, self.said)
            assert time.monotonic() < limit, (status, self.said)
            time.sleep(0.02)

    def __enter__(self) -> Hall:
        return self

    def __exit__(self, *_: object) -> None:
        if self.coordinator is not None:
            self.coordinator.stop()
        for name in list(self.nodes):
            self.end(name)

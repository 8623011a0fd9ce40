"""Flower's messages in this process, each node in a thread of its own, and what was sent."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from flwr.app import Message
from flwr.clientapp import ClientApp

from fedcohort.engines.flower import local as flower_local
from fedcohort.engines.flower.line import FlowerLine
from fedcohort.engines.flower.local import LocalGrid, through_wire
from fedcohort.protocol.line import Answering

wire = through_wire


class Threads(LocalGrid):
    """Nodes of this process, each in a thread of its own while it answers."""

    def __init__(self, apps: dict[int, ClientApp], offline: Iterable[int] = ()):
        super().__init__(apps, offline)
        self.seen: list[Message] = []

    def deliver(self, message: Message) -> None:
        self.seen.append(message)
        threading.Thread(target=super().deliver, args=(message,), daemon=True).start()


def line(sites: dict[str, Answering], offline: Iterable[str] = ()) -> FlowerLine:
    """Return a line over nodes of this process."""
    made = flower_local.line(sites, Threads)
    made._grid.offline = {made._nodes[site] for site in offline}
    return made

"""Flower as an engine: `Hub` for the coordinator, `Spoke` for sites and people.

This adapter uses Flower's messages, nodes and SuperLink state, and none of its programs. On
loopback, with three sites and TLS, a call through `flower-superlink`, `flower-supernode` and their
executors takes 4 to 9 s, because each sleeps between looks and starts a process for each message;
through `Hub` and `Spoke` it takes tens of milliseconds, in one process per party. See
`benchmarks/network/flower_floor.py`.

    line        Line over a Grid; ClientApp over an Answering; nothing else crosses
    grid        Grid over a SuperLink's state in this process
    gate, hub   the coordinator's TLS port
    spoke       a node; people
    http        their connection to the coordinator, and its error messages
    local       sites in one process, which `--runtime flower-sim` uses

The extra `fedcohort[flower]` pins flwr's minor version: these classes are Flower's internals. A
site loads none of the coordinator's part, which is half of the memory.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fedcohort.protocol.errors import InputError

if TYPE_CHECKING:
    from fedcohort.engines.flower.http import preflight
    from fedcohort.engines.flower.hub import Hub
    from fedcohort.engines.flower.line import FlowerLine, client_app
    from fedcohort.engines.flower.local import flower_local
    from fedcohort.engines.flower.spoke import Spoke

__all__ = ["FlowerLine", "Hub", "Spoke", "client_app", "flower_local", "preflight"]

#: Version of flwr whose classes this was written for; see `tests/engines/test_flower_pin.py`.
VERSION = "1.41"

_HOMES = {
    "FlowerLine": "line",
    "Hub": "hub",
    "Spoke": "spoke",
    "client_app": "line",
    "flower_local": "local",
    "preflight": "http",
}


def __getattr__(name: str) -> Any:
    """Load a part when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not (found := version("flwr")).startswith(VERSION + "."):
        raise InputError(
            f"this needs Flower {VERSION}, but {found} is installed: pip install "
            f"'flwr=={VERSION}.*'."
        )
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

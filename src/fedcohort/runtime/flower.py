"""Flower as an engine: `Hub` for the coordinator, `Spoke` for sites and people.

This adapter uses Flower's messages, nodes and SuperLink state, and none of its programs. On
loopback, with three sites and TLS, a call through `flower-superlink`, `flower-supernode` and their
executors takes 4 to 9 s, because each of them sleeps between looks and starts a process for each
message; the same messages through `Hub` and `Spoke` take tens of milliseconds, in one process a
party. See `benchmarks/network/flower_floor.py`.

    flower_line        Line over a Grid; ClientApp over an Answering; nothing else crosses
    flower_grid        Grid over a SuperLink's state in this process
    flower_gate, flower_hub    the coordinator's TLS port
    flower_spoke       a node; people
    flower_http        their way to the coordinator, and what is said when they are not let in
    flower_local       sites in one process, which `--runtime flower-sim` uses

The extra `fedcohort[flower]` pins flwr's minor version: these classes are Flower's inside. A site
loads none of the coordinator's part, which is half of the memory.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fedcohort.protocol.errors import InputError

if TYPE_CHECKING:
    from fedcohort.runtime.flower_http import preflight
    from fedcohort.runtime.flower_hub import Hub
    from fedcohort.runtime.flower_line import FlowerLine, client_app
    from fedcohort.runtime.flower_local import flower_local
    from fedcohort.runtime.flower_spoke import Spoke

__all__ = ["FlowerLine", "Hub", "Spoke", "client_app", "flower_local", "preflight"]

#: Version of flwr whose classes this was written for; see `tests/runtime/test_flower_pin.py`.
VERSION = "1.41"

_HOMES = {
    "FlowerLine": "flower_line",
    "Hub": "flower_hub",
    "Spoke": "flower_spoke",
    "client_app": "flower_line",
    "flower_local": "flower_local",
    "preflight": "flower_http",
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
    return getattr(import_module(f"fedcohort.runtime.{_HOMES[name]}"), name)

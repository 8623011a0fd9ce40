"""The engine of a kit, by name: the transport of a network's bytes.

An engine is imported only when a kit asks for it. Studies on one computer need none.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable
from typing import Any, Protocol

from fedcohort.network.kits import Kit
from fedcohort.protocol.errors import InputError
from fedcohort.protocol.line import Answering, Line, Silence
from fedcohort.secure.channel import Callee
from fedcohort.secure.trust import Peer

#: Engine → the name that people know, its package, and the module of our adapter.
KNOWN = {
    "flare": ("NVIDIA FLARE", "nvflare", "fedcohort.engines.flare"),
    "flower": ("Flower", "flwr", "fedcohort.engines.flower"),
}
log = logging.getLogger(__name__)


class Hub(Protocol):
    """The coordinator's end of an engine."""

    @property
    def line(self) -> Line:
        """What carries requests to the sites."""
        ...

    def start(self) -> None:
        """Listen."""
        ...

    def stop(self) -> None:
        """Close all connections."""
        ...


class Spoke(Protocol):
    """A site's or a person's end of an engine."""

    @property
    def connected(self) -> bool:
        """Whether the coordinator can be reached now, as far as the engine knows."""
        ...

    def ask(self, blob: bytes, timeout: float) -> bytes | Silence:
        """Ask the coordinator something."""
        ...

    def start(self) -> None:
        """Connect, and connect again whenever the connection is lost."""
        ...

    def stop(self) -> None:
        """Close the connection."""
        ...


Opened = Callable[[Answering], Hub]


def hub(kit: Kit, on_request: Answering, listen: str | None = None) -> Hub:
    """Return the coordinator's end of the kit's engine, not started.

    Parameters
    ----------
    on_request : answers requests of sites and people.
    listen : local host or address to listen on, if it is not the kit's (as behind a router).
    """
    return _adapter(kit.engine).Hub(kit, on_request, log, listen=listen)


def spoke(kit: Kit, answer: Callable[[Peer, bytes], bytes] | None = None) -> Spoke:
    """Return a site's or a person's end of the kit's engine, not started.

    Parameters
    ----------
    answer : answers the coordinator's calls, which come over a sealed channel.
    """
    adapter = _adapter(kit.engine)
    if answer is None:
        return adapter.Spoke(kit, None, log)
    callee = Callee(kit, kit.trust(), ("coordinator",), answer)
    return adapter.Spoke(kit, callee.handle, log)


def preflight(kit: Kit, timeout: float = 5.0, *, dates: bool = True) -> str | None:
    """Try to reach the coordinator once; return why a later try may succeed, None if this one did.

    Parameters
    ----------
    dates : check the dates of the coordinator's certificate by this clock; see
        `engines.tls.context`.

    Raises
    ------
    Refused : a later try fails too: the certificate is expired, or of another network.
    """
    try_ = getattr(_adapter(kit.engine), "preflight", None)
    return None if try_ is None else try_(kit, timeout, dates=dates)


def check_installed(engine: str) -> None:
    """Check that an engine can be used here.

    Raises
    ------
    InputError : it is unknown, or its package is not installed.
    """
    _adapter(engine)


def _adapter(engine: str) -> Any:
    """Return the module of an engine.

    Raises
    ------
    InputError : the engine is unknown, or its package is not installed.
    """
    if engine not in KNOWN:
        raise InputError(f"engine {engine!r} is not known; this version has {', '.join(KNOWN)}.")
    title, package, module = KNOWN[engine]
    if importlib.util.find_spec(package) is None:
        raise InputError(f"this needs {title}: pip install 'fedcohort[{engine}]'.")
    return importlib.import_module(module)

"""Networks for the conformance suite, in this process.

* `Net`: real ends of an engine over TLS on loopback. What a call goes through is what it goes
  through between hospitals: encoding, the seal, the engine's hub, a TLS connection, the engine's
  spoke, the seal, the site.
* `Messages`: Flower's messages over its `Grid` in this process, as in `--runtime flower-sim`. A
  call over Flower's gate is 27 HTTP requests, too many for each test of each method; the suite asks
  there for equality alone, with every method's defaults.

A network is opened when a test first asks for it, serves all tests of this process, and is closed
by `close_all`.
"""

from __future__ import annotations

import importlib
import logging
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcohort.network.kits.make import Kit, Network
from fedcohort.protocol.line import Answering
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.remote import remote
from fedcohort.secure.channel import Callee, Caller
from network.wires import free_port

SITES = ("a", "b", "c")
LOG = logging.getLogger(__name__)
PATIENCE = 60.0

_open: dict[str, Net | Messages] = {}
_folders: dict[str, tempfile.TemporaryDirectory[str]] = {}


class Away:
    """Sites of which some are gone."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self._fed: Coordinator | None = None

    def reached(self, line: Any, **options: Any) -> Coordinator:
        """Return a federation over a line."""
        self._fed = remote(line, "a study", "a fit", **options)
        self.note()
        return self._fed

    def note(self) -> None:
        """Let the coordinator know who is away, as after a call that waited for them in vain."""
        if self._fed is not None:
            self._fed._run.transport._away |= self.gone


class Messages(Away):
    """Flower's messages in this process."""

    def federation(self, ends: Mapping[str, Answering], **options: Any) -> Coordinator:
        """Return a federation of sites that are nodes of a grid."""
        from fedcohort.engines.flower.local import line

        made = line(ends)
        self._grid, self._nodes = made._grid, made._nodes
        return self.reached(made, **options)

    def reached(self, line: Any, **options: Any) -> Coordinator:
        """Return a federation over a line."""
        self._show()
        return super().reached(line, **options)

    def join(self, *sites: str) -> None:
        """Let sites be online."""
        self.gone.difference_update(sites)
        self._show()

    def leave(self, *sites: str) -> None:
        """Let sites be offline."""
        self.gone.update(sites)
        self._show()
        self.note()

    def _show(self) -> None:
        if hasattr(self, "_grid"):
            self._grid.offline = {self._nodes[site] for site in self.gone}

    def close(self) -> None:
        """There is nothing to close."""


class Net(Away):
    """A coordinator and its sites; who answers at a site changes from test to test.

    Attributes
    ----------
    answers : by site, what its requests are given to.
    """

    def __init__(self, engine: str, folder: Path):
        super().__init__()
        self._ends = importlib.import_module(f"fedcohort.engines.{engine}")
        self._network = Network.new(
            folder / "net", sites=SITES, address=f"127.0.0.1:{free_port()}", engine=engine
        )
        kit = Kit.read(self._network.kit("coordinator"))
        self.answers: dict[str, Answering] = {}
        self._hub = self._ends.Hub(kit, bytes, LOG)
        self._hub.start()
        self._line = Caller(kit, kit.trust(), self._hub.line)
        self._spokes: dict[str, Any] = {}
        self.join(*SITES)

    def join(self, *sites: str) -> None:
        """Start the ends of sites, as new processes would, and wait until they are connected."""
        for site in sites:
            kit = Kit.read(self._network.kit(site))

            def answer(_peer: object, body: bytes, site: str = site) -> bytes:
                return self.answers[site](body)

            callee = Callee(kit, kit.trust(), ("coordinator",), answer)
            self._spokes[site] = self._ends.Spoke(kit, callee.handle, LOG)
            self._spokes[site].start()
            self.gone.discard(site)
        self._until(lambda: self._line.connected >= set(sites))

    def leave(self, *sites: str) -> None:
        """Stop the ends of sites, and wait until that is seen."""
        for site in sites:
            self._spokes.pop(site).stop()
            self.gone.add(site)
        self._until(lambda: not self._line.connected & set(sites))
        self.note()

    def federation(self, ends: Mapping[str, Answering], **options: Any) -> Coordinator:
        """Return a federation of sites of this network."""
        self.answers = dict(ends)
        return self.reached(_Part(self._line, tuple(ends)), **options)

    def _until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, f"connected: {sorted(self._line.connected)}"
            time.sleep(0.002)

    def close(self) -> None:
        """Close all connections."""
        for spoke in self._spokes.values():
            spoke.stop()
        self._hub.stop()


class _Part:
    """Some sites of a line."""

    def __init__(self, line: Any, sites: tuple[str, ...]):
        self._line, self.sites = line, sites

    @property
    def connected(self) -> frozenset[str]:
        return self._line.connected & frozenset(self.sites)

    def exchange(self, requests: Mapping[str, bytes], timeout: float) -> Iterable[Any]:
        return self._line.exchange(requests, timeout)


def net(engine: str) -> Net | Messages:
    """Return this process's network of an engine, opened if it was not."""
    if engine not in _open and engine == "flower":
        _open[engine] = Messages()
    elif engine not in _open:
        folder = tempfile.TemporaryDirectory()
        _open[engine] = Net(engine.split()[0], Path(folder.name))
        _folders[engine] = folder
    return _open[engine]


def close_all() -> None:
    """Close what this process opened."""
    while _open:
        engine, one = _open.popitem()
        one.close()
        if engine in _folders:
            _folders.pop(engine).cleanup()

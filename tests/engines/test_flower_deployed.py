"""Three sites as processes of their own, over mutual TLS: they answer, are killed, come back."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedcohort.engines.flower import Hub, Spoke
from fedcohort.network.kits.make import Kit, Network
from fedcohort.protocol.line import Silence
from network.wires import free_port, until

SITES = ("a", "b", "c")
HERE = Path(__file__).with_name("flower_node.py")


@contextmanager
def process(kit: Path, *how: str) -> Iterator[subprocess.Popen[bytes]]:
    """A site's process; it ends with the block."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    running = subprocess.Popen([sys.executable, str(HERE), str(kit), *how], env=environment)
    try:
        yield running
    finally:
        running.kill()
        running.wait(10)


def resident(pid: int) -> float:
    """Return a process's memory in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def test_sites_in_processes_answer_are_killed_and_come_back(tmp_path):
    logging.getLogger("httpx").setLevel(logging.WARNING)
    network = Network.new(
        tmp_path / "net", sites=SITES, address=f"127.0.0.1:{free_port()}", engine="flower"
    )
    hub = Hub(Kit.read(network.kit("coordinator")), bytes.upper)
    with ExitStack() as stack:
        hub.start()
        stack.callback(hub.stop)
        nodes = {site: stack.enter_context(process(network.kit(site))) for site in SITES}
        until(lambda: hub.line.connected == {*SITES}, 40)

        bodies = {site: os.urandom(2**20) for site in SITES}
        replies = dict(hub.line.exchange(bodies, 30))
        assert replies == {site: body[::-1] for site, body in bodies.items()}
        lead = Spoke(Kit.read(network.kit("lead")), None)
        assert lead.ask(b"who is there", 5) == b"WHO IS THERE"
        lead.stop()
        if sys.platform == "linux":
            assert max(resident(node.pid) for node in nodes.values()) < 160

        # killed while it waits: seen at once, and the others answer
        os.kill(nodes["a"].pid, signal.SIGKILL)
        until(lambda: hub.line.connected == {"b", "c"}, 5)
        replies = dict(hub.line.exchange(dict.fromkeys(SITES, b"12"), 30))
        assert isinstance(replies["a"], Silence)
        assert replies["b"] == replies["c"] == b"21"

        # killed while it answers, and started again: what it was asked is given up at once
        slow = stack.enter_context(process(network.kit("a"), "slow"))
        until(lambda: "a" in hub.line.connected, 40)
        exchange = hub.line.exchange({"a": b"12"}, 60)
        begun = time.monotonic()
        stack.enter_context(killed_soon(slow, network.kit("a")))
        ((_, reply),) = exchange
        assert isinstance(reply, Silence)
        assert time.monotonic() - begun < 45
        until(lambda: "a" in hub.line.connected, 40)
        assert dict(hub.line.exchange({"a": b"12"}, 30)) == {"a": b"21"}


@contextmanager
def killed_soon(victim: subprocess.Popen[bytes], kit: Path) -> Iterator[None]:
    """Kill a process in half a second, and start another for the kit."""
    again = shlex.join([sys.executable, str(HERE), str(kit)])
    command = f"sleep 0.5; kill -9 {victim.pid}; exec {again}"
    running = subprocess.Popen(["/bin/sh", "-c", command])
    try:
        yield
    finally:
        running.kill()
        running.wait(10)

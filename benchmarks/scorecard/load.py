"""Fifty sites that each answer with a million numbers, ten times: the coordinator's memory.

    python benchmarks/scorecard/load.py [--sites 50] [--parameters 1000000] [--rounds 10]

The coordinator is this process, with all that the product's has below a study: FLARE as engine with
mutual TLS, sealed channels, strict decoding, and the federation that sums. Each round it sends the
parameters (float64) to all sites and sums what comes back, as federated averaging does. All sites
are in one other process, each with its own kit, connection, channel and store. Measured is the peak
of this process (VmHWM), with everything that it has imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np
from sheet import forget_peak, main, megabytes

from fedcohort.arrays import Array
from fedcohort.network import engines
from fedcohort.network.channel import Callee, Caller
from fedcohort.network.kits import Kit, Network
from fedcohort.network.trust import Trust
from fedcohort.protocol.host import Host
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed
from fedcohort.runtime.answers import Answers
from fedcohort.runtime.remote import remote
from fedcohort.runtime.site_end import SiteEnd
from network.wires import free_port, until

ITEM = "load: 50 sites × 1M parameters × 10 rounds"
TARGET = "≤ 2 GB at the coordinator"
MOST_MB = 2048.0


@message
class Numbers:
    """What came, and one count."""

    x: Array
    n: Array


@summed
def scaled(site: Site[float, None], *, x: Array) -> Numbers:
    """Return the parameters times the site's own number."""
    return Numbers(site.data * x, np.array(1))


def serve(net: str) -> None:
    """Be all sites, until killed."""
    ends: list[object] = []
    for i, folder in enumerate(sorted((Path(net) / "sites").iterdir()), 1):
        kit = Kit.read(folder)
        host = Host(kit.name, float(i), (scaled,), 0)
        end = SiteEnd(kit.name, lambda run, session, h=host: h, Answers(folder / "load.sqlite"))
        callee = Callee(
            kit, Trust(kit.root), ("coordinator",), lambda peer, body, e=end: e.handle(body)
        )
        spoke = engines.spoke(kit, callee.handle)
        spoke.start()
        ends += [end, callee, spoke]
    threading.Event().wait()


def measure(sites: int = 50, parameters: int = 1_000_000, rounds: int = 10) -> tuple[str, bool]:
    """Let all sites answer; say how large this process became."""
    with tempfile.TemporaryDirectory() as folder:
        names = [f"site-{i:02d}" for i in range(1, sites + 1)]
        net = Path(folder) / "net"
        Network.new(
            net, sites=names, leads=["lead"], address=f"127.0.0.1:{free_port()}", engine="flare"
        )
        kit = Kit.read(net / "coordinator")
        hub = engines.hub(kit, lambda blob: b"")
        hub.start()
        code = f"import load; load.serve({str(net)!r})"
        others = subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL, cwd=Path(__file__).parent,
        )  # fmt: skip
        try:
            line = Caller(kit, Trust(kit.root), hub.line)
            until(lambda: line.connected == set(names), 180, "all sites are connected")
            fed = remote(line, "0" * 64, "load", timeout=300)
            x = np.random.default_rng(0).normal(size=parameters)
            start = megabytes("VmRSS")
            forget_peak()
            began = time.perf_counter()
            for _ in fed.rounds(rounds):
                total = fed.sum(scaled, x=x)
                right = x * (sites * (sites + 1) / 2)
                if not np.allclose(total.x, right, rtol=1e-9, atol=1e-6) or total.n != sites:
                    raise AssertionError("a sum is wrong")
                x = total.x / np.abs(total.x).max()
            seconds = time.perf_counter() - began
            peak = megabytes("VmHWM")
        finally:
            others.kill()
            others.wait()
            hub.stop()
    text = (
        f"{sites} sites × {parameters:,} float64 × {rounds} rounds over FLARE, sums right: peak "
        f"{peak / 1024:.2f} GB ({start / 1024:.2f} GB before the first), {seconds:.0f} s"
    )
    asked = sites >= 50 and parameters >= 1_000_000 and rounds >= 10
    return text, asked and peak <= MOST_MB


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure, sites=50, parameters=1_000_000, rounds=10)

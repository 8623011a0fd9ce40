"""Fifty sites that each answer with a million numbers, ten times: the coordinator's memory.

    python benchmarks/scorecard/load.py [--sites 50] [--parameters 1000000] [--rounds 10]

The coordinator is this process, with all that the product's has below a study: FLARE as engine with
mutual TLS, sealed channels, strict decoding, and the federation that sums. Each round it sends the
parameters (float64) to all sites and sums what comes back, as federated averaging does: first each
site's reply as it is, then masked, among all sites, with the keys of their kits, as parameters of a
model are (`@message(parameters=...)`). All sites are in other processes, one for each core, each
site with its own kit, connection, channel and store. Measured is the peak of this process (VmHWM)
in each of the two, with everything that it has imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np
from sheet import forget_peak, main, megabytes

from fedcohort.arrays import Array
from fedcohort.network import engines
from fedcohort.network.kits.make import Kit, Network
from fedcohort.protocol.host import Host
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, Summed, summed
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.masked.end import ANY, Keys, SumRule
from fedcohort.runtime.remote import remote
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.site_end import SiteEnd
from fedcohort.secure.channel import Caller
from fedcohort.secure.context import Identity
from fedcohort.secure.trust import Trust
from network.wires import free_port, until

ITEM = "load: 50 sites × 1M parameters × 10 rounds"
TARGET = "≤ 2 GB at the coordinator"
MOST_MB = 2048.0


@message
class Numbers:
    """What came, and one count."""

    x: Array
    n: Array


@message(parameters=["x"])
class Parameters:
    """A model's parameters, and one count."""

    x: Array
    n: Array


@summed
def scaled(site: Site[float, None], *, x: Array) -> Numbers:
    """Return the parameters times the site's own number."""
    return Numbers(site.data * x, np.array(1))


@summed
def trained(site: Site[float, None], *, x: Array) -> Parameters:
    """Return the parameters times the site's own number, to be masked."""
    return Parameters(site.data * x, np.array(1))


def serve(net: str, first: int, every: int) -> None:
    """Be every so many of the sites, from the first on, until killed."""
    ends: list[object] = []
    for i, folder in list(enumerate(sorted((Path(net) / "sites").iterdir()), 1))[first::every]:
        kit = Kit.read(folder)
        own = kit.membership()
        rule = SumRule(ANY, lambda own=own: Keys(Identity.from_bytes(own.secret), own.pinned))
        host = Host(kit.name, float(i), (scaled, trained), 0)
        end = SiteEnd(
            kit.name, lambda run, session, h=host: h, Answers(folder / "load.sqlite"),
            sums=lambda run, r=rule: r,
        )  # fmt: skip
        spoke = engines.spoke(kit, lambda peer, body, e=end: e.handle(body))
        spoke.start()
        ends += [end, spoke]
    threading.Event().wait()


def peak_of(
    fed: Coordinator, step: Summed[..., Any], sites: int, parameters: int, rounds: int
) -> tuple[float, float, float]:
    """Let all sites answer; return gigabytes before and at the peak, and seconds.

    Raises
    ------
    AssertionError : a sum is wrong, or is masked, or not, where it should be otherwise.
    """
    x = np.random.default_rng(0).normal(size=parameters)
    forget_peak()
    start, began = megabytes("VmRSS") / 1024, time.perf_counter()
    masked = step is trained
    for _ in fed.rounds(rounds):
        total = fed.sum(step, x=x)
        right = x * (sites * (sites + 1) / 2)
        rounding = sites * 2.0**-28 if masked else 1e-6
        if not np.allclose(total.x, right, rtol=1e-9, atol=rounding) or total.n != sites:
            raise AssertionError("a sum is wrong")
        x = total.x / np.abs(total.x).max()
    if {json.loads(line)["masked"] for line in fed.ledger.lines} != {masked}:
        raise AssertionError(f"sums are {'not ' * masked}masked")
    return start, megabytes("VmHWM") / 1024, time.perf_counter() - began


def measure(sites: int = 50, parameters: int = 1_000_000, rounds: int = 10) -> tuple[str, bool]:
    """Let all sites answer, plainly and masked; say how large this process became."""
    with tempfile.TemporaryDirectory() as folder:
        names = [f"site-{i:02d}" for i in range(1, sites + 1)]
        net = Path(folder) / "net"
        Network.new(
            net, sites=names, leads=["lead"], address=f"127.0.0.1:{free_port()}", engine="flare"
        )
        kit = Kit.read(net / "coordinator")
        pinned = Kit.read(net / "sites" / names[0]).membership().pinned
        hub = engines.hub(kit, lambda blob: b"")
        hub.start()
        parts = min(sites, len(os.sched_getaffinity(0)))
        others = [
            subprocess.Popen(
                [sys.executable, "-c", f"import load; load.serve({str(net)!r}, {i}, {parts})"],
                env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL,
                cwd=Path(__file__).parent,
            )
            for i in range(parts)
        ]  # fmt: skip
        found: dict[str, tuple[float, float, float]] = {}
        try:
            line = Caller(kit, Trust(kit.root), hub.line)
            until(lambda: line.connected == set(names), 180, "all sites are connected")
            for kind, step, masks in (("plain", scaled, None), ("masked", trained, pinned)):
                fed = remote(line, "0" * 64, kind, timeout=300, patience=60, masks=masks)
                found[kind] = peak_of(fed, step, sites, parameters, rounds)
        finally:
            for other in others:
                other.kill()
                other.wait()
            hub.stop()
    peaks = "; ".join(
        f"{kind} peak {peak:.2f} GB ({start:.2f} GB before the first), {seconds:.0f} s"
        for kind, (start, peak, seconds) in found.items()
    )
    asked = sites >= 50 and parameters >= 1_000_000 and rounds >= 10
    text = (
        f"{sites} sites × {parameters:,} float64 × {rounds} rounds over FLARE, sums right: {peaks}"
    )
    return text, asked and all(peak * 1024 <= MOST_MB for _, peak, _ in found.values())


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure, sites=50, parameters=1_000_000, rounds=10)

"""The floor of the FLARE engine: what one call costs when sites only send back what they got.

`python benchmarks/network/flare_floor.py [--sites 3] [--sizes 64 1048576 8388608]`

One coordinator and its sites, each a process of its own, TLS 1.3 with certificates both ways on
loopback. A call goes to all sites at once and ends with the last answer. Nothing of fedcohort's own
is in it: no seals, no encoding, no journal.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from fedcohort.engines.flare import Hub, Spoke
from fedcohort.network.kits.make import Kit, Network

CALLS = {64: 300, 2**20: 60, 8 * 2**20: 15}
WARM_UP = 3


def names(number: int) -> list[str]:
    return [f"site-{i + 1}" for i in range(number)]


def site(folder: str) -> None:
    Spoke(Kit.read(folder), bytes, logging.getLogger()).start()
    threading.Event().wait()


def measure(hub: Hub, sites: list[str], sizes: list[int]) -> None:
    print(f"{'bytes':>9} {'calls':>6} {'median ms':>10} {'min ms':>8} {'p95 ms':>8}")
    for size in sizes:
        body, seconds = os.urandom(size), []
        calls = CALLS.get(size, 30)
        for _ in range(calls + WARM_UP):
            began = time.perf_counter()
            heard = dict(hub.line.exchange(dict.fromkeys(sites, body), 60))
            seconds.append(1e3 * (time.perf_counter() - began))
            if any(heard[name] != body for name in sites):
                sys.exit("a site's answer is not what it was sent")
        seconds = sorted(seconds[WARM_UP:])
        p95 = seconds[int(0.95 * (calls - 1))]
        middle = statistics.median(seconds)
        print(f"{size:>9} {calls:>6} {middle:>10.2f} {seconds[0]:>8.2f} {p95:>8.2f}")


def memory(title: str, processes: list[psutil.Process]) -> None:
    resident = [p.memory_info().rss / 2**20 for p in processes]
    threads = [p.num_threads() for p in processes]
    middle = statistics.median(resident)
    print(
        f"{title:<28} median {middle:4.0f} MB, most {max(resident):4.0f} MB, threads {max(threads)}"
    )


def main(number: int, sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        sites = names(number)
        network = Network.new(Path(folder) / "bench", sites=sites, address=address)
        hub = Hub(Kit.read(network.kit("coordinator")), bytes, logging.getLogger())
        processes: list[subprocess.Popen[bytes]] = []
        try:
            began = time.perf_counter()
            hub.start()
            for name in sites:
                command = [sys.executable, __file__, "--as-site", str(network.kit(name))]
                processes.append(subprocess.Popen(command))
            while len(hub.line.connected) < number:
                if time.perf_counter() - began > 120 or any(p.poll() for p in processes):
                    sys.exit("not all sites connected")
                time.sleep(0.005)
            ready = time.perf_counter() - began
            print(f"{number} sites, {os.cpu_count()} cores; processes to ready: {ready:.2f} s")
            found = [psutil.Process(p.pid) for p in processes]
            memory("a site, idle", found)
            measure(hub, sites, sizes)
            memory("a site, afterwards", found)
            memory("coordinator, afterwards", [psutil.Process()])
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(10)
            hub.stop()


if __name__ == "__main__":
    logging.getLogger().addHandler(logging.NullHandler())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(CALLS))
    parser.add_argument("--as-site", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.as_site:
        site(given.as_site)
    else:
        main(given.sites, given.sizes)

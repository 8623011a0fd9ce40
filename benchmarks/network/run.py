"""What a network costs: calls, time to ready, memory, and two whole studies.

    python benchmarks/network/run.py [--engine flare|flower] [--only calls|studies]

Three sites, mutual TLS on the loopback, each party a process. The engine's own floor is measured
by `flare_floor.py` and `flower_floor.py`: bytes there and back, without anything of ours.

calls     one call to three sites and their three replies, through all that a study's calls go
          through: strict encoding and decoding, the seal from end to end, the engine, the host.
          `echo` gives back what it is sent (bytes are those of one direction); `remember` also
          changes the site's state, so that each store is on the disk before its reply leaves.
studies   by the real commands: time until every node is connected, the memory of each process,
          `deepcox exact` of 200 steps (Flower: 20), and quickstart's arms (FLARE) end to end,
          beside the same study in one process (`LocalSites`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np
import yaml
from echo import echo, remember

from fedcohort.network import engines
from fedcohort.network.kits.make import Kit
from fedcohort.runtime.remote import remote
from fedcohort.secure.channel import Caller
from fedcohort.secure.trust import Trust
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.runner import run_over as run_deployed
from fedcohort.study.sites.sites import LocalSites
from network.parties import SITES, Parties, environment, shares
from network.wires import until

STUDIES = Path(__file__).parents[2] / "studies"
SIZES = {"tiny": 8, "1 MB": 1 << 20, "8 MB": 8 << 20}
#: Calls timed of each size, by engine.
TIMES = {"flare": (200, 40, 15), "flower": (10, 5, 3)}


@contextlib.contextmanager
def echoing(net: Parties) -> Iterator[None]:
    """Let each site be an echo."""
    here = Path(__file__).with_name("echo.py")
    sites = [
        subprocess.Popen(
            [sys.executable, str(here), str(net.kit(name))],
            env=environment(), stdout=subprocess.DEVNULL,
        )
        for name in net.names
    ]  # fmt: skip
    try:
        yield
    finally:
        for site in sites:
            site.kill()
            site.wait()


def calls(engine: str) -> None:
    """Time calls; print."""
    with tempfile.TemporaryDirectory() as folder:
        net = Parties(Path(folder) / "n", engine=engine)
        kit = Kit.read(net.kit("coordinator"))
        hub = engines.hub(kit, lambda blob: b"")
        hub.start()
        try:
            with echoing(net):
                line = Caller(kit, Trust(kit.root), hub.line)
                until(lambda: line.connected == set(net.names), 120, "all sites are connected")
                fed = remote(line, "0" * 64, "echo", timeout=120)
                fed.gather(echo, x=np.zeros(1))
                print(f"\n{'a call, 3 sites':<22}{'median ms':>10}{'least':>8}{'90 %':>8}{'n':>6}")
                for step in (echo, remember):
                    for (label, size), times in zip(SIZES.items(), TIMES[engine], strict=True):
                        x = np.frombuffer(os.urandom(size), np.int64)
                        took = []
                        for _ in range(times):
                            began = time.perf_counter()
                            replies = fed.gather(step, x=x)
                            took.append(1e3 * (time.perf_counter() - began))
                            assert all(np.array_equal(r.x, x) for r in replies.values())
                        took.sort()
                        print(
                            f"{step.name + ', ' + label:<22}{statistics.median(took):10.1f}"
                            f"{took[0]:8.1f}{took[int(0.9 * len(took))]:8.1f}{times:6d}",
                            flush=True,
                        )
        finally:
            hub.stop()
            net.close()


def study(name: str, arms: list[dict[str, object]], repeats: int) -> dict[str, object]:
    """Return a study of GBSG2."""
    return {
        "study": name,
        "task": "survival",
        "seed": 2026,
        "data": {"source": "sample:gbsg2", "outcome": {"time": "time", "event": "cens"}},
        "preprocess": {"impute": "median", "scale": "minmax"},
        "arms": arms,
        "evaluate": {"test_fraction": 0.25, "repeats": repeats},
    }


def in_process(path: Path, out: Path) -> float:
    """Return the seconds of the same study over sites in this process."""
    began = time.perf_counter()
    terms = Terms.of(path)
    tables = [SiteTable.of(terms, n, rows) for n, rows in shares(SITES).items()]
    run_deployed(terms, LocalSites(terms, tables), out)
    return time.perf_counter() - began


def studies(engine: str) -> None:
    """Run whole studies by the real commands; print."""
    quickstart = yaml.safe_load((STUDIES / "quickstart.yaml").read_text())
    few = engine == "flower"
    exact = {"method": "deepcox", "strategy": "exact", "rounds": 20 if few else 200}
    asked = [study("exact", [exact], 1)]
    if not few:
        asked.append(study("quickstart", quickstart["arms"], quickstart["evaluate"]["repeats"]))
    with tempfile.TemporaryDirectory() as folder, Parties(Path(folder) / "n", engine=engine) as net:
        ready = net.start()
        print(f"\nall parties ready after {ready:.1f} s (4 processes started at once)")
        memory(net, "idle")
        for content in asked:
            path = net.write(f"{content['study']}.yaml", content)
            began = time.perf_counter()
            net.run(path.name, f"out-{content['study']}", seconds=590)
            took = time.perf_counter() - began
            out = net.folder / f"out-{content['study']}"
            found = json.loads((out / "results.json").read_text())
            n = sum(1 for _ in (out / "ledger.jsonl").open()) // len(SITES)
            local = in_process(path, net.folder / f"local-{content['study']}")
            print(
                f"{content['study']}: {took:.1f} s from the lead's command to its report "
                f"({found['seconds']:.1f} s of it the study), about {n} calls; in one process "
                f"{local:.1f} s",
                flush=True,
            )
            memory(net, f"after {content['study']}")


def memory(net: Parties, when: str) -> None:
    """Print the resident memory of each process."""
    found = {p.name: f"{p.memory:.0f}" for p in (net.coordinator, *net.nodes.values())}
    print(f"memory, {when}, MB resident: " + ", ".join(f"{k} {v}" for k, v in found.items()))


def main() -> int:
    """Measure; print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", choices=tuple(TIMES), default="flare")
    parser.add_argument("--only", choices=("calls", "studies"))
    given = parser.parse_args()
    print(f"engine {given.engine}, 3 sites, {os.cpu_count()} cores")
    if given.only != "studies":
        calls(given.engine)
    if given.only != "calls":
        studies(given.engine)
    return 0


if __name__ == "__main__":
    sys.exit(main())

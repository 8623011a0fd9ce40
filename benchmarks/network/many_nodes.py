"""Twenty hospitals on one machine finish a study of 50 rounds; the memory of each process.

    python benchmarks/network/many_nodes.py [--nodes 20] [--engine flare]

Each hospital has 150 rows, drawn with replacement from GBSG2. The study is `deepcox` by federated
averaging, 50 rounds of one epoch. Memory is what the kernel says at the end of the study: resident
(with the pages of libraries that all processes share, counted in each), and proportional (shared
pages divided among those who share them), whose sum is what the machine needs. Exits with 1 if the
study does not end, or a process is left.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np
import pandas as pd

from network import parties
from network.parties import SAMPLES, Parties

STUDY = {
    "study": "many-nodes",
    "task": "survival",
    "seed": 3,
    "data": {"source": "sample:gbsg2", "outcome": {"time": "time", "event": "cens"}},
    "preprocess": {"impute": "median", "scale": "minmax"},
    "arms": [{"method": "deepcox", "strategy": "fedavg", "rounds": 50, "internal_epochs": 1}],
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
}


def tables(names: list[str]) -> dict[str, pd.DataFrame]:
    """Return 150 rows a site."""
    table = pd.read_csv(SAMPLES / "gbsg2.csv")
    rng = np.random.default_rng(5)
    return {name: table.iloc[rng.integers(0, len(table), 150)] for name in names}


def main() -> int:
    """Run; print; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--engine", default="flare")
    given = parser.parse_args()
    parties.PATIENCE = 300.0  # one core imports the same libraries twenty times
    names = [f"site-{i:02d}" for i in range(1, given.nodes + 1)]
    with tempfile.TemporaryDirectory() as folder:
        with Parties(Path(folder) / "n", names, engine=given.engine, tables=tables(names)) as net:
            net.write("study.yaml", STUDY)
            ready = net.start()
            idle = [net.nodes[name].memory for name in names]
            began = time.monotonic()
            net.run("study.yaml", "out", seconds=580)
            took = time.monotonic() - began
            nodes = [net.nodes[name] for name in names]
            resident = [p.memory for p in nodes]
            shared = [p.proportional for p in nodes]
            hub = net.coordinator
            print(f"{given.nodes} nodes, {given.engine}, {os.cpu_count()} cores")
            print(f"all ready           {ready:8.1f} s")
            print(f"study of 50 rounds  {took:8.1f} s, the lead's command from start to report")
            print(f"a node, idle        {statistics.median(idle):8.0f} MB resident (median)")
            print(f"a node, after       {statistics.median(resident):8.0f} MB resident (median)")
            print(f"a node, after       {statistics.median(shared):8.0f} MB proportional (median)")
            print(
                f"coordinator, after  {hub.memory:8.0f} MB resident, "
                f"{hub.proportional:.0f} MB proportional"
            )
            total = sum(shared) + hub.proportional
            print(f"all, after          {total:8.0f} MB proportional")
            arms = json.loads((net.folder / "out" / "results.json").read_text())["arms"]
        finished = all(a["status"] == "done" for a in arms)
        finished = finished and [a["rounds"] for a in arms if a["site"] is None] == [50]
        print(f"finished: {finished}; still there: {net.survivors or 'no process'}")
    return 0 if finished and not net.survivors else 1


if __name__ == "__main__":
    sys.exit(main())

"""A study's fits on our pool of processes, beside Dask's workers on the same machine.

    python benchmarks/cluster/run.py [--repeats 3] [--out FILE]

Two processes each; both are started for the run, and end with it. Variants take turns, each in a
fresh process. Wall time is that of the run without the report, processor time (user and system)
that of all its processes. Studies: `studies/quickstart.yaml`, and one small fit repeated `FEW` and
`MANY` times, whose slope is the cost of one more piece. The files of both variants must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

from book import asks_out, keep  # noqa: E402

FEW, MANY = 20, 120
SMALL = """\
study: small
data: {{source: sample:gbsg2, sites: {{split: iid, n: 3}}}}
arms: [{{method: cox, scale: standard}}]
bounds: []
final: false
evaluate: {{repeats: {repeats}, draws: 2, metrics: [c_index]}}
"""
VARIANTS = ("pool", "dask")


def one(variant: str, study: str) -> None:
    """Run a study in this process; print wall and processor seconds as JSON."""
    from fedcohort.study.run import runner
    from fedcohort.study.study import Study

    loaded = Study.from_file(study)
    before, began = spent(), time.perf_counter()
    more = {"workers": 2, "resume": False, "tell": lambda event: None, "command": "benchmark"}
    out = Path("out")
    if variant == "pool":
        runner.run(loaded.plan, loaded.table, out, **more)
    else:
        from distributed import LocalCluster

        with LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as there:
            address = there.scheduler_address
            runner.run(loaded.plan, loaded.table, out, cluster=address, **more)
    print(json.dumps([time.perf_counter() - began, spent() - before]))


def spent() -> float:
    """Return user and system seconds of this process and of its children that have ended."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in each)


def measured(variant: str, study: Path) -> tuple[float, float, dict[str, bytes]]:
    """Return wall and processor seconds of a run in a fresh process, and its files."""
    from command_line import without_times

    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--one", variant, str(study)]
        said = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        if said.returncode:
            sys.exit(said.stderr)
        wall, cpu = json.loads(said.stdout.splitlines()[-1])
        return wall, cpu, without_times(Path(folder) / "out")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asks_out(parser)
    options = parser.parse_args()
    if options.one:
        one(*options.one)
        return 0
    load = os.getloadavg()[0]
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    equal = True
    with tempfile.TemporaryDirectory() as folder:
        studies = {"quickstart": ROOT / "studies" / "quickstart.yaml"}
        for repeats in (FEW, MANY):
            studies[f"small_{repeats}"] = Path(folder) / f"{repeats}.yaml"
            studies[f"small_{repeats}"].write_text(SMALL.format(repeats=repeats))
        for _ in range(options.repeats):
            for name, study in studies.items():
                files = []
                for variant in VARIANTS:
                    wall, cpu, found = measured(variant, study)
                    times.setdefault((name, variant), []).append((wall, cpu))
                    files.append(found)
                    print(f"{name:12} {variant:5} {wall:7.1f} s wall {cpu:7.1f} s cpu", flush=True)
                equal &= files[0] == files[1]
    found = {}
    for name in studies:
        pairs = list(zip(*(times[name, v] for v in VARIANTS), strict=True))
        for i, clock in enumerate(("wall", "cpu")):
            for v, variant in enumerate(VARIANTS):
                found[f"{name}_{variant}_{clock}"] = statistics.median(p[v][i] for p in pairs)
            found[f"{name}_{clock}"] = statistics.median(p[1][i] / p[0][i] for p in pairs)
    for variant in VARIANTS:
        for clock in ("wall", "cpu"):
            many, few = (found[f"small_{n}_{variant}_{clock}"] for n in (MANY, FEW))
            found[f"piece_{variant}_{clock}_ms"] = 1000 * (many - few) / (MANY - FEW)
    found["equal"] = int(equal)
    for key, value in found.items():
        print(f"{key:32} {value:9.3f}")
    keep(options.out, {"dask": found}, load)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())

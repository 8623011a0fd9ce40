"""A CSV of 1,000,000 rows x 60 columns: read, checked and preprocessed, against pandas' own read.

    OMP_NUM_THREADS=1 python benchmarks/data_check/run.py [--rows 1000000] [--repeats 3] [--out F]

Each measurement is a process of its own, in turns; memory is the peak of its resident set less
what its imports took. `pandas.read_csv` reads with its defaults. `fedcohort` reads the file as a
study does, checks it with every rule of `fedcohort data check`, fits the design (median,
standard) over three sites through the local runtime, and applies it at each site. Leaves with 1
where that takes more than twice the time, or three times the memory, at the median.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))
from book import asks_out, keep

TIMES, MEMORY = 2.0, 3.0
SITES = ("north", "south", "west")


def make(folder, rows, seed=3):
    """Write the table and its dictionary."""
    import numpy as np
    import pandas as pd
    import yaml

    variables = {}
    for i in range(30):
        variables[f"marker_{i}"] = {"type": "number", "range": [0, 1000]}
    for i in range(14):
        variables[f"score_{i}"] = {"type": "integer", "range": [0, 200]}
    for i in range(8):
        levels = [f"grade {k}" for k in range(2 + i)]
        variables[f"class_{i}"] = {"type": "category", "levels": levels}
    for i in range(4):
        variables[f"flag_{i}"] = "binary"
    variables |= {"patient": {"type": "integer", "identifier": True}}
    variables |= {"days": {"type": "time", "unit": "days"}, "death": "event"}
    rng = np.random.default_rng(seed)
    first = True
    for start in range(0, rows, 100_000):
        n = min(100_000, rows - start)
        part = {}
        for name, spec in variables.items():
            kind = spec if isinstance(spec, str) else spec["type"]
            if name == "patient":
                part[name] = np.arange(start, start + n)
            elif kind == "number":
                part[name] = np.round(rng.gamma(4.0, 12.0, n), 3)
            elif kind == "integer":
                part[name] = rng.binomial(100, 0.4, n).astype(float)
            elif kind == "category":
                part[name] = rng.choice(np.array(spec["levels"], object), n)
            elif kind == "time":
                part[name] = np.ceil(rng.exponential(900.0, n)) + 1
            else:
                part[name] = rng.integers(0, 2, n)
        table = pd.DataFrame(part)
        for name in table.columns[:56:3]:
            table.loc[rng.random(n) < 0.05, name] = None
        table["hospital"] = rng.choice(np.array(SITES, object), n)
        for name in table.columns:
            if table[name].dtype == float and "marker" not in name:
                table[name] = table[name].astype("Int64")
        table.to_csv(folder / "t.csv", mode="w" if first else "a", header=first, index=False)
        first = False
    (folder / "d.yaml").write_text(yaml.safe_dump({"variables": variables}, sort_keys=False))


def peak():
    """Return the peak of this process's resident set, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise SystemExit("peak memory is read from /proc, which this system lacks")


def with_pandas(folder):
    import pandas as pd

    before = peak()
    began = time.perf_counter()
    frame = pd.read_csv(folder / "t.csv")
    return {"before": before, "read": time.perf_counter() - began, "shape": frame.shape}


def with_fedcohort(folder):
    import fedcohort.study.sites.layout  # noqa: F401 - imports are not what is measured
    from fedcohort.data import check, prepare
    from fedcohort.data.read import sources
    from fedcohort.data.read.dictionaries import read_dictionary
    from fedcohort.data.read.frames import site_names
    from fedcohort.protocol.host import Host
    from fedcohort.runtime.local import local

    before, marks = peak(), {}
    began = time.perf_counter()

    def mark(name):
        marks[name] = time.perf_counter() - began - sum(marks.values())
        marks_peak[name] = peak() - before

    marks_peak = {}
    dictionary = read_dictionary(folder / "d.yaml")
    frame = sources.load("t.csv", folder, dictionary=dictionary, texts=("hospital",)).frames
    site = site_names(frame, "hospital", "t.csv")
    frame = frame.drop(columns="hospital")
    mark("read")
    outcome = dictionary.outcome()
    sheet = check.Sheet(frame, "t.csv", site)
    found = check.examine([sheet], dictionary, outcome)
    if found:
        raise SystemExit("\n".join(f.line for f in found))
    mark("check")
    hosts = [Host(s, frame[site == s], prepare.STEPS) for s in SITES]
    del frame, sheet
    mark("split")
    design = prepare.fit_design(
        local(hosts), dictionary, outcome, impute="median", scale="standard"
    )
    mark("fit")
    shapes = [design(host.data_through(None)).x.shape for host in hosts]
    mark("apply")
    return {"before": before, **marks, "peaks": marks_peak, "shape": shapes}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keep the table there")
    parser.add_argument("--child", choices=("make", "pandas", "fedcohort"))
    asks_out(parser)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "t.csv").is_file():
            start(folder, options, "make")
        size = (folder / "t.csv").stat().st_size / 2**20
        runs = {"pandas": [], "fedcohort": []}
        for _ in range(options.repeats):
            for name, found in runs.items():
                found.append(start(folder, options, name))
    code, figures = report(runs, options.rows, size)
    keep(options.out, {f"rows_{options.rows}": figures})
    sys.exit(code)


def child(options):
    """Measure one thing and print it."""
    work = {"make": lambda f: make(f, options.rows), "pandas": with_pandas,
            "fedcohort": with_fedcohort}[options.child]  # fmt: skip
    began = time.perf_counter()
    found = work(options.folder)
    if found is not None:
        parts = [v for k, v in found.items() if k not in ("before", "shape", "peaks")]
        found |= {"seconds": sum(parts), "mib": peak() - found["before"]}
        found["wall"] = time.perf_counter() - began
        print(json.dumps(found))


def start(folder, options, name):
    """Run one child and return what it measured."""
    command = [sys.executable, __file__, "--child", name, "--folder", folder]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*map(str, command), "--rows", str(options.rows)],
        check=True, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return json.loads(done.stdout) if done.stdout else None


def report(runs, rows, size):
    """Print the table; return the exit code and the figures."""
    print(f"{rows:,} rows x 60 columns, {size:.0f} MiB of CSV, median of {len(runs['pandas'])}")
    mid = {
        k: {key: median(r[key] for r in v) for key in ("seconds", "mib")} for k, v in runs.items()
    }
    print(f"{'':<32}{'seconds':>9}{'MiB':>8}")
    print(f"{'pandas.read_csv':<32}{mid['pandas']['seconds']:9.2f}{mid['pandas']['mib']:8.0f}")
    for part in ("read", "check", "split", "fit", "apply"):
        seconds = median(r[part] for r in runs["fedcohort"])
        mib = median(r["peaks"][part] for r in runs["fedcohort"])
        print(f"{'  fedcohort: ' + part:<32}{seconds:9.2f}{mib:8.0f}")
    print(f"{'fedcohort, all':<32}{mid['fedcohort']['seconds']:9.2f}{mid['fedcohort']['mib']:8.0f}")
    pairs = list(zip(runs["fedcohort"], runs["pandas"], strict=True))
    ratios = [median(f[k] / p[k] for f, p in pairs) for k in ("seconds", "mib")]
    kept = ratios[0] <= TIMES and ratios[1] <= MEMORY
    print(
        f"ratio: {ratios[0]:.2f} of the time (at most {TIMES:g}), {ratios[1]:.2f} of the memory "
        f"(at most {MEMORY:g}): {'kept' if kept else 'NOT kept'}"
    )
    figures = {"pandas_seconds": mid["pandas"]["seconds"], "seconds": mid["fedcohort"]["seconds"]}
    figures |= {"time": ratios[0], "memory": ratios[1]}
    return int(not kept), {name: round(value, 3) for name, value in figures.items()}


if __name__ == "__main__":
    main()

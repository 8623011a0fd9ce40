"""Peak memory and time of fits over a table in batches, and in memory.

    python benchmarks/scale/rows.py --out benchmarks/scale/results.json

Two sites: `large` with the rows asked for, and `small` with 20,000. Each has 50 covariates (44
numbers, of which 4 have missing values, 4 counts, 2 columns of 3 levels) and outcomes for each
method. The tables are drawn from a seed and written as Parquet. For each number of rows one process
reads the table in batches (`FEDCOHORT_MEMORY` is 200 MB), and another in memory up to
`--most-in-memory` rows. Of each part (reading, checking, each fit) it notes seconds, and the peaks
of all resident memory (VmHWM) and of that without pages of files (RssAnon, every 10 ms). A fit
includes preprocessing with the method's own defaults. Results are written as they come; parts that
are there are not run again. `difference` is the largest difference of a model's numbers between
both ways, relative to the largest of their array.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from book import asks_out, keep

SEED, SMALL, PART, MEMORY = 7, 20_000, 500_000, "200MB"
LEVELS = ("I", "II", "III")
#: Method, outcome, and settings, in the order in which they run.
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "ridge": ("number", {}),
    "logistic": ("class", {}),
    "cox": ("survival", {}),
    "describe": ("class", {}),
    "boosting": ("class", {"rounds": 10, "max_depth": 4}),
    "glm": ("number", {}),
    "lasso": ("number", {}),
    "elastic_net": ("number", {}),
    "kmeans": ("", {"rounds": 10, "swaps": 0}),
}
OUTCOMES = {
    "number": {"y": "number"}, "class": {"d": "binary"},
    "survival": {"time": "time", "event": "event"}, "": {},
}  # fmt: skip


def columns() -> dict[str, Any]:
    """Return the covariates of the dictionary."""
    found: dict[str, Any] = {f"x{i}": {"type": "number"} for i in range(44)}
    found |= {f"count{i}": {"type": "integer"} for i in range(4)}
    return found | {f"grade{i}": {"type": "category", "levels": list(LEVELS)} for i in range(2)}


def write(path: Path, rows: int, seed: int) -> None:
    """Draw a table and write it, part by part."""
    import pyarrow as pa
    from pyarrow import parquet

    writer, rng = None, np.random.default_rng(seed)
    for start in range(0, rows, PART):
        n = min(PART, rows - start)
        x = rng.standard_normal((n, 44), np.float32)
        counts = rng.poisson(2.0, (n, 4)).astype(np.int8)
        grades = rng.integers(0, 3, (n, 2), np.int8)
        eta = 0.3 * x[:, 0] - 0.2 * x[:, 1] + 0.1 * counts[:, 0] + 0.2 * (grades[:, 0] == 2)
        end, stop = rng.exponential(np.exp(-eta)), rng.exponential(2.0, n)
        made: dict[str, Any] = {f"x{i}": x[:, i] for i in range(44)}
        for i in range(4):
            made[f"x{i}"] = pa.array(x[:, i], mask=rng.random(n) < 0.02)
        made |= {f"count{i}": counts[:, i] for i in range(4)}
        made |= {
            f"grade{i}": pa.DictionaryArray.from_arrays(grades[:, i], list(LEVELS))
            for i in range(2)
        }
        made["y"] = (eta + rng.standard_normal(n)).astype(np.float32)
        made["d"] = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(np.int8)
        made["time"] = np.maximum(np.minimum(end, stop), 1e-6).astype(np.float32)
        made["event"] = (end <= stop).astype(np.int8)
        table = pa.table(made)
        writer = writer or parquet.ParquetWriter(path, table.schema, compression="snappy")
        writer.write_table(table)
    if writer is not None:
        writer.close()


def status(key: str) -> float:
    """Return an entry of this process's memory, in GB (10⁹ bytes)."""
    found = re.search(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 / 1e9 if found else 0.0


@contextmanager
def measured(out: dict[str, float]) -> Iterator[None]:
    """Note seconds and peaks of memory of a part."""
    Path("/proc/self/clear_refs").write_text("5")
    peak, done = [status("RssAnon")], threading.Event()

    def look() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], status("RssAnon"))

    watch = threading.Thread(target=look, daemon=True)
    watch.start()
    began, worked = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        out["seconds"] = round(time.perf_counter() - began, 2)
        out["processor_seconds"] = round(time.process_time() - worked, 2)
        done.set()
        watch.join()
        out["resident"] = round(status("VmHWM"), 3)
        out["without_files"] = round(max(peak[0], status("RssAnon")), 3)


def run(folder: Path, rows: int, fits: list[str], note: Callable[[str, Any], None]) -> None:
    """Read, check and fit, in this process."""
    import fedcohort as fc
    from fedcohort.data.check import Sheet, check_sheets, with_outcome
    from fedcohort.data.dictionary import Dictionary
    from fedcohort.data.read import sources
    from fedcohort.protocol import registry
    from fedcohort.study.run.engine import Problem, fit_once

    def dictionary(*kinds: str) -> Dictionary:
        more = {name: {"type": t} for kind in kinds for name, t in OUTCOMES[kind].items()}
        return Dictionary.from_dict({"variables": columns() | more})

    outcomes: dict[str, Any] = {
        "number": fc.Continuous("y"), "class": fc.Binary("d"),
        "survival": fc.Survival("time", "event"), "": None,
    }  # fmt: skip
    every = dictionary(*OUTCOMES)
    found: dict[str, float] = {}
    with measured(found):
        files = {"large": folder / f"{rows}.parquet", "small": folder / f"{SMALL}.parquet"}
        frames: dict[str, Any] = {
            site: sources.load(str(path), folder, dictionary=every).frames
            for site, path in files.items()
        }
    note("read", found)
    found = {}
    with measured(found):
        known = with_outcome(every, outcomes["class"])
        sheets = [Sheet(frame, f"site {site!r}", site) for site, frame in frames.items()]
        check_sheets(sheets, outcomes["class"], known)
    note("check", found)
    for name in fits:
        kind, settings = FITS[name]
        method, found = registry.find(name), {}
        problem = Problem(frames, with_outcome(dictionary(kind), outcomes[kind]), outcomes[kind])
        with measured(found):
            fit = fit_once(problem, method, settings, dict(method.preprocess), SEED)
        if name == "describe":
            np.savez(folder / f"{way()}-{rows}-{name}.npz", text=np.array(repr(fit.model)))
        else:
            np.savez(folder / f"{way()}-{rows}-{name}.npz", **fit.model.arrays())
        note(name, found)


def way() -> str:
    """Return how this process reads tables."""
    return "batches" if os.environ["FEDCOHORT_MEMORY"] == MEMORY else "memory"


def difference(folder: Path, rows: int, name: str) -> float | None:
    """Return the largest relative difference of a model's arrays between both ways."""
    files = [folder / f"{w}-{rows}-{name}.npz" for w in ("batches", "memory")]
    if not all(map(Path.is_file, files)):
        return None
    one, other = (np.load(f) for f in files)
    found = [0.0]
    for key in one.files:
        a, b = one[key], other[key]
        if a.dtype.kind not in "fiu":
            found.append(0.0 if np.array_equal(a, b) else 1.0)
        elif a.shape != b.shape:
            found.append(1.0)
        elif a.size:
            largest = max(float(np.nanmax(np.abs(b), initial=0.0)), 1e-300)
            found.append(float(np.nanmax(np.abs(a - b), initial=0.0)) / largest)
    return max(found)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    asked.add_argument("--fits", nargs="+", default=list(FITS), choices=list(FITS))
    asked.add_argument("--ways", nargs="+", default=["batches", "memory"])
    asked.add_argument("--most-in-memory", type=int, default=1_000_000)
    asked.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "rows")
    asks_out(asked)
    asked.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = asked.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.inside:
        run(
            given.folder, given.rows[0], given.fits,
            lambda part, found: print(json.dumps([part, found]), flush=True),
        )  # fmt: skip
        return
    book: dict[str, dict[str, Any]] = {}
    if given.out and given.out.is_file():
        book = json.loads(given.out.read_text())
    if not (small := given.folder / f"{SMALL}.parquet").is_file():
        write(small, SMALL, SEED)
    for rows in given.rows:
        if not (file := given.folder / f"{rows}.parquet").is_file():
            write(file, rows, SEED + 1)
        for how in given.ways:
            here = book.setdefault(f"{rows}-{how}", {})
            left = [name for name in given.fits if f"{name}/seconds" not in here]
            if not left or (how == "memory" and rows > given.most_in_memory):
                continue
            memory = MEMORY if how == "batches" else "1TB"
            command = [sys.executable, __file__, "--inside", "--rows", str(rows), "--fits", *left]
            command += ["--folder", str(given.folder)]
            env = {**os.environ, "FEDCOHORT_MEMORY": memory, "TMPDIR": str(given.folder)}
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as child:
                for line in child.stdout or ():
                    part, found = json.loads(line)
                    here |= {f"{part}/{what}": value for what, value in found.items()}
                    print(rows, how, part, found, flush=True)
                    told = {f"{rows}-{how}": here}
                    if (apart := difference(given.folder, rows, part)) is not None:
                        same = book.setdefault(f"{rows}-difference", {})
                        same[part] = apart
                        told[f"{rows}-difference"] = same
                    keep(
                        given.out,
                        {g: {k: v for k, v in f.items() if k != "about"} for g, f in told.items()},
                    )


if __name__ == "__main__":
    main()

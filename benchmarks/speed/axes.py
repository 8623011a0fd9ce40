"""Cost as it grows: processor seconds of a fit by rows, columns, sites, rounds; a study's by arms.

    python benchmarks/speed/axes.py --book FILE [--repeats 3] [--out FILE] [--draw DIR]
    python benchmarks/speed/axes.py sizes --book FILE [--out FILE]

Each axis changes one number; the others stay at 8 sites, 4,000 rows in all, 20 columns. All points
of an axis take turns, and what is shown is the median of the repeats. A fit is `fc.fit`:
preprocessing, ledger and model. `sizes` runs whole studies, `fedcohort run` of a file, with their
report, and notes wall and processor seconds and the largest memory. What `--book` holds is not
measured again. `--draw` writes one picture for each axis.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from book import Book, asks_out, keep  # noqa: E402

import fedcohort as fc  # noqa: E402

SITES, ROWS, COLUMNS = 8, 4000, 20
#: Methods of the axes: kind of outcome, settings.
METHODS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "cox": ("time", {}),
    "logistic": ("event", {}),
    "kmeans": ("", {"n_clusters": 4}),
    "deepcox": ("time", {"strategy": "fedavg", "rounds": 10, "internal_epochs": 5}),
    "boosting": ("event", {"rounds": 20}),
}
#: Axes of fits: their points, and which methods go how far.
AXES: Mapping[str, tuple[int, ...]] = {
    "rows": (2_000, 8_000, 32_000, 128_000, 512_000, 1_000_000),
    "columns": (10, 20, 40, 80, 160),
    "sites": (4, 10, 40, 100, 200),
    "rounds": (10, 20, 40, 80),
}
#: The largest point of a method on an axis, where that is not the axis's own.
UP_TO = {
    ("rows", "boosting"): 32_000, ("rows", "deepcox"): 128_000, ("rows", "kmeans"): 8_000,
    ("sites", "kmeans"): 10, ("sites", "boosting"): 100,
}  # fmt: skip
ARMS = (1, 2, 3, 4, 5)
#: Whole studies: sites, rows of each, columns, arms.
SIZES: Mapping[str, tuple[int, int, int, tuple[str, ...]]] = {
    "4x500x20": (4, 500, 20, ("cox", "deepcox", "exact", "ensemble", "boosting")),
    "8x500x20": (8, 500, 20, ("cox", "deepcox", "exact", "ensemble", "boosting")),
    "40x2000x80": (40, 2_000, 80, ("cox", "deepcox", "boosting")),
    "200x500x20": (200, 500, 20, ("cox", "deepcox", "boosting")),
    "8x25000x20": (8, 25_000, 20, ("cox",)),
}
#: Arms of these studies.
LINES = {
    "cox": "{method: cox}",
    "deepcox": "{method: deepcox, strategy: fedavg, rounds: 30, internal_epochs: 5}",
    "exact": "{method: deepcox, strategy: exact, title: Exact, rounds: 60}",
    "ensemble": "{method: deepcox, strategy: ensemble, title: Ensemble, rounds: 30}",
    "boosting": "{method: boosting, rounds: 50}",
}


def table(sites: int, rows: int, columns: int, seed: int = 0) -> pd.DataFrame:
    """Simulate so many rows in all: four groups that differ in half of the columns, and times that
    depend on four columns, half of them censored.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns))
    x[:, ::2] += rng.normal(scale=2.0, size=(4, len(x[0, ::2])))[rng.integers(4, size=rows)]
    x = x.round(4)
    hazard = np.exp(0.3 * x[:, 1] - 0.3 * x[:, 3] + 0.3 * x[:, 5] * x[:, 7])
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(columns)])
    frame["time"] = np.ceil(1000 * rng.exponential(1.0, rows) / hazard)
    frame["event"] = (rng.random(rows) < 0.5).astype(int)
    frame["site"] = np.array([f"h{k:03}" for k in range(sites)])[np.arange(rows) % sites]
    return frame


def fit(method: str, frame: pd.DataFrame, **changed: Any) -> float:
    """Return processor seconds of a fit; the simulated sites are made before."""
    outcome, settings = METHODS[method]
    kinds = {"time": fc.Survival("time", "event"), "event": fc.Binary("event"), "": None}
    unused = {"time": [], "event": ["time"], "": ["time", "event"]}[outcome]
    fed = fc.simulate(frame.drop(columns=unused), outcome=kinds[outcome], sites="site")
    began = time.process_time()
    fc.fit(method, fed, **{**settings, **changed})
    return time.process_time() - began


def points(axis: str) -> list[tuple[str, int]]:
    """Return what takes turns on an axis: method and point."""
    methods = ("deepcox", "boosting") if axis == "rounds" else tuple(METHODS)
    return [
        (m, n) for n in AXES[axis] for m in methods if n <= UP_TO.get((axis, m), AXES[axis][-1])
    ]


def at(axis: str, method: str, n: int) -> float:
    """Measure one point of an axis."""
    size = {"sites": SITES, "rows": ROWS, "columns": COLUMNS}
    if axis == "sites":
        size["rows"] = 20_000
    if axis == "rounds":
        return fit(method, table(**size), rounds=n)
    return fit(method, table(**{**size, axis: n}))


def study(
    folder: Path, sites: int, rows: int, columns: int, arms: tuple[str, ...], bounds: bool
) -> dict[str, float]:
    """Run a study by the command; return wall and processor seconds, fits, and memory in MB."""
    table(sites, sites * rows, columns).to_csv(folder / "rows.csv", index=False)
    text = """study: size
task: survival
seed: 1
data:
  source: rows.csv
  outcome: {time: time, event: event}
  sites: {column: site}
evaluate: {test_fraction: 0.25, repeats: 1}
arms:
"""
    text += "".join(f"  - {LINES[arm]}\n" for arm in arms)
    text += "bounds: {isolated: {}, centralised: {}}\n" if bounds else ""
    (folder / "study.yaml").write_text(text)
    command = [str(Path(sys.executable).parent / "fedcohort"), "run", "study.yaml", "--out", "out"]
    began, log = time.perf_counter(), folder / "log"
    with log.open("w") as told:
        child = subprocess.Popen(command, cwd=folder, stdout=told, stderr=told)
        _, status, used = os.wait4(child.pid, 0)  # with what its own processes used
    if status:
        raise SystemExit(f"the study of {sites} sites failed: {log.read_text()[-2000:]}")
    return {
        "wall": time.perf_counter() - began,
        "processor": used.ru_utime + used.ru_stime,
        "megabytes": used.ru_maxrss / 1024,
        "load": os.getloadavg()[0],
    }


def measured(book: Book, of: dict[str, Any], measure: Callable[[], dict[str, float]]) -> None:
    """Measure what the book lacks."""
    if book.lacks(of):
        book.write(of, measure())


def axes(book: Book, repeats: int) -> dict[str, Any]:
    """Measure all axes; return figures by group."""
    for repeat in range(repeats):
        for axis in AXES:
            for method, n in points(axis):
                of = {"axis": axis, "of": method, "at": n, "repeat": repeat}
                measured(book, of, lambda a=axis, m=method, k=n: {"seconds": at(a, m, k)})
        for n in ARMS:
            with tempfile.TemporaryDirectory() as folder:
                arms = SIZES["4x500x20"][3][:n]
                of = {"axis": "arms", "of": "study", "at": n, "repeat": repeat}
                measured(
                    book, of,
                    lambda f=folder, a=arms: {
                        "seconds": study(Path(f), 4, 500, 20, a, bounds=False)["processor"]
                    },
                )  # fmt: skip
    found: dict[str, Any] = {}
    for axis in (*AXES, "arms"):
        group: dict[str, float] = {}
        for method, n in points(axis) if axis in AXES else [("study", n) for n in ARMS]:
            taken = [r["seconds"] for r in book.rows(axis=axis, of=method, at=n)]
            group[f"{method}_{n}"] = round(statistics.median(taken), 3)
        found[f"axis_{axis}"] = group
    return found


def sizes(book: Book, repeats: int) -> dict[str, Any]:
    """Run the studies of several sizes, each in its own process; return figures by group."""
    for name, (sites, rows, columns, arms) in SIZES.items() if repeats else ():
        with tempfile.TemporaryDirectory() as folder:
            measured(
                book, {"size": name},
                lambda f=folder, s=(sites, rows, columns, arms): study(Path(f), *s, bounds=True),
            )  # fmt: skip
    return {
        f"size_{name}": {k: round(v, 1) for k, v in row.items()}
        for name in SIZES
        for row in book.rows(size=name)
    }


def draw(found: Mapping[str, Mapping[str, float]], folder: Path) -> None:
    """Write one picture for each axis: seconds, on scales of ratios but for arms."""
    from fedcohort.report import charts

    folder.mkdir(parents=True, exist_ok=True)
    for axis in (*AXES, "arms"):
        ratios = axis != "arms"
        lines: dict[str, list[tuple[float, ...]]] = {}
        for key, seconds in found[f"axis_{axis}"].items():
            if key != "about":
                method, n = key.rsplit("_", 1)
                y = float(np.log10(seconds)) if ratios else seconds
                lines.setdefault(method, []).append((float(n), y))
        series = [
            charts.Series(label=m, look=f"c{i}", points=p) for i, (m, p) in enumerate(lines.items())
        ]
        top = 1.1 * max(y for p in lines.values() for _, y in p)
        chart = charts.lines_with_bands(
            series, axis, "seconds of one processor", log=ratios, powers=ratios, marks=True,
            whole=not ratios, y_domain=None if ratios else (0.0, top),
        )  # fmt: skip
        svg = charts.standalone(charts.draw(chart), f"Seconds by {axis}", axis)
        (folder / f"{axis}.svg").write_text(svg)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=["axes", "sizes"], default="axes")
    parser.add_argument("--book", type=Path, required=True, help="measured points, a line each")
    parser.add_argument("--repeats", type=int, default=3, help="0: what the book holds alone")
    parser.add_argument("--draw", type=Path, help="write the pictures there")
    asks_out(parser)
    options = parser.parse_args()
    load, book = os.getloadavg()[0], Book(options.book)
    found = axes(book, options.repeats) if options.part == "axes" else sizes(book, options.repeats)
    for group, figures in found.items():
        print(group, figures)
    keep(options.out, found, load)
    if options.draw and options.part == "axes":
        draw(found, options.draw)


if __name__ == "__main__":
    main()

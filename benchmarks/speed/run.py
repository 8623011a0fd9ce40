"""Run a workload's variants interleaved in one process on one thread; print medians and ratios.

    python benchmarks/speed/run.py w1 [--rounds 100] [--repeats 5] [--clock cpu] [--out FILE]
    python benchmarks/speed/run.py w2 [--rounds 20] [--repeats 5] [--variants plain,local]
    python benchmarks/speed/run.py w3 [--repeats 3]

Variants take turns, so that a busy minute of the machine falls on all of them; on a machine that
is never idle, ask for `--clock cpu`, this process's time on the processor, or for `--clock path`,
which divides the time of its other threads by their number: what the wall would show if each thread
had a processor of its own and none had to wait for another. Each ratio is the median over the
repeats of the ratio within one repeat. Exit code 1 if the models differ by more than 1e-5 (of w3
the AUCs by more than 0.001), or a goal is missed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from book import asks_out, keep  # noqa: E402

THREADS = 2


def path() -> float:
    """Return processor seconds of this thread, and those of all others divided by `THREADS`."""
    here = time.thread_time()
    return here + (time.process_time() - here) / THREADS


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time, "path": path}


def farthest(models: dict[str, np.ndarray]) -> float:
    """Return the largest difference of a model from the first."""
    each = list(models.values())
    return max(float(np.abs(m - each[0]).max()) for m in each)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=["w1", "w2", "w3"])
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--variants", help="some of them, with commas between; all by default")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    asks_out(parser)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    torch.set_num_threads(1)
    work = importlib.import_module(options.workload)
    sites, rounds = work.tables(), options.rounds or work.ROUNDS
    chosen = options.variants.split(",") if options.variants else list(work.VARIANTS)
    variants = {name: work.VARIANTS[name] for name in chosen}
    most, first = getattr(work, "APART", 1e-5), getattr(work, "COMPARED", 3)
    shown = getattr(work, "shown", lambda model: model)
    # warms up, too
    models = {name: shown(train(sites, first)) for name, train in variants.items()}
    apart = getattr(work, "apart", farthest)(models)
    clock = CLOCKS[options.clock]
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(options.repeats):
        for name, train in variants.items():
            began = clock()
            train(sites, rounds)
            seconds[name].append(clock() - began)
    print(
        f"{options.workload}: {rounds} rounds, medians of {options.repeats} repeats, "
        f"{options.clock} time, 1 thread, load {load:.1f} before"
    )
    for name, taken in seconds.items():
        print(f"  {name:8} {statistics.median(taken):7.3f} s   (from {min(taken):.3f})")
    print(f"  models differ by at most {apart:.1e}; goal <= {most:.0e}")
    missed = apart > most
    found = {f"{name}_seconds": round(statistics.median(t), 3) for name, t in seconds.items()}
    for top, bottom, sign, goal in work.GOALS:
        if not {top, bottom} <= set(variants):
            continue
        ratios = [a / b for a, b in zip(seconds[top], seconds[bottom], strict=True)]
        ratio = statistics.median(ratios)
        found[f"{top}/{bottom}"] = round(ratio, 3)
        met = ratio <= goal if sign == "<=" else ratio >= goal
        missed |= not met
        verdict = "met" if met else "missed"
        print(f"  {top} / {bottom} = {ratio:.2f}; goal {sign} {goal:.2f}: {verdict}")
    keep(options.out, {f"{options.workload}_{options.clock}": found}, load)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

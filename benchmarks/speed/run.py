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
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Measured:
    """What one workload gave: medians of seconds, ratios, and each goal with whether it is met.

    Attributes
    ----------
    figures : for a file of results.
    apart : difference of the models, and the most that it may be.
    goals : (numerator, denominator, sign, goal, ratio, met).
    """

    figures: dict[str, float]
    apart: tuple[float, float]
    goals: list[tuple[str, str, str, float, float, bool]]

    @property
    def met(self) -> bool:
        """Whether the models agree and every goal is met."""
        return self.apart[0] <= self.apart[1] and all(goal[-1] for goal in self.goals)


def measure(
    workload: str, *, repeats: int, clock: str, rounds: int | None = None, chosen: str | None = None
) -> Measured:
    """Run a workload's variants in turns.

    Parameters
    ----------
    rounds : None: the workload's own number.
    chosen : names of variants with commas between; None: all.
    """
    torch.set_num_threads(1)
    work = importlib.import_module(workload)
    sites, rounds = work.tables(), rounds or work.ROUNDS
    names = chosen.split(",") if chosen else list(work.VARIANTS)
    variants = {name: work.VARIANTS[name] for name in names}
    most, first = getattr(work, "APART", 1e-5), getattr(work, "COMPARED", 3)
    shown = getattr(work, "shown", lambda model: model)
    # warms up, too
    models = {name: shown(train(sites, first)) for name, train in variants.items()}
    apart = getattr(work, "apart", farthest)(models)
    now = CLOCKS[clock]
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, train in variants.items():
            began = now()
            train(sites, rounds)
            seconds[name].append(now() - began)
    found = {f"{name}_seconds": round(statistics.median(t), 3) for name, t in seconds.items()}
    goals: list[tuple[str, str, str, float, float, bool]] = []
    for top, bottom, sign, goal in work.GOALS:
        if {top, bottom} <= set(variants):
            ratios = [a / b for a, b in zip(seconds[top], seconds[bottom], strict=True)]
            ratio = statistics.median(ratios)
            found[f"{top}/{bottom}"] = round(ratio, 3)
            met = ratio <= goal if sign == "<=" else ratio >= goal
            goals.append((top, bottom, sign, goal, ratio, met))
    return Measured(found, (apart, most), goals)


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
    done = measure(
        options.workload, repeats=options.repeats, clock=options.clock, rounds=options.rounds,
        chosen=options.variants,
    )  # fmt: skip
    print(
        f"{options.workload}: medians of {options.repeats} repeats, {options.clock} time, "
        f"1 thread, load {load:.1f} before"
    )
    for name, seconds in done.figures.items():
        if name.endswith("_seconds"):
            print(f"  {name.removesuffix('_seconds'):8} {seconds:7.3f} s")
    print(f"  models differ by at most {done.apart[0]:.1e}; goal <= {done.apart[1]:.0e}")
    for top, bottom, sign, goal, ratio, met in done.goals:
        verdict = "met" if met else "missed"
        print(f"  {top} / {bottom} = {ratio:.2f}; goal {sign} {goal:.2f}: {verdict}")
    keep(options.out, {f"{options.workload}_{options.clock}": done.figures}, load)
    return int(not done.met)


if __name__ == "__main__":
    sys.exit(main())

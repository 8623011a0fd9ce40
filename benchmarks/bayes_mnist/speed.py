"""A round of `bayes_net` beside a round of `classifier` with a network of the same size.

    python benchmarks/bayes_mnist/speed.py [--batches 128 256 512] [--rows 6144] [--repeats 5]
        [--out FILE]

784-1200-1200-10, ReLU, float32, Adam, one site with `rows` made-up rows, one epoch a round. Seconds
of a round are those of a fit of three rounds less those of a fit of one, halved. Variants take
turns; time is this process's on the processor, with one thread; each ratio is the median over the
repeats of the ratio within one repeat.

A step of `bayes_net` has twice as many products of matrices as one of the plain network. The rest
of it grows with the weights, not with the rows, and counts less with larger batches. Leaves with 1
if the ratio of a Gaussian prior is above 2.2 with batches of 256 or more.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from book import asks_out, keep  # noqa: E402

from fedcohort.algorithms.bayes_net import METHOD as BAYES  # noqa: E402
from fedcohort.algorithms.neural import METHOD as CLASSIFIER  # noqa: E402
from fedcohort.data.tables import LabelledTable  # noqa: E402
from fedcohort.protocol import Method, Task  # noqa: E402
from fedcohort.protocol.host import Host  # noqa: E402
from fedcohort.runtime.local import local  # noqa: E402

COMMON: dict[str, Any] = {
    "hidden": (1200, 1200), "activation": "relu", "internal_epochs": 1, "dtype": "float32",
    "optimiser": "adam", "learning_rate": 1e-3,
}  # fmt: skip
VARIANTS: dict[str, tuple[Method, dict[str, Any]]] = {
    "plain": (CLASSIFIER, {}),
    "gaussian": (BAYES, {}),
    "mixture": (BAYES, {"prior": "mixture"}),
}
GOAL, FROM = 2.2, 256


def table(rows: int) -> LabelledTable:
    """Return made-up images, of which a fifth of the pixels are not 0, and classes."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(rows, 784)) * (rng.random((rows, 784)) < 0.2)
    return LabelledTable(x, rng.integers(10, size=rows).astype(float))


def seconds(name: str, data: LabelledTable, batch: int, rounds: int) -> float:
    """Return the processor seconds of a fit."""
    method, more = VARIANTS[name]
    task = Task(
        kind="classification", features=tuple(f"x{j}" for j in range(784)), outcome="category",
        seed=0, levels=tuple("0123456789"),
    )  # fmt: skip
    config = method.configure({**COMMON, "batch_size": batch, "rounds": rounds, **more})
    fed = local([Host("site", data, method.steps, seed=0)])
    began = time.process_time()
    method.fit(fed, config, task)
    return time.process_time() - began


def main() -> int:
    """Print and keep medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--rows", type=int, default=6144)
    parser.add_argument("--repeats", type=int, default=5)
    asks_out(parser)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    torch.set_num_threads(1)
    wrong, figures, data = 0, dict[str, dict[str, float]](), table(given.rows)
    for batch in given.batches:
        found = {name: list[float]() for name in VARIANTS}
        for _ in range(given.repeats):
            for name, spent in found.items():
                one, three = (seconds(name, data, batch, rounds) for rounds in (1, 3))
                spent.append((three - one) / 2)
        group = {f"{name}_seconds": round(float(np.median(s)), 3) for name, s in found.items()}
        for name in ("gaussian", "mixture"):
            ratios = np.array(found[name]) / found["plain"]
            group[f"{name}/plain"] = round(float(np.median(ratios)), 3)
        figures[f"batch_{batch}"] = group
        wrong += batch >= FROM and group["gaussian/plain"] > GOAL
        print(f"batch {batch}", *(f"{k} {v}" for k, v in group.items()), flush=True)
        keep(given.out, figures, load)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

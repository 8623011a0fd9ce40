"""The 24 configurations of thesis 003 on MNIST and BMNIST, at one place.

    python benchmarks/dec_mnist/thesis.py --data FILE --out DIR [--epochs 500]
                                          [--cluster-epochs 20] [--seeds 0 1 2]
                                          [--optimisers sgd adam yogi] [--binary] [--fast]

Sani (2022), sections 4.1 and 5.1, tables A.1 to A.2 and B.1 to B.5: p-500-500-2000-10, tied, ReLU
after each layer but the latent one, mean squared error, no noise, no dropout, no pretraining by
layers. Phase 1 has batches of 256 and a constant rate. Between: k-means of latent points, as they
are or scaled (standard, l1, l2). Phase 2 has the same kind of optimiser, the batches and rates of
`ARMS`, alpha 1 or 9, gamma 0, and P of all rows renewed in each epoch. Optimisers keep their state
over all epochs of a phase.

The thesis has 500 epochs of phase 1, and does not say how many of phase 2. A row of
`DIR/thesis.jsonl` says how many it had: with fewer it is not the thesis's arm. The eight
configurations of an optimiser and seed share phase 1, whose theta, moments and number of steps are
kept in DIR: with more `--epochs` it goes on from there. Several processes may share DIR; a
configuration in DIR is not run again. `--fast` and `--binary` are those of `run.py`, and `show.py`
prints the table.

Where it still differs from the thesis: Glorot's start; k-means is the product's, by sums, with the
default restarts and swaps; rates of phase 2 on BMNIST are those of MNIST, as the thesis shows no
others. The thesis does not say whether its SGD had momentum: `sgd` has none, `momentum` has 0.9,
the value that its section on optimisers calls suitable.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from run import digits, judged
from sklearn.cluster import KMeans

from fedcohort.arrays import Array
from fedcohort.metrics import clusters
from fedcohort.models.latent import encoded
from fedcohort.models.network import initial, network
from fedcohort.models.objectives import loss_of
from fedcohort.training.clusters.points import SCALES
from fedcohort.training.networks.local import Memory, train_on
from fedcohort.training.rows import Rows

sys.path.append(str(Path(__file__).parents[1] / "dec_mds"))
from phases import DEEP, Deep


@dataclass(frozen=True)
class Arm:
    """An optimiser: its rate in phase 1 by data, and rate and batch size in phase 2."""

    optimiser: str
    rates: dict[str, float]
    cluster_rate: float
    cluster_batch: int


#: Tables A.1, A.2 and B.1 to B.3.
ARMS = {
    "sgd": Arm("sgd", {"mnist": 0.47, "bmnist": 0.7243}, 0.0427, 64),
    "momentum": Arm("momentum", {"mnist": 0.47, "bmnist": 0.7243}, 0.0427, 64),
    "adam": Arm("adam", {"mnist": 3.5e-4, "bmnist": 2e-4}, 0.00102, 256),
    "yogi": Arm("yogi_started", {"mnist": 0.037, "bmnist": 0.0241}, 0.00148, 64),
}
ALPHAS = (1.0, 9.0)
COMMON: dict[str, Any] = {
    "n_clusters": 10, "architecture": "dec", "binary": False, "output": "relu", "batch_size": 256,
    "lr_rule": "constant", "optimiser_state": "kept", "tol": 0.0,
}  # fmt: skip
#: Epochs of phase 1 after which its state is written.
OFTEN = 5


@dataclass(frozen=True)
class Trained:
    """Phase 1: theta, the optimiser's state, the loss of each epoch, and CPU seconds."""

    theta: Array
    memory: Memory
    losses: list[float]
    cpu: float

    @classmethod
    def read(cls, path: Path) -> Trained:
        """Return what `write` wrote."""
        held = np.load(path)
        memory = Memory(held["moments"], float(held["taken"]))
        return cls(held["theta"].astype(float), memory, held["losses"].tolist(), float(held["cpu"]))

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        part = path.with_suffix(".part.npz")
        np.savez(part, theta=self.theta.astype(np.float32), moments=self.memory.moments,
                 taken=self.memory.taken, losses=self.losses, cpu=self.cpu)  # fmt: skip
        part.rename(path)


def reconstruct(x: Array, settings: dict[str, Any], seed: int, epochs: int, stem: Path) -> Trained:
    """Return phase 1 after so many epochs; go on from the latest state in `stem`-*.npz."""
    plan = DEEP.configure(settings | {"internal_epochs": 1}).plan(x.shape[1])
    start = len(stem.name) + 1
    ends = {path.stem[start:]: path for path in stem.parent.glob(f"{stem.name}-*.npz")}
    held = {int(end): path for end, path in ends.items() if end.isdigit()}
    done = max((n for n in held if n <= epochs), default=0)
    theta = initial(plan.network, seed)
    now = (
        Trained.read(held[done]) if done else Trained(theta, Memory.empty(plan, len(theta)), [], 0)
    )
    rows = Rows(torch.from_numpy(x.astype(np.float32)), loss_of(plan.loss, None))
    rate, between = float(settings["learning_rate"]), None
    for n in range(done, epochs):
        start = time.process_time()
        theta, loss, memory = train_on(now.theta, rows, plan, rate, (seed, n), now.memory)
        cpu = now.cpu + time.process_time() - start
        now = Trained(theta, memory, [*now.losses, loss], cpu)
        if (n + 1) % OFTEN == 0 or n + 1 == epochs:
            now.write(here := stem.parent / f"{stem.name}-{n + 1}.npz")
            if between is not None:
                between.unlink()
            between = here
            print(f"{here.stem}: loss {loss:.5f}, {now.cpu:.0f} s", flush=True)
    return now


def first_accuracy(x: Array, y: Array, theta: Array, settings: dict[str, Any], seed: int) -> float:
    """Return the accuracy of scikit-learn's k-means of unscaled latent points after phase 1."""
    net = network(DEEP.configure(settings).plan(x.shape[1]).network, "float32")
    net.load(theta)
    labels = KMeans(10, n_init=5, random_state=seed).fit_predict(encoded(net, x.astype(np.float32)))
    return float(clusters.accuracy(clusters.contingency(labels, y)))


def run(
    x: Array, y: Array, arm: Arm, given: argparse.Namespace, name: str, seed: int, of: str
) -> None:
    """Run what is missing of the eight configurations of an optimiser and seed."""
    data = "bmnist" if given.binary else "mnist"
    fast = "-fast" if given.fast else ""
    settings = COMMON | {"optimiser": arm.optimiser, "learning_rate": arm.rates[data]}
    first = None
    for scale in SCALES:
        begun = None
        for alpha in ALPHAS:
            labels = f"thesis-{of}-{scale}-{alpha:g}-{given.epochs}-{given.cluster_epochs}{fast}"
            if (given.out / f"{labels}.npy").exists():
                continue
            if first is None:
                stem = given.out / f"thesis-{of}{fast}"
                first = reconstruct(x, settings, seed, given.epochs, stem)
                start = first_accuracy(x, y, first.theta, settings, seed)
                print(f"{of}: k-means {start:.4f}", flush=True)
            deep = Deep(x, [np.arange(len(x))], seed, settings | {
                "latent_scale": scale, "alpha": alpha, "cluster_rounds": given.cluster_epochs,
                "cluster_learning_rate": arm.cluster_rate, "cluster_batch_size": arm.cluster_batch,
            })  # fmt: skip
            begun = begun or deep.between(first.theta)
            model, changed, cpu = deep.second(first.theta, begun)
            found = model.predict(x)
            row = {
                "data": data, "optimiser": name, "alpha": alpha, "scale": scale, "seed": seed,
                "epochs": given.epochs, "cluster_epochs": given.cluster_epochs, "labels": labels,
                **judged(x, found, model.transform(x), y), "k_means": start,
                "ae_loss": first.losses[-1], "changed": changed, "cpu": cpu, "cpu_1": first.cpu,
                "clusters": len(model.counts), "fast": given.fast,
            }  # fmt: skip
            with (given.out / "thesis.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            np.save(given.out / f"{labels}.npy", found.astype(np.int8))
            print(f"{labels}: accuracy {row['accuracy']:.4f}, silhouette {row['silhouette']:.3f}, "
                  f"changed {[round(c, 4) for c in changed]}, {cpu:.0f} s", flush=True)  # fmt: skip


def main() -> None:
    """Run what is missing; leave out what another process has begun."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="MNIST as .npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--epochs", type=int, default=500, help="of phase 1")
    parser.add_argument("--cluster-epochs", type=int, default=20, help="of phase 2")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--optimisers", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--binary", action="store_true", help="round pixels at 0.5")
    parser.add_argument("--fast", action="store_true", help="products in bfloat16")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("medium" if given.fast else "highest")
    torch.set_flush_denormal(given.fast)
    given.out.mkdir(parents=True, exist_ok=True)
    x, y = digits(given.data, given.binary)
    for seed in given.seeds:
        for name in given.optimisers:
            of = f"{'bmnist' if given.binary else 'mnist'}-{name}-{seed}"
            with (given.out / f"{of}.lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                run(x, y, ARMS[name], given, name, seed, of)


if __name__ == "__main__":
    main()

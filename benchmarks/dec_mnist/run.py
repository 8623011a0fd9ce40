"""Deep embedded clustering of MNIST's digits, at one place and over ten sites.

    python benchmarks/dec_mnist/run.py --data FILE --out DIR [--configs NAME …] [--seeds 3]
                                       [--binary] [--sites 1 10] [--fast] [--first]
                                       [--with '{"rounds": 6}'] [--rows 6000]

`FILE` is an .npz with x_train and y_train. All 60,000 training images are clustered into ten;
labels only judge. The method is `deep_clustering`, p-500-500-2000-10; "at one place" is a
federation of one site, so that a round is an epoch. Over more sites batches are as many times
smaller: a round has the same number of steps. Each finished configuration is a line of
`DIR/runs.jsonl`, its labels `DIR/*.npy`; it is not run again. Phase 1 is kept, so that what differs
in phase 2 alone shares it.

--binary rounds pixels at 0.5 (BMNIST). --fast lets torch multiply float32 matrices in bfloat16
where the processor can, sums in float32: twice as fast on one with AMX; a line says which.

`--first` stops after phase 1 and prints its losses; `--with` replaces settings of phase 1.

`dec` and `idec` follow Xie et al. (2016) and Guo et al. (2017): untied, pairs of layers first, with
a fifth of the inputs set to 0, then all layers; SGD with momentum 0.9; then momentum 0.01 or,
with γ 10 (theirs weighs KL by 0.1), Adam 0.001. Differences: the published 213 epochs a pair and
427 of all layers are `rounds` (7) each; the rate is 1 (39, which is their 0.1 for a mean instead
of half a sum over 784 columns, diverged); it falls as a cosine, not in steps; noise stays on when
all layers are trained; P is renewed each epoch, not each 140 or 160 steps.

Which configuration counts is chosen without labels: `show.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans

from fedcohort.arrays import Array
from fedcohort.metrics import clusters
from fedcohort.models.latent import encoded
from fedcohort.models.network import network

sys.path.append(str(Path(__file__).parents[1] / "dec_mds"))
from phases import DEEP, Deep

COMMON: dict[str, Any] = {
    "n_clusters": 10, "architecture": "dec", "binary": False, "output": "relu", "rounds": 36,
    "lr_rule": "cosine", "cluster_rounds": 24, "latent_scale": "l2",
}  # fmt: skip
DICE = {"output": "sigmoid", "beta": 0.5}
SLOW = {"cluster_optimiser": "momentum", "cluster_learning_rate": 0.03}
PAIRS = {
    "tied": False, "pretrain": "layerwise", "noise": "corruption", "noise_rate": 0.2, "rounds": 7,
    "optimiser": "momentum", "learning_rate": 1.0, "latent_scale": "none",
}  # fmt: skip
#: What was tried, by name: settings of both phases beside `COMMON`, and of phase 2 alone.
CONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, SLOW),
    "plain-adam": ({}, {"cluster_learning_rate": 2e-4}),
    "unit": ({"unit_norm": True}, SLOW),
    "corrupted": ({"noise": "corruption"}, SLOW),
    "dice": (DICE, SLOW),
    "dice-adam": (DICE, {"cluster_learning_rate": 2e-4}),
    "dice-idec": (DICE, SLOW | {"gamma": 1.0}),
    "dice-corrupted": (DICE | {"noise": "corruption"}, SLOW),
    "layerwise": (
        {"tied": False, "pretrain": "layerwise", "noise": "corruption", "rounds": 7}, SLOW,
    ),
    "dec": (PAIRS, {"cluster_optimiser": "momentum", "cluster_learning_rate": 0.01}),
    "idec": (PAIRS, {"cluster_optimiser": "adam", "cluster_learning_rate": 1e-3, "gamma": 10.0}),
    "dice-kept": (DICE | {"optimiser_state": "kept"}, SLOW),
    "dice-averaged": (DICE | {"optimiser_state": "averaged"}, SLOW),
}  # fmt: skip
#: Rows of the silhouette, which compares all pairs.
SEEN = 3000


def digits(path: Path, binary: bool) -> tuple[Array, Array]:
    """Return pixels (60000, 784) in [0, 1] and digits (60000,)."""
    held = np.load(path)
    x = held["x_train"].reshape(len(held["x_train"]), -1) / 255.0
    return x.round() if binary else x, held["y_train"].astype(np.int64)


def dealt(n: int, sites: int, seed: int) -> list[Array]:
    """Deal n rows evenly."""
    return np.array_split(np.random.default_rng((seed, sites)).permutation(n), sites)


def first(deep: Deep, folder: Path, fast: bool, binary: bool) -> tuple[Array, list[float], float]:
    """Return what `Deep.first` does, or did before."""
    held = [len(deep.x)] if len(deep.x) != 60_000 else []
    of = [deep.settings, len(deep.parts), deep.seed, fast, binary, *held]
    of = json.dumps(of, sort_keys=True)
    kept = folder / f"phase1-{hashlib.sha256(of.encode()).hexdigest()[:12]}.npz"
    if not kept.exists():
        theta, losses, cpu = deep.first()
        np.savez(kept, theta=theta.astype(np.float32), losses=losses, cpu=cpu)
    held = np.load(kept)
    return held["theta"].astype(float), held["losses"].tolist(), float(held["cpu"])


def judged(x: Array, labels: Array, z: Array, y: Array) -> dict[str, float]:
    """Return accuracy and its like by digits y (n,), and the silhouette of latent points z."""
    table = clusters.contingency(labels, y)
    some = np.random.default_rng(0).permutation(len(z))[:SEEN]
    return {
        "accuracy": float(clusters.accuracy(table)),
        "ari": float(clusters.adjusted_rand(table)),
        "nmi": float(clusters.normalised_mutual_information(table)),
        "silhouette": float(clusters.silhouette(z[some], labels[some])),
    }


def begun(x: Array, name: str, sites: int, seed: int, more: dict[str, Any]) -> Deep:
    """Return a configuration over so many sites, with more settings, before phase 1."""
    batches = dict.fromkeys(("batch_size", "cluster_batch_size"), 256 // sites)
    settings = COMMON | batches | CONFIGS[name][0] | more
    return Deep(x, dealt(len(x), sites, seed), seed, settings)


def run(
    deep: Deep, y: Array, later: dict[str, Any], folder: Path, fast: bool, binary: bool
) -> tuple[dict[str, Any], Array]:
    """Return what one configuration came to with settings of phase 2, and its labels."""
    x, seed, settings = deep.x, deep.seed, deep.settings
    theta, losses, cpu_1 = first(deep, folder, fast, binary)
    net = network(DEEP.configure(settings).plan(x.shape[1]).network, "float32")
    net.load(theta)
    z = encoded(net, x.astype(np.float32))
    start = KMeans(10, n_init=5, random_state=seed).fit_predict(z)
    before = judged(x, start, z, y)
    settings = settings | later
    model, changed, cpu_2 = replace(deep, settings=settings).second(theta)
    labels = model.predict(x)
    rounds = len(changed) if model.settled else int(settings["cluster_rounds"])
    found = judged(x, labels, model.transform(x), y) | {
        "start": before, "ae_loss": losses[-1], "losses": losses, "changed": changed,
        "epochs": len(losses) + rounds, "cpu": cpu_1 + cpu_2, "settled": model.settled,
        "counts": model.counts.tolist(), "fast": fast, "settings": settings,
    }  # fmt: skip
    return found, labels


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="MNIST as .npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--configs", nargs="+", default=list(CONFIGS), choices=list(CONFIGS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sites", type=int, nargs="+", default=[1])
    parser.add_argument("--binary", action="store_true", help="round pixels at 0.5")
    parser.add_argument("--rows", type=int, help="of the first so many images")
    parser.add_argument("--with", dest="more", type=json.loads, default={},
                        help="settings of phase 1, as JSON")  # fmt: skip
    parser.add_argument("--first", action="store_true", help="stop after phase 1")
    parser.add_argument("--fast", action="store_true", help="products in bfloat16")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("medium" if given.fast else "highest")
    given.out.mkdir(parents=True, exist_ok=True)
    x, y = (part[: given.rows] for part in digits(given.data, given.binary))
    changed = "".join(
        f"-{k}-{v}" for k, v in sorted({**given.more, "rows": given.rows}.items()) if v
    )
    book = given.out / "runs.jsonl"
    for seed in range(given.seeds):
        for name in given.configs:
            for sites in given.sites:
                data = "bmnist" if given.binary else "mnist"
                of = f"{data}-{name}-{sites}-{seed}" + ("-fast" if given.fast else "")
                of += changed
                kept = given.out / f"{of}.npy"
                if kept.exists():
                    continue
                deep = begun(x, name, sites, seed, given.more)
                if given.first:
                    _, losses, cpu = first(deep, given.out, given.fast, given.binary)
                    print(f"{of}: losses {[round(v, 4) for v in losses]}, {cpu:.0f} s", flush=True)
                    continue
                found, labels = run(
                    deep, y, CONFIGS[name][1], given.out, given.fast, given.binary
                )  # fmt: skip
                row = {"data": data, "config": name, "sites": sites, "seed": seed, "labels": of}
                with book.open("a") as file:
                    file.write(json.dumps(row | found) + "\n")
                np.save(kept, labels.astype(np.int8))
                print(f"{of}: accuracy {found['accuracy']:.4f} (k-means "
                      f"{found['start']['accuracy']:.4f}), loss {found['ae_loss']:.5f}, "
                      f"{found['cpu']:.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

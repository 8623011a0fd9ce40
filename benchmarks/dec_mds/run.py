"""Federated deep embedded clustering of patients with MDS: thesis 003's tables C.1 and C.2.

    python benchmarks/dec_mds/run.py --data FILE --out DIR [--parts table against sites]
                                     [--rounds 100] [--strategies fedavg …] [--splits uniform …]
                                     [--targets site global] [--table-seeds 0 …] [--seeds 10]

`FILE` is the IWG-PM's cohort. Clusters are of 42 genes of EuroMDS' panel and 13 cytogenetic flags;
survival is never seen by a fit. Each finished configuration is a line of `DIR/runs.jsonl` and is
not run again; `python benchmarks/dec_mds/show.py --out DIR` prints the tables and the claims.

table    The thesis's 24 configurations: 10 sites, dealt evenly or by a skewed Gaussian; FedAvg with
         SGD (momentum 0.9, rate 3.6e-3), FedAdam with Adam (1e-4), FedYogi with Yogi (9e-4), at
         the server η 0.01, β 0.9 and 0.999, τ 1e-3; four ways from sites' centroids to one set.
         Network p-500-500-2000-10, tied, ReLU, batch 8; 25 rounds of KL, batch 64, α 5, k 6; and
         each with P of each site's own rows, as in the thesis, and with that of all rows. The
         autoencoder has `--rounds` rounds (thesis: 500), one for four aggregations. Beside them
         each optimiser with all rows at one place. The autoencoder of FedAvg is kept every 25
         rounds, so that a stopped run loses no more.
against  HDP (tomotopy, pooled, 12 chains), k-modes and k-means over 10 sites, k 6, ten seeds.
sites    D6.2's network p-26-26-100-k, unit norm, flips and dropout of 0.05, with all rows at one
         place, at 2, 4, 6 and 8 equal sites, and at 8 of a skewed Gaussian; `--seeds` seeds.

The reference of accuracy is the first chain of HDP, by seed, that found six topics, as the
thesis's HDP had: it was chosen by that number alone, before anything was compared with it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cohort import (
    SPLITS,
    Cohort,
    equal,
    fitted,
    judged,
    judged_model,
    skewed,
)
from phases import Deep

import fedcohort as fc
from fedcohort.arrays import Array
from fedcohort.numerics.centroids import AGGREGATIONS

sys.path.append(str(Path(__file__).parents[1]))
from book import Book

#: Thesis 003, section 4.2: strategy → the sites' optimiser and its rate.
STRATEGIES = {"fedavg": ("momentum", 3.6e-3), "fedadam": ("adam", 1e-4), "fedyogi": ("yogi", 9e-4)}
THESIS = {
    "n_clusters": 6, "architecture": "dec", "output": "relu", "batch_size": 8,
    "cluster_batch_size": 64, "cluster_rounds": 25, "alpha": "k-1",
}  # fmt: skip
SMALL = {
    "n_clusters": 6, "architecture": "small", "unit_norm": True, "noise": "flip",
    "noise_rate": 0.05, "dropout": 0.05, "beta": 0.5, "rounds": 300, "batch_size": 256,
    "learning_rate": 0.003, "cluster_batch_size": 256, "cluster_rounds": 25,
}  # fmt: skip
SITES, CHAINS, TOPICS, K, SEEDS = 10, 12, 6, 6, 10
#: Rounds of FedAvg between two kept models.
STRETCH = 25


def reference(cohort: Cohort, folder: Path) -> Array:
    """Return the clusters (n,) of the first chain of HDP with six topics, kept in a file."""
    kept = folder / "reference.npy"
    if kept.exists():
        return np.load(kept)
    for seed in range(CHAINS):
        model, _ = fitted(cohort, [np.arange(len(cohort.x))], seed, "hdp")
        if len(model.counts) == TOPICS:
            labels = model.predict(cohort.x)
            np.save(kept, labels)
            return labels
    raise SystemExit(f"none of {CHAINS} chains of HDP found {TOPICS} topics.")


def arms(
    seed: int, n: int, strategies: list[str], splits: list[str]
) -> Iterator[tuple[str, str, dict[str, Any], list[Array]]]:
    """Yield split, strategy, settings and rows by site of each autoencoder of `table`."""
    for name in strategies:
        optimiser, rate = STRATEGIES[name]
        given = THESIS | {
            "optimiser": optimiser, "learning_rate": rate, "cluster_learning_rate": rate,
        }  # fmt: skip
        if "pooled" in splits:
            yield "pooled", "fedavg", given, [np.arange(n)]
        for split, deal in SPLITS.items():
            if split in splits:
                yield split, name, given | {"strategy": name}, deal(n, SITES, seed)


def autoencoder(deep: Deep, kept: Path, rounds: int) -> None:
    """Write θ of phase 1 to a file; FedAvg's every `STRETCH` rounds to one for more rounds."""
    if deep.settings.get("strategy", "fedavg") != "fedavg":
        theta, losses, cpu = deep.first()
    else:
        part = kept.with_name(kept.stem.replace(f"-{rounds}-", "-") + ".part.npz")
        theta, losses, cpu = np.zeros(0), [], 0.0
        if part.exists() and len(np.load(part)["losses"]) <= rounds:
            held = np.load(part)
            theta, losses, cpu = held["theta"], held["losses"].tolist(), float(held["cpu"])
        while len(losses) < rounds:
            some = min(STRETCH, rounds - len(losses))
            begun = replace(deep, settings=deep.settings | {"rounds": some})
            found = begun.onward(theta, len(losses), some) if losses else begun.first()
            theta, losses, cpu = found[0], losses + found[1], cpu + found[2]
            whole = part.with_suffix(".new.npz")
            np.savez(whole, theta=theta, losses=losses, cpu=cpu)
            whole.replace(part)
            print(f"{kept.stem}: {len(losses)} rounds, {cpu:.0f} s, {losses[-1]:.5f}", flush=True)
    np.savez(kept, theta=theta.astype(np.float32), losses=losses, cpu=cpu)
    print(f"{kept.stem}: {cpu:.0f} s, loss {losses[0]:.5f} … {losses[-1]:.5f}", flush=True)


def table(
    cohort: Cohort, book: Book, folder: Path, rounds: int, seed: int, asked: list[str],
    strategies: list[str], splits: list[str],
) -> None:  # fmt: skip
    """Run the thesis's configurations, with the targets, strategies and splits asked for."""
    labels = reference(cohort, folder)
    for split, strategy, given, parts in arms(seed, len(cohort.x), strategies, splits):
        given = given | {"rounds": rounds}
        name = f"{split}-{strategy}-{given['optimiser']}-{rounds}-{seed}".replace(" ", "-")
        kept = folder / f"{name}.npz"
        pooled = split == "pooled"
        ways = ("lloyd",) if pooled else tuple(AGGREGATIONS)
        for target, centroids in itertools.product(("global",) if pooled else asked, ways):
            of = {
                "part": "table", "split": split, "strategy": strategy,
                "optimiser": given["optimiser"], "centroids": centroids, "target": target,
                "rounds": rounds, "seed": seed,
            }  # fmt: skip
            if not book.lacks(of):
                continue
            if not kept.exists():
                autoencoder(Deep(cohort.x, parts, seed, given), kept, rounds)
            held = np.load(kept)
            settings = given | {"centroids": centroids, "target": target}
            model, changed, cpu = Deep(cohort.x, parts, seed, settings).second(
                held["theta"].astype(float)
            )
            losses = held["losses"].tolist()
            found = judged_model(cohort, model, labels, parts) | {
                "ae_loss": losses[-1], "cpu_1": float(held["cpu"]), "cpu_2": cpu,
                "counts": model.counts.tolist(), "sites": [len(p) for p in parts],
                "losses": losses[:: max(1, rounds // 20)], "changed": changed,
                "settled": model.settled,
            }  # fmt: skip
            book.write(of, found)


def against(cohort: Cohort, book: Book, folder: Path) -> None:
    """Run HDP, k-modes and k-means."""
    labels, n = reference(cohort, folder), len(cohort.x)
    whole = [np.arange(n)]
    jobs = [("hdp", "pooled", s, {}) for s in range(CHAINS)]
    jobs += [("kmodes", "10 sites", s, {"n_clusters": K}) for s in range(SEEDS)]
    jobs += [("kmeans", "10 sites", s, {"n_clusters": K}) for s in range(SEEDS)]
    for method, where, seed, given in jobs:
        of = {"part": "against", "method": method, "where": where, "seed": seed}
        if not book.lacks(of):
            continue
        parts = whole if where == "pooled" else equal(n, SITES, seed)
        if method == "kmodes":
            counts, found = _modes(cohort, seed)
        else:
            model, _ = fitted(cohort, parts, seed, method, **given)
            counts, found = model.counts, model.predict(cohort.x)
        book.write(of, judged(cohort, found, labels, equal(n, SITES, seed))
                   | {"counts": np.asarray(counts).tolist()})  # fmt: skip


def _modes(cohort: Cohort, seed: int) -> tuple[Array, Array]:
    """Return rows by cluster, and clusters (n,), of k-modes over ten sites."""
    frame = cohort.frame
    parts = equal(len(frame), SITES, seed)
    rows = {f"site-{i + 1:02d}": frame.iloc[p].reset_index(drop=True) for i, p in enumerate(parts)}
    words = {"variables": {c: {"type": "binary"} for c in frame}}
    fed = fc.simulate(rows, seed=seed, dictionary=words)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a column with one patient, left out
        fit = fc.fit("kmodes", fed, n_clusters=K, secure_aggregation="false")
    found = np.asarray(fit.predict(frame)).astype(np.int64)
    return np.bincount(found), found


def sites(cohort: Cohort, book: Book, folder: Path, seeds: int) -> None:
    """Run D6.2's network over more and more sites."""
    labels, n = reference(cohort, folder), len(cohort.x)
    for seed in range(seeds):
        deals = {"pooled": [np.arange(n)]} | {f"{m} equal": equal(n, m, seed) for m in (2, 4, 6, 8)}
        for name, parts in (deals | {"8 skewed": skewed(n, 8, seed)}).items():
            of = {"part": "sites", "sites": name, "seed": seed, "rounds": SMALL["rounds"]}
            if not book.lacks(of):
                continue
            start = time.process_time()
            model, fed = fitted(cohort, parts, seed, "deep_clustering", **SMALL)
            cpu = time.process_time() - start
            losses = [row["loss"] for row in fed.history if "loss" in row]
            found = judged_model(cohort, model, labels, parts)
            book.write(
                of, found | {"ae_loss": losses[-1], "cpu": cpu, "counts": model.counts.tolist()}
            )


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the MDS cohort's CSV file")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--parts", nargs="+", default=["table", "against", "sites"])
    parser.add_argument("--rounds", type=int, default=100, help="of the autoencoders of `table`")
    parser.add_argument("--targets", nargs="+", default=["site", "global"], help="of `table`")
    parser.add_argument(
        "--strategies", nargs="+", default=list(STRATEGIES), choices=list(STRATEGIES),
        help="of `table`",
    )  # fmt: skip
    every = ["pooled", *SPLITS]
    parser.add_argument("--splits", nargs="+", default=every, choices=every, help="of `table`")
    parser.add_argument("--table-seeds", type=int, nargs="+", default=[0], help="of `table`")
    parser.add_argument("--seeds", type=int, default=10, help="of `sites`")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    cohort, book = Cohort.read(given.data), Book(given.out / "runs.jsonl")
    if "against" in given.parts:
        against(cohort, book, given.out)
    if "sites" in given.parts:
        sites(cohort, book, given.out, given.seeds)
    if "table" in given.parts:
        for seed in given.table_seeds:
            table(
                cohort, book, given.out, given.rounds, seed, given.targets, given.strategies,
                given.splits,
            )  # fmt: skip


if __name__ == "__main__":
    main()

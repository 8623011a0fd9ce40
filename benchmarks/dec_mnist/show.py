"""The table of `run.py`'s results, the configuration chosen without labels, and the claims.

    python benchmarks/dec_mnist/show.py --out DIR

A configuration is judged without labels by how well its seeds agree: the mean adjusted Rand index
of the final labels of all pairs of its runs at one place. The one that agrees best counts. Beside
it stand the loss of the autoencoder and the silhouette, by which one might also choose, and what
each would have chosen. It leaves with 1 where a claim does not hold for the one that counts:

1. MNIST at one place: mean accuracy at least 0.8430 (Xie et al., 2016); the goal is 0.8824, that of
   BMNIST 0.8932 (thesis 003, chosen by labels).
2. ten sites: at most 0.02 below one place.
3. at most 60 epochs in both phases.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from fedcohort.metrics import clusters

#: Accuracy that must be reached, and the goal.
LEAST = {"mnist": 0.8430, "bmnist": 0.8430}
GOAL = {"mnist": 0.8824, "bmnist": 0.8932}
MARGIN, EPOCHS = 0.02, 60


def agreement(folder: Path, names: list[str]) -> float:
    """Return the mean adjusted Rand index of pairs of runs; nan of one run."""
    labels = [np.load(folder / f"{name}.npy").astype(np.int64) for name in names]
    pairs = itertools.combinations(labels, 2)
    found = [float(clusters.adjusted_rand(clusters.contingency(a, b))) for a, b in pairs]
    return float(np.mean(found)) if found else float("nan")


def summary(rows: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return a row per data, configuration and sites."""
    found: list[dict[str, object]] = []
    for (data, config, sites), runs in rows.groupby(["data", "config", "sites"]):
        found.append({
            "data": data, "config": config, "sites": sites, "seeds": len(runs),
            "agreement": agreement(folder, runs.labels.tolist()),
            "ae_loss": runs.ae_loss.mean(), "silhouette": runs.silhouette.mean(),
            "k-means": np.mean([start["accuracy"] for start in runs.start]),
            "accuracy": runs.accuracy.mean(), "sd": runs.accuracy.std(),
            "least": runs.accuracy.min(), "most": runs.accuracy.max(), "nmi": runs.nmi.mean(),
            "epochs": runs.epochs.max(), "cpu": runs.cpu.mean(), "fast": bool(runs.fast.any()),
        })  # fmt: skip
    return pd.DataFrame(found)


def claims(table: pd.DataFrame) -> list[str]:
    """Print what each criterion chooses; return the claims that do not hold."""
    broken: list[str] = []
    for data, rows in table[table.sites == 1].groupby("data"):
        for criterion, least in (("agreement", False), ("ae_loss", True), ("silhouette", False)):
            known = rows.dropna(subset=[criterion])
            if known.empty:
                continue
            row = known.sort_values(criterion, ascending=least).iloc[0]
            print(f"{data}, by {criterion}: {row.config}, accuracy {row.accuracy:.4f}")
            if criterion != "agreement":
                continue
            if row.accuracy < LEAST[data]:
                broken.append(f"{data}: {row.accuracy:.4f} is below {LEAST[data]}")
            print(f"{data}: the goal {GOAL[data]} is "
                  f"{'reached' if row.accuracy >= GOAL[data] else 'not reached'}")  # fmt: skip
            if row.epochs > EPOCHS:
                broken.append(f"{data}: {row.config} took {row.epochs} epochs")
            same = (table.data == data) & (table.config == row.config) & (table.sites > 1)
            for over in table[same].itertuples():
                if over.accuracy < row.accuracy - MARGIN:
                    broken.append(f"{data}, {over.sites} sites: {over.accuracy:.4f} is more than "
                                  f"{MARGIN} below {row.accuracy:.4f}")  # fmt: skip
    return broken


def main() -> int:
    """Print the table; return whether a claim is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    folder = parser.parse_args().out
    lines = (folder / "runs.jsonl").read_text().splitlines()
    table = summary(pd.DataFrame([json.loads(line) for line in lines]), folder)
    print("| " + " | ".join(table) + " |\n" + "|---" * len(table.columns) + "|")
    for row in table.itertuples(index=False):
        cells = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in row]
        print("| " + " | ".join(cells) + " |")
    print()
    broken = claims(table)
    print("\n" + ("\n".join(broken) or "all claims hold"))
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())

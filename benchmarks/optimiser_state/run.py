"""How near a federation comes to training at one place, by the state of the sites' optimisers.

    python benchmarks/optimiser_state/run.py [--seeds 5] [--rounds 60]
                                             [--out benchmarks/optimiser_state/results.json]

Two trainings over ten sites, whose rows fall to them at random (`alike`) or in the order of a
column (`apart`: classes of digits; times of survival):

    digits    phase 1 of `deep_clustering`: an autoencoder 64-32-8 of scikit-learn's 1,797 digits,
              batches of a quarter of a site's rows
    survival  `deepcox` by fedavg, 300 simulated patients, all rows in a step

With E steps a round, one place takes E steps on all rows; its optimiser is one from beginning to
end. The rate is the best of three for one place, and the same for all. The table has the loss of
all rows at the end, minus that of one place, in per cent of it: mean over seeds and its standard
error.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from fedcohort.algorithms.deep_clustering import METHOD as DEC
from fedcohort.algorithms.deep_clustering.program import reconstruct
from fedcohort.algorithms.deep_clustering.steps import look_at_columns
from fedcohort.algorithms.deepcox import METHOD as COX
from fedcohort.data.tables import FeatureTable, SurvivalTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training.networks.local import evaluate
from fedcohort.training.rows import rows_of

SITES, STATES = 10, ("fresh", "kept", "averaged")
RATES = {"adam": (0.003, 0.01, 0.03), "momentum": (0.1, 0.3, 1.0)}


def digits(seed: int) -> tuple[Any, Any]:
    """Return the digits, in [0, 1], and their classes."""
    x, y = load_digits(return_X_y=True)
    return FeatureTable(x / 16.0), y


def patients(seed: int) -> tuple[Any, Any]:
    """Return simulated patients with a curved effect, and their times."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(300, 6))
    risk = 2.0 * np.sin(3.0 * x[:, 0]) - 1.5 * x[:, 1] * x[:, 2]
    death, leave = rng.exponential(np.exp(-risk)), rng.exponential(2.0, len(x))
    time = np.minimum(death, leave) + 0.01
    return SurvivalTable(x, time, death <= leave), time


def parted(table: Any, order: Any, split: str, seed: int) -> dict[str, Any]:
    """Return the rows of ten sites."""
    mixed = np.random.default_rng(seed).permutation(len(order))
    places = mixed if split == "alike" else mixed[np.argsort(order[mixed], kind="stable")]
    return {
        f"s{k}": type(table)(*(None if c is None else c[np.sort(part)] for c in table))
        for k, part in enumerate(np.array_split(places, SITES))
    }


def loss_of(task: str, tables: dict[str, Any], whole: Any, seed: int, **settings: Any) -> float:
    """Train, and return the loss of all rows at the end."""
    method = DEC if task == "digits" else COX
    hosts = [Host(name, table, method.steps, seed) for name, table in tables.items()]
    fed, kind = local(hosts), "clustering" if task == "digits" else "survival"
    p = whole.x.shape[1]
    about = Task(kind=kind, features=tuple(f"x{j}" for j in range(p)), seed=seed)
    if task == "digits":
        batch = round(len(whole.x) / len(tables) / 4)
        config = method.configure(
            {"architecture": (32, 8), "batch_size": batch, "dtype": "float64"} | settings
        )
        theta, _ = reconstruct(fed, config, about, fed.sum(look_at_columns))
    else:
        config = method.configure({"hidden": (8, 4), "lr_rule": "constant"} | settings)
        theta = method.fit(fed, config, about).thetas[0]
    plan = config.plan(p)
    return evaluate(theta, rows_of(whole, plan, (seed, 0, 0)), plan)


def main() -> int:
    """Print the table."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--seeds", type=int, default=5)
    given.add_argument("--rounds", type=int, default=60)
    given.add_argument("--out", type=Path)
    args = given.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for task, draw, epochs in (("digits", digits, 2), ("survival", patients, 5)):
        for optimiser, rates in RATES.items():
            given_to_all = {
                "optimiser": optimiser, "rounds": args.rounds, "internal_epochs": epochs,
            }  # fmt: skip
            alone = {
                rate: [
                    loss_of(
                        task, {"all": whole}, whole, seed, optimiser_state="kept",
                        learning_rate=rate, **given_to_all,
                    )
                    for seed in range(args.seeds)
                    for whole, _ in (draw(seed),)
                ]
                for rate in rates
            }  # fmt: skip
            rate = min(rates, key=lambda r: float(np.nanmean(alone[r])))
            for split in ("alike", "apart"):
                group: dict[str, Any] = {"about": {"command": f"python {' '.join(sys.argv)}"}}
                group |= {"rate": rate, "one_place": float(np.mean(alone[rate]))}
                for state in STATES:
                    off = []
                    for seed in range(args.seeds):
                        whole, order = draw(seed)
                        tables = parted(whole, order, split, seed)
                        loss = loss_of(
                            task, tables, whole, seed, optimiser_state=state,
                            learning_rate=rate, **given_to_all,
                        )  # fmt: skip
                        off.append(100 * (loss / alone[rate][seed] - 1))
                    group[state] = float(np.mean(off))
                    group[f"{state}_se"] = float(np.std(off, ddof=1) / np.sqrt(len(off)))
                found[f"{task}-{optimiser}-{split}"] = group
                told = "  ".join(f"{s} {group[s]:+.1f} ({group[s + '_se']:.1f})" for s in STATES)
                print(f"{task} {optimiser} {split}: one place {group['one_place']:.5f} "
                      f"at {rate:g}; {told}", flush=True)  # fmt: skip
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

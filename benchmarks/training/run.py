"""How near a federation comes to training at one place: state of optimisers, compressed updates.

    python benchmarks/training/run.py [--seeds 5] [--rounds 60] [--out FILE]

Two trainings over ten sites, whose rows fall to them at random (`alike`) or in the order of a
column (`apart`: classes of digits; times of survival):

    digits    phase 1 of `deep_clustering`: an autoencoder 64-32-8 of scikit-learn's 1,797 digits,
              batches of a quarter of a site's rows, 2 epochs a round
    survival  `deepcox` by fedavg, 300 simulated patients, all rows in a step, 5 steps a round

One place takes as many steps on all rows; its optimiser is one from beginning to end. The rate is
the best of three for one place, and the same for all. First table: the loss of all rows at the end
by `optimiser_state`, minus that of one place, in per cent of it. Second table: the same by
`compression`, minus that of none, of `optimiser_state: fresh`; and the bytes that a site sends in a
round. Means over seeds and their standard errors. Some 8 minutes of one core.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

sys.path.insert(0, str(Path(__file__).parents[1]))

from book import asks_out, keep

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
TRAININGS = (("digits", "adam"), ("digits", "momentum"), ("survival", "adam"))
EPOCHS = {"digits": 2, "survival": 5}
COMPRESSED = ("random_k", "top_k", "int8")


class Weighing(Host):
    """A site that counts the bytes of its replies in training."""

    sent = 0

    def answer(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer, and count."""
        answer = super().answer(call, *args, **kwargs)
        if call.round and call.step.name in TRAINS:
            self.sent += sum(a.nbytes for a in answer.reply.values())
        return answer


TRAINS = ("rebuild", "rebuild_kept", "train_here", "train_kept", "send_rounded", "send_largest")


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


def loss_of(
    task: str, tables: dict[str, Any], whole: Any, seed: int, **settings: Any
) -> tuple[float, float]:
    """Train; return the loss of all rows at the end, and the bytes of a site in a round."""
    method = DEC if task == "digits" else COX
    hosts = [Weighing(name, table, method.steps, seed) for name, table in tables.items()]
    fed, kind = local(hosts), "clustering" if task == "digits" else "survival"
    p = whole.x.shape[1]
    about = Task(kind=kind, features=tuple(f"x{j}" for j in range(p)), seed=seed)
    if task == "digits":
        batch = round(len(whole.x) / len(tables) / 4)
        given = {"architecture": (32, 8), "batch_size": batch, "dtype": "float64"}
        config = method.configure(given | settings)
        theta, _ = reconstruct(fed, config, about, fed.sum(look_at_columns))
    else:
        config = method.configure({"hidden": (8, 4), "lr_rule": "constant"} | settings)
        theta = method.fit(fed, config, about).thetas[0]
    plan = config.plan(p)
    loss = evaluate(theta, rows_of(whole, plan, (seed, 0, 0)), plan)
    return loss, np.mean([host.sent for host in hosts]) / (config.rounds - 1)


def off(losses: list[float], others: list[float]) -> tuple[float, float]:
    """Return how far losses are above others, in per cent: the mean and its standard error."""
    gaps = 100 * (np.array(losses) / np.array(others) - 1)
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))


def by_seed(
    task: str, drawn: list[tuple[Any, Any]], split: str, **settings: Any
) -> tuple[list[float], float]:
    """Return the loss by seed, at one place if `split` is "", and a site's bytes in a round."""
    pairs: list[tuple[float, float]] = []
    for seed, (whole, order) in enumerate(drawn):
        tables = parted(whole, order, split, seed) if split else {"all": whole}
        pairs.append(loss_of(task, tables, whole, seed, **settings))
    return [loss for loss, _ in pairs], float(np.mean([sent for _, sent in pairs]))


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=60)
    asks_out(parser)
    args = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for task, optimiser in TRAININGS:
        seeds = range(args.seeds)
        drawn = [(digits if task == "digits" else patients)(seed) for seed in seeds]
        trained = partial(
            by_seed, task, drawn, optimiser=optimiser, rounds=args.rounds,
            internal_epochs=EPOCHS[task],
        )  # fmt: skip
        alone = {
            rate: trained("", optimiser_state="kept", learning_rate=rate)[0]
            for rate in RATES[optimiser]
        }
        rate = min(alone, key=lambda r: float(np.mean(alone[r])))
        for split in ("alike", "apart"):
            group: dict[str, Any] = {"rate": rate, "one_place": float(np.mean(alone[rate]))}
            losses: dict[str, list[float]] = {}
            for state in STATES:
                losses[state], sent = trained(split, optimiser_state=state, learning_rate=rate)
                group[state], group[f"{state}_se"] = off(losses[state], alone[rate])
                group[f"{state}_bytes"] = sent
            told = [f"{s} {group[s]:+.1f} ({group[s + '_se']:.1f})" for s in STATES]
            for name in COMPRESSED if optimiser == "adam" else ():
                losses[name], sent = trained(split, compression=name, learning_rate=rate)
                group[name], group[f"{name}_se"] = off(losses[name], losses["fresh"])
                group[f"{name}_bytes"] = sent
                told.append(f"{name} {group[name]:+.1f} ({group[name + '_se']:.1f}), {sent:.0f}")
            found[f"{task}-{optimiser}-{split}"] = group
            print(f"{task} {optimiser} {split}: one place {group['one_place']:.5f} at {rate:g};",
                  "; ".join(told), flush=True)  # fmt: skip
    keep(args.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

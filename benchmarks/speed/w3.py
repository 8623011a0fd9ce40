"""W3, boosting: 8 sites × 5,000 rows × 50 numbers, yes or no; 100 trees of depth 6, one thread.

central  XGBoost's `hist` on all rows together, with its 256 bins
coarse   the same with the 64 bins of `boosting`
open     `boosting` with a min_cell of 1: one sum a level
local    `boosting` as it is by default, groups of ten rows at least: two sums a level; journal and
         ledger on
tenfold  `local` with ten times the rows

Instead of models, AUCs on 20,000 fresh rows are compared: `local` may be below `central` by 0.001.
XGBoost's own AUC changes by 0.01 with the number of bins.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from sklearn.metrics import roc_auc_score

from fedcohort.algorithms import boosting
from fedcohort.algorithms.boosting.settings import BoostingSettings
from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local

SITES, ROWS, COLUMNS, DEPTH, RATE, ROUNDS, FRESH = 8, 5000, 50, 6, 0.1, 100, 20_000
#: By how much the AUC of `local` may be below that of `central`, after `COMPARED` rounds.
APART, COMPARED = 0.001, 100
NAMES = tuple(f"x{j}" for j in range(COLUMNS))


def drawn(n: int, seed: int) -> tuple[Array, Array]:
    """Return x (n, 50) and y (n,), with effects that interact."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, COLUMNS))
    eta = x[:, 0] + x[:, 1] * x[:, 2] - 0.5 * x[:, 3] ** 2 + 0.3 * x[:, 4:10].sum(axis=1)
    return x, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)


TEST = drawn(FRESH, 1)


def tables() -> dict[str, LabelledTable]:
    """Simulate the sites, of ten times the rows; all but `tenfold` take the first tenth."""
    x, y = drawn(10 * SITES * ROWS, 0)
    parts = np.split(np.arange(len(x)), SITES)
    return {
        f"site{k}": LabelledTable(np.ascontiguousarray(x[part]), y[part].copy())
        for k, part in enumerate(parts)
    }


def shown(model: Any) -> Array:
    """Return the AUC of a model, which is compared; it is not timed."""
    x = xgboost.DMatrix(TEST[0]) if isinstance(model, xgboost.Booster) else TEST[0]
    return np.array([roc_auc_score(TEST[1], model.predict(x))])


def apart(found: dict[str, Array]) -> float:
    """Print the AUCs; return by how much that of `local` is below that of `central`."""
    print("  AUC " + ", ".join(f"{name} {float(auc[0]):.4f}" for name, auc in found.items()))
    if not {"central", "local"} <= set(found):
        return 0.0
    return max(0.0, float(found["central"][0] - found["local"][0]))


def central(bins: int) -> Callable[[dict[str, LabelledTable], int], Any]:
    """Return XGBoost on the pooled rows, with so many bins."""

    def train(sites: dict[str, LabelledTable], rounds: int) -> Any:
        x = np.concatenate([t.x[:ROWS] for t in sites.values()])
        y = np.concatenate([t.y[:ROWS] for t in sites.values()])
        data = xgboost.QuantileDMatrix(x, y, max_bin=bins, nthread=1)
        settings = {
            "objective": "binary:logistic", "tree_method": "hist", "max_bin": bins,
            "max_depth": DEPTH, "learning_rate": RATE, "nthread": 1,
        }  # fmt: skip
        return xgboost.train(settings, data, rounds)

    return train


def federated(min_cell: int, rows: int = ROWS) -> Callable[[dict[str, LabelledTable], int], Any]:
    """Return `boosting` over the sites."""

    def train(sites: dict[str, LabelledTable], rounds: int) -> Any:
        hosts = [
            Host(name, LabelledTable(t.x[:rows], t.y[:rows]), boosting.METHOD.steps)
            for name, t in sites.items()
        ]
        task = Task(
            kind="classification", features=NAMES, outcome="binary", levels=("0", "1"),
            min_cell=min_cell,
        )  # fmt: skip
        config = BoostingSettings(rounds=rounds, max_depth=DEPTH, learning_rate=RATE)
        with tempfile.TemporaryDirectory() as folder:
            fed = local(hosts, journal=Journal(Path(folder) / "journal"))
            return boosting.METHOD.fit(fed, config, task)

    return train


VARIANTS = {
    "central": central(256), "coarse": central(64), "open": federated(1), "local": federated(5),
    "tenfold": federated(5, 10 * ROWS),
}  # fmt: skip
GOALS = [
    ("open", "central", "<=", 3.0), ("local", "central", "<=", 3.0),
    ("tenfold", "local", "<=", 10.0),
]  # fmt: skip

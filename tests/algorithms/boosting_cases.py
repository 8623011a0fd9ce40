"""Fits of `boosting` over sites, and XGBoost's on the same rows and bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xgboost

from fedcohort.algorithms import boosting
from fedcohort.algorithms.boosting.settings import BoostingSettings
from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

KINDS = {
    "binary": "classification", "category": "classification", "continuous": "regression",
    "count": "regression", "survival": "survival",
}  # fmt: skip
#: XGBoost's objective by ours, and its settings besides those in common.
THEIRS = {
    "binary": {"objective": "binary:logistic"},
    "category": {"objective": "multi:softprob", "num_class": 3},
    "continuous": {"objective": "reg:squarederror"},
    "count": {"objective": "count:poisson"},
    "survival": {"objective": "survival:cox"},
    "weibull": {
        "objective": "survival:aft", "aft_loss_distribution": "extreme",
        "aft_loss_distribution_scale": 1.5,
    },
}  # fmt: skip


def simulated(seed: int, n: int = 400, gaps: float = 0.1) -> tuple[Array, dict[str, Any]]:
    """Return x (n, 4) of whole numbers from 0 to 11, some missing, and an outcome of each type."""
    rng = np.random.default_rng(seed)
    full = rng.integers(0, 12, size=(n, 4)).astype(float)
    eta = (full[:, 0] - 6) / 3 + ((full[:, 1] > 6) * (full[:, 2] - 5)) / 4
    time, event = rng.exponential(np.exp(-eta / 2)) + 0.01, rng.random(n) < 0.7
    outcomes = {
        "binary": (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float),
        "category": np.clip((eta + rng.normal(size=n) + 2) // 2, 0, 2),
        "continuous": eta + rng.normal(size=n),
        "count": rng.poisson(np.exp(eta / 2)).astype(float),
        "survival": (time, event),
    }
    x = np.where(rng.random(full.shape) < gaps, np.nan, full)
    return x, outcomes


def table(x: Array, y: Any, rows: Any, weight: Array | None = None) -> Any:
    """Return some rows as a site has them."""
    own = None if weight is None else weight[rows]
    if isinstance(y, tuple):
        return SurvivalTable(x[rows], y[0][rows], y[1][rows], own)
    return LabelledTable(x[rows], y[rows], own)


def federation(x: Array, y: Any, parts: Sequence[Any], weight: Array | None = None, seed: int = 0):
    """Return sites with these parts of the rows."""
    hosts = [
        Host(f"site-{i}", table(x, y, part, weight), boosting.METHOD.steps, seed)
        for i, part in enumerate(parts)
    ]
    return local(hosts)


def fit(
    x: Array, y: Any, outcome: str, parts: Sequence[Any], *, min_cell: int = 1,
    weight: Array | None = None, **settings: Any,
):  # fmt: skip
    """Return the model of a fit over sites."""
    levels = {"binary": ("0", "1"), "category": ("a", "b", "c")}.get(outcome, ())
    task = Task(
        kind=KINDS[outcome], features=tuple(f"x{j}" for j in range(x.shape[1])), outcome=outcome,
        levels=levels, min_cell=min_cell,
    )  # fmt: skip
    config = BoostingSettings(**{"rounds": 10, **settings})
    return boosting.METHOD.fit(federation(x, y, parts, weight), config, task)


def thirds(n: int) -> list[Array]:
    """Return the rows of three sites, of which one has few."""
    return np.split(np.arange(n), [n // 2, n - 7])


def theirs(
    x: Array, y: Any, which: str, base: Array, rounds: int = 10, weight: Array | None = None,
    **settings: Any,
) -> Array:  # fmt: skip
    """Return the margins (n, K) of XGBoost, which starts from margins `base` (K,)."""
    data = xgboost.DMatrix(x, weight=weight, base_margin=np.tile(base, (len(x), 1)))
    if which == "weibull":
        data.set_float_info("label_lower_bound", y[0])
        data.set_float_info("label_upper_bound", np.where(y[1], y[0], np.inf))
    else:
        data.set_info(label=np.where(y[1], y[0], -y[0]) if which == "survival" else y)
    common = {
        "tree_method": "hist", "max_bin": 64, "max_depth": 4, "learning_rate": 0.1, "nthread": 1
    }  # fmt: skip
    made = xgboost.train({**common, **THEIRS[which], **settings}, data, rounds)
    return made.predict(data, output_margin=True).reshape(len(x), -1)

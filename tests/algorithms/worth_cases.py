"""Sites that suit a user more or less, and fits of `ndoye` and `influence` over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task, registry
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

BETA = np.array([1.0, -1.0, 0.5])
FEATURES = ("u", "v", "w")
LEVELS = ("low", "mid", "high")


def classes(n: int, beta: Array = BETA, seed: int = 0, flipped: bool = False) -> LabelledTable:
    rng = np.random.default_rng((seed, n))
    x = rng.normal(size=(n, 3))
    y = rng.random(n) < 1 / (1 + np.exp(-x @ beta))
    return LabelledTable(x, (y ^ flipped).astype(float))


def grades(n: int, beta: Array = BETA, seed: int = 0, turned: bool = False) -> LabelledTable:
    """Return three classes; the covariates that go with the last go against the first."""
    rng = np.random.default_rng((seed, n, 3))
    x = rng.normal(size=(n, 3)) + 0.5
    score = np.stack([-x @ beta, 0.4 + 0.8 * x[:, 1], x @ beta], axis=1)
    y = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
    return LabelledTable(x, (2 - y if turned else y).astype(float))


def values(n: int, beta: Array = BETA, seed: int = 0, noise: float = 1.0) -> LabelledTable:
    rng = np.random.default_rng((seed, n, 1))
    x = rng.normal(size=(n, 3)) + 0.5
    return LabelledTable(x, 2.0 + x @ beta + noise * rng.normal(size=n))


def hosts(method: str, tables: Mapping[str, LabelledTable], seed: int = 0) -> list[Host]:
    steps = registry.find(method).steps
    return [Host(name, table, steps, seed) for name, table in tables.items()]


def fit(
    method: str,
    tables: Mapping[str, LabelledTable],
    kind: str = "classification",
    *,
    seed: int = 0,
    min_cell: int = 5,
    outcome: str = "",
    fed: Any = None,
    **settings: Any,
) -> Any:
    entry = registry.find(method)
    settings = {"user": "user", **settings}
    outcome = outcome or {"classification": "binary", "regression": "continuous"}[kind]
    levels = LEVELS if outcome in ("category", "ordinal") else ()
    task = Task(
        kind=kind, features=FEATURES, seed=seed, min_cell=min_cell, outcome=outcome, levels=levels
    )
    fed = fed or local(hosts(method, tables, seed))
    return entry.fit(fed, entry.configure(settings), task)

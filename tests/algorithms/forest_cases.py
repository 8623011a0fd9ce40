"""Tables and fits for the tests of `forest`."""

from __future__ import annotations

import numpy as np

from fedcohort.algorithms.forest import METHOD, ForestModel
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

KINDS = {"survival": "survival", "classification": "binary", "regression": "continuous"}
#: Settings with which the trees are those of the pooled table.
ALL_ROWS = {"share": 1.0}


def fit(parts, kind, min_cell=5, seed=0, levels=(), **options) -> ForestModel:
    """Fit tables, one a site."""
    names = tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    fed = local([Host(f"site-{k}", part, METHOD.steps, seed) for k, part in enumerate(parts)])
    task = Task(
        kind=kind, features=names, min_cell=min_cell, outcome=KINDS[kind], seed=seed, levels=levels
    )
    return METHOD.fit(fed, METHOD.configure(options), task)


def take(table, rows):
    return type(table)(*(None if part is None else part[rows] for part in table))


def split(table, where):
    """Return one table a site; `where` gives each row's site."""
    return [take(table, where == k) for k in np.unique(where)]


def simulated(kind, n, p, seed, *, binary=False):
    """Return a table whose outcome depends on four covariates, two of them together."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    x = (x > 0).astype(float) if binary else x
    f = 1.5 * np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + (x[:, 3] > 0.5) - 0.5
    if kind == "classification":
        return LabelledTable(x, (f + rng.logistic(size=n) > 0).astype(float))
    if kind == "regression":
        return LabelledTable(x, f + rng.normal(size=n))
    death, leave = rng.exponential(np.exp(-f)), rng.exponential(2.0, n)
    time = np.ceil(64 * np.minimum(death, leave)) / 64
    return SurvivalTable(x, time, death <= leave)

"""Rows, sites and fits of the deep generative decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort.algorithms.dgd import METHOD, DgdModel
from fedcohort.arrays import Array
from fedcohort.data.tables import FeatureTable
from fedcohort.protocol import Federation, Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

P, Q = 6, 2

#: Settings that keep a fit short.
SMALL: Mapping[str, Any] = {
    "q": Q, "n_clusters": 3, "hidden": (), "rounds": 3, "cluster_rounds": 3, "internal_epochs": 3,
    "search_steps": 10, "restarts": 2, "swaps": 0,
}  # fmt: skip


def mixture(n: int, seed: int = 0, k: int = 4, p: int = 10) -> tuple[Array, Array]:
    """Return standardised rows (n, p) of k groups in a plane, with noise, and their groups (n,)."""
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * np.arange(k) / k
    centres = 4.0 * np.c_[np.cos(angle), np.sin(angle)]
    group = rng.integers(k, size=n)
    z = centres[group] + 0.6 * rng.normal(size=(n, 2))
    x = z @ rng.normal(size=(2, p)) + 0.3 * rng.normal(size=(n, p))
    return (x - x.mean(axis=0)) / x.std(axis=0), group


def holes(x: Array, share: float, seed: int = 0) -> Array:
    """Return rows with entries missing at random; no row without any that is known."""
    gone = np.random.default_rng(seed).random(x.shape) < share
    gone[gone.all(axis=1), 0] = False
    return np.where(gone, np.nan, x)


def split(x: Array, sites: int) -> dict[str, Array]:
    """Return the rows of each site: unequal parts, in turn."""
    at = np.minimum(np.arange(len(x)) % (sites + 1), sites - 1)
    return {f"site{s}": x[at == s] for s in range(sites)}


def task_of(p: int = P, seed: int = 1, **more: Any) -> Task:
    """Return the task of p columns."""
    features = tuple(f"c{j}" for j in range(p))
    return Task(kind="clustering", features=features, seed=seed, **more)


def federation(parts: Mapping[str, Array], seed: int = 1, **options: Any) -> Federation:
    """Return sites in this process."""
    hosts = [Host(n, FeatureTable(np.array(x)), METHOD.steps, seed) for n, x in parts.items()]
    return local(hosts, **options)


def fitted(parts: Mapping[str, Array], *, task: Task | None = None, **settings: Any) -> DgdModel:
    """Return a fit."""
    task = task or task_of(next(iter(parts.values())).shape[1])
    config = METHOD.configure({**SMALL, **settings})
    model = METHOD.fit(federation(parts, task.seed), config, task)
    assert isinstance(model, DgdModel)
    return model

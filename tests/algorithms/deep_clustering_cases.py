"""Tables, sites and fits of deep clustering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcohort.algorithms.deep_clustering import METHOD, DeepClusteringSettings, DeepClusters
from fedcohort.arrays import Array
from fedcohort.data.tables import FeatureTable
from fedcohort.protocol import Federation, Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

#: Settings that keep a fit short.
SMALL: Mapping[str, Any] = {
    "n_clusters": 3, "architecture": (8, 2), "rounds": 30, "cluster_rounds": 10,
    "learning_rate": 0.01, "batch_size": 16, "cluster_batch_size": 16, "restarts": 5,
}  # fmt: skip


def groups(n: int = 150, p: int = 12, k: int = 3, seed: int = 0) -> tuple[Array, Array]:
    """Return rows of zeros and ones (n, p) of k groups, and their groups (n,).

    A group has ones in its own columns with probability 0.85, and in others with 0.1.
    """
    rng = np.random.default_rng(seed)
    own = rng.integers(k, size=n)
    likely = np.where(np.arange(p) % k == own[:, None], 0.85, 0.1)
    return (rng.random((n, p)) < likely).astype(float), own


def task_of(x: Array, seed: int = 1, min_cell: int = 5) -> Task:
    """Return the task of a table's columns."""
    features = tuple(f"gene{j}" for j in range(x.shape[1]))
    return Task(kind="clustering", features=features, seed=seed, min_cell=min_cell)


def split(x: Array, sites: Sequence[int]) -> dict[str, Array]:
    """Return the rows of each site, by the site's number for each row."""
    at = np.asarray(sites)
    return {f"site{s}": x[at == s] for s in range(at.max() + 1)}


def federation(parts: Mapping[str, Array], seed: int = 1, **options: Any) -> Federation:
    """Return sites in this process."""
    hosts = [Host(name, FeatureTable(np.array(x)), METHOD.steps, seed) for name, x in parts.items()]
    return local(hosts, **options)


def config_of(**settings: Any) -> DeepClusteringSettings:
    """Return settings, short but for those given."""
    return METHOD.configure({**SMALL, **settings})


def fitted(
    parts: Mapping[str, Array], *, seed: int = 1, min_cell: int = 5, **settings: Any
) -> DeepClusters:
    """Return a fit."""
    task = task_of(next(iter(parts.values())), seed, min_cell)
    model = METHOD.fit(federation(parts, seed), config_of(**settings), task)
    assert isinstance(model, DeepClusters)
    return model

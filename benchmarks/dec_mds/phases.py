"""One deep clustering fit in its two phases, so that several fits can share the first.

The phases are those of `fedcohort.algorithms.deep_clustering.program.fit`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.algorithms.deep_clustering import program
from fedcohort.algorithms.deep_clustering.steps import rebuild, rebuild_seen
from fedcohort.arrays import Array
from fedcohort.data.tables import FeatureTable
from fedcohort.protocol import Federation, Task, registry
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training.networks.server import RULES
from fedcohort.training.networks.strategies import Visits, averaging

DEEP = registry.find("deep_clustering")


def federation(x: Array, parts: Sequence[Array], seed: int, method: Any = DEEP) -> Federation:
    """Return sites with these rows of x (n, p) as a federation in this process; sums are plain."""
    hosts = [
        Host(f"site-{i + 1:02d}", FeatureTable(x[part].copy()), method.steps, seed)
        for i, part in enumerate(parts)
    ]
    return local(hosts, secure="false")


def task_of(x: Array, seed: int) -> Task:
    """Return the task of clustering x (n, p)."""
    names = tuple(f"x{j}" for j in range(x.shape[1]))
    return Task(kind="clustering", features=names, seed=seed)


@dataclass
class Deep:
    """A fit of the rows x (n, p) by site, to be taken phase by phase.

    Attributes
    ----------
    settings : of the method.
    """

    x: Array
    parts: Sequence[Array]
    seed: int
    settings: dict[str, Any]

    def first(self) -> tuple[Array, list[float], float]:
        """Return θ of the autoencoder, its loss in each round, and CPU seconds."""
        start = time.process_time()
        fed, task = federation(self.x, self.parts, self.seed), task_of(self.x, self.seed)
        columns = fed.sum(program.look_at_columns)
        theta, _ = program.reconstruct(fed, DEEP.configure(self.settings), task, columns)
        losses = [row["loss"] for row in fed.history if "loss" in row]
        return theta, losses, time.process_time() - start

    def onward(self, theta: Array, done: int, rounds: int) -> tuple[Array, list[float], float]:
        """Return what `first` does after more rounds from θ (P,), `done` of them behind it.

        Only of `fedavg` at a constant rate without noise: neither the coordinator nor a site then
        keeps anything but θ between two rounds. Batches are drawn anew.
        """
        start = time.process_time()
        config = DEEP.configure(self.settings | {"rounds": rounds})
        fed = federation(self.x, self.parts, self.seed + 10**6 * done)
        visits = Visits(rebuild, rebuild_seen, lambda _: {"frequencies": np.zeros(0)})
        course = averaging(
            fed, config.plan(self.x.shape[1]), config.schedule, RULES[config.strategy],
            config.server(theta), lambda _: 0.0, config.centre, visits,
        )  # fmt: skip
        losses = [row["loss"] for row in fed.history if "loss" in row]
        return course.theta, losses, time.process_time() - start

    def between(self, theta: Array) -> Any:
        """Return the centroids of θ for `second`; they do not depend on its other settings."""
        fed, task = federation(self.x, self.parts, self.seed), task_of(self.x, self.seed)
        return program.centroids(fed, DEEP.configure(self.settings), task, theta)

    def second(self, theta: Array, begun: Any = None) -> tuple[Any, list[float], float]:
        """Return the model that phase 2 makes of θ, labels changed in each round, CPU seconds.

        `begun` is what `between` returned.
        """
        start = time.process_time()
        fed, task = federation(self.x, self.parts, self.seed), task_of(self.x, self.seed)
        binary = bool(np.isin(self.x, (0, 1)).all())
        model = program.cluster(
            fed, DEEP.configure(self.settings), task, theta, binary, begun=begun
        )
        changed = [row["changed"] for row in fed.history if "changed" in row]
        return model, changed, time.process_time() - start

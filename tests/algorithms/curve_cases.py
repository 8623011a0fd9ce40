"""Records with groups, split over sites, and the three programs run on them without a front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import Task, registry
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

#: Features of the groups, as the design names them.
LEVELS = ("g=a", "g=b", "g=c")


def records(
    n: int, seed: int, *, whole: bool = False, shares: Sequence[float] = (0.5, 0.3, 0.2)
) -> pd.DataFrame:
    """Return n records: time, event, group (−1 for none); in whole numbers, with many ties."""
    rng = np.random.default_rng(seed)
    group = rng.choice(len(shares), n, p=np.array(shares) / sum(shares))
    death = rng.weibull(0.8, n) * np.array([9.0, 5.0, 14.0, 7.0])[group]
    leave = rng.uniform(0, 25, n)
    end = rng.choice([12.0, 30.0])
    time = np.minimum(np.minimum(death, leave), end)
    event = (death <= leave) & (death <= end)
    time = np.ceil(time) if whole else time
    return pd.DataFrame({"time": time + (0 if whole else 1e-3), "event": event, "group": group})


def split(frame: pd.DataFrame, n_sites: int, seed: int = 0) -> dict[str, SurvivalTable]:
    """Return the records at so many sites, drawn at random; some may be empty."""
    where = np.random.default_rng(seed).integers(0, n_sites, len(frame))
    hot = (frame.group.to_numpy()[:, None] == np.arange(len(LEVELS))).astype(float)
    time, event = frame.time.to_numpy(float), frame.event.to_numpy(bool)
    return {
        f"s{i}": SurvivalTable(hot[where == i], time[where == i], event[where == i])
        for i in range(n_sites)
    }


@dataclass
class Watched:
    """A federation that remembers every sum: the step, its arguments, and what came back."""

    inner: Any
    told: list[tuple[str, dict[str, Any], Any]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def sum(self, step: Any, **arguments: Any) -> Any:
        """Ask, and remember question and answer."""
        found = self.inner.sum(step, **arguments)
        self.told.append((step.name, arguments, found))
        return found

    def only(self, sites: Any) -> Watched:
        """Return a view that remembers in the same place."""
        return Watched(self.inner.only(sites), self.told)

    def awaiting(self, fewest: int | None = None) -> Watched:
        """Return a view that waits, and remembers in the same place."""
        return Watched(self.inner.awaiting(fewest), self.told)


def run(
    method: str, tables: dict[str, SurvivalTable], *, min_cell: int = 5, **settings: Any
) -> tuple[Any, list[tuple[str, dict[str, Any], Any]]]:
    """Return a method's model, and all sums that the coordinator was told."""
    entry = registry.find(method)
    fed = Watched(local([Host(name, t, entry.steps, 0) for name, t in tables.items()]))
    features = LEVELS if settings.get("by") else ()
    task = Task(kind="survival", features=features, min_cell=min_cell)
    return entry.fit(fed, entry.configure(settings), task), fed.told

"""A small clustering over sites, registered while a test runs: groups by where the row mean lies.

Cuts are the mean of all sites, by sums, and half a standard deviation at either side of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedcohort.protocol import (
    Federation,
    Fitted,
    Method,
    Settings,
    Site,
    Task,
    message,
    registry,
    setting,
    summed,
)


@message
class Powers:
    """Σ s, Σ s² of row means s, Σ x (p,) and rows."""

    total: Any
    squares: Any
    x: Any
    rows: Any


@summed
def powers(site: Site[Any, None]) -> Powers:
    """Sum the powers of row means."""
    x = site.data.x
    s = x.mean(axis=1)
    return Powers(np.array(s.sum()), np.array((s**2).sum()), x.sum(axis=0), np.array(len(x)))


@dataclass(frozen=True, kw_only=True)
class GroupSettings(Settings):
    """How many groups."""

    groups: int = setting(3, "2 or 3 groups")


class Groups(Fitted):
    """Groups between cuts."""

    def __init__(self, cuts: Any, mean: Any, seen: tuple[str, ...] = ()):
        self.cuts, self.mean, self.seen = cuts, mean, seen

    def arrays(self):
        return {"cuts": self.cuts, "mean": self.mean}

    def meta(self):
        return {"seen": list(self.seen)}

    @classmethod
    def restore(cls, arrays, meta):
        return cls(arrays["cuts"], arrays["mean"], tuple(meta["seen"]))

    def predict(self, x):
        return np.searchsorted(self.cuts, x.mean(axis=1))

    def memberships(self, x):
        return np.eye(len(self.cuts) + 1)[self.predict(x)]

    def reconstruct(self, x):
        """Every row's mean, in all of its features."""
        return np.repeat(x.mean(axis=1, keepdims=True), x.shape[1], axis=1)

    def sample(self, n, rng):
        return np.clip(self.mean + rng.normal(0, 0.3, (n, len(self.mean))), 0, 1)


def fit(fed: Federation, config: GroupSettings, task: Task) -> Groups:
    """Cut at the mean of row means, plus and minus half their spread."""
    p = fed.sum(powers)
    mean = float(p.total) / float(p.rows)
    sd = float(np.sqrt(max(float(p.squares) / float(p.rows) - mean**2, 0.0)))
    cuts = np.array([mean] if config.groups == 2 else [mean - sd / 2, mean + sd / 2])
    return Groups(cuts, p.x / float(p.rows), task.features)


METHOD = Method(
    name="groups",
    title="Groups by the mean of a row",
    tasks=("clustering",),
    paper="none",
    reveals="Sums of row means.",
    settings=GroupSettings,
    fit=fit,
    model=Groups,
    steps=(powers,),
    preprocess={"scale": "minmax"},
)


@contextlib.contextmanager
def registered(*methods: Method) -> Generator[None]:
    """Have methods in the catalogue beside those that are installed."""
    found = registry.entry_points

    def all_of(group: str) -> list[Any]:
        more = [
            SimpleNamespace(
                name=m.name, value="a:b", module="grouping", load=lambda m=m: m, dist=None
            )
            for m in methods
        ]
        return [*found(group=group), *more]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", all_of)
        registry.forget()
        yield
    registry.forget()

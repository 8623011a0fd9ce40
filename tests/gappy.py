"""A method that takes missing values, for the tests of views: the mean of each column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from fedcohort.arrays import Array
from fedcohort.data.prepare.design import Table
from fedcohort.protocol import (
    Federation,
    Fitted,
    Method,
    Settings,
    Site,
    Task,
    message,
    registry,
    summed,
)


@message
class Present:
    """Of each column, how many entries there are, and their sum (p,)."""

    n: Array
    total: Array


@summed
def present(site: Site[Table, None]) -> Present:
    """Count and sum what is there."""
    x = site.data.x
    return Present((~np.isnan(x)).sum(axis=0), np.nansum(x, axis=0))


@dataclass(frozen=True)
class Means(Fitted):
    """The means (p,), and the view of each column."""

    mean: Array
    views: tuple[str, ...]

    def arrays(self) -> dict[str, Array]:
        """Return the means."""
        return {"mean": self.mean}

    def meta(self) -> dict[str, Any]:
        """Return the views."""
        return {"views": list(self.views)}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild it."""
        return cls(arrays["mean"], tuple(meta["views"]))

    def predict(self, x: Array) -> Array:
        """Return the mean of what is there in each row (n,)."""
        return np.nanmean(x, axis=1)

    def transform(self, x: Array) -> Array:
        """Return how many entries are missing (n, 1)."""
        return np.isnan(x).sum(axis=1, keepdims=True).astype(float)

    def impute(self, x: Array) -> Array:
        """Return x (n, p) with the means where entries are missing."""
        return np.where(np.isnan(x), self.mean, x)


@dataclass(frozen=True, kw_only=True)
class NoSettings(Settings):
    """No settings."""


def fit(fed: Federation, config: NoSettings, task: Task) -> Means:
    """Fit the means."""
    told = fed.sum(present)
    return Means(told.total / told.n, task.views)


METHOD = Method(
    name="gappy", title="Means", tasks=("latent", "regression"), paper="", reveals="sums",
    settings=NoSettings, fit=fit, model=Means, steps=(present,),
    preprocess={"impute": "none", "scale": "standard"},
)  # fmt: skip


@contextmanager
def installed() -> Iterator[Method]:
    """Have the method in the catalogue, beside those that are there."""
    known = registry.entry_points
    entry = SimpleNamespace(
        name="gappy", value="gappy:METHOD", module="gappy", dist=None, load=lambda: METHOD
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", lambda group: [*known(group=group), entry])
        registry.forget()
        yield METHOD
    registry.forget()

"""A method of several classes, for tests: normal densities about the mean of each class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import (
    Federation,
    Fitted,
    Method,
    NothingToLearn,
    Site,
    Task,
    message,
    registry,
    setting,
    summed,
)
from fedcohort.protocol.settings import Settings

LEVELS = ("low", "mid", "high")


def graded():
    """Return sites of three classes, of which c has its effects the other way round."""
    made = {}
    for name, rows, size in (("a", 40, 1.0), ("b", 70, 1.0), ("c", 23, -1.0), ("d", 55, 0.6)):
        rng = np.random.default_rng(ord(name))
        x = rng.normal(size=(rows, 3))
        f = size * x @ [[1.5, 0.0, -1.5], [-1.0, 0.5, 1.0], [0.0, 0.8, 0.0]]
        made[name] = LabelledTable(x, (f + rng.gumbel(size=f.shape)).argmax(axis=1).astype(float))
    return made


@message
class Sums:
    """Rows of each class (K,), their sums (K, p), and all sums of squares (p,)."""

    n: Array
    total: Array
    squares: Array


@summed
def sum_by_class(site: Site[LabelledTable, None], *, classes: int) -> Sums:
    """Rows of each class, and their sums."""
    x, y = site.data.x, np.asarray(site.data.y, np.int64)
    hot = (y[:, None] == np.arange(classes)).astype(float)
    return Sums(hot.sum(axis=0), hot.T @ x, (x**2).sum(axis=0))


@dataclass(frozen=True, kw_only=True)
class NearestSettings(Settings):
    """How sharp probabilities are."""

    sharp: float = setting(1.0, "Factor of the log density.", "", within="(0, inf)")


@dataclass(frozen=True)
class Nearest(Fitted):
    """log p_k = c_k + xᵀβ_k, up to a constant."""

    intercept: Array
    coefficients: Array

    def arrays(self) -> dict[str, Array]:
        """Return the coefficients."""
        return {"intercept": self.intercept, "coefficients": self.coefficients}

    def meta(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild it."""
        return cls(arrays["intercept"], arrays["coefficients"])

    def predict(self, x: Array) -> Array:
        """Return the probability of each class (n, K)."""
        return softmax(self.intercept + x @ self.coefficients.T, axis=1)


def fit(fed: Federation, config: NearestSettings, task: Task) -> Nearest:
    """Fit the means."""
    s = fed.sum(sum_by_class, classes=len(task.levels))
    if not (s.n > 1).all():
        raise NothingToLearn("a class has no rows.")
    mean, n = s.total / s.n[:, None], s.n.sum()
    variance = (s.squares - (s.n[:, None] * mean**2).sum(axis=0)) / n + 1e-9
    scaled = mean / variance
    intercept = np.log(s.n / n) - config.sharp * 0.5 * (mean * scaled).sum(axis=1)
    return Nearest(intercept, config.sharp * scaled)


METHOD = Method(
    name="nearest", title="Means", tasks=("classification",), paper="", reveals="sums",
    settings=NearestSettings, fit=fit, model=Nearest, steps=(sum_by_class,),
    preprocess={"scale": "none", "impute": "median"}, outcomes=("category", "ordinal"),
    bounds=lambda config, task: {"classes": (len(task.levels),)},
)  # fmt: skip


@contextmanager
def installed() -> Iterator[Method]:
    """Have the method in the catalogue, beside those that are there."""
    known = registry.entry_points
    entry = SimpleNamespace(
        name="nearest", value="several:METHOD", module="several", dist=None, load=lambda: METHOD
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", lambda group: [*known(group=group), entry])
        registry.forget()
        yield METHOD
    registry.forget()


def patients(n: int = 300, seed: int = 0, sites: int = 3) -> pd.DataFrame:
    """Return a table with two covariates, a grade of three levels, and a site."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n)).round(3)
    score = np.stack([-1.2 * a, 0.3 * b, 1.0 * a + 0.5 * b], axis=1)
    grade = (score + rng.gumbel(size=(n, 3))).argmax(axis=1)
    names = np.array(["east", "north", "south", "west"])[:sites]
    site = names[rng.integers(0, sites, n)]
    return pd.DataFrame({"a": a, "b": b, "grade": np.array(LEVELS)[grade], "site": site})


def net_benefit(y: Array, said: Array, level: int, threshold: float) -> tuple[float, float]:
    """Return the net benefit of treating a class from a threshold on, and of treating all."""
    case, w = y == level, threshold / (1 - threshold)
    treated = said[:, level] >= threshold
    ours = (treated & case).mean() - w * (treated & ~case).mean()
    return float(ours), float(case.mean() - w * (~case).mean())


DICTIONARY = {
    "a": {"type": "number"},
    "b": {"type": "number"},
    "grade": {"type": "category", "levels": [*LEVELS]},
}

"""Tables with views, sites and fits of the variational autoencoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcohort.algorithms.autoencoders import MCVAE, VAE, LatentModel, VaeSettings
from fedcohort.arrays import Array
from fedcohort.data.tables import FeatureTable
from fedcohort.protocol import Federation, Method, Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

METHODS: Mapping[str, Method] = {"vae": VAE, "mcvae": MCVAE}
VIEWS = ("blood", "scan", "blood", "scan", "scan", "blood")
P, Q = len(VIEWS), 2

#: Settings that keep a fit short.
SMALL: Mapping[str, Any] = {"q": Q, "rounds": 3, "internal_epochs": 4, "learning_rate": 0.01}


def factors(n: int, seed: int = 0, noise: float = 0.4) -> tuple[Array, Array]:
    """Return standardised rows (n, P) that Q factors make, and their loadings (P, Q)."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(P, Q))
    x = rng.normal(size=(n, Q)) @ w.T + noise * rng.normal(size=(n, P))
    return (x - x.mean(axis=0)) / x.std(axis=0), w / x.std(axis=0)[:, None]


def holes(x: Array, share: float = 0.2, seed: int = 0) -> Array:
    """Return rows with entries missing at random; no row without any that is known."""
    gone = np.random.default_rng(seed).random(x.shape) < share
    gone[gone.all(axis=1), 0] = False
    return np.where(gone, np.nan, x)


def without(x: Array, view: str) -> Array:
    """Return rows without the entries of a view."""
    return np.where(np.array(VIEWS) == view, np.nan, x)


def split(x: Array, sites: int) -> dict[str, Array]:
    """Return the rows of each site: unequal parts, in turn."""
    at = np.minimum(np.arange(len(x)) % (sites + 1), sites - 1)
    return {f"site{s}": x[at == s] for s in range(sites)}


def task_of(seed: int = 1, min_cell: int = 5, views: Sequence[str] = VIEWS) -> Task:
    """Return the task of these columns."""
    features = tuple(f"c{j}" for j in range(len(views)))
    return Task(kind="latent", features=features, views=tuple(views), seed=seed, min_cell=min_cell)


def federation(parts: Mapping[str, Array], seed: int = 1, **options: Any) -> Federation:
    """Return sites in this process."""
    hosts = [Host(name, FeatureTable(np.array(x)), VAE.steps, seed) for name, x in parts.items()]
    return local(hosts, **options)


def config_of(method: str, **settings: Any) -> VaeSettings:
    """Return settings, short but for those given."""
    return METHODS[method].configure({**SMALL, **settings})


def fitted(
    method: str, parts: Mapping[str, Array], *, task: Task | None = None, **settings: Any
) -> LatentModel:
    """Return a fit."""
    task = task or task_of()
    fed = federation(parts, task.seed)
    model = METHODS[method].fit(fed, config_of(method, **settings), task)
    assert isinstance(model, LatentModel)
    return model

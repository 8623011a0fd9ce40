"""Fitted variational autoencoder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from fedcohort.arrays import Array
from fedcohort.models.mcvae import Mcvae
from fedcohort.models.network import network
from fedcohort.models.vae import LatentNet
from fedcohort.protocol import Fitted
from fedcohort.training.networks.collapse import caution


@dataclass(frozen=True, kw_only=True, eq=False)
class LatentModel(Fitted):
    """A variational autoencoder of rows x (n, p), whose missing entries are NaN.

    Attributes
    ----------
    features, views : name, and view, of each column of x, in order (p,).
    network, theta : spec, and θ (P,).
    dtype : number type of the network.
    passes : iterations of `impute`.
    rounds : rounds of the fit.
    kl : (q,), mean divergence of each latent dimension from the prior, in nats; None if it was not
        recorded.
    """

    features: tuple[str, ...]
    views: tuple[str, ...]
    network: str
    theta: Array
    dtype: str
    passes: int
    rounds: int
    kl: Array | None = None

    def transform(self, x: Array) -> Array:
        """Return the mean of z (n, q) given the known entries of each row of x (n, p).

        For a row without any it is 0, the prior's.
        """
        return self._of(x, lambda net, rows: net.latent(rows))

    def reconstruct(self, x: Array) -> Array:
        """Return E[x|z] (n, p) at that mean of z, also for missing entries, in the units of x.

        Of levels and binary columns it is their probability.
        """
        return self._of(x, lambda net, rows: net.decode(net.latent(rows)))

    def impute(self, x: Array) -> Array:
        """Return x (n, p) with missing entries filled, by `passes` of `LatentNet.impute`.

        Where the likelihoods are not all normal, these are values that a table can hold.
        """
        x = np.asarray(x, float)
        return np.where(
            np.isnan(x), self._of(x, lambda net, rows: net.impute(rows, self.passes)), x
        )

    def impute_drawn(self, x: Array, rng: np.random.Generator) -> Array:
        """Return x (n, p) with missing entries drawn given the known ones."""
        x, seed = np.asarray(x, float), int(rng.integers(2**31))
        passes = self.passes
        found = self._of(x, lambda net, rows: net.impute_drawn(rows, passes, seed))
        return np.where(np.isnan(x), found, x)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return n synthetic rows (n, p): z from the prior, and x from p(x|z)."""
        entries = json.loads(self.network)
        z = rng.standard_normal((n, entries["latent"]))
        if entries.get("heads"):
            seed = int(rng.integers(2**31))
            return self._of(z, lambda net, points: net.draw(points, seed))
        y = self._of(z, lambda net, points: net.decode(points))
        return y + rng.standard_normal(y.shape) * np.sqrt(self.variances)

    @property
    def variances(self) -> Array:
        """σ² (p,) of an entry given z, if all likelihoods are normal."""
        return self._of(np.zeros((0, 0)), lambda net, _: net.variance())

    def cautions(self) -> tuple[str, ...]:
        """Return cautions: several views were requested but there is only one; dimensions of z
        hold nothing.
        """
        several = json.loads(self.network)["kind"] == Mcvae.kind and len({*self.views}) == 1
        note = "the dictionary gives all columns one view: this is a plain vae"
        return (*(note,) * several, *(() if self.kl is None else caution(self.kl)))

    def arrays(self) -> dict[str, Array]:
        """Return θ, and the divergences if they were recorded."""
        return {"theta": self.theta} | ({} if self.kl is None else {"kl": self.kl})

    def meta(self) -> dict[str, Any]:
        """Return names, the network's spec, and the iterations of `impute`."""
        names = ("network", "dtype", "passes", "rounds")
        lists = {"features": list(self.features), "views": list(self.views)}
        return lists | {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        given: dict[str, Any] = {**arrays, **meta}
        for name in ("features", "views"):
            given[name] = tuple(given[name])
        return cls(**given)

    def _of(self, x: Array, of: Callable[[LatentNet, Tensor], Tensor]) -> Array:
        net = network(self.network, self.dtype)
        net.load(self.theta)
        rows = torch.from_numpy(np.array(x, float)).to(net.theta)
        found = net.compute(lambda module: of(cast("LatentNet", module), rows))
        return found.astype(np.float64)

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
from fedcohort.models.prior import drawn_from, gaussians, memberships
from fedcohort.models.vae import VaeNet
from fedcohort.models.variational import LatentNet
from fedcohort.protocol import Fitted, NotSupported
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
    prior : a mixture (C, 1 + 2q) of `models.prior`; None for that of the network.
    owners : the site of each component, or ("",) of a product.
    """

    features: tuple[str, ...]
    views: tuple[str, ...]
    network: str
    theta: Array
    dtype: str
    passes: int
    rounds: int
    kl: Array | None = None
    prior: Array | None = None
    owners: tuple[str, ...] = ()

    def transform(self, x: Array) -> Array:
        """Return the mean of z (n, q) given the known entries of each row of x (n, p).

        For a row without any it is the prior's.
        """
        return self._of(x, lambda net, rows: net.latent(rows))

    def mixture(self) -> Array | None:
        """Return the prior (C, 1 + 2q) of `models.prior`; None for N(0, I)."""
        if self.prior is None and json.loads(self.network).get("components"):
            found = self._of(np.zeros((0, 0)), lambda net, _: _packed(net))
            found[:, 0] /= found[:, 0].sum()
            return found
        return self.prior

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
        prior = self.mixture()
        z = rng.standard_normal((n, entries["latent"]))
        if prior is not None:
            z = drawn_from(prior, n, rng)
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
        """Return θ, and the divergences and the prior if there are some."""
        more = {"kl": self.kl, "prior": self.prior}
        return {"theta": self.theta} | {k: v for k, v in more.items() if v is not None}

    def meta(self) -> dict[str, Any]:
        """Return names, the network's spec, and the iterations of `impute`."""
        names = ("network", "dtype", "passes", "rounds")
        lists = {"features": list(self.features), "views": list(self.views)}
        lists |= {"owners": list(self.owners)} if self.owners else {}
        return lists | {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        given: dict[str, Any] = {**arrays, **meta}
        for name in ("features", "views", "owners"):
            given[name] = tuple(given.get(name, ()))
        return cls(**given)

    def _of(self, x: Array, of: Callable[[LatentNet, Tensor], Tensor]) -> Array:
        net = network(self.network, self.dtype)
        net.load(self.theta)
        rows = torch.from_numpy(np.array(x, float)).to(net.theta)

        def under(module: torch.nn.Module) -> Tensor:
            return cast("LatentNet", module).under(self.prior, lambda own: of(own, rows), rows)

        found = net.compute(under)
        return found.astype(np.float64)


def _packed(net: LatentNet) -> Tensor:
    """Return the prior that is learnt with a network, (C, 1 + 2q)."""
    mixture = cast("VaeNet", net).mixture
    assert mixture is not None
    log_weights, means, log_variances = mixture()
    return torch.cat([log_weights.exp()[:, None], means, log_variances], dim=1)


class VaeModel(LatentModel):
    """The same of `vae`, with clusters of its prior, and with a label."""

    def predict(self, x: Array) -> Array:
        """Return the number (n,) of the likeliest class of the label; without one, of the cluster.

        The label's own entries in x are not looked at.
        """
        shares = self.classes(x) if "label" in json.loads(self.network) else self.memberships(x)
        return shares.argmax(axis=1)

    def classes(self, x: Array) -> Array:
        """Return the probability of each class of the label (n, K), at the mean of z.

        Class 0 is the column's reference level, or 0; the others are in the order of `features`.

        Raises
        ------
        NotSupported : the fit has no label.
        """
        entries = json.loads(self.network)
        if "label" not in entries:
            raise NotSupported("this vae has no label; fit it with label: COLUMN.")
        kind, at, shift, scale = entries["heads"][entries["label"]][:4]
        rest = self.reconstruct(x)[:, at]
        rest = shift + scale * rest if kind == "bernoulli" else rest
        return np.column_stack([1.0 - rest.sum(axis=1), rest])

    def memberships(self, x: Array) -> Array:
        """Return the probability of each component of the prior (n, C), at the mean of z.

        Rows sum to 1. A normal prior has one component.
        """
        prior, z = self.mixture(), torch.from_numpy(self.transform(x))
        if prior is None:
            return np.ones((len(z), 1))
        found = memberships(gaussians(prior, z), z).numpy()
        return found / found.sum(axis=1, keepdims=True)

"""Fitted deep clustering: an autoencoder with centroids, and summaries of its clusters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.dec import DecNet
from fedcohort.models.latent import decoded, encoded, reconstructed
from fedcohort.models.network import FlatNet, network
from fedcohort.numerics.centroids import dropped_note
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True, kw_only=True, eq=False)
class DeepClusters(Fitted):
    """Clusters by Student's t about centroids in a latent space; numbered by size, from 0.

    Attributes
    ----------
    features : names of the columns of x, in order (p,).
    network, theta : spec, and θ (P,): the autoencoder's, then the centroids μ (k, d).
    means, variances : (k, d) of the latent points of each cluster's rows, in the fit.
    counts : (k,) rows of each cluster in the fit.
    binary : whether columns are zeros and ones.
    dtype : number type of the network.
    asked : number of clusters requested; empty or too small ones are missing.
    settled : whether phase 2 ended because labels settled.
    numbers : criterion of the number of clusters, a row per number; empty if it was given.
    user : the site of personal clusters; "" if they are for all.
    own : whether the clusters are the user's own; with a monitor, only if sites were found to
        differ.
    """

    features: tuple[str, ...]
    network: str
    theta: Array
    means: Array
    variances: Array
    counts: Array
    binary: bool
    dtype: str
    asked: int
    settled: bool
    numbers: tuple[Row, ...] = ()
    user: str = ""
    own: bool = False

    @property
    def centroids(self) -> Array:
        """μ (k, d), in the latent space."""
        return self.theta[-self.means.size :].reshape(self.means.shape)

    @property
    def dropped(self) -> int:
        """Number of requested clusters that are missing."""
        return self.asked - len(self.counts)

    def _net(self) -> FlatNet:
        net = network(self.network, self.dtype)
        net.load(self.theta)
        return net

    def predict(self, x: Array) -> Array:
        """Return the number of the likeliest cluster (n,), from 0, of each row of x (n, p)."""
        return self.memberships(x).argmax(axis=1)

    def memberships(self, x: Array) -> Array:
        """Return q (n, k) of each row of x (n, p); rows sum to 1."""
        net = self._net()
        z = torch.from_numpy(encoded(net, np.asarray(x, float)))
        log_q = net.compute(lambda module: cast("DecNet", module).log_assign(z.to(net.theta)))
        q = np.exp(log_q.astype(np.float64))
        return q / q.sum(axis=1, keepdims=True)

    def transform(self, x: Array) -> Array:
        """Return the latent point (n, d) of each row of x (n, p)."""
        return encoded(self._net(), np.asarray(x, float)).astype(np.float64)

    def reconstruct(self, x: Array) -> Array:
        """Return y (n, p) of each row of x (n, p), in the units of x.

        Phase 2 without γ does not train the decoder: in an untied network it is that of phase 1.
        """
        return reconstructed(self._net(), np.asarray(x, float)).astype(np.float64)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return n synthetic rows (n, p), with clusters by their shares; see `sample_of`."""
        shares = self.counts / self.counts.sum()
        return self.sample_of(rng.choice(len(shares), n, p=shares), rng)

    def sample_of(self, clusters: Array, rng: np.random.Generator) -> Array:
        """Return a synthetic row (n, p) for each given cluster (n,).

        A latent point is drawn from a normal with the mean and variances of the cluster's points,
        and decoded. Entries of binary columns are 1 with the decoded probability.
        """
        draws = rng.standard_normal((len(clusters), self.means.shape[1]))
        z = self.means[clusters] + draws * np.sqrt(self.variances[clusters])
        if json.loads(self.network)["unit_norm"]:
            z = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), np.finfo(float).tiny)
        y = decoded(self._net(), z).astype(np.float64)
        return (rng.random(y.shape) < y).astype(float) if self.binary else y

    def summary(self) -> list[Row]:
        """Return a row per cluster: its number, rows, and share of all rows."""
        total = self.counts.sum()
        return [
            {"cluster": j, "n": int(n), "share": float(n / total)}
            for j, n in enumerate(self.counts)
        ]

    def cautions(self) -> tuple[str, ...]:
        """Return cautions: missing clusters, and personal clusters that are those of all."""
        notes = [dropped_note(len(self.counts), self.asked)] if self.dropped else []
        if self.user and not self.own:
            notes.append("sites were not found to differ: the clusters are the common ones")
        return tuple(notes)

    def arrays(self) -> dict[str, Array]:
        """Return θ, and the clusters' means, variances and counts."""
        names = ("theta", "means", "variances", "counts")
        return {name: getattr(self, name) for name in names}

    def meta(self) -> dict[str, Any]:
        """Return names, the network's spec, and the course of the fit."""
        names = (
            "features", "network", "binary", "dtype", "asked", "settled", "numbers", "user", "own",
        )  # fmt: skip
        found = {name: getattr(self, name) for name in names}
        return found | {name: list(found[name]) for name in ("features", "numbers")}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        given: dict[str, Any] = {**arrays, **meta}
        for name in ("features", "numbers"):
            given[name] = tuple(given[name])
        return cls(**given)

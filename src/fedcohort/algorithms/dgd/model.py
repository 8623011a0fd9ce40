"""Fitted deep generative decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from fedcohort.algorithms.dgd.encoder import encoded, spec_of
from fedcohort.arrays import Array
from fedcohort.models.dgd import DgdNet
from fedcohort.models.network import FlatNet, network
from fedcohort.models.representations import Search, drawn, drawn_given, represented
from fedcohort.protocol import Fitted, Row

#: Points from which `impute_drawn` chooses a representation.
DRAWS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class DgdModel(Fitted):
    """A decoder with a mixture of representations, for rows x (n, p) with NaN where missing.

    Components are clusters, numbered by weight, from 0.

    Attributes
    ----------
    features : names of the columns of x, in order (p,).
    network, theta : spec, and θ (P,).
    dtype : number type of the network.
    starts, steps : of the search for a row's representation.
    dropped : number of components that the fit had and the model has not.
    rounds : rounds of the fit.
    encoder, weights : widths of the encoder's hidden layers, and its parameters; () and (0,) for
        none.
    """

    features: tuple[str, ...]
    network: str
    theta: Array
    dtype: str
    starts: int
    steps: int
    dropped: int
    rounds: int
    encoder: tuple[int, ...]
    weights: Array

    def transform(self, x: Array) -> Array:
        """Return the representation z (n, q) given the known entries of each row of x (n, p).

        For a row without any it is a maximum of the mixture.
        """
        return self._of(x, lambda net, rows: self._points(net, rows))

    def memberships(self, x: Array) -> Array:
        """Return p(k | z) (n, K) at the representation of each row of x (n, p)."""
        logs = self._of(x, lambda net, rows: net.log_components(self._points(net, rows)))
        odds = np.exp(logs - logs.max(axis=1, keepdims=True, initial=-np.inf))
        return odds / odds.sum(axis=1, keepdims=True)

    def predict(self, x: Array) -> Array:
        """Return the number of the likeliest component (n,), from 0, of each row of x (n, p)."""
        return self.memberships(x).argmax(axis=1)

    def reconstruct(self, x: Array) -> Array:
        """Return E[x | z] (n, p) at the representation, also for missing entries."""
        return self._of(x, lambda net, rows: net.entries.mean(net.decode(self._points(net, rows))))

    def impute(self, x: Array) -> Array:
        """Return x (n, p) with missing entries at E[x | z], z the representation of the row.

        Where columns have likelihoods, these are values that a table can hold.
        """

        def filled(net: DgdNet, rows: Tensor) -> Tensor:
            return net.entries.rounded(net.entries.mean(net.decode(self._points(net, rows))))

        return self._filled(np.asarray(x, float), filled)

    def impute_drawn(self, x: Array, rng: np.random.Generator) -> Array:
        """Return x (n, p) with missing entries drawn: z from p(z | known entries), x from p(x | z).

        z is drawn by `models.representations.drawn_given`.
        """
        seeds = rng.integers(2**31, size=2)

        def draw(net: DgdNet, rows: Tensor) -> Tensor:
            z = drawn_given(net, rows, self._points(net, rows), DRAWS, int(seeds[0]))
            return net.entries.sample(net.decode(z), int(seeds[1]))

        return self._filled(np.asarray(x, float), draw)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return n synthetic rows (n, p): z from the mixture, and x from p(x | z)."""
        first, second = (int(seed) for seed in rng.integers(2**31, size=2))
        return self._of(
            np.zeros((0, len(self.features))),
            lambda net, _: net.entries.sample(net.decode(drawn(net, n, first)), second),
        )

    def log_joint(self, x: Array) -> Array:
        """Return ln p(x, z) (n,) of rows x (n, p), of their known entries, at their z."""
        return self._of(x, lambda net, rows: net.log_joint(rows, self._points(net, rows)))

    @property
    def means(self) -> Array:
        """μ (K, q)."""
        return self._of(np.zeros((0, 0)), lambda net, _: net.means)

    @property
    def shares(self) -> Array:
        """π (K,), from the largest."""
        return self._of(np.zeros((0, 0)), lambda net, _: net.log_weights.exp())

    def summary(self) -> list[Row]:
        """Return a row per component: its number and its weight π."""
        return [{"cluster": k, "share": float(share)} for k, share in enumerate(self.shares)]

    def cautions(self) -> tuple[str, ...]:
        """Return a caution about components that were left out."""
        if not self.dropped:
            return ()
        one = self.dropped == 1
        return (
            f"{self.dropped} of {self.dropped + len(self.shares)} components had a weight of fewer "
            f"than min_cell rows, and {'was' if one else 'were'} left out",
        )

    def arrays(self) -> dict[str, Array]:
        """Return θ and the encoder's parameters."""
        return {"theta": self.theta, "weights": self.weights}

    def meta(self) -> dict[str, Any]:
        """Return names, specs and the search."""
        names = ("network", "dtype", "starts", "steps", "dropped", "rounds")
        lists = {"features": list(self.features), "encoder": list(self.encoder)}
        return lists | {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        given: dict[str, Any] = {**arrays, **meta}
        for name in ("features", "encoder"):
            given[name] = tuple(given[name])
        return cls(**given)

    def _points(self, net: DgdNet, rows: Tensor) -> Tensor:
        """Return the representations z (n, q) of rows x (n, p)."""
        start = None
        if self.encoder:
            spec = spec_of(len(self.features), net.net.latent, self.encoder)
            start = encoded(spec, self.weights, self.dtype, rows)
        return represented(net, rows, Search(self.starts, self.steps), start)[0]

    def _filled(self, x: Array, of: Callable[[DgdNet, Tensor], Tensor]) -> Array:
        """Return x (n, p) with missing entries as in `of` of the rows that have such."""
        gaps, found = np.isnan(x).any(axis=1), x.copy()
        if gaps.any():
            found[gaps] = np.where(np.isnan(x[gaps]), self._of(x[gaps], of), x[gaps])
        return found

    def _of(self, x: Array, of: Callable[[DgdNet, Tensor], Tensor]) -> Array:
        net = self._net()
        rows = torch.from_numpy(np.array(x, float)).to(net.theta)
        found = net.compute(lambda module: of(cast("DgdNet", module), rows))
        return found.astype(np.float64)

    def _net(self) -> FlatNet:
        net = network(self.network, self.dtype)
        net.load(self.theta)
        return net
